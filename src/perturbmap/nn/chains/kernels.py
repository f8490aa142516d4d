"""The two sweeps and the noise as Triton kernels: one program for each example and direction.

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


@triton.jit  # type: ignore[untyped-decorator]
def _scores(m, x, given, at, label, n_labels, HAS_GIVEN: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN
    """What a message and the potentials of a site add up to; -inf where a label is not there, or ruled out."""
    a = tl.load(x + at * n_labels + label, mask=label < n_labels, other=-float("inf"))
    if HAS_GIVEN:
        y = tl.load(given + at)
        a = tl.where((y < 0) | (label == y), a, -float("inf"))
    return m + a


@triton.jit  # type: ignore[untyped-decorator]
def _finite(x):  # type: ignore[no-untyped-def]
    return tl.where(x == -float("inf"), 0.0, x)


@triton.jit  # type: ignore[untyped-decorator]
def _positive(x):  # type: ignore[no-untyped-def]
    return tl.where(x == 0.0, 1.0, x)


@triton.jit  # type: ignore[untyped-decorator]
def _messages(  # type: ignore[no-untyped-def]
    x, tables, lengths, given, out, totals, n_sites, n_labels, n_tables, row, column,
    WIDTH: tl.constexpr, BACKWARDS: tl.constexpr, SUMS: tl.constexpr, HAS_GIVEN: tl.constexpr,
    PER_EDGE: tl.constexpr, STORE: tl.constexpr,
):  # fmt: skip
    example = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + example)
    label = tl.arange(0, WIDTH)
    before = column if BACKWARDS else row
    after = row if BACKWARDS else column
    if PER_EDGE:
        tables += example % n_tables * (n_sites - 1) * n_labels * n_labels
    place = label[:, None] * before + label[None, :] * after
    is_there = (label[:, None] < n_labels) & (label[None, :] < n_labels)
    if not PER_EDGE:
        table = tl.load(tables + place, mask=is_there, other=-float("inf"))
    m = tl.zeros((WIDTH,), x.dtype.element_ty)
    total = tl.full((), 0.0, tl.float64)
    for t in range(0, length - 1):
        at = example * n_sites + (length - 1 - t if BACKWARDS else t)
        if PER_EDGE:
            which = length - 2 - t if BACKWARDS else t
            table = tl.load(tables + which.to(tl.int64) * n_labels * n_labels + place, mask=is_there, other=-float("inf"))
        if STORE:
            tl.store(out + at * n_labels + label, m, mask=label < n_labels)
        scores = _scores(m, x, given, at, label, n_labels, HAS_GIVEN)[:, None] + table
        m = tl.max(scores, 0)
        if SUMS:
            high = _finite(m)
            m = high + tl.log(tl.sum(tl.exp(scores - high[None, :]), 0))
        top = _finite(tl.max(m, 0))
        m -= top
        total += top.to(tl.float64)
    if length > 0:
        at = example * n_sites + (0 if BACKWARDS else length - 1)
        if STORE:
            tl.store(out + at * n_labels + label, m, mask=label < n_labels)
        a = _scores(m, x, given, at, label, n_labels, HAS_GIVEN)
        high = tl.max(a, 0)
        total += high.to(tl.float64)
        if SUMS:
            total += tl.log(tl.sum(tl.exp(a - _finite(high)), 0)).to(tl.float64)
    tl.store(totals + example, total)


@triton.jit  # type: ignore[untyped-decorator]
def _flow(  # type: ignore[no-untyped-def]
    x, tables, lengths, given, messages, w, out, crossing, n_sites, n_labels, n_tables, row, column,
    WIDTH: tl.constexpr, BACKWARDS: tl.constexpr, SUMS: tl.constexpr, HAS_GIVEN: tl.constexpr,
    PER_EDGE: tl.constexpr, HAS_W: tl.constexpr,
):  # fmt: skip
    example = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + example)
    label = tl.arange(0, WIDTH)
    before = column if BACKWARDS else row
    after = row if BACKWARDS else column
    if PER_EDGE:
        tables += example % n_tables * (n_sites - 1) * n_labels * n_labels
    place = label[:, None] * before + label[None, :] * after
    is_there = (label[:, None] < n_labels) & (label[None, :] < n_labels)
    # The table of what crosses is laid out with its first label first, whatever the strides of the potentials are.
    crossed = label[:, None] + label[None, :] * n_labels if BACKWARDS else label[:, None] * n_labels + label[None, :]
    crossing += example * n_labels * n_labels * (n_sites - 1 if PER_EDGE else 1)
    if not PER_EDGE:
        table = tl.load(tables + place, mask=is_there, other=-float("inf"))
        sums = tl.zeros((WIDTH, WIDTH), x.dtype.element_ty)
    flow = tl.zeros((WIDTH,), x.dtype.element_ty)
    if length > 0:
        at = example * n_sites + (0 if BACKWARDS else length - 1)
        if HAS_W:
            flow = tl.load(w + at * n_labels + label, mask=label < n_labels, other=0.0)
        else:
            m = tl.load(messages + at * n_labels + label, mask=label < n_labels, other=0.0)
            a = _scores(m, x, given, at, label, n_labels, HAS_GIVEN)
            if SUMS:
                shares = tl.exp(a - _finite(tl.max(a, 0)))
                flow = shares / _positive(tl.sum(shares, 0))
            else:
                flow = (label == tl.argmax(a, 0)).to(x.dtype.element_ty)
        tl.store(out + at * n_labels + label, flow, mask=label < n_labels)
    for step in range(0, length - 1):
        t = length - 2 - step
        at = example * n_sites + (length - 1 - t if BACKWARDS else t)
        which = length - 2 - t if BACKWARDS else t
        if PER_EDGE:
            table = tl.load(tables + which.to(tl.int64) * n_labels * n_labels + place, mask=is_there, other=-float("inf"))
        m = tl.load(messages + at * n_labels + label, mask=label < n_labels, other=0.0)
        scores = _scores(m, x, given, at, label, n_labels, HAS_GIVEN)[:, None] + table
        if SUMS:
            shares = tl.exp(scores - _finite(tl.max(scores, 0))[None, :])
            joint = shares * (flow / _positive(tl.sum(shares, 0)))[None, :]
        else:
            joint = tl.where(label[:, None] == tl.argmax(scores, 0)[None, :], flow[None, :], 0.0)
        if PER_EDGE:
            tl.store(crossing + which.to(tl.int64) * n_labels * n_labels + crossed, joint, mask=is_there)
        else:
            sums += joint
        flow = tl.sum(joint, 1)
        if HAS_W:
            flow += tl.load(w + at * n_labels + label, mask=label < n_labels, other=0.0)
        tl.store(out + at * n_labels + label, flow, mask=label < n_labels)
    if not PER_EDGE:
        tl.store(crossing + crossed, sums, mask=is_there)


def messages(sweep: Sweep, *, keep: bool) -> tuple[Tensor, Tensor]:
    """See `plain.messages`; without ``keep``, only the totals are there."""
    x = sweep.x
    out = torch.empty_like(x if keep else x[:0])
    totals = torch.empty(len(x), dtype=torch.float64, device=x.device)
    _launch(_messages, sweep, (out, totals), {"STORE": keep})
    return out, totals


def flow(sweep: Sweep, m: Tensor, w: Tensor | None) -> tuple[Tensor, Tensor]:
    """See `plain.flow`; zero where an example is shorter than the tensor."""
    x, k = sweep.x, sweep.x.shape[2]
    out = torch.zeros_like(x)
    shape = (len(x), k, k) if sweep.tables.dim() == 2 else (len(x), x.shape[1] - 1, k, k)
    crossing = x.new_zeros(shape)
    _launch(_flow, sweep, (m, m if w is None else w, out, crossing), {"HAS_W": w is not None})
    return out, crossing


@triton.jit(do_not_specialize=["key_low", "key_high", "first_draw", "stream_high"])  # type: ignore[untyped-decorator]
def _gumbel(  # type: ignore[no-untyped-def]
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


def _launch(kernel: Any, sweep: Sweep, results: tuple[Tensor, ...], flag: dict[str, bool]) -> None:
    x, tables = sweep.x, sweep.tables
    n, n_sites, n_labels = x.shape
    width = max(2, triton.next_power_of_2(n_labels))
    kernel[(n,)](
        x,
        tables,
        sweep.lengths,
        sweep.lengths if sweep.given is None else sweep.given,
        *results,
        n_sites,
        n_labels,
        len(tables),
        tables.stride(-2),
        tables.stride(-1),
        WIDTH=width,
        BACKWARDS=sweep.backwards,
        SUMS=sweep.sums,
        HAS_GIVEN=sweep.given is not None,
        PER_EDGE=tables.dim() > 2,
        num_warps=1 if width <= 16 else 4 if width <= 64 else 8,
        **flag,
    )
