"""The two sweeps and the noise in plain torch operations, on any device; the formulas are in `sweep`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from perturbmap.nn.chains.sweep import WORD, Key, Sweep, Way


def messages(sweep: Sweep, *, keep: bool) -> tuple[Tensor, Tensor]:
    """Messages to every site, (n_rows, n_sites, n_labels), and ``(+)_y f(y)``, (n_rows,), in float64.

    Without ``keep``, nobody will ask for the messages; these sweeps hold them all the same.
    """
    if sweep.way is Way.BOTH:
        one, other = (messages(sweep._replace(way=way), keep=keep) for way in (Way.FORWARDS, Way.BACKWARDS))
        return torch.cat([one[0], other[0]]), torch.cat([one[1], other[1]])
    lengths = _of_rows(sweep.lengths, sweep)
    x, tables = _in_order(sweep)
    m, out = torch.zeros_like(x[:, 0]), torch.empty_like(x)
    total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    for t in range(x.shape[1]):
        out[:, t] = m
        is_last, is_before = lengths == t + 1, lengths > t + 1
        a = m + x[:, t]
        total += torch.where(is_last, _over(a, sweep.sums, 1).double(), 0.0)
        if t + 1 < x.shape[1]:
            m = _over(a[:, :, None] + _table(tables, t), sweep.sums, 1)
            top = m.amax(1)
            top = torch.where(top == -torch.inf, 0.0, top)
            m = m - top[:, None]
            total += torch.where(is_before, top.double(), 0.0)
    return _turned(out, lengths) if sweep.way is Way.BACKWARDS else out, total


def flow(sweep: Sweep, m: Tensor, w: Tensor | None, *, spend: bool) -> tuple[Tensor, Tensor]:
    """Weights w of the pins, (n, n_sites, n_labels), come back along the messages: F, and what crosses the edges.

    Without w, all weight is at the end of the messages, so that F is the gradient of their total. With ``spend``,
    nobody will ask for the messages again. F is zero beyond an example's length, and so must w be.

    The second tensor is (n_rows, n_labels, n_labels), summed over the edges, where one table is shared; else one for
    each edge, (n_rows, n_edges, n_labels, n_labels).
    """
    if sweep.way is Way.BOTH:
        ways = zip((Way.FORWARDS, Way.BACKWARDS), m.chunk(2), strict=True)
        one, other = (flow(sweep._replace(way=way), half, w, spend=spend) for way, half in ways)
        return torch.cat([one[0], other[0]]), torch.cat([one[1], other[1]])
    lengths, is_back = _of_rows(sweep.lengths, sweep), sweep.way is Way.BACKWARDS
    x, tables = _in_order(sweep)
    n, n_sites, k = x.shape
    is_shared = tables.dim() == 2
    w = None if w is None else _of_rows(w, sweep)
    if is_back:
        m, w = _turned(m, lengths), None if w is None else _turned(w, lengths)
    crossing = x.new_zeros((n, k, k) if is_shared else (n, n_sites - 1, k, k))
    out, after = torch.zeros_like(x), torch.zeros_like(x[:, 0])
    for t in range(n_sites - 1, -1, -1):
        is_last, is_before = (lengths == t + 1)[:, None], (lengths > t + 1)[:, None]
        a = m[:, t] + x[:, t]
        F = torch.zeros_like(a)
        if t + 1 < n_sites:
            p = _shares(a[:, :, None] + _table(tables, t), sweep.sums)
            joint = torch.where(is_before[:, :, None], p * after[:, None, :], 0.0)
            F = joint.sum(2)
            if is_shared:
                crossing += joint
            else:
                crossing[:, t] = joint
        if w is None:
            F = torch.where(is_last, _shares(a[:, :, None], sweep.sums)[:, :, 0], F)
        else:
            F = torch.where(is_last | is_before, F + w[:, t], 0.0)
        out[:, t] = after = F
    if is_back:
        out, crossing = _turned(out, lengths), crossing.transpose(-1, -2)
        crossing = crossing if is_shared else _turned(crossing, lengths - 1)
    return out, crossing


def perturbed(x: Tensor, lengths: Tensor, key: Key, n_draws: int) -> Tensor:
    """``x + z``, (n_draws * n_examples, n_sites, n_labels), draw after draw: of examples 0, 1, 2, ... of a batch.

    What stands beyond the lengths means nothing.
    """
    n, n_sites, n_labels = x.shape
    place = torch.arange(n_sites * n_labels, device=x.device)
    shape = (n_draws, n, n_sites * n_labels)
    draw = torch.arange(key.first_draw, key.first_draw + n_draws, device=x.device)[:, None, None] & WORD
    example = torch.arange(n, device=x.device)[None, :, None]
    c0, c1, c2 = (c.expand(shape) for c in (place // 2, draw, example))
    c3 = torch.full_like(c2, key.domain << 16 & WORD)
    k0, k1 = key.seed & WORD, key.seed >> 32
    for _ in range(10):
        # Products wrap around 64 bits, signed; of either sign, the bits are those of the unsigned product.
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = p1 >> 32 & WORD ^ c1 ^ k0, p1 & WORD, p0 >> 32 & WORD ^ c3 ^ k1, p0 & WORD
        k0, k1 = k0 + 0x9E3779B9 & WORD, k1 + 0xBB67AE85 & WORD
    bits = torch.where(place % 2 == 0, c0 << 20 | c1 >> 12, c2 << 20 | c3 >> 12)
    u = bits.double() * 2.0**-52 + 2.0**-53
    z = -torch.log(-torch.log(u)) - np.euler_gamma
    return (x.double() + z.reshape(n_draws, n, n_sites, n_labels)).to(x.dtype).flatten(0, 1)


def _of_rows(values: Tensor, sweep: Sweep) -> Tensor:
    """One for each row: what there are fewer of begins again."""
    return values.repeat(sweep.n_rows // len(values), *[1] * (values.dim() - 1))


def _in_order(sweep: Sweep) -> tuple[Tensor, Tensor]:
    """The potentials of each row as the sweep meets them, with the labels that are not the given ones ruled out."""
    x, tables = _of_rows(sweep.x, sweep), sweep.tables
    tables = tables if tables.dim() == 2 else _of_rows(tables, sweep)
    if sweep.given is not None:
        given = _of_rows(sweep.given, sweep)[..., None]
        x = x.masked_fill((torch.arange(x.shape[2], device=x.device) != given) & (given >= 0), -torch.inf)
    if sweep.way is Way.FORWARDS:
        return x, tables
    lengths, tables = _of_rows(sweep.lengths, sweep), tables.transpose(-1, -2)
    return _turned(x, lengths), tables if tables.dim() == 2 else _turned(tables, lengths - 1)


def _turned(values: Tensor, lengths: Tensor) -> Tensor:
    """The first so many rows of each example in reverse."""
    t = torch.arange(values.shape[1], device=values.device)
    index = torch.where(t < lengths[:, None], lengths[:, None] - 1 - t, t).long()
    return values.gather(1, index.reshape(*index.shape, *[1] * (values.dim() - 2)).expand_as(values))


def _table(tables: Tensor, t: int) -> Tensor:
    return tables if tables.dim() == 2 else tables[:, t]


def _over(scores: Tensor, sums: bool, dim: int) -> Tensor:
    return scores.logsumexp(dim) if sums else scores.amax(dim)


def _shares(scores: Tensor, sums: bool) -> Tensor:
    """Over the second axis: the softmax, or 1 for the first of the highest; all zero where nothing is possible."""
    if sums:
        return scores.softmax(1).masked_fill((scores == -torch.inf).all(1, keepdim=True), 0.0)
    at = torch.arange(scores.shape[1], device=scores.device)
    return (at[:, None] == scores.argmax(1, keepdim=True)).to(scores.dtype)
