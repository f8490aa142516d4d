"""Types of the compiled kernels; the C++ headers document them."""

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int32]
_Offsets = NDArray[np.int64]
_Mask = NDArray[np.uint8]

shared_block: int

class Batch:
    def __init__(
        self,
        unary: _Floats,
        edges: _Ints,
        tables: _Floats | None,
        site_offsets: _Offsets,
        edge_offsets: _Offsets,
        given: _Ints | None,
        /,
    ) -> None: ...

class SparseRows:
    def __init__(
        self,
        starts: _Offsets,
        indices: _Ints,
        floats: NDArray[np.float32] | None,
        doubles: _Floats | None,
        n_columns: int,
        /,
    ) -> None: ...

def sparse_product(
    rows: SparseRows, first: _Offsets, last: _Offsets, weights: _Floats, out: _Floats, n_threads: int, /
) -> None: ...
def sparse_pullback(rows: SparseRows, first: _Offsets, last: _Offsets, values: _Floats, out: _Floats, /) -> None: ...
def look_up(names: list[str], vocabulary: dict[str, int], columns: _Ints, /) -> None: ...
def sparse_number(rows: SparseRows, first: _Offsets, last: _Offsets, numbers: _Ints, columns: _Ints, /) -> int: ...
def gumbel(
    seed: int,
    streams: NDArray[np.uint64],
    site_offsets: _Offsets,
    first_draw: int,
    out: _Floats,
    n_threads: int,
    /,
) -> None: ...
def score(batch: Batch, labels: _Ints, values: _Floats, /) -> None: ...
def indicators(batch: Batch, labels: _Ints, weights: _Floats, unary: _Floats, tables: _Floats, /) -> None: ...
def are_at_most(values: _Floats | NDArray[np.float32], largest: float, /) -> bool: ...
def copy_edges(edges: _Ints | NDArray[np.int64], n_sites: int, out: _Ints, /) -> bool: ...
def are_labels(labels: _Ints, low: int, n_labels: int, /) -> bool: ...
def are_supermodular(tables: _Floats, /) -> bool: ...
def is_supermodular(batch: Batch, /) -> bool: ...
def are_weights(weights: _Floats, values: _Floats, /) -> bool: ...

class GraphPins: ...
class TreePins: ...
class AssignmentPins: ...
class SearchPins: ...

class FixedCuts:
    def __init__(self, batch: Batch, n_threads: int, /) -> None: ...
    def pin(self, site: int, values: _Floats, n_threads: int, /) -> None: ...
    def branch(self, parents: _Offsets, labels: _Ints, n_threads: int, /) -> None: ...

def graph_argmax(batch: Batch, labels: _Ints, n_threads: int, /) -> None: ...
def graph_maximise(batch: Batch, labels: _Ints, values: _Floats, n_threads: int, /) -> None: ...
def graph_pin(
    batch: Batch, mask: _Mask | None, labels: _Ints, values: _Floats, keep: bool, n_threads: int, /
) -> GraphPins | None: ...
def graph_moments(
    batch: Batch, pins: GraphPins, weights: _Floats, unary: _Floats, tables: _Floats, n_threads: int, /
) -> None: ...
def tree_maximise(batch: Batch, labels: _Ints, values: _Floats, n_threads: int, /) -> None: ...
def tree_pin(
    batch: Batch, mask: _Mask | None, labels: _Ints, values: _Floats, keep: bool, n_threads: int, /
) -> TreePins | None: ...
def tree_moments(
    batch: Batch, pins: TreePins, weights: _Floats, unary: _Floats, tables: _Floats, n_threads: int, /
) -> None: ...
def search_maximise(batch: Batch, labels: _Ints, values: _Floats, n_threads: int, effort: int, /) -> None: ...
def search_bound(batch: Batch, values: _Floats, bounds: _Floats, n_threads: int, /) -> None: ...
def search_pin(
    batch: Batch, mask: _Mask | None, labels: _Ints, values: _Floats, keep: bool, n_threads: int, effort: int, /
) -> SearchPins | None: ...
def search_moments(
    batch: Batch, pins: SearchPins, weights: _Floats, unary: _Floats, tables: _Floats, n_threads: int, /
) -> None: ...
def tree_sum(
    batch: Batch, weights: _Floats, values: _Floats, unary: _Floats, tables: _Floats, n_threads: int, /
) -> None: ...
def tree_pinned_sums(batch: Batch, values: _Floats, n_threads: int, /) -> None: ...
def tree_pinned_sums_moments(
    batch: Batch, weights: _Floats, unary: _Floats, tables: _Floats, n_threads: int, /
) -> None: ...
def tree_best(batch: Batch, labels: _Ints, values: _Floats, n_threads: int, /) -> None: ...
def tree_sample(batch: Batch, seed: int, streams: NDArray[np.uint64], labels: _Ints, n_threads: int, /) -> None: ...
def tree_entropy(batch: Batch, values: _Floats, n_threads: int, /) -> None: ...
def tree_spans(
    batch: Batch,
    span_offsets: _Offsets,
    offsets: _Offsets,
    sites: _Ints,
    labels: _Ints,
    values: _Floats,
    n_threads: int,
    /,
) -> None: ...
def elimination_sum(
    batch: Batch,
    weights: _Floats,
    values: _Floats,
    unary: _Floats,
    tables: _Floats,
    max_entries: int,
    n_threads: int,
    /,
) -> None: ...
def elimination_sample(
    batch: Batch, uniform: _Floats, values: _Floats, labels: _Ints, max_entries: int, n_threads: int, /
) -> None: ...
def elimination_cut(batch: Batch, place: _Ints, max_width: int, /) -> float: ...
def gibbs(
    batch: Batch,
    seed: int,
    streams: NDArray[np.uint64],
    labels: _Ints,
    probabilities: _Floats,
    shares: _Floats,
    first_chain: int,
    n_burn: int,
    n_kept: int,
    n_threads: int,
    /,
) -> None: ...
def gibbs_from_the_past(
    batch: Batch,
    seed: int,
    streams: NDArray[np.uint64],
    labels: _Ints,
    have_met: _Mask,
    first_chain: int,
    sweeps_a_block: int,
    n_threads: int,
    /,
) -> None: ...
def swaps(
    batch: Batch,
    seed: int,
    streams: NDArray[np.uint64],
    labels: _Ints,
    probabilities: _Floats,
    shares: _Floats,
    first_chain: int,
    n_burn: int,
    n_kept: int,
    n_threads: int,
    /,
) -> None: ...
def assignment_maximise(batch: Batch, labels: _Ints, values: _Floats, n_threads: int, /) -> None: ...
def assignment_pin(
    batch: Batch, mask: _Mask | None, labels: _Ints, values: _Floats, keep: bool, n_threads: int, /
) -> AssignmentPins | None: ...
def assignment_moments(
    batch: Batch, pins: AssignmentPins, weights: _Floats, unary: _Floats, tables: _Floats, n_threads: int, /
) -> None: ...
