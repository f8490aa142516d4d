"""Edges as arrays of integers of any kind, and what examples of one size share."""

import re

import numpy as np
import pytest

from perturbmap import Potentials, potts


@pytest.mark.parametrize(
    "edges",
    [
        np.array([[0, 1], [2, 1]], dtype=np.int64),
        np.array([[0, 1], [2, 1]], dtype=np.uint8),
        np.array([[0, 1], [2, 1]], dtype=np.int32, order="F"),
        np.array([[0, 9, 1], [2, 9, 1]], dtype=np.int64)[:, ::2],
    ],
    ids=["int64", "uint8", "by columns", "strided"],
)
def test_edges_are_copied_from_integers_of_any_kind(edges: np.ndarray) -> None:
    """Numbers of other sizes and orders in memory make the same edges, which later changes do not reach."""
    f = Potentials(np.zeros((3, 2)), potts(1.0), edges)
    edges[:] = 0
    assert f.edges.tolist() == [[0, 1], [2, 1]]
    assert f.edges.dtype == np.int32


@pytest.mark.parametrize("number", [-1, 3, 2**31, 2**32 + 1, -(2**32) + 1])
def test_a_number_is_no_site_because_its_last_bits_are(number: int) -> None:
    """Site numbers are checked before they become 32 bits wide."""
    with pytest.raises(ValueError, match=re.escape(f"must join sites 0..2, but edge 1 is [0, {number}]")):
        Potentials(np.zeros((3, 2)), potts(1.0), np.array([[0, 1], [0, number]]))


def test_offsets_that_examples_share_cannot_be_written() -> None:
    """Examples of one size have the same offsets in memory: nobody can make them writable."""
    f = Potentials(np.zeros((3, 2)), potts(1.0))
    for offsets in (f.site_offsets, f.edge_offsets):
        with pytest.raises(ValueError, match="WRITEABLE"):
            offsets.flags.writeable = True
