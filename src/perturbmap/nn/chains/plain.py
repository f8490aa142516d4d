"""The sweeps, the look at the tensors and the noise in plain torch operations; the formulas are in `sweep`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from perturbmap.nn.chains.sweep import WORD, Key, Sweep, Way, Weights
from perturbmap.support.checks import LARGEST


def look(
    x: Tensor, tables: Tensor | None, lengths: Tensor | None, mask: Tensor | None, labels: Tensor | None
) -> Tensor:
    """Two numbers: not 0 if something is wrong with the tensors, and not 0 if a label is not known.

    Wrong are numbers that are not finite, a mask with gaps, and integers that are no labels; beyond an example's
    length, none is looked at.
    """
    is_site = torch.arange(x.shape[1], device=x.device) < _lengths(lengths, x)[:, None]
    bad = [is_site[..., None] & ~(x.abs() <= LARGEST)]
    if tables is not None:
        is_used = is_site[:, 1:, None, None] if tables.dim() > 2 else is_site.new_ones(())
        bad.append(is_used & ~(tables.abs() <= LARGEST))
    if mask is not None:
        bad.append(mask != is_site)
    is_open = is_site.new_zeros(())
    if labels is not None:
        bad.append(is_site & ((labels < -1) | (labels >= x.shape[2])))
        is_open = (is_site & (labels < 0)).any()
    return torch.stack([torch.stack([b.any() for b in bad]).any(), is_open]).int()


def messages(sweep: Sweep, *, keep: bool, labels: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Messages with what they arrive at, a, (n_rows, n_sites, n_labels), and ``(+)_y f(y)``, (n_rows,), in float64.

    The third tensor says by how much the totals exceed the scores of labels, (n, n_sites), if there are any, none of
    them below zero. Without ``keep``, nobody will ask for the messages; these sweeps hold them all the same.
    """
    if sweep.way is Way.BOTH:
        ways = (sweep._replace(way=way) for way in (Way.FORWARDS, Way.BACKWARDS))
        one, other, both = *(messages(each, keep=keep, labels=labels) for each in ways), torch.cat
        return both([one[0], other[0]]), both([one[1], other[1]]), both([one[2], other[2]])
    lengths = _of_rows(_lengths(sweep.lengths, sweep.x), sweep)
    x, tables, first, last = _in_order(sweep)
    m, out = first.expand_as(x[:, 0]), torch.empty_like(x)
    total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    for t in range(x.shape[1]):
        is_last, is_before = lengths == t + 1, lengths > t + 1
        a = m + x[:, t] + torch.where(is_last[:, None], last, 0.0)
        out[:, t] = a
        total += torch.where(is_last, _over(a, sweep.sums, 1).double(), 0.0)
        if t + 1 < x.shape[1]:
            m = _over(a[:, :, None] + _table(tables, t), sweep.sums, 1)
            top = m.amax(1)
            top = torch.where(top == -torch.inf, 0.0, top)
            m = m - top[:, None]
            total += torch.where(is_before, top.double(), 0.0)
    out = _turned(out, lengths) if sweep.way is Way.BACKWARDS else out
    return out, total, total if labels is None else total - _score(sweep, labels)


def flow(
    sweep: Sweep, a: Tensor, v: Weights, w: Tensor | None = None, labels: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Weights v w of the pins, (n,) and (n, n_sites, n_labels), come back along the messages: F, and what crosses.

    F takes the place of a. Without w, all weight is at the end of the messages, so that F is the gradient of v times
    their total; that of v times the score of labels is subtracted if there are any. With w, rows that run backwards
    leave its own part out, so that both ways hold it once together. F is zero beyond an example's
    length, and so must w be.

    The second tensor is (n_rows, n_labels, n_labels), summed over the edges, where one table is shared; else one for
    each edge, (n_rows, n_edges, n_labels, n_labels).
    """
    if sweep.way is Way.BOTH:
        ways = zip((Way.FORWARDS, Way.BACKWARDS), a.chunk(2), strict=True)
        one, other = (flow(sweep._replace(way=way), half, v, w, labels) for way, half in ways)
        return a.copy_(torch.cat([one[0], other[0]])), torch.cat([one[1], other[1]])
    lengths, is_back = _of_rows(_lengths(sweep.lengths, sweep.x), sweep), sweep.way is Way.BACKWARDS
    tables = _in_order(sweep)[1]
    n, n_sites, k = a.shape
    is_shared = tables.dim() == 2
    scale = (a.new_ones(()) if v.each is None else v.each.to(a.dtype)).expand(n)[:, None] / v.divisor
    scores = _turned(a, lengths) if is_back else a
    if w is not None:
        w = _turned(w, lengths) if is_back else w
    crossing = a.new_zeros((n, k, k) if is_shared else (n, n_sites - 1, k, k))
    out, after = torch.zeros_like(a), torch.zeros_like(a[:, 0])
    for t in range(n_sites - 1, -1, -1):
        is_last, is_before = (lengths == t + 1)[:, None], (lengths > t + 1)[:, None]
        F = torch.zeros_like(after)
        if t + 1 < n_sites:
            p = _shares(scores[:, t, :, None] + _table(tables, t), sweep.sums)
            joint = torch.where(is_before[:, :, None], p * after[:, None, :], 0.0)
            F = joint.sum(2)
            if is_shared:
                crossing += joint
            else:
                crossing[:, t] = joint
        if w is None:
            F = torch.where(is_last, scale * _shares(scores[:, t, :, None], sweep.sums)[:, :, 0], F)
            out[:, t] = after = F
        else:
            after = torch.where(is_last | is_before, F + scale * w[:, t], 0.0)
            out[:, t] = F if is_back else after
    if is_back:
        out, crossing = _turned(out, lengths), crossing.transpose(-1, -2)
        crossing = crossing if is_shared else _turned(crossing, lengths - 1)
    if labels is not None:
        shown = indicators(labels, lengths, out)
        pairs = scale[..., None, None] * shown[:, :-1, :, None] * shown[:, 1:, None, :]
        out = out - scale[..., None] * shown
        crossing = crossing - (pairs.sum(1) if is_shared else pairs)
    return a.copy_(out), crossing


def perturbed(x: Tensor, lengths: Tensor | None, key: Key, n_draws: int) -> Tensor:
    """``x + z``, (n_draws * n_examples, n_sites, n_labels), draw after draw: of examples 0, 1, 2, ... of a batch.

    What stands beyond the lengths means nothing.
    """
    n, n_sites, n_labels = x.shape
    u = _uniform(key, (n_draws, n, n_sites * n_labels), x.device)
    z = -torch.log(-torch.log(u)) - np.euler_gamma
    return (x.double() + z.reshape(n_draws, n, n_sites, n_labels)).to(x.dtype).flatten(0, 1)


def sample(sweep: Sweep, a: Tensor, key: Key, n_draws: int) -> Tensor:
    """Labellings drawn from ``exp f``, (n_rows, n_sites, n_draws), int64; what is beyond the lengths means nothing.

    a : the messages of the sweep, which runs backwards and sums; the total of each row is finite
    """
    n, n_sites, k = a.shape
    tables = sweep.tables if sweep.tables.dim() == 2 else _of_rows(sweep.tables, sweep)
    u = _uniform(key, (n_draws, n, n_sites), a.device).to(a.dtype)
    label, row = torch.arange(k, device=a.device), torch.arange(n, device=a.device)
    labels = torch.empty((n_draws, n, n_sites), dtype=torch.int64, device=a.device)
    scores = a[:, 0].expand(n_draws, n, k)
    for t in range(n_sites):
        if t > 0:
            edge, before = _table(tables, t - 1), labels[:, :, t - 1]
            scores = a[:, t] + (edge[before] if edge.dim() == 2 else edge[row, before])
        weights = scores.softmax(2)
        sums = weights.cumsum(2)
        is_past = (weights > 0) & (sums > u[:, :, t, None] * sums[..., -1:])
        last = torch.where(weights > 0, label, 0).amax(2)  # where rounding leaves no sum above the number
        labels[:, :, t] = torch.where(is_past, label, last[..., None]).amin(2)
    return labels.permute(1, 2, 0)


def toward(sweep: Sweep, a: Tensor, x: Tensor, aim: Tensor, integrate: bool, out: Tensor) -> Tensor:
    """``- sum_{d,k} c[d, k] log p[d, k]``, (n,), in float64; out gets w, the weights of the pins: its gradient.

    a : the messages of the sweep, both ways, of perturbed potentials or not; x are those without noise
    aim : c, (n, n_sites, n_labels); or labels, (n, n_sites), whose indicators are c, zero where one is below zero
    integrate : whether p is the softmax of what others add to x; else 1 for the best label, and log p the difference

    ``w = (sum_k c) p - c``, zero where nothing is to be learned. It may take the place of the perturbed potentials.
    """
    is_site = torch.arange(x.shape[1], device=x.device) < _lengths(sweep.lengths, x)[:, None]
    left, right = a.chunk(2)
    values = left + right - 2 * sweep.x + x if integrate else left + right - sweep.x
    if integrate:
        log_p = values.log_softmax(2)
        p = log_p.exp()
    else:
        log_p = values - values.amax(2, keepdim=True)
        p = torch.zeros_like(values).scatter_(2, values.argmax(2, keepdim=True), 1.0)
    c = indicators(aim, sweep.lengths, x) if aim.dim() == 2 else aim
    total = c.sum(2, keepdim=True)
    out.copy_(torch.where((total != 0) & is_site[..., None], total * p - c, 0.0))
    return -torch.where((c != 0) & is_site[..., None], c * log_p, 0.0).sum((1, 2), dtype=torch.float64)


def indicators(labels: Tensor, lengths: Tensor | None, like: Tensor) -> Tensor:
    """Those of labels, (n, n_sites), in the shape of ``like``; zero beyond a length, and where a label is below 0."""
    is_known = (torch.arange(labels.shape[1], device=labels.device) < _lengths(lengths, like)[:, None]) & (
        labels >= 0
    )
    at = labels.long().clamp(0, like.shape[2] - 1)[..., None]
    return torch.zeros_like(like).scatter_(2, at, is_known[..., None].to(like.dtype))


def _uniform(key: Key, shape: tuple[int, int, int], device: torch.device) -> Tensor:
    """Numbers in (0, 1), in float64: of so many draws, of examples 0, 1, 2, ..., of so many places."""
    n_draws, n, n_places = shape
    place = torch.arange(n_places, device=device)
    draw = torch.arange(key.first_draw, key.first_draw + n_draws, device=device)[:, None, None] & WORD
    example = torch.arange(n, device=device)[None, :, None]
    c0, c1, c2 = (c.expand(shape) for c in (place // 2, draw, example))
    c3 = torch.full_like(c2, key.domain << 16 & WORD)
    k0, k1 = key.seed & WORD, key.seed >> 32
    for _ in range(10):
        # Products wrap around 64 bits, signed; of either sign, the bits are those of the unsigned product.
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = p1 >> 32 & WORD ^ c1 ^ k0, p1 & WORD, p0 >> 32 & WORD ^ c3 ^ k1, p0 & WORD
        k0, k1 = k0 + 0x9E3779B9 & WORD, k1 + 0xBB67AE85 & WORD
    bits = torch.where(place % 2 == 0, c0 << 20 | c1 >> 12, c2 << 20 | c3 >> 12)
    return bits.double() * 2.0**-52 + 2.0**-53


def _lengths(lengths: Tensor | None, x: Tensor) -> Tensor:
    return torch.full((len(x),), x.shape[1], device=x.device) if lengths is None else lengths


def _score(sweep: Sweep, labels: Tensor) -> Tensor:
    """f(labels) of each row, the rims among it, in float64; labels that are none are taken for the nearest."""
    x, tables, first, last = _in_order(sweep._replace(way=Way.FORWARDS))
    lengths, y = _of_rows(_lengths(sweep.lengths, x), sweep)[:, None], labels.long().clamp(0, x.shape[2] - 1)
    n, t = torch.arange(len(x), device=x.device)[:, None], torch.arange(x.shape[1], device=x.device)
    sites = x.gather(2, y[..., None])[..., 0]
    sites = sites + torch.where(t == 0, first[y], 0.0) + torch.where(t == lengths - 1, last[y], 0.0)
    edge = () if tables.dim() == 2 else (n, t[:-1])
    pairs = tables[(*edge, y[:, :-1], y[:, 1:])]
    total = torch.where(t < lengths, sites, 0.0).sum(1, dtype=torch.float64)
    return total + torch.where(t[1:] < lengths, pairs, 0.0).sum(1, dtype=torch.float64)


def _of_rows(values: Tensor, sweep: Sweep) -> Tensor:
    """One for each row: what there are fewer of begins again."""
    return values.repeat(sweep.n_rows // len(values), *[1] * (values.dim() - 1))


def _in_order(sweep: Sweep) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The potentials of each row as the sweep meets them, labels that are not given ruled out; tables; both rims."""
    x, tables = sweep.x, sweep.tables
    first, last = x.new_zeros((2, x.shape[2])) if sweep.rims is None else sweep.rims
    tables = tables if tables.dim() == 2 else _of_rows(tables, sweep)
    if sweep.given is not None:
        given = sweep.given[..., None]
        x = x.masked_fill((torch.arange(x.shape[2], device=x.device) != given) & (given >= 0), -torch.inf)
    if sweep.way is Way.FORWARDS:
        return x, tables, first, last
    lengths, tables = _of_rows(_lengths(sweep.lengths, sweep.x), sweep), tables.transpose(-1, -2)
    return _turned(x, lengths), tables if tables.dim() == 2 else _turned(tables, lengths - 1), last, first


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
