"""What a fit leaves behind: weights, and all that is needed to answer for other examples with them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from perturbmap.data import Dataset
from perturbmap.inference import (
    Calibration,
    Decoding,
    LabelPrior,
    MarginalMethod,
    corrected_marginals,
    decode,
    decode_for,
)
from perturbmap.models import Model
from perturbmap.models.base import check_streams
from perturbmap.potentials import Floats, Labels, Potentials
from perturbmap.structures import Structure
from perturbmap.task_losses import TaskLoss


@final
@dataclass(frozen=True, eq=False)
class LearnedModel:
    """Potentials, marginals and labels of examples, under learned weights.

    w : (n_weights,)
    n_features, n_labels : what the examples of the fit had
    marginal_method, n_perturbations, seed : how marginals are estimated
    calibration, label_prior : how they are corrected; None leaves them as they are
    decoding, task_loss : which labelling is predicted
    decoding_calibration : how marginals are corrected for `Decoding.LOSS_AWARE`; None: as all are
    """

    model: Model
    structure: Structure
    w: Floats
    n_features: int
    n_labels: int
    marginal_method: MarginalMethod
    n_perturbations: int
    seed: int
    calibration: Calibration | None
    label_prior: LabelPrior | None
    decoding: Decoding
    task_loss: TaskLoss
    decoding_calibration: Calibration | None = None

    def with_threads(self, n_threads: int) -> LearnedModel:
        """The same model with so many threads: with one, for a process that shares its cores with others."""
        return replace(self, structure=self.structure.with_threads(n_threads))

    def check(self, data: Dataset) -> None:
        """Raises ValueError where the examples are not like those of the fit."""
        if data.n_features != self.n_features:
            raise ValueError(
                f"X has {data.n_features} features, but the fit had {self.n_features}: compute them in the same way."
            )
        self.model.check(data, self.n_labels)
        n_weights = self.model.n_weights(data, self.n_labels)
        if n_weights != len(self.w):
            raise ValueError(
                f"X asks for {n_weights} weights, but the fit had {len(self.w)}: the examples must have as many "
                "edge_features and label_features as those of the fit."
            )

    def potentials(self, data: Dataset) -> Potentials:
        """The potentials f of the examples."""
        return check_streams(self.model, self.model.potentials(self.w, data, self.n_labels), data)

    def marginals(
        self, data: Dataset, given: Labels | None = None, *, method: MarginalMethod | None = None
    ) -> Floats:
        """P(y_d = k), ``(n_sites, n_labels)``, conditional on the given labels."""
        return corrected_marginals(
            self.structure,
            self.potentials(data),
            self.calibration,
            self.label_prior,
            method=self.marginal_method if method is None else method,
            given=given,
            n_perturbations=self.n_perturbations,
            rng=self.seed,
        )

    def labels(self, data: Dataset, q: Floats | None = None) -> Labels:
        """The predicted labelling, by `decoding`; ``q`` are the marginals, where they are known and of use."""
        # The best labelling is that of the least expected zero-one loss.
        is_loss_of_sites = self.task_loss.sums_over_sites
        if self.decoding is Decoding.MAP or (self.decoding is Decoding.LOSS_AWARE and not is_loss_of_sites):
            return self.structure.argmax(self.potentials(data))
        if self.decoding is Decoding.LOSS_AWARE and self.decoding_calibration is not None:
            q = replace(self, calibration=self.decoding_calibration).marginals(data)
        q = self.marginals(data) if q is None else q
        if self.decoding is Decoding.MARGINAL:
            return decode(q)
        return decode_for(self.task_loss, q, data.layout, data.sizes)
