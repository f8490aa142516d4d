"""The modules: a loss, marginals, the best labelling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from perturbmap.data.labels import check_soft
from perturbmap.inference import PINNED, MarginalMethod
from perturbmap.nn.chains import marginals, objectives
from perturbmap.nn.chains.targets import TensorTargets
from perturbmap.nn.layer import Layer, PerturbedLayer, chains_of, key_of, noise_of, solver_of
from perturbmap.nn.tensors import Batch, Ragged, to_numpy
from perturbmap.objectives import MarginalLogLikelihood, Objective, Targets
from perturbmap.potentials import Floats, Labels, Moments, Potentials, SiteLabels
from perturbmap.structures import InfeasibleError, Structure


@final
class StructuredLoss(PerturbedLayer):
    """The negative of an objective, to be minimised: ``- sum_d sum_k c[d, k] log P(y_d = k)`` by default.

    The default adds up the negative log-probability of the true label of each site d: c is 1 for it, 0 for others.

    objective : any of the library's; `MarginalLogLikelihood` of the Hamming loss by default
    structure : which labellings there are, and how the best is found; `Chain` by default
    n_perturbations : draws of noise in a call, whose mean is taken; one suffices for stochastic gradients
    reduction : "mean" or "sum" over examples, or "none" for one value for each example. An example's value is a sum
        over its sites.
    seed : the seed of the noise; None takes one from torch's generator, so that ``torch.manual_seed`` decides

    In training each call has fresh noise; in evaluation (``loss.eval()``) all calls have the same. The state of the
    noise is part of ``state_dict``.

    >>> import torch
    >>> unary = torch.zeros(1, 3, 2, requires_grad=True)  # one chain of three sites
    >>> loss = pm.nn.StructuredLoss(seed=0)(unary, torch.tensor([[0, 1, 1]]), torch.zeros(2, 2))
    >>> round(loss.item(), 4)  # without a preference, three times log 2
    2.0794
    """

    kind = 0

    def __init__(
        self,
        objective: Objective | None = None,
        structure: Structure | None = None,
        *,
        n_perturbations: int = 1,
        reduction: str = "mean",
        seed: int | None = None,
    ) -> None:
        super().__init__(structure, n_perturbations, seed)
        self.objective = MarginalLogLikelihood() if objective is None else objective
        if not isinstance(self.objective, Objective):
            raise TypeError(f"objective must be an Objective, such as LogLikelihood(), but is {objective!r}.")
        self.objective.check(self.structure)
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f'reduction must be "mean", "sum" or "none", but is {reduction!r}.')
        self.reduction = reduction

    def forward(
        self,
        unary: Tensor | Ragged,
        labels: Any,
        pairwise: Any = None,
        edges: Any = None,
        *,
        mask: Any = None,
        sizes: Any = None,
    ) -> Tensor:
        """The loss of potentials, in the layouts of `perturbmap.nn`.

        unary, pairwise, edges, mask : the potentials, padded or ragged, as the help of `perturbmap.nn` says
        labels : integers, -1 where a label is not known, ``(n_examples, n_sites)`` or a list; or probabilities of
            labels, with a further axis, through which no gradient goes. What is padded is not looked at.
        sizes : how much each site counts in a weighted loss, in the layout of ``labels``; by default all count 1
        """
        loss: Tensor = self.answer(unary, labels, pairwise, edges, mask, sizes)
        return loss

    def solve(self, unary: Any, labels: Any, pairwise: Any, edges: Any, mask: Any, sizes: Any) -> Tensor:
        """See `forward`, which is this outside of compiled graphs."""
        chains = chains_of(self, unary, pairwise, edges, mask) if objectives.is_known(type(self.objective)) else None
        aims = None if chains is None else TensorTargets.of(self.objective, chains, labels, sizes)
        if chains is not None and aims is not None:
            before, key = self.n_draws, key_of(self) if self.objective.is_perturbed else None
            loss = objectives.loss_of(self.objective, chains, aims, key, self.n_perturbations, self.reduction)
            if loss is not None:
                return loss
            self.n_draws = before
        batch = Batch.pack(unary, pairwise, edges, mask)
        targets = self._targets(batch, labels, sizes)
        structure, f = solver_of(self), batch.f
        _check_allowed(structure, f, targets.labels)
        draws = list(noise_of(self, f, structure)) if self.objective.is_perturbed else [None]
        objective = self.objective  # the tape must not hold the module, which may hold the tape: see `compiling`

        def solve(weights: Floats) -> tuple[Floats, Moments]:
            weighted = targets.weighted(weights / len(draws))
            results = [objective.value_and_grad(f, weighted, structure, noise) for noise in draws]
            if len(results) == 1:
                return results[0]
            tables = [moments.pairwise for _, moments in results if moments.pairwise is not None]
            unary = np.sum([moments.unary for _, moments in results], axis=0)
            return np.mean([v for v, _ in results], axis=0), Moments(
                unary, np.sum(tables, axis=0) if tables else None
            )

        values, moments = solve(np.ones(len(f)))

        def pullback(g: Floats) -> Moments:
            if (g == g[0]).all():
                return moments.scaled(float(g[0]))
            return solve(g)[1]  # an edge table that examples share has the sum of their gradients: weigh them anew

        # A sum over sites may be large: it is never less than float32, as in torch's own losses under autocast.
        dtype = torch.promote_types(batch.unary.dtype, torch.float32)
        losses = -batch.through_core(values, dtype, pullback)
        return losses if self.reduction == "none" else losses.mean() if self.reduction == "mean" else losses.sum()

    def outline(self, unary: Any, *others: Any) -> Tensor:
        """One number, or one for each example."""
        first = unary if isinstance(unary, Tensor) else unary[0]
        dtype = torch.promote_types(first.dtype, torch.float32)
        return first.new_empty((len(unary),) if self.reduction == "none" else (), dtype=dtype)

    def _targets(self, batch: Batch, labels: Any, sizes: Any) -> Targets:
        f = batch.f
        try:
            rows = batch.site_values("labels", labels)
        except TypeError as error:
            raise TypeError(f"labels must be tensors or arrays of integers or of probabilities ({error}).") from None
        size = np.ones(f.n_sites) if sizes is None else to_numpy(batch.site_values("sizes", sizes)).astype(np.float64)
        if size.shape != (f.n_sites,) or not np.isfinite(size).all() or (size < 0).any():
            raise ValueError("sizes must be finite numbers, one for each site, none negative.")
        given = to_numpy(rows)
        if given.ndim == 2:
            if not self.objective.takes_soft_labels:
                name = type(self.objective).__name__
                raise ValueError(f"{name} learns from labels, not from soft ones: give integers in labels.")
            if rows.dtype in (torch.float16, torch.bfloat16):
                given = _renormalised(given)
            known = SiteLabels.of_soft(check_soft("labels", given, f.n_sites, f.n_labels), f.layout, size)
        else:
            y = f.check_labels("labels", given, unknown=True)
            known = SiteLabels(f.layout, y, f.n_labels, size)
        return self.objective.targets(known)


def _each(unary: Any, outline: Callable[[Tensor], Tensor]) -> Any:
    return outline(unary) if isinstance(unary, Tensor) else [outline(part) for part in unary]


def _renormalised(q: NDArray[Any]) -> NDArray[Any]:
    """Probabilities of short floats, which sum to 1 within their precision, in full precision."""
    total = q.astype(np.float64).sum(axis=1, keepdims=True)
    return np.where(np.abs(total - 1) < 0.01, q / np.maximum(total, 0.5), q)


def _check_allowed(structure: Structure, f: Potentials, labels: Labels) -> None:
    """Of a labelling that cannot be, a likelihood has no bound; of a solver of the user's, two examples are asked."""
    if structure.allows_every_labelling:
        return
    some = f if structure.is_thread_safe else f[:2]
    try:
        structure.maximise(some, labels[: some.n_sites])
    except InfeasibleError as error:
        raise ValueError(f"labels hold what {type(structure).__name__} does not allow: {error}") from None


@final
class Marginals(PerturbedLayer):
    """P(y_d = k) of every site, for use inside a network, in the layout of ``unary``; zeros where a tensor is padded.

    structure : which labellings there are, and how the best is found; `Chain` by default
    method : `PINNED` (default), `INTEGRATED`, `COUNTED`, `EXACT` where the structure can be summed over, or your own
    n_perturbations : draws of noise in a call: more take longer and more memory, and leave less noise
    seed : as in `StructuredLoss`

    The gradient of PINNED, INTEGRATED and EXACT is that of the values returned, the noise held fixed. COUNTED jumps,
    and has the gradient of INTEGRATED under the same noise: both have the same mean. All perturbations are in memory
    at once; where no gradient is wanted, `perturbmap.marginals` takes any number of them.
    """

    kind = 1

    def __init__(
        self,
        structure: Structure | None = None,
        method: MarginalMethod = PINNED,
        *,
        n_perturbations: int = 16,
        seed: int | None = None,
    ) -> None:
        super().__init__(structure, n_perturbations, seed)
        if not isinstance(method, MarginalMethod):
            raise TypeError(f"method must be a MarginalMethod, such as PINNED, but is {method!r}.")
        method.check(self.structure)
        self.method = method

    def forward(self, unary: Tensor | Ragged, pairwise: Any = None, edges: Any = None, *, mask: Any = None) -> Any:
        """Marginals of potentials, in the layouts of `perturbmap.nn`."""
        return self.answer(unary, pairwise, edges, mask)

    def outline(self, unary: Any, *others: Any) -> Any:
        """Empty tensors of the shape of the marginals, which is that of ``unary``."""
        return _each(unary, lambda part: part.new_empty(part.shape))

    def solve(self, unary: Any, pairwise: Any, edges: Any, mask: Any) -> Any:
        """See `forward`, which is this outside of compiled graphs."""
        chains = chains_of(self, unary, pairwise, edges, mask) if marginals.is_known(self.method) else None
        if chains is not None:
            before, key = self.n_draws, key_of(self) if self.method.is_perturbed else None
            found = marginals.marginals_of(self.method, chains, key, self.n_perturbations)
            if found is not None:
                return found
            self.n_draws = before
        batch, structure = Batch.pack(unary, pairwise, edges, mask), solver_of(self)
        noise = noise_of(self, batch.f, structure) if self.method.is_perturbed else None
        q, pullback = self.method.with_pullback(structure, batch.f, noise)
        return batch.layout.unpack(batch.through_core(q, batch.unary.dtype, pullback), 0.0)


@final
class BestLabelling(Layer):
    """The labelling of the highest score, without a gradient; -1 where a tensor is padded.

    structure : which labellings there are, and how the best is found; `Chain` by default
    """

    def __init__(self, structure: Structure | None = None) -> None:
        super().__init__(structure)

    def forward(self, unary: Tensor | Ragged, pairwise: Any = None, edges: Any = None, *, mask: Any = None) -> Any:
        """Labels of potentials, in the layouts of `perturbmap.nn`."""
        return self.answer(unary, pairwise, edges, mask)

    def outline(self, unary: Any, *others: Any) -> Any:
        """One label for each site."""
        return _each(unary, lambda part: part.new_empty(part.shape[:-1], dtype=torch.int64))

    def solve(self, unary: Any, pairwise: Any, edges: Any, mask: Any) -> Any:
        """See `forward`, which is this outside of compiled graphs."""
        chains = chains_of(self, unary, pairwise, edges, mask)
        labels = None if chains is None else chains.best_labels()
        if labels is not None:
            return labels
        batch = Batch.pack(unary, pairwise, edges, mask)
        best = torch.from_numpy(solver_of(self).argmax(batch.f).astype(np.int64)).to(batch.unary.device)
        return batch.layout.unpack(best, -1)
