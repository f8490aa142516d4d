"""Labellings drawn along a chain as a Triton kernel: one program for some draws of a row; see `plain.sample`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from perturbmap.nn.chains.kernels.launch import fixed, launch
from perturbmap.nn.chains.kernels.philox import random_bits, uniform
from perturbmap.nn.chains.sweep import Key, Sweep

# So many weights are held by a program at once, which is one warp: nothing goes through shared memory.
_N_WEIGHTS = 128


@fixed(4)
def _sample(
    a, tables, lengths, out,
    key_low, key_high, first_draw, stream_high,
    n_sites, n_labels, n_tables, n_lengths, row_stride, column_stride, n_draws,
    WIDTH: tl.constexpr, DRAWS: tl.constexpr, PER_EDGE: tl.constexpr, HAS_LENGTHS: tl.constexpr,
):  # fmt: skip
    n_parts = tl.cdiv(n_draws, DRAWS)
    row, part = tl.program_id(0) // n_parts, tl.program_id(0) % n_parts
    length = tl.zeros((), tl.int32) + n_sites
    if HAS_LENGTHS:
        length = tl.load(lengths + row % n_lengths)
    a += row.to(tl.int64) * n_sites * n_labels
    out += row.to(tl.int64) * n_sites * n_draws
    tables += (row % n_tables).to(tl.int64) * (n_sites - 1) * n_labels * n_labels if PER_EDGE else 0
    draw = part * DRAWS + tl.arange(0, DRAWS)
    label = tl.arange(0, WIDTH)
    is_label, zero = label < n_labels, tl.zeros_like(draw)
    here = tl.load(a + label, mask=is_label, other=-float("inf"))
    scores = here[None, :] + tl.zeros((DRAWS, WIDTH), a.dtype.element_ty)
    for t in range(0, length):
        coming = tl.load(a + tl.minimum(t + 1, n_sites - 1) * n_labels + label, mask=is_label, other=-float("inf"))
        bits, more = random_bits(zero + t // 2, draw + first_draw, zero + row, key_low, key_high, stream_high)
        u = uniform(tl.where(t % 2 == 0, bits, more)).to(a.dtype.element_ty)
        top = tl.max(scores, 1)
        weights = tl.exp(scores - tl.where(top == -float("inf"), 0.0, top)[:, None])
        is_past = tl.cumsum(weights, 1) > (u * tl.sum(weights, 1))[:, None]
        last = tl.max(tl.where(weights > 0.0, label[None, :], 0), 1)  # where rounding leaves no sum above the number
        y = tl.min(tl.where(is_past & (weights > 0.0), label[None, :], last[:, None]), 1)
        tl.store(out + draw, y.to(tl.int64), mask=draw < n_draws)
        out += n_draws
        if t + 1 < length:
            pairs = tables + y[:, None] * row_stride + label[None, :] * column_stride
            scores = coming[None, :] + tl.load(pairs, mask=is_label[None, :], other=-float("inf"))
            tables += n_labels * n_labels if PER_EDGE else 0


def sample(sweep: Sweep, a: Tensor, key: Key, n_draws: int) -> Tensor:
    """See `plain.sample`; what is beyond an example's length is not written."""
    n, n_sites, k = a.shape
    out = torch.empty((n, n_sites, n_draws), dtype=torch.int64, device=a.device)
    tables, lengths = sweep.tables, sweep.lengths
    width = max(2, triton.next_power_of_2(k))
    draws = max(1, _N_WEIGHTS // width)
    constants = {"WIDTH": width, "DRAWS": draws, "PER_EDGE": tables.dim() > 2, "HAS_LENGTHS": lengths is not None}
    n_lengths = 1 if lengths is None else len(lengths)
    numbers = (*key.words, n_sites, k, len(tables), n_lengths, tables.stride(-2), tables.stride(-1), n_draws)
    launch(_sample, (n * triton.cdiv(n_draws, draws),), (a, tables, lengths, out), numbers, constants, num_warps=1)
    return out
