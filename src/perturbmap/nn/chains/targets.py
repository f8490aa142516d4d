"""What an objective is to make likely, as padded tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from perturbmap.nn.chains.batch import ChainBatch, Report
from perturbmap.nn.chains.plain import indicators
from perturbmap.objectives import Objective
from perturbmap.potentials import Layout, SiteLabels
from perturbmap.task_losses import Hamming, ZeroOne


@final
@dataclass(frozen=True, eq=False)
class TensorTargets:
    """Labels and label weights, `perturbmap.objectives.Targets` in padded tensors.

    labels : (n_examples, n_sites), integers, below zero where not known; beyond a length they mean nothing
    aim : ``c = q * theta``, (n_examples, n_sites, n_labels); or the labels, where their indicators are c
    report : what was found wrong, and whether all labels are known, if they are no probabilities
    """

    batch: ChainBatch
    labels: Tensor
    aim: Tensor
    is_soft: bool
    report: Report

    @classmethod
    def of(cls, objective: Objective, batch: ChainBatch, labels: Any, sizes: Any) -> TensorTargets | None:
        """None where labels or sizes are not what they should be: whoever solves it in the core says why.

        What can only be seen on the device may come out later, in the report.
        """
        given, size = batch.padded(labels), None if sizes is None else batch.padded(sizes)
        if given is None or (sizes is not None and (size is None or size.dim() != 2)):
            return None
        is_soft, is_plain = given.dim() == 3, isinstance(objective.task_loss, (Hamming, ZeroOne))
        checks = [] if size is None else [((size >= 0) & (size < torch.inf) | ~batch.is_site).all()]
        if is_soft:
            if not (objective.takes_soft_labels and given.shape == batch.x.shape and given.is_floating_point()):
                return None
            is_short = given.dtype in (torch.float16, torch.bfloat16)
            given = given.to(batch.x.dtype).masked_fill(~batch.is_site[..., None], 0.0)
            total = given.sum(2, keepdim=True)
            if is_short:  # they sum to 1 within their own precision
                given, total = given / total.clamp(min=0.5), total.round(decimals=1)
            checks += [(given >= 0).all(), (((total[..., 0] - 1).abs() < 1.1e-5) | ~batch.is_site).all()]
        elif given.is_floating_point() or given.dtype == torch.bool or given.dim() != 2:
            return None
        report = batch.look(None if is_soft else given)
        if checks and not torch.stack(checks).all().item():
            return None
        y = given.new_full(given.shape[:2], -1, dtype=torch.int32) if is_soft else given
        if not (is_plain or report.is_good):
            return None
        aim = given if is_plain else _weighted(objective, batch, y, given, size)
        return cls(batch, y, aim, is_soft, report)

    @property
    def label_weights(self) -> Tensor:
        """``c = q * theta``, (n_examples, n_sites, n_labels); zero beyond an example's length."""
        return self.aim if self.aim.dim() == 3 else indicators(self.aim, self.batch.lengths, self.batch.x)

    @property
    def is_complete(self) -> Tensor:
        """Whether something is known of every site, (n_examples,)."""
        is_known = torch.ones_like(self.labels, dtype=torch.bool) if self.is_soft else self.labels >= 0
        return (is_known | ~self.batch.is_site).all(1)


def _weighted(objective: Objective, batch: ChainBatch, y: Tensor, given: Tensor, size: Tensor | None) -> Tensor:
    """Label weights of any other loss, which is asked on the CPU: losses know arrays."""
    is_site, n_labels = batch.is_site, batch.x.shape[2]
    counts = is_site.sum(1).cpu().numpy().astype(np.int64)
    sizes = torch.ones_like(is_site, dtype=torch.float64) if size is None else size.double()
    labels, layout = y[is_site].cpu().numpy().astype(np.int32), Layout.of_counts(counts)
    known = SiteLabels(layout, labels, n_labels, sizes[is_site].cpu().numpy())
    if given.dim() == 3:
        known = replace(known, soft=given[is_site].double().cpu().numpy())
    c = torch.from_numpy(objective.label_weights(known)).to(batch.x.device, batch.x.dtype)
    return torch.zeros_like(batch.x).index_put((is_site,), c)
