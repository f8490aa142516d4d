"""What is done at each site as Triton kernels: a look at the tensors, the noise, the weights of the pins."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from perturbmap.nn.chains.kernels.launch import fixed, launch
from perturbmap.nn.chains.kernels.philox import random_bits, uniform
from perturbmap.nn.chains.sweep import Key, Sweep
from perturbmap.support.checks import LARGEST

_BLOCK = 1024


@triton.jit
def _is_bad(values, at, size, LIMIT: tl.constexpr):
    """Whether one of so many numbers is not finite, or too large."""
    x = tl.load(values + at, mask=at < size, other=0.0).to(tl.float64)
    return tl.max((~(tl.abs(x) <= tl.full((), LIMIT, tl.float64))).to(tl.int32), 0)


@fixed(6)
def _look(
    x, tables, lengths, mask, labels, report, n_sites, n_labels,
    LIMIT: tl.constexpr, HAS_LENGTHS: tl.constexpr, HAS_MASK: tl.constexpr, HAS_LABELS: tl.constexpr,
    HAS_TABLES: tl.constexpr, PER_EDGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    first = row.to(tl.int64) * n_sites
    length = tl.zeros((), tl.int32) + n_sites
    if HAS_LENGTHS:
        length = tl.load(lengths + row)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    bad = _is_bad(x + first * n_labels, at, length * n_labels, LIMIT)
    if HAS_TABLES:
        square = n_labels * n_labels
        size = tl.where(row == 0, square, 0)
        if PER_EDGE:
            tables += row.to(tl.int64) * (n_sites - 1) * square
            size = (length - 1) * square
        bad = tl.maximum(bad, _is_bad(tables, at, size, LIMIT))
    if HAS_MASK:
        is_site = tl.load(mask + first + at, mask=at < n_sites, other=0)
        bad = tl.maximum(bad, tl.max(((is_site != 0) != (at < length)).to(tl.int32), 0))
    if HAS_LABELS:
        y = tl.load(labels + first + at, mask=at < length, other=0)
        bad = tl.maximum(bad, tl.max(((y < -1) | (y >= n_labels)).to(tl.int32), 0))
        if tl.max((y < 0).to(tl.int32), 0) > 0:
            tl.store(report + 1, 1)
    if bad > 0:
        tl.store(report, 1)


def look(
    x: Tensor, tables: Tensor | None, lengths: Tensor | None, mask: Tensor | None, labels: Tensor | None
) -> Tensor:
    """What `plain.look` does, in one kernel."""
    n, n_sites, n_labels = x.shape
    report = torch.zeros(2, dtype=torch.int32, pin_memory=x.is_cuda)  # of the CPU, and a kernel can write to it
    is_each = tables is not None and tables.dim() > 2
    most = max(n_sites * n_labels, n_labels * n_labels * (n_sites - 1 if is_each else 1))
    constants = {
        "LIMIT": LARGEST,
        "HAS_LENGTHS": lengths is not None,
        "HAS_MASK": mask is not None,
        "HAS_LABELS": labels is not None,
        "HAS_TABLES": tables is not None,
        "PER_EDGE": is_each,
        "BLOCK": _BLOCK,
    }
    pointers = (x, tables, lengths, None if mask is None else mask.view(torch.uint8), labels, report)
    launch(_look, (n, triton.cdiv(most, _BLOCK)), pointers, (n_sites, n_labels), constants)
    return report


@fixed(3)
def _gumbel(
    x, lengths, out, key_low, key_high, first_draw, stream_high, n_examples, n_sites, n_labels,
    HAS_LENGTHS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    example, draw = row % n_examples, first_draw + row // n_examples
    size = tl.zeros((), tl.int32) + n_sites
    if HAS_LENGTHS:
        size = tl.load(lengths + example)
    size *= n_labels
    block = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    zero = tl.zeros_like(block)
    bits, more = random_bits(block, zero + draw, zero + example, key_low, key_high, stream_high)
    whole = row.to(tl.int64) * n_sites * n_labels
    source = example.to(tl.int64) * n_sites * n_labels
    for half in tl.static_range(2):
        at = 2 * block + half
        z = -tl.log(-tl.log(uniform(more if half == 1 else bits))) - 0.57721566490153286061
        z += tl.load(x + source + at, mask=at < size, other=0.0).to(tl.float64)
        tl.store(out + whole + at, z.to(out.dtype.element_ty), mask=at < size)


def perturbed(x: Tensor, lengths: Tensor | None, key: Key, n_draws: int) -> Tensor:
    """See `plain.perturbed`; what is beyond an example's length is not written."""
    n, n_sites, n_labels = x.shape
    out = x.new_empty((n_draws * n, n_sites, n_labels))
    grid = (n_draws * n, triton.cdiv((n_sites * n_labels + 1) // 2, 256))
    constants = {"HAS_LENGTHS": lengths is not None, "BLOCK": 256}
    launch(_gumbel, grid, (x, lengths, out), (*key.words, n, n_sites, n_labels), constants)
    return out


@fixed(7)
def _toward(
    left, noisy, x, aim, lengths, values, w, n_sites, n_labels,
    SITES: tl.constexpr, WIDTH: tl.constexpr, HAS_LENGTHS: tl.constexpr, HAS_LABELS: tl.constexpr,
    INTEGRATE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    length = tl.zeros((), tl.int32) + n_sites
    if HAS_LENGTHS:
        length = tl.load(lengths + row)
    first = row.to(tl.int64) * n_sites
    right = left + tl.num_programs(0).to(tl.int64) * n_sites * n_labels
    label = tl.arange(0, WIDTH)[None, :]
    value = tl.full((), 0.0, tl.float64)
    for begin in range(0, length, SITES):
        site = begin + tl.arange(0, SITES)
        at = (first + site[:, None]) * n_labels + label
        is_there = (site[:, None] < length) & (label < n_labels)
        z = tl.load(noisy + at, mask=is_there, other=0.0)
        a = tl.load(left + at, mask=is_there, other=-float("inf")) - z
        a += tl.load(right + at, mask=is_there, other=-float("inf"))
        if INTEGRATE:
            a += tl.load(x + at, mask=is_there, other=0.0) - z
        top = tl.max(a, 1)
        log_p = a - tl.where(top == -float("inf"), 0.0, top)[:, None]
        if INTEGRATE:
            log_p -= tl.log(tl.sum(tl.exp(log_p), 1))[:, None]
            p = tl.exp(log_p)
        else:
            p = (label == tl.argmax(a, 1)[:, None]).to(a.dtype)
        if HAS_LABELS:
            y = tl.load(aim + first + site, mask=site < length, other=-1)
            c = (label == y[:, None]).to(a.dtype)
        else:
            c = tl.load(aim + at, mask=is_there, other=0.0)
        total = tl.sum(c, 1)[:, None]
        value -= tl.sum(tl.sum(tl.where(c != 0.0, c * log_p, 0.0).to(tl.float64), 1), 0)
        tl.store(w + at, tl.where(total != 0.0, total * p - c, 0.0), mask=is_there)
    tl.store(values + row, value)


def toward(sweep: Sweep, a: Tensor, x: Tensor, aim: Tensor, integrate: bool, out: Tensor) -> Tensor:
    """See `plain.toward`; what is beyond an example's length is not written."""
    noisy, (n, n_sites, n_labels) = sweep.x, x.shape
    values = torch.empty(n, dtype=torch.float64, device=x.device)
    width = max(2, triton.next_power_of_2(n_labels))
    constants = {
        "SITES": max(1, 2048 // width),
        "WIDTH": width,
        "HAS_LENGTHS": sweep.lengths is not None,
        "HAS_LABELS": aim.dim() == 2,
        "INTEGRATE": integrate,
    }
    pointers = (a, noisy, x, aim, sweep.lengths, values, out)
    launch(_toward, (n,), pointers, (n_sites, n_labels), constants)
    return values
