"""One part of each kind as a user would write it: nothing in the package knows of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import perturbmap as pm
from perturbmap.data import Dataset
from perturbmap.inference.marginal_methods import FromMarginals
from perturbmap.models.base import Pullback
from perturbmap.objectives import Targets
from perturbmap.potentials import Floats, Labels, Mask
from perturbmap.solvers import Averaging, Problem, State


class AtMost(pm.Structure):
    """Two labels, and at most m ones in an example; unary potentials only."""

    def __init__(self, m: int = 2, n_threads: int | None = None) -> None:
        self.m = m
        self.n_threads = n_threads

    def maximise(self, f: pm.Potentials, given: ArrayLike | None = None) -> tuple[Labels, Floats]:
        known = np.full(f.n_sites, -1) if given is None else np.asarray(given)
        labels = np.zeros(f.stack.shape[:-1], dtype=np.int32)
        for n in range(len(f)):
            sites = f.layout.sites(n)
            left = self.m - int((known[sites] == 1).sum())
            if left < 0:
                raise pm.InfeasibleError(f"more than {self.m} ones are given in example {n}.")
            for copy, unary in enumerate(f.stack[:, sites]):
                gain = np.where(known[sites] < 0, unary[:, 1] - unary[:, 0], -np.inf)
                best = np.argsort(-gain, kind="stable")[:left]
                y = (known[sites] == 1).astype(np.int32)
                y[best[gain[best] > 0]] = 1
                labels[copy, sites] = y
        labels = labels.reshape(f.unary.shape[:-1])
        return labels, f.score(labels)


class Greedy(pm.Structure):
    """Any labels and edges: sites are improved one by one, ``n_sweeps`` times, from the best label of each alone.

    Not exact. The bound is the sum of what every site and every edge could have at best; ``with_bound=False`` leaves
    it out.
    """

    is_exact = False

    def __init__(self, n_sweeps: int = 1, with_bound: bool = True) -> None:
        self.n_sweeps = n_sweeps
        self.with_bound = with_bound

    @property
    def allows_every_labelling(self) -> bool:
        return True

    def maximise(self, f: pm.Potentials, given: ArrayLike | None = None) -> tuple[Labels, Floats]:
        free = np.ones(f.n_sites, dtype=bool) if given is None else np.asarray(given) < 0
        labels = np.empty(f.stack.shape[:-1], dtype=np.int32)
        tables = f.tables
        for copy, unary in enumerate(f.stack):
            y = unary.argmax(axis=1).astype(np.int32)
            y[~free] = 0 if given is None else np.asarray(given)[~free]
            for d in [*np.flatnonzero(free)] * self.n_sweeps:
                score = unary[d].copy()
                for table, (i, j) in zip(tables, f.edges, strict=True):
                    if d in (i, j):
                        score += table[:, y[j]] if d == i else table[y[i]]
                y[d] = score.argmax()
            labels[copy] = y
        labels = labels.reshape(f.unary.shape[:-1])
        return labels, f.score(labels)

    def maximise_with_bound(self, f: pm.Potentials, given: ArrayLike | None = None) -> pm.Maximum:
        labels, values = self.maximise(f, given)
        if not self.with_bound:
            return pm.Maximum(labels, values, np.full_like(values, np.inf))
        known = np.full(f.n_sites, -1) if given is None else np.asarray(given)
        allowed = (known[:, None] < 0) | (known[:, None] == np.arange(f.n_labels))
        best = np.where(allowed, f.stack, -np.inf).max(axis=-1)
        of_edges = [
            np.where(allowed[i][:, None] & allowed[j], table, -np.inf).max()
            for table, (i, j) in zip(f.tables, f.edges, strict=True)
        ]
        bounds = np.empty((len(best), len(f)))
        for n in range(len(f)):
            edges = sum(of_edges[f.layout.edges_between(n)])
            for copy in range(len(best)):
                bounds[copy, n] = best[copy, f.layout.sites(n)].sum() + edges
        return pm.Maximum(labels, values, np.maximum(bounds.reshape(values.shape), values))


class SmoothModel(pm.LinearModel):
    """``f(y) = sum_d U[:, y_d] @ x_d + s sum_e [y_i == y_j]``, s >= 0."""

    nonnegative = ("smoothness",)

    def shapes(self, data: Dataset, n_labels: int) -> dict[str, tuple[int, ...]]:
        return {"features": (data.n_features, n_labels), "smoothness": (1,)}

    def potentials(self, w: Floats, batch: Dataset, n_labels: int) -> pm.Potentials:
        weights = self.unpack(w, batch, n_labels)
        table = pm.potts(float(weights["smoothness"][0]), n_labels)
        return pm.Potentials.on(batch.layout, batch.features @ weights["features"], table)

    def pullback(self, batch: Dataset, n_labels: int, moments: pm.Moments) -> Floats:
        assert moments.pairwise is not None
        return np.append(batch.features.pullback(moments.unary).ravel(), np.trace(moments.pairwise))


class BoundedModel(pm.Model):
    """``f(y) = sum_d bound * tanh(U[:, y_d] @ x_d / bound)``: no edges, and not linear in U."""

    def __init__(self, bound: float = 3.0) -> None:
        self.bound = bound

    def shapes(self, data: Dataset, n_labels: int) -> dict[str, tuple[int, ...]]:
        return {"features": (data.n_features, n_labels)}

    def apply(self, w: Floats, batch: Dataset, n_labels: int) -> tuple[pm.Potentials, Pullback]:
        squashed = np.tanh(batch.features @ w.reshape(-1, n_labels) / self.bound)

        def pullback(moments: pm.Moments) -> Floats:
            return batch.features.pullback(moments.unary * (1 - squashed**2)).ravel()

        return pm.Potentials.on(batch.layout, self.bound * squashed), pullback


class Perceptron(pm.Objective):
    """``scale * (f(y) - max_y' f(y'))``."""

    is_perturbed = False

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    @property
    def task_loss(self) -> pm.TaskLoss:
        return pm.Hamming()

    def label_weights(self, known: pm.SiteLabels) -> Floats:
        return known.q

    def value_and_grad(
        self, f: pm.Potentials, targets: Targets, structure: pm.Structure, noise: Floats | None
    ) -> tuple[Floats, pm.Moments]:
        best, top = structure.maximise(f)
        truth, value = targets.labels, structure.evaluate
        if (truth < 0).any():
            truth = structure.argmax(f, truth)
        up, down = f.indicators(truth, targets.weights), f.indicators(best, targets.weights)
        return self.scale * (value(f, truth) - top), (up - down).scaled(self.scale)


class RootHamming(pm.TaskLoss):
    """``sum_d size_d ** power [y_d != yhat_d]``."""

    def __init__(self, power: float = 0.5) -> None:
        self.power = power

    def site_weights(self, known: pm.SiteLabels) -> Floats:
        return self.site_sizes(known)[:, None] * np.ones_like(known.q)

    def site_sizes(self, known: pm.SiteLabels) -> Floats:
        return np.asarray(known.sizes**self.power)


class Ascent(pm.Solver[State]):
    """``w <- project(w + step * gradient)`` on all examples, with its own noise in each step, averaged."""

    def __init__(self, step: float = 0.1, max_iter: int = 60, averaging: Averaging | None = None) -> None:
        self.step = step
        self.max_iter = max_iter
        self.averaging = averaging

    def n_iter(self, n_examples: int) -> int:
        return self.max_iter

    def run(
        self,
        problem: Problem,
        state: State,
        on_step: Callable[[State], bool] | None = None,
        n_iter: int | None = None,
    ) -> State:
        last = self.max_iter if n_iter is None else n_iter
        while state.iteration < last:
            state.iteration += 1
            _, gradient = problem.value_and_grad(state.w, draw=state.iteration)
            state.w = problem.project(state.w + self.step * (gradient - problem.l2 * state.w))
            rate = 1.0 if self.averaging is None else self.averaging.rate(state.iteration, last)
            state.average = state.average + rate * (state.w - state.average)
            if on_step is not None and on_step(state):
                break
        return state


class Exponential(Averaging):
    """The weight of an iterate falls by ``1 - keep`` with each step after it."""

    def __init__(self, keep: float = 0.2) -> None:
        self.keep = keep

    def rate(self, h: int, n_iter: int) -> float:
        return max(self.keep, 1.0 / h)


class Smoothed(pm.PerturbedMethod):
    """Integrated marginals, mixed with the uniform ones: ``(1 - share) E softmax_k B'[d, k] + share / K``."""

    def __init__(self, share: float = 0.1) -> None:
        self.share = share

    def statistic(self, free: Labels, values: Floats) -> Floats:
        return pm.INTEGRATED.statistic(free, values)

    def link(self, mean: Floats, impossible: Mask) -> Floats:
        uniform = ~impossible / (~impossible).sum(axis=-1, keepdims=True)
        return np.asarray((1 - self.share) * mean + self.share * uniform)

    def with_pullback(
        self, structure: pm.Structure, f: pm.Potentials, noise: Floats | None
    ) -> tuple[Floats, FromMarginals]:
        q, pullback = pm.INTEGRATED.with_pullback(structure, f, noise)
        return self.link(q, q == 0), lambda g: pullback((1 - self.share) * g)


PARTS: list[type[Any]] = [
    AtMost,
    Greedy,
    SmoothModel,
    BoundedModel,
    Perceptron,
    RootHamming,
    Ascent,
    Exponential,
    Smoothed,
]
