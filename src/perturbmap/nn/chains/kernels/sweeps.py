"""The two sweeps as Triton kernels: one program for each row; see `plain`, whose functions these are.

A program goes along its chain with the table in registers; nothing is shared between programs, and every sum has one
order: the same bits in every run. The formulas are those of `perturbmap.nn.chains.sweep`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from perturbmap.nn.chains.kernels.launch import fixed, launch
from perturbmap.nn.chains.sweep import Sweep, Weights

#: The table of so many labels fits into the registers of a program.
MOST_LABELS = 128


@triton.jit
def _row(lengths, n, n_sites, n_lengths, first_backwards, HAS_LENGTHS: tl.constexpr):
    """Of a program's row: its example, whether it runs backwards, its length, its first site and its step."""
    row = tl.program_id(0)
    example, is_back = row % n, row >= first_backwards
    length = tl.zeros((), tl.int32) + n_sites
    if HAS_LENGTHS:
        length = tl.load(lengths + example % n_lengths)
    return row, example, is_back, length, tl.where(is_back, length - 1, 0), tl.where(is_back, -1, 1)


@triton.jit
def _table(label, is_back, n_labels, row_stride, column_stride):
    """Where the table's entries (label before, label after) are, and which of them there are."""
    before = tl.where(is_back, column_stride, row_stride)
    after = tl.where(is_back, row_stride, column_stride)
    is_pair = (label[:, None] < n_labels) & (label[None, :] < n_labels)
    return label[:, None] * before + label[None, :] * after, is_pair


@triton.jit
def _potentials(x, given, at, label, n_labels, HAS_GIVEN: tl.constexpr):
    """The potentials of a site's labels; -inf where a label is not there, or is ruled out by the given one."""
    a = tl.load(x + at * n_labels + label, mask=label < n_labels, other=-float("inf"))
    if HAS_GIVEN:
        y = tl.load(given + at)
        a = tl.where((y < 0) | (label == y), a, -float("inf"))
    return a


@triton.jit
def _label(labels, at, length, n_labels):
    """The labels of sites, or the nearest that there are: whether all are labels is said elsewhere."""
    return tl.minimum(tl.maximum(tl.load(labels + at, mask=at < length, other=0).to(tl.int32), 0), n_labels - 1)


@triton.jit
def _inside(at, n_sites):
    """The nearest site that there is: what is read ahead at the end of a chain is not used."""
    return tl.minimum(tl.maximum(at, 0), n_sites - 1)


@triton.jit
def _finite(x):
    return tl.where(x == -float("inf"), 0.0, x)


@triton.jit
def _positive(x):
    return tl.where(x == 0.0, 1.0, x)


@triton.jit
def _score(
    x, tables, rims, labels, length, n_labels, row_stride, column_stride,
    PER_EDGE: tl.constexpr, HAS_RIMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The score of a chain's labels, so many sites at once, in float64."""
    score = tl.full((), 0.0, tl.float64)
    for first in range(0, length, BLOCK):
        at = first + tl.arange(0, BLOCK)
        y, after = _label(labels, at, length, n_labels), _label(labels, at + 1, length, n_labels)
        value = tl.load(x + at * n_labels + y, mask=at < length, other=0.0).to(tl.float64)
        place = y * row_stride + after * column_stride
        if PER_EDGE:
            place += at * n_labels * n_labels
        value += tl.load(tables + place, mask=at < length - 1, other=0.0).to(tl.float64)
        if HAS_RIMS:
            value += tl.load(rims + y, mask=at == 0, other=0.0).to(tl.float64)
            value += tl.load(rims + n_labels + y, mask=at == length - 1, other=0.0).to(tl.float64)
        score += tl.sum(value, 0)
    return score


@fixed(8)
def _messages(
    x, tables, rims, lengths, given, out, totals, excess,
    n, n_sites, n_labels, n_tables, n_lengths, row_stride, column_stride, first_backwards,
    WIDTH: tl.constexpr, SUMS: tl.constexpr, PER_EDGE: tl.constexpr, HAS_LENGTHS: tl.constexpr,
    HAS_RIMS: tl.constexpr, HAS_GIVEN: tl.constexpr, HAS_LABELS: tl.constexpr, KEEP: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row, example, is_back, length, start, step = _row(lengths, n, n_sites, n_lengths, first_backwards, HAS_LENGTHS)
    x += example.to(tl.int64) * n_sites * n_labels
    given += example.to(tl.int64) * n_sites if HAS_GIVEN or HAS_LABELS else 0
    out += row.to(tl.int64) * n_sites * n_labels if KEEP else 0
    tables += (example % n_tables).to(tl.int64) * (n_sites - 1) * n_labels * n_labels if PER_EDGE else 0
    label = tl.arange(0, WIDTH)
    is_label = label < n_labels
    place, is_pair = _table(label, is_back, n_labels, row_stride, column_stride)
    if not PER_EDGE:
        table = tl.load(tables + place, mask=is_pair, other=-float("inf"))
    m = tl.zeros((WIDTH,), x.dtype.element_ty)
    if HAS_RIMS:
        m += tl.load(rims + tl.where(is_back, n_labels, 0) + label, mask=is_label, other=0.0)
    total = tl.full((), 0.0, tl.float64)
    here = _potentials(x, given, _inside(start, n_sites), label, n_labels, HAS_GIVEN)
    for t in range(0, length - 1):
        at = start + t * step
        coming = _potentials(x, given, at + step, label, n_labels, HAS_GIVEN)  # on its way while we work
        if PER_EDGE:
            edge = (at - is_back.to(tl.int32)).to(tl.int64) * n_labels * n_labels
            table = tl.load(tables + edge + place, mask=is_pair, other=-float("inf"))
        a = m + here
        if KEEP:
            tl.store(out + at * n_labels + label, a, mask=is_label)
        pairs = a[:, None] + table
        m = tl.max(pairs, 0)
        if SUMS:
            high = _finite(m)
            m = high + tl.log(tl.sum(tl.exp(pairs - high[None, :]), 0))
        top = _finite(tl.max(m, 0))
        m -= top
        total += top.to(tl.float64)
        here = coming
    if length > 0:
        a = m + here
        at = start + (length - 1) * step
        if HAS_RIMS:
            a += tl.load(rims + tl.where(is_back, 0, n_labels) + label, mask=is_label, other=0.0)
        if KEEP:
            tl.store(out + at * n_labels + label, a, mask=is_label)
        high = tl.max(a, 0)
        total += high.to(tl.float64)
        if SUMS:
            total += tl.log(tl.sum(tl.exp(a - _finite(high)), 0)).to(tl.float64)
    tl.store(totals + row, total)
    if HAS_LABELS:
        score = _score(
            x, tables, rims, given, length, n_labels, row_stride, column_stride, PER_EDGE, HAS_RIMS, BLOCK
        )  # fmt: skip
        tl.store(excess + row, total - score)


@fixed(7)
def _flow(
    a, tables, lengths, v, w, labels, crossing,
    n, n_sites, n_labels, n_tables, n_lengths, row_stride, column_stride, first_backwards, v_stride, divisor,
    WIDTH: tl.constexpr, SUMS: tl.constexpr, PER_EDGE: tl.constexpr, HAS_LENGTHS: tl.constexpr,
    HAS_V: tl.constexpr, HAS_W: tl.constexpr, HAS_LABELS: tl.constexpr,
):  # fmt: skip
    row, example, is_back, length, start, step = _row(lengths, n, n_sites, n_lengths, first_backwards, HAS_LENGTHS)
    a += row.to(tl.int64) * n_sites * n_labels
    w += example.to(tl.int64) * n_sites * n_labels if HAS_W else 0
    labels += example.to(tl.int64) * n_sites if HAS_LABELS else 0
    tables += (example % n_tables).to(tl.int64) * (n_sites - 1) * n_labels * n_labels if PER_EDGE else 0
    crossing += row.to(tl.int64) * n_labels * n_labels * ((n_sites - 1) if PER_EDGE else 1)
    label = tl.arange(0, WIDTH)
    is_label = label < n_labels
    place, is_pair = _table(label, is_back, n_labels, row_stride, column_stride)
    # The table of what crosses is laid out with its first label first, whatever the strides of the potentials are.
    crossed, _ = _table(label, is_back, n_labels, n_labels, 1)
    scale = tl.full((), 1.0, a.dtype.element_ty)
    if HAS_V:
        scale = tl.load(v + example * v_stride).to(a.dtype.element_ty)
    scale /= divisor
    if not PER_EDGE:
        table = tl.load(tables + place, mask=is_pair, other=-float("inf"))
        sums = tl.zeros((WIDTH, WIDTH), a.dtype.element_ty)
    flow = tl.zeros((WIDTH,), a.dtype.element_ty)
    y = tl.zeros((), tl.int32)
    at = start + (length - 1) * step
    if length > 0:
        shown = flow
        if HAS_W:
            flow = scale * tl.load(w + at * n_labels + label, mask=is_label, other=0.0)
            shown = tl.where(is_back, 0.0, flow)
        else:
            here = tl.load(a + at * n_labels + label, mask=is_label, other=-float("inf"))
            if SUMS:
                shares = tl.exp(here - _finite(tl.max(here, 0)))
                flow = scale * shares / _positive(tl.sum(shares, 0))
            else:
                flow = tl.where(label == tl.argmax(here, 0), scale, 0.0)
            shown = flow
            if HAS_LABELS:
                y = _label(labels, at, length, n_labels)
                shown = tl.where(label == y, flow - scale, flow)
        tl.debug_barrier()  # what is shown takes the place of a: all have read before anybody writes
        tl.store(a + at * n_labels + label, shown, mask=is_label)
    at -= step
    here = tl.load(a + _inside(at, n_sites) * n_labels + label, mask=is_label, other=0.0)
    for _ in range(0, length - 1):
        coming = tl.load(a + _inside(at - step, n_sites) * n_labels + label, mask=is_label, other=0.0)
        edge = (at - is_back.to(tl.int32)).to(tl.int64) * n_labels * n_labels
        if PER_EDGE:
            table = tl.load(tables + edge + place, mask=is_pair, other=-float("inf"))
        pairs = here[:, None] + table
        if SUMS:
            shares = tl.exp(pairs - _finite(tl.max(pairs, 0))[None, :])
            joint = shares * (flow / _positive(tl.sum(shares, 0)))[None, :]
        else:
            joint = tl.where(label[:, None] == tl.argmax(pairs, 0)[None, :], flow[None, :], 0.0)
        flow = tl.sum(joint, 1)
        shown = flow
        if HAS_W:
            flow += scale * tl.load(w + at * n_labels + label, mask=is_label, other=0.0)
            shown = tl.where(is_back, shown, flow)
        if HAS_LABELS:
            after = y
            y = _label(labels, at, length, n_labels)
            shown = tl.where(label == y, flow - scale, flow)
            joint = tl.where((label[:, None] == y) & (label[None, :] == after), joint - scale, joint)
        if PER_EDGE:
            tl.store(crossing + edge + crossed, joint, mask=is_pair)
        else:
            sums += joint
        tl.debug_barrier()
        tl.store(a + at * n_labels + label, shown, mask=is_label)
        here = coming
        at -= step
    if not PER_EDGE:
        tl.store(crossing + crossed, sums, mask=is_pair)


def messages(sweep: Sweep, *, keep: bool, labels: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """See `plain.messages`; without ``keep``, there are none."""
    x, known = sweep.x, sweep.given if labels is None else labels
    out = _clear(x, (sweep.n_rows if keep else 0, *x.shape[1:]), sweep.lengths)
    totals = x.new_empty(sweep.n_rows, dtype=torch.float64)
    excess = totals if labels is None else torch.empty_like(totals)
    constants = {
        **_constants(sweep),
        "HAS_RIMS": sweep.rims is not None,
        "HAS_GIVEN": sweep.given is not None,
        "HAS_LABELS": labels is not None,
        "KEEP": keep,
        "BLOCK": 128,
    }
    pointers = (x, sweep.tables, sweep.rims, sweep.lengths, known, out, totals, excess)
    launch(_messages, (sweep.n_rows,), pointers, _numbers(sweep), constants, _warps(sweep))
    return out, totals, excess


def flow(
    sweep: Sweep, a: Tensor, v: Weights, w: Tensor | None = None, labels: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """What `plain.flow` does, in one kernel."""
    n_sites, k = a.shape[1:]
    is_shared = sweep.tables.dim() == 2
    shape = (a.shape[0], k, k) if is_shared else (a.shape[0], n_sites - 1, k, k)
    crossing = _clear(a, shape, None if is_shared else sweep.lengths)
    constants = {
        **_constants(sweep),
        "HAS_V": v.each is not None,
        "HAS_W": w is not None,
        "HAS_LABELS": labels is not None,
    }
    stride = 0 if v.each is None or v.each.dim() == 0 else v.each.stride(0)
    pointers = (a, sweep.tables, sweep.lengths, v.each, w, labels, crossing)
    launch(_flow, (sweep.n_rows,), pointers, (*_numbers(sweep), stride, v.divisor), constants, _warps(sweep))
    return a, crossing


def _clear(like: Tensor, shape: tuple[int, ...], lengths: Tensor | None) -> Tensor:
    """Memory for results; zeros where some of it will not be written to."""
    return like.new_empty(shape) if lengths is None else like.new_zeros(shape)


def _numbers(sweep: Sweep) -> tuple[int, ...]:
    tables, lengths = sweep.tables, sweep.lengths
    n_lengths = 1 if lengths is None else lengths.shape[0]
    return (*sweep.x.shape, tables.shape[0], n_lengths, tables.stride(-2), tables.stride(-1), sweep.first_backwards)


def _constants(sweep: Sweep) -> dict[str, int]:
    return {
        "WIDTH": max(2, triton.next_power_of_2(sweep.x.shape[2])),
        "SUMS": sweep.sums,
        "PER_EDGE": sweep.tables.dim() > 2,
        "HAS_LENGTHS": sweep.lengths is not None,
    }


def _warps(sweep: Sweep) -> int:
    return 4 if sweep.x.shape[2] <= 16 else 8
