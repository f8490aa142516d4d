"""Nothing that reaches the compiled core can make it read or write where it must not, or end the process."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from perturbmap import BinaryGraph, Chain, Matching, Potentials, Tree, _core, grid_edges, potts
from perturbmap.potentials import Layout
from perturbmap.structures.base import InfeasibleError, Structure


def run(script: str, **options: Any) -> str:
    """What a script of its own prints; it must end well."""
    command = [sys.executable, "-c", script]
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command, capture_output=True, text=True, timeout=120, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of memory are those of Linux")
def test_threads_that_cannot_be_started_are_done_without() -> None:
    """Four hundred stacks do not fit: the threads there are do the work, with the same result.

    Stacks are so large that what is left, when the next one does not fit, is plenty for the threads there are. With
    stacks of megabytes nothing may be left, and the C library ends the process where a thread has no memory to throw.
    """
    import resource

    script = """
import resource
import numpy as np
import perturbmap as pm

rng = np.random.default_rng(0)
f = pm.Potentials(rng.normal(size=(60000, 200, 2)), pm.potts(1.0))
alone = pm.Chain(1).maximise(f)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 11 * 2**28,) * 2)
labels, values = pm.Chain(400).maximise(f)
print(np.array_equal(labels, alone[0]) and np.array_equal(values, alone[1]))
"""
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    limits = partial(resource.setrlimit, resource.RLIMIT_STACK, (2**30, hard))  # the stacks of threads are as large
    assert run(script, preexec_fn=limits) == "True\n"


def test_edges_given_labels_and_offsets_belong_to_the_library() -> None:
    """What the caller does with its arrays afterwards changes nothing."""
    edges = np.ascontiguousarray(grid_edges(4, 4))
    f = Potentials(np.random.default_rng(0).normal(size=(16, 2)), potts(1.0), edges)
    before = BinaryGraph().maximise(f)
    edges[:] = 2**30
    after = BinaryGraph().maximise(f)
    assert np.array_equal(before[0], after[0])
    assert before[1] == after[1]

    chain = Potentials(np.random.default_rng(0).normal(size=(3, 2)), potts(1.0))
    given = np.array([1, -1, -1], dtype=np.int32)
    sums = Chain().pinned_sums(chain, given=given)
    weights = np.where(np.isfinite(sums.values), 1.0, 0.0)
    moments = sums.moments(weights).unary
    given[:] = 7
    assert np.array_equal(sums.moments(weights).unary, moments)


def forged(edges: object, site_offsets: object = (0, 2, 4), edge_offsets: object = (0, 1, 2)) -> Potentials:
    """Two examples of two sites, as a forged file might have them: nothing is checked on the way."""
    layout = Layout(
        np.array(site_offsets, dtype=np.int64),
        np.array(edges, dtype=np.int32),
        np.array(edge_offsets, dtype=np.int64),
        np.arange(2, dtype=np.uint64),
    )
    return Potentials.trusted(layout, np.zeros((4, 2)), potts(1.0))


@pytest.mark.parametrize("structure", [Tree(), BinaryGraph()], ids=repr)
@pytest.mark.parametrize(
    "f",
    [
        pytest.param(lambda: forged([[0, 1], [2, 4]]), id="beyond the last site"),
        pytest.param(lambda: forged([[0, 1], [2, 2**31 - 1]]), id="far beyond"),
        pytest.param(lambda: forged([[-1, 1], [2, 3]]), id="negative"),
        pytest.param(lambda: forged([[0, 2], [2, 3]]), id="in another example"),
        pytest.param(lambda: forged([[0, 0], [2, 3]]), id="a site with itself"),
        pytest.param(lambda: forged([[0, 1], [2, 3]], site_offsets=(0, 5, 4)), id="sites descend"),
        pytest.param(lambda: forged([[0, 1], [2, 3]], site_offsets=(-1, 2, 4)), id="sites begin before zero"),
        pytest.param(lambda: forged([[0, 1], [2, 3]], edge_offsets=(0, 9, 2)), id="edges descend"),
        pytest.param(lambda: forged([[0, 1], [2, 3]], edge_offsets=(1, 1, 2)), id="edges begin late"),
    ],
)
def test_the_core_checks_the_ranges_of_what_it_reads(f: Callable[[], Potentials], structure: Structure) -> None:
    """Edges and offsets from anywhere: a ValueError, not a crash."""
    with pytest.raises(ValueError, match=r"offsets must begin at zero|does not join two different sites"):
        structure.maximise(f())
    with pytest.raises(ValueError, match=r"offsets must begin at zero|does not join two different sites"):
        f().score([0, 0, 0, 0])


def test_the_core_checks_given_labels_and_offsets_of_noise() -> None:
    f = Potentials(np.zeros((3, 2)), potts(1.0))
    with pytest.raises(ValueError, match="given label"):
        f.to_core(np.array([0, 2, -1], dtype=np.int32))
    with pytest.raises(ValueError, match="given label"):
        f.to_core(np.array([0, -2, -1], dtype=np.int32))
    with pytest.raises(ValueError, match="offsets must begin at zero"):
        _core.gumbel(0, np.zeros(1, np.uint64), np.array([-5, 3]), 0, np.zeros((1, 3, 2)), 1)


def test_the_core_checks_the_shapes_of_what_it_reads_and_writes() -> None:
    """Tables for all edges or one that they share; a row for each copy, on whatever axes the copies are."""
    edges, offsets = np.array([[0, 1]], dtype=np.int32), (np.array([0, 3]), np.array([0, 1]))
    unary = np.zeros((2, 4, 3, 2))
    for tables in (None, np.zeros((2, 2, 2)), np.zeros((3, 3)), np.zeros(4)):
        with pytest.raises(ValueError, match=r"tables? must have shape|edges need tables"):
            _core.Batch(unary, edges, tables, *offsets, None)
    with pytest.raises(ValueError, match="two axes"):
        _core.Batch(np.zeros(6), edges, np.eye(2), *offsets, None)
    batch = _core.Batch(unary, edges, np.eye(2), *offsets, None)
    for fitting in ((2, 4, 3), (8, 3)):
        _core.graph_argmax(batch, np.empty(fitting, dtype=np.int32), 1)
    for shape in ((3,), (2, 3), (8, 2), (4, 2, 6), ()):
        labels = np.empty(shape, dtype=np.int32)
        with pytest.raises(ValueError, match="labels has the wrong shape"):
            _core.graph_argmax(batch, labels, 1)
        with pytest.raises(ValueError, match="labels has the wrong shape"):
            _core.graph_maximise(batch, labels, np.empty(8), 1)
        with pytest.raises(ValueError, match="values has the wrong shape"):
            _core.graph_maximise(batch, np.empty((8, 3), dtype=np.int32), np.empty(shape), 1)


def test_labels_without_their_score_are_the_same(rng: np.random.Generator) -> None:
    """Of one example and of copies on two axes, with and without given labels."""
    f = Potentials(rng.normal(size=(30, 2)), potts(0.7), rng.permutation(30).reshape(-1, 2))
    for g in (f, f.with_unary(rng.normal(size=(2, 3, 30, 2)))):
        for given in (None, np.where(np.arange(30) < 5, 1, -1)):
            labels = BinaryGraph().argmax(g, given)
            np.testing.assert_array_equal(labels, BinaryGraph().maximise(g, given)[0])
            assert labels.shape == g.unary.shape[:-1]


@pytest.mark.parametrize("structure", [Chain(), Tree(), BinaryGraph(), Matching()], ids=repr)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_neither_hang_nor_crash_the_kernels(structure: Structure, bad: float) -> None:
    """Nothing lets them in; but the caller's own array may be changed after the check."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        unary = rng.normal(size=(9, 9 if isinstance(structure, Matching) else 2))
        if isinstance(structure, Matching):
            f = Potentials(unary)
        else:
            f = Potentials(unary, potts(1.0), grid_edges(3, 3) if isinstance(structure, BinaryGraph) else None)
        unary[rng.random(unary.shape) < rng.random()] = bad
        unary[0, 0] = bad
        try:
            structure.maximise(f)
        except InfeasibleError:
            assert bad == -np.inf  # forbids labels, of which none may be left
            continue
        pinned = structure.pinned(f)
        pinned.moments(np.where(np.isfinite(pinned.values), 1.0, 0.0))
