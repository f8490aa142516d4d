"""What an objective is to make likely, as padded tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from perturbmap.nn.chains.batch import ChainBatch
from perturbmap.objectives import Objective
from perturbmap.potentials import Layout, SiteLabels
from perturbmap.task_losses import Hamming, ZeroOne


@final
@dataclass(frozen=True, eq=False)
class TensorTargets:
    """Labels and label weights, `perturbmap.objectives.Targets` in padded tensors.

    labels : (n_examples, n_sites), int32, -1 where not known
    is_complete : (n_examples,), whether something is known of every site
    """

    labels: Tensor
    is_complete: Tensor
    _label_weights: Callable[[], Tensor]

    @property
    def label_weights(self) -> Tensor:
        """``c = q * theta``, (n_examples, n_sites, n_labels), made anew; zero beyond an example's length."""
        return self._label_weights()

    @classmethod
    def of(cls, objective: Objective, batch: ChainBatch, labels: Any, sizes: Any) -> TensorTargets | None:
        """None where labels or sizes are not what they should be: whoever solves it in the core says why."""
        given, size = batch.padded(labels), None if sizes is None else batch.padded(sizes)
        if given is None or (sizes is not None and (size is None or size.dim() != 2)):
            return None
        checks = [] if size is None else [((size >= 0) & (size < torch.inf) | ~batch.is_site).all()]
        q: Tensor | None = None
        if given.dim() == 3:
            if not (objective.takes_soft_labels and given.shape == batch.x.shape and given.is_floating_point()):
                return None
            q = given.to(batch.x.dtype).masked_fill(~batch.is_site[..., None], 0.0)
            total = q.sum(2, keepdim=True)
            if given.dtype in (torch.float16, torch.bfloat16):  # they sum to 1 within their own precision
                q, total = q / total.clamp(min=0.5), total.round(decimals=1)
            checks += [(q >= 0).all(), ((total[..., 0] - 1).abs() < 1.1e-5)[batch.is_site].all()]
            y = torch.full(given.shape[:2], -1, dtype=torch.int32, device=q.device)
            is_known = batch.is_site
        else:
            if given.is_floating_point() or given.dtype == torch.bool or given.dim() != 2:
                return None
            y = given.masked_fill(~batch.is_site, -1).int()
            is_known = y >= 0
            checks += [((y >= -1) & (y < batch.x.shape[2])).all()]
        if not batch.passes(checks):
            return None

        def label_weights() -> Tensor:
            known = _one_hot(y, batch.x) if q is None else q
            is_plain = isinstance(objective.task_loss, (Hamming, ZeroOne))
            return known if is_plain else _weighted(objective, batch, y, known, size)

        return cls(y, (is_known | ~batch.is_site).all(1), label_weights)


def _one_hot(y: Tensor, like: Tensor) -> Tensor:
    """Indicators of labels (n_examples, n_sites) in the shape of ``like``; zero where a label is -1."""
    return torch.zeros_like(like).scatter_(2, y.clamp(min=0).long()[..., None], (y >= 0)[..., None].to(like.dtype))


def _weighted(objective: Objective, batch: ChainBatch, y: Tensor, q: Tensor, size: Tensor | None) -> Tensor:
    """Label weights of any other loss, which is asked on the CPU: losses know arrays."""
    is_site = batch.is_site
    sizes = torch.ones_like(is_site, dtype=torch.float64) if size is None else size.double()
    labels, soft, size_of = (t[is_site].cpu().numpy() for t in (y, q.double(), sizes))
    layout = Layout.of_counts(batch.lengths.cpu().numpy().astype(np.int64))
    known = SiteLabels.of_soft(soft, layout, size_of, labels)
    c = torch.from_numpy(objective.label_weights(known)).to(q.device, q.dtype)
    return torch.zeros_like(q).index_put((is_site,), c)
