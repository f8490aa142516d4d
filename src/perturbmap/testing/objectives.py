"""The check of objectives: values, gradients by finite differences, and what an objective says of itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from perturbmap.inference import MarginalMethod
from perturbmap.noise import gumbel_noise
from perturbmap.objectives import Objective
from perturbmap.potentials import Floats, Moments, Potentials, SiteLabels
from perturbmap.structures import BruteForce, Chain
from perturbmap.structures.base import Structure
from perturbmap.task_losses import TaskLoss
from perturbmap.testing.differences import directions, inner, is_slope, moved, nearest_slope
from perturbmap.testing.failure import Trial, describe
from perturbmap.testing.instances import SIZES, Make, a_labelling, batches, chains, describe_potentials, single_cases
from perturbmap.testing.parts import check_part

_CLOSE = 1e-9
# Halvings of a segment of potentials in search of a jump of the gradient, and what is a jump then.
_HALVINGS, _JUMP = 34, 1e-6


def check_objective(
    objective: Objective,
    structure: Structure | None = None,
    make: Make = chains,
    definition: Structure | None = None,
    *,
    partly_known: bool = True,
    sizes: Sequence[tuple[int, int]] = SIZES,
    n_repeats: int = 4,
    seed: int = 0,
) -> None:
    """Checks that an objective has a value for each example and their true gradient, and is what it says it is.

    `ConformanceError` says what is wrong.

    objective : the `Objective` to check
    structure, make, definition, sizes : as in `check_structure`; chains by default. Potentials are real numbers, and
        never integers: there a function with kinks has a gradient, almost surely
    partly_known : whether to try examples of which some labels are not known
    n_repeats, seed : the number of random instances of each size, and their seed

    Checked are the gradient of the weighted sum of the values, by finite differences under the same noise; weights of
    examples; batches, whose values must be those of their examples; potentials without edges; soft labels, if
    ``takes_soft_labels``; that the gradient has no jumps, if ``is_smooth``; and that ``augmented`` is the second
    term, if ``is_hinge``.

    >>> pm.testing.check_objective(pm.StructuredHinge(pm.WeightedHamming()))
    >>> graphs = pm.testing.attractive_graphs
    >>> pm.testing.check_objective(pm.LogLikelihood(), pm.BinaryGraph(), graphs, sizes=[(1, 2), (4, 2)])
    """
    check_part(objective, Objective)
    shape = Chain() if structure is None else structure
    listed = BruteForce() if definition is None else definition
    objective.check(shape)
    _check_what_it_says(objective)
    rng = np.random.default_rng(seed)
    for case in single_cases(rng, make, listed, sizes, n_repeats, integers=False):
        for question in _questions(rng, objective, listed, case.f, partly_known):
            with Trial(objective, question.describe) as trial:
                _check_value_and_gradient(trial, objective, shape, question, rng)
                if objective.is_hinge and (question.known.labels >= 0).all():
                    _check_hinge(trial, objective, shape, question)
    for case in batches(rng, make, listed, sizes, n_repeats, integers=False):
        for question in _questions(rng, objective, listed, case.f, partly_known):
            with Trial(objective, question.describe) as trial:
                _check_batch(trial, objective, shape, question)
                _check_weights(trial, objective, shape, question)
                if objective.is_smooth:
                    _check_smooth(trial, objective, shape, question, rng)


@final
@dataclass(frozen=True, eq=False)
class _Question:
    """Potentials, what is known of the labels, weights of the examples and noise."""

    f: Potentials
    known: SiteLabels
    weights: Floats
    noise: Floats | None

    def describe(self) -> str:
        """All of it, but for the noise: where there is some, it is ``gumbel_noise(f, seed=0)[0]``."""
        noise = "None" if self.noise is None else "gumbel_noise(f, seed=0)[0]"
        known = self.known
        soft = {} if known.is_hard else {"q": known.q}
        about = describe(labels=known.labels, **soft, sizes=known.sizes, weights=self.weights)
        return f"{describe_potentials(self.f)}\n{about}\nnoise = {noise}"

    def ask(self, objective: Objective, structure: Structure, f: Potentials | None = None) -> tuple[Floats, Moments]:
        """Value and gradient, at these potentials or at others."""
        targets = objective.targets(self.known, weights=self.weights)
        return objective.value_and_grad(self.f if f is None else f, targets, structure, self.noise)

    def example(self, n: int) -> _Question:
        """The question of one of the examples."""
        sites = self.f.layout.sites(n)
        noise = None if self.noise is None else self.noise[sites]
        return _Question(self.f[n], self.known.take(np.array([n])), self.weights[n : n + 1], noise)


def _questions(
    rng: np.random.Generator, objective: Objective, definition: Structure, f: Potentials, partly_known: bool
) -> Iterator[_Question]:
    """All labels known, without edges and with them; some known; probabilities."""
    noise = gumbel_noise(f, seed=0)[0] if objective.is_perturbed else None
    weights = rng.uniform(0.5, 2, len(f)).round(2)
    sizes = rng.uniform(0.5, 4, f.n_sites).round(2)
    known = SiteLabels.of(a_labelling(rng, definition, f), f.n_labels, f.layout, sizes)
    without_edges = Potentials.on(f.layout, f.unary)
    yield _Question(without_edges, replace(known, layout=without_edges.layout), weights, noise)
    yield _Question(f, known, weights, noise)
    if partly_known:
        some = np.where(rng.random(f.n_sites) < 0.5, known.labels, -1)
        yield _Question(f, SiteLabels.of(some, f.n_labels, f.layout, sizes), weights, noise)
    if objective.takes_soft_labels:
        others = [known.q, *(SiteLabels.of(a_labelling(rng, definition, f), f.n_labels).q for _ in range(2))]
        q = np.average(others, axis=0, weights=[2, 1, 1])
        yield _Question(f, SiteLabels.of_soft(q, f.layout, sizes), weights, noise)


def _check_what_it_says(objective: Objective) -> None:
    trial = Trial(
        objective,
        lambda: describe(
            is_perturbed=objective.is_perturbed, is_smooth=objective.is_smooth, is_hinge=objective.is_hinge
        ),
    )
    trial.holds("`task_loss` is a TaskLoss", isinstance(objective.task_loss, TaskLoss))
    trial.holds("`marginal_method` is a MarginalMethod", isinstance(objective.marginal_method, MarginalMethod))
    trial.holds(
        "a hinge is neither perturbed nor smooth",
        not (objective.is_hinge and (objective.is_perturbed or objective.is_smooth)),
    )


def _check_value_and_gradient(
    trial: Trial, objective: Objective, structure: Structure, question: _Question, rng: np.random.Generator
) -> None:
    f = question.f
    values, gradient = question.ask(objective, structure)
    trial.equal("there is one value for each example", values.shape, (len(f),))
    trial.holds("values are finite", np.isfinite(values), f"found: {values.tolist()}")
    trial.equal("the gradient has the shape of the unary potentials", gradient.unary.shape, f.unary.shape)
    expected = None if f.pairwise is None else f.pairwise.shape
    found = None if gradient.pairwise is None else gradient.pairwise.shape
    trial.holds(
        "the gradient has tables where the potentials have",
        found == expected,
        f"expected: {expected}\nfound:    {found}",
    )
    for name, unary, pairwise in directions(f, rng):
        slope = inner(gradient, unary, pairwise)

        def value(t: float, unary: Floats = unary, pairwise: Floats | None = pairwise) -> float:
            at = question.ask(objective, structure, moved(f, t, unary, pairwise))[0]
            return float(question.weights @ at)

        found_slope = nearest_slope(value, slope)
        trial.holds(
            f"the gradient is that of the weighted sum of the values, by finite differences: {name}",
            is_slope(found_slope, slope, float(np.abs(values).max())),
            f"difference quotient: {found_slope}\nfrom the gradient:   {slope}\n"
            f"direction: {(unary if pairwise is None else pairwise).tolist()}",
        )


def _check_batch(trial: Trial, objective: Objective, structure: Structure, question: _Question) -> None:
    values, gradient = question.ask(objective, structure)
    for n in range(len(question.f)):
        value, alone = question.example(n).ask(objective, structure)
        trial.close("the value of an example is the same in every batch", values[n : n + 1], value, _CLOSE, _CLOSE)
        sites = question.f.layout.sites(n)
        trial.close(
            "the gradient of an example is the same in every batch",
            gradient.unary[sites],
            alone.unary,
            _CLOSE,
            _CLOSE,
        )


def _check_weights(trial: Trial, objective: Objective, structure: Structure, question: _Question) -> None:
    values, gradient = question.ask(objective, structure)
    twice = replace(question, weights=2 * question.weights)
    same, doubled = twice.ask(objective, structure)
    trial.close("weights of examples leave their values as they are", same, values, _CLOSE, _CLOSE)
    trial.close("weights of examples multiply the gradient: unary", doubled.unary, 2 * gradient.unary, _CLOSE, _CLOSE)
    if doubled.pairwise is not None and gradient.pairwise is not None:
        trial.close(
            "weights of examples multiply the gradient: pairwise",
            doubled.pairwise,
            2 * gradient.pairwise,
            _CLOSE,
            _CLOSE,
        )
    without = replace(question, weights=np.concatenate([[0.0], question.weights[1:]]))
    unary = without.ask(objective, structure)[1].unary[question.f.layout.sites(0)]
    trial.close("an example of weight zero has no gradient", unary, np.zeros_like(unary), 0, _CLOSE)


def _check_smooth(
    trial: Trial, objective: Objective, structure: Structure, question: _Question, rng: np.random.Generator
) -> None:
    """Halves a segment of potentials towards the larger change of the gradient; only a jump does not vanish."""
    f = question.f
    direction = 2.0 * rng.normal(size=f.unary.shape)

    def gradient(t: float) -> Floats:
        return question.ask(objective, structure, moved(f, t, direction, None))[1].unary

    low, high = 0.0, 1.0
    at_low, at_high = gradient(low), gradient(high)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        between = gradient(middle)
        if np.abs(between - at_low).max() > np.abs(at_high - between).max():
            high, at_high = middle, between
        else:
            low, at_low = middle, between
    jump = float(np.abs(at_high - at_low).max())
    trial.holds(
        "the gradient has no jumps, as `is_smooth` says",
        jump <= _JUMP,
        f"it jumps by {jump:.3g} at unary + {low:.9f} * change\nchange: {direction.tolist()}",
    )


def _check_hinge(trial: Trial, objective: Objective, structure: Structure, question: _Question) -> None:
    f, y = question.f, question.known.labels
    weights = objective.targets(question.known).label_weights
    augmented = objective.augmented(f, weights)
    margin = structure.evaluate(augmented, y) - structure.evaluate(f, y)
    trial.close("the margin of the truth is zero", margin, np.zeros_like(margin), 0, _CLOSE)
    expected = structure.evaluate(f, y) - structure.maximise(augmented)[1]
    trial.close(
        "the value of a hinge is the score of the truth minus the maximum of `augmented`",
        question.ask(objective, structure)[0],
        expected,
        _CLOSE,
        _CLOSE,
    )
