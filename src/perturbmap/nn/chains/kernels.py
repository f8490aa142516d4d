"""The two sweeps and the noise as Triton kernels: one program for each row.

A program goes along its chain with the table in registers; nothing is shared between programs, and every sum has one
order: the same bits in every run. The formulas are those of `perturbmap.nn.chains.sweep`.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from perturbmap.nn.chains.sweep import Key, Sweep

#: The table of so many labels fits into the registers of a program.
MOST_LABELS = 128


@triton.jit
def _potentials(x, given, at, label, n_labels, HAS_GIVEN: tl.constexpr):
    """The potentials of a site's labels; -inf where a label is not there, or is ruled out by the given one."""
    a = tl.load(x + at * n_labels + label, mask=label < n_labels, other=-float("inf"))
    if HAS_GIVEN:
        y = tl.load(given + at)
        a = tl.where((y < 0) | (label == y), a, -float("inf"))
    return a


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
def _messages(
    x, tables, lengths, given, out, totals,
    n, n_sites, n_labels, n_tables, n_lengths, n_given, row_stride, column_stride, first_backwards,
    WIDTH: tl.constexpr, SUMS: tl.constexpr, HAS_GIVEN: tl.constexpr, PER_EDGE: tl.constexpr, STORE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    example, is_back = row % n, row >= first_backwards
    length = tl.load(lengths + example % n_lengths)
    # Site t of the sweep is start + t * step of the chain; the edge after it is one less where they run backwards.
    start, step = tl.where(is_back, length - 1, 0), tl.where(is_back, -1, 1)
    x += example.to(tl.int64) * n_sites * n_labels
    given += (row % n_given).to(tl.int64) * n_sites
    out += row.to(tl.int64) * n_sites * n_labels
    tables += (example % n_tables).to(tl.int64) * (n_sites - 1) * n_labels * n_labels if PER_EDGE else 0
    label = tl.arange(0, WIDTH)
    before = tl.where(is_back, column_stride, row_stride)
    after = tl.where(is_back, row_stride, column_stride)
    place = label[:, None] * before + label[None, :] * after
    is_pair = (label[:, None] < n_labels) & (label[None, :] < n_labels)
    if not PER_EDGE:
        table = tl.load(tables + place, mask=is_pair, other=-float("inf"))
    m = tl.zeros((WIDTH,), x.dtype.element_ty)
    total = tl.full((), 0.0, tl.float64)
    here = _potentials(x, given, _inside(start, n_sites), label, n_labels, HAS_GIVEN)
    for t in range(0, length - 1):
        at = start + t * step
        coming = _potentials(x, given, at + step, label, n_labels, HAS_GIVEN)  # on its way while we work
        if PER_EDGE:
            edge = (at - is_back.to(tl.int32)).to(tl.int64)
            table = tl.load(tables + edge * n_labels * n_labels + place, mask=is_pair, other=-float("inf"))
        if STORE:
            tl.store(out + at * n_labels + label, m, mask=label < n_labels)
        scores = (m + here)[:, None] + table
        m = tl.max(scores, 0)
        if SUMS:
            high = _finite(m)
            m = high + tl.log(tl.sum(tl.exp(scores - high[None, :]), 0))
        top = _finite(tl.max(m, 0))
        m -= top
        total += top.to(tl.float64)
        here = coming
    if length > 0:
        if STORE:
            tl.store(out + (start + (length - 1) * step) * n_labels + label, m, mask=label < n_labels)
        high = tl.max(m + here, 0)
        total += high.to(tl.float64)
        if SUMS:
            total += tl.log(tl.sum(tl.exp(m + here - _finite(high)), 0)).to(tl.float64)
    tl.store(totals + row, total)


@triton.jit
def _flow(
    x, tables, lengths, given, messages, w, out, crossing,
    n, n_sites, n_labels, n_tables, n_lengths, n_given, row_stride, column_stride, first_backwards,
    WIDTH: tl.constexpr, SUMS: tl.constexpr, HAS_GIVEN: tl.constexpr, PER_EDGE: tl.constexpr, HAS_W: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    example, is_back = row % n, row >= first_backwards
    length = tl.load(lengths + example % n_lengths)
    start, step = tl.where(is_back, length - 1, 0), tl.where(is_back, -1, 1)
    x += example.to(tl.int64) * n_sites * n_labels
    w += example.to(tl.int64) * n_sites * n_labels
    given += (row % n_given).to(tl.int64) * n_sites
    messages += row.to(tl.int64) * n_sites * n_labels
    out += row.to(tl.int64) * n_sites * n_labels
    tables += (example % n_tables).to(tl.int64) * (n_sites - 1) * n_labels * n_labels if PER_EDGE else 0
    crossing += row.to(tl.int64) * n_labels * n_labels * ((n_sites - 1) if PER_EDGE else 1)
    label = tl.arange(0, WIDTH)
    before = tl.where(is_back, column_stride, row_stride)
    after = tl.where(is_back, row_stride, column_stride)
    place = label[:, None] * before + label[None, :] * after
    is_pair = (label[:, None] < n_labels) & (label[None, :] < n_labels)
    # The table of what crosses is laid out with its first label first, whatever the strides of the potentials are.
    crossed = label[:, None] * tl.where(is_back, 1, n_labels) + label[None, :] * tl.where(is_back, n_labels, 1)
    if not PER_EDGE:
        table = tl.load(tables + place, mask=is_pair, other=-float("inf"))
        sums = tl.zeros((WIDTH, WIDTH), x.dtype.element_ty)
    flow = tl.zeros((WIDTH,), x.dtype.element_ty)
    is_label = label < n_labels
    at = start + (length - 1) * step
    if length > 0:
        if HAS_W:
            flow = tl.load(w + at * n_labels + label, mask=is_label, other=0.0)
        else:
            a = tl.load(messages + at * n_labels + label, mask=is_label, other=0.0)
            a += _potentials(x, given, at, label, n_labels, HAS_GIVEN)
            if SUMS:
                shares = tl.exp(a - _finite(tl.max(a, 0)))
                flow = shares / _positive(tl.sum(shares, 0))
            else:
                flow = (label == tl.argmax(a, 0)).to(x.dtype.element_ty)
    at -= step
    ahead = _inside(at, n_sites)
    here = tl.load(messages + ahead * n_labels + label, mask=is_label, other=0.0)
    here += _potentials(x, given, ahead, label, n_labels, HAS_GIVEN)
    tl.debug_barrier()  # out may be messages: all have read before anybody writes
    if length > 0:
        tl.store(out + (at + step) * n_labels + label, flow, mask=is_label)
    for _ in range(0, length - 1):
        ahead = _inside(at - step, n_sites)
        coming = tl.load(messages + ahead * n_labels + label, mask=is_label, other=0.0)
        coming += _potentials(x, given, ahead, label, n_labels, HAS_GIVEN)
        edge = (at - is_back.to(tl.int32)).to(tl.int64) * n_labels * n_labels
        if PER_EDGE:
            table = tl.load(tables + edge + place, mask=is_pair, other=-float("inf"))
        scores = here[:, None] + table
        if SUMS:
            shares = tl.exp(scores - _finite(tl.max(scores, 0))[None, :])
            joint = shares * (flow / _positive(tl.sum(shares, 0)))[None, :]
        else:
            joint = tl.where(label[:, None] == tl.argmax(scores, 0)[None, :], flow[None, :], 0.0)
        if PER_EDGE:
            tl.store(crossing + edge + crossed, joint, mask=is_pair)
        else:
            sums += joint
        flow = tl.sum(joint, 1)
        if HAS_W:
            flow += tl.load(w + at * n_labels + label, mask=is_label, other=0.0)
        tl.debug_barrier()
        tl.store(out + at * n_labels + label, flow, mask=is_label)
        here = coming
        at -= step
    if not PER_EDGE:
        tl.store(crossing + crossed, sums, mask=is_pair)


def messages(sweep: Sweep, *, keep: bool) -> tuple[Tensor, Tensor]:
    """See `plain.messages`; without ``keep``, only the totals are there."""
    x, n_rows = sweep.x, sweep.n_rows
    out = x.new_zeros((n_rows if keep else 0, *x.shape[1:]))
    totals = torch.empty(n_rows, dtype=torch.float64, device=x.device)
    _launch(_messages, sweep, (out, totals), {"STORE": keep}, 1 if x.shape[2] <= 16 else 8)
    return out, totals


def flow(sweep: Sweep, m: Tensor, w: Tensor | None, *, spend: bool) -> tuple[Tensor, Tensor]:
    """See `plain.flow`; with ``spend``, F takes the place of the messages."""
    x, k = sweep.x, sweep.x.shape[2]
    out = m if spend else torch.zeros_like(m)
    shape = (len(m), k, k) if sweep.tables.dim() == 2 else (len(m), x.shape[1] - 1, k, k)
    crossing = x.new_zeros(shape)
    _launch(_flow, sweep, (m, m if w is None else w, out, crossing), {"HAS_W": w is not None}, 4 if k <= 32 else 8)
    return out, crossing


@triton.jit(do_not_specialize=["key_low", "key_high", "first_draw", "stream_high"])
def _gumbel(
    x, lengths, out, key_low, key_high, first_draw, stream_high, n_examples, n_sites, n_labels, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    example, draw = row % n_examples, first_draw + row // n_examples
    size = tl.load(lengths + example) * n_labels
    block = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    # Philox4x32-10 with key = seed and counter = (block, draw, stream), as in the compiled core.
    c0, c1 = block.to(tl.uint32), tl.full((BLOCK,), 0, tl.uint32) + draw.to(tl.uint32)
    c2, c3 = tl.full((BLOCK,), 0, tl.uint32) + example.to(tl.uint32), tl.full((BLOCK,), 0, tl.uint32)
    c3 += stream_high.to(tl.uint32)
    k0, k1 = key_low.to(tl.uint32), key_high.to(tl.uint32)
    a, b = tl.full((BLOCK,), 0xD2511F53, tl.uint32), tl.full((BLOCK,), 0xCD9E8D57, tl.uint32)
    for _ in tl.static_range(10):
        high, low = tl.umulhi(a, c0), a * c0
        c0, c1, c2, c3 = tl.umulhi(b, c2) ^ c1 ^ k0, b * c2, high ^ c3 ^ k1, low
        k0 += tl.full((), 0x9E3779B9, tl.uint32)
        k1 += tl.full((), 0xBB67AE85, tl.uint32)
    whole = row.to(tl.int64) * n_sites * n_labels
    source = example.to(tl.int64) * n_sites * n_labels
    for half in tl.static_range(2):
        at = 2 * block + half
        bits = c0.to(tl.int64) << 20 | c1.to(tl.int64) >> 12
        if half == 1:
            bits = c2.to(tl.int64) << 20 | c3.to(tl.int64) >> 12
        u = bits.to(tl.float64) * 2.220446049250313e-16 + 1.1102230246251565e-16
        z = -tl.log(-tl.log(u)) - 0.57721566490153286061
        z += tl.load(x + source + at, mask=at < size, other=0.0).to(tl.float64)
        tl.store(out + whole + at, z.to(out.dtype.element_ty), mask=at < size)


def perturbed(x: Tensor, lengths: Tensor, key: Key, n_draws: int) -> Tensor:
    """See `plain.perturbed`; what is beyond an example's length is not written."""
    n, n_sites, n_labels = x.shape
    out = x.new_empty((n_draws * n, n_sites, n_labels))
    grid = (n_draws * n, triton.cdiv((n_sites * n_labels + 1) // 2, 256))
    _gumbel[grid](x, lengths, out, *key.words, n, n_sites, n_labels, BLOCK=256)
    return out


def _launch(kernel: Any, sweep: Sweep, results: tuple[Tensor, ...], flag: dict[str, bool], num_warps: int) -> None:
    x, tables, given = sweep.x, sweep.tables, sweep.given
    kernel[(sweep.n_rows,)](
        x,
        tables,
        sweep.lengths,
        sweep.lengths if given is None else given,
        *results,
        *x.shape,
        len(tables),
        len(sweep.lengths),
        1 if given is None else len(given),
        tables.stride(-2),
        tables.stride(-1),
        sweep.first_backwards,
        WIDTH=max(2, triton.next_power_of_2(x.shape[2])),
        SUMS=sweep.sums,
        HAS_GIVEN=given is not None,
        PER_EDGE=tables.dim() > 2,
        num_warps=num_warps,
        **flag,
    )
