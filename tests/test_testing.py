"""Every check of `perturbmap.testing` finds out a part that is wrong, names the property and shows the instance."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import perturbmap as pm
from perturbmap.data import Dataset
from perturbmap.objectives import Targets
from perturbmap.potentials import Floats, Labels
from perturbmap.testing import ConformanceError
from tests.own_parts import AtMost, BoundedModel, Greedy, Perceptron, SmoothModel

Check = Callable[[Any], None]


def assert_caught(check: Check, part: Any, claim: str, *shown: str) -> None:
    with pytest.raises(ConformanceError) as error:
        check(part)
    message = str(error.value)
    assert repr(part) in message
    assert claim in message
    for name in shown:
        assert f"  {name} = " in message


# Structures.


class WrongPin:
    """Pins of a chain whose values or moments are not theirs."""

    def __init__(self, pinned: Any, values: Any, weight: float = 1.0) -> None:
        self.free, self.values, self._pinned, self._weight = pinned.free, values, pinned, weight

    def moments(self, weights: Any) -> pm.Moments:
        moments: pm.Moments = self._pinned.moments(weights)
        return moments.scaled(self._weight)


class OtherChain(pm.Structure):
    """A chain; those below break one promise each."""

    def maximise(self, f: pm.Potentials, given: Any = None) -> tuple[Labels, Floats]:
        return pm.Chain().maximise(f, given)

    def pinned(self, f: pm.Potentials, pins: Any = None, given: Any = None) -> Any:
        return pm.Chain().pinned(f, pins, given)


class NotTheMaximum(OtherChain):
    def maximise(self, f: pm.Potentials, given: Any = None) -> tuple[Labels, Floats]:
        return Greedy().maximise(f, given)

    def pinned(self, f: pm.Potentials, pins: Any = None, given: Any = None) -> Any:
        return Greedy().pinned(f, pins, given)


class IgnoresGiven(OtherChain):
    def maximise(self, f: pm.Potentials, given: Any = None) -> tuple[Labels, Floats]:
        return super().maximise(f)


class WrongPins(OtherChain):
    def pinned(self, f: pm.Potentials, pins: Any = None, given: Any = None) -> Any:
        pinned = super().pinned(f, pins, given)
        is_free = np.arange(f.n_labels) == pinned.free[..., None]
        return WrongPin(pinned, pinned.values - 0.01 * ~is_free)


class WrongMoments(OtherChain):
    def pinned(self, f: pm.Potentials, pins: Any = None, given: Any = None) -> Any:
        pinned = super().pinned(f, pins, given)
        return WrongPin(pinned, pinned.values, 2.0)


class NoMask(OtherChain):
    def pinned(self, f: pm.Potentials, pins: Any = None, given: Any = None) -> Any:
        return super().pinned(f, None, given)


class LooksAtTheBatch(OtherChain):
    def maximise(self, f: pm.Potentials, given: Any = None) -> tuple[Labels, Floats]:
        labels, values = super().maximise(f, given)
        return labels, values * (1 + 1e-15 * (len(f) > 1))


class LyingBound(Greedy):
    def maximise_with_bound(self, f: pm.Potentials, given: Any = None) -> pm.Maximum:
        labels, values = self.maximise(f, given)
        return pm.Maximum(labels, values, values)


class NeverRefuses(AtMost):
    def maximise(self, f: pm.Potentials, given: Any = None) -> tuple[Labels, Floats]:
        try:
            return super().maximise(f, given)
        except pm.InfeasibleError:
            labels = np.asarray(given).clip(0).astype(np.int32)
            return labels, f.score(labels)


class WrongSum(pm.SummableStructure):
    def maximise(self, f: pm.Potentials, given: Any = None) -> tuple[Labels, Floats]:
        return pm.Chain().maximise(f, given)

    def log_partition(self, f: pm.Potentials, given: Any = None, weights: Any = 1.0) -> tuple[Floats, pm.Moments]:
        value, marginals = pm.Chain().log_partition(f, given, weights)
        return value + 1e-6, marginals

    def pinned_sums(self, f: pm.Potentials, given: Any = None) -> Any:
        return pm.Chain().pinned_sums(f, given)


class RightSum(WrongSum):
    def log_partition(self, f: pm.Potentials, given: Any = None, weights: Any = 1.0) -> tuple[Floats, pm.Moments]:
        return pm.Chain().log_partition(f, given, weights)


class WrongEntropy(RightSum):
    def entropy(self, f: pm.Potentials, given: Any = None) -> Floats:
        return np.asarray(super().entropy(f, given) / np.log(2))


class SpansWithoutGiven(RightSum):
    def span_probabilities(self, f: pm.Potentials, spans: Any, given: Any = None) -> Floats:
        return super().span_probabilities(f, spans)


class SamplesWithoutGiven(RightSum):
    def sample(self, f: pm.Potentials, n_samples: int = 1, *, given: Any = None, rng: Any = None) -> Labels:
        return super().sample(f, n_samples, rng=rng)


class SamplesByTheBatch(RightSum):
    def sample(self, f: pm.Potentials, n_samples: int = 1, *, given: Any = None, rng: Any = None) -> Labels:
        return super().sample(f, n_samples, given=given, rng=len(f))


def check_chain(structure: Any) -> None:
    pm.testing.check_structure(structure, pm.testing.chains)


def check_at_most_two(structure: Any) -> None:
    listed = pm.BruteForce(allowed=lambda y: y.sum() <= 2)
    pm.testing.check_structure(structure, pm.testing.unaries, listed, sizes=[(n, 2) for n in range(1, 6)])


@pytest.mark.parametrize(
    ("check", "structure", "claim"),
    [
        (check_chain, NotTheMaximum(), "the value of `maximise` is the maximum"),
        (check_chain, IgnoresGiven(), "with all labels given, `maximise` returns them"),
        (check_chain, WrongPins(), "a pinned value is the maximum over the labellings that have the pin"),
        (check_chain, WrongMoments(), "the moments of one pin are the indicators of a labelling"),
        (check_chain, NoMask(), "pins that a mask leaves out"),
        (check_chain, LooksAtTheBatch(), "those of each copy of each example alone"),
        (check_chain, LyingBound(), "the bound of `maximise_with_bound` is no lower than the maximum"),
        (check_chain, WrongSum(), "the log-partition is that of the listed labellings"),
        (check_chain, WrongEntropy(), "the entropy is that of the listed distribution"),
        (
            check_chain,
            SpansWithoutGiven(),
            "the probability of a span is that of the labellings that have its labels",
        ),
        (check_chain, SamplesWithoutGiven(), "a sample has the given labels"),
        (check_chain, SamplesByTheBatch(), "the samples of a batch are those of each example alone"),
        (check_at_most_two, NeverRefuses(), "InfeasibleError says that no labelling has the given labels"),
        (check_at_most_two, AtMost(3), "a pinned value is the maximum over the labellings that have the pin"),
        (check_at_most_two, AtMost(1), "the value of `maximise` is the maximum"),
    ],
    ids=lambda value: value.__name__ if callable(value) else repr(value),
)
def test_a_wrong_structure_is_caught(check: Check, structure: pm.Structure, claim: str) -> None:
    """With the potentials and given labels on which it is wrong."""
    assert_caught(check, structure, claim, "unary", "pairwise", "edges", "given")


def test_the_instance_is_small_and_can_be_pasted() -> None:
    """Greedy is wrong on two sites and two labels already, and what is printed shows it."""
    with pytest.raises(ConformanceError) as error:
        check_chain(NotTheMaximum())
    lines = dict(line.split(" = ") for line in str(error.value).splitlines() if " = " in line)
    f = pm.Potentials(eval(lines["  unary"]), eval(lines["  pairwise"]), np.array(eval(lines["  edges"])))
    assert f.unary.size <= 9
    given = eval(lines["  given"])
    assert NotTheMaximum().maximise(f, given)[1] < pm.Chain().maximise(f, given)[1]


# Models.


class WrongAdjoint(SmoothModel):
    def pullback(self, batch: Dataset, n_labels: int, moments: pm.Moments) -> Floats:
        gradient = super().pullback(batch, n_labels, moments)
        gradient[-1] *= 2
        return gradient


class NewStreams(SmoothModel):
    def potentials(self, w: Floats, batch: Dataset, n_labels: int) -> pm.Potentials:
        f = super().potentials(w, batch, n_labels)
        return pm.Potentials.batch([f[n] for n in range(len(f))])


class SeesTheBatch(SmoothModel):
    def potentials(self, w: Floats, batch: Dataset, n_labels: int) -> pm.Potentials:
        return super().potentials(w / len(batch), batch, n_labels)

    def pullback(self, batch: Dataset, n_labels: int, moments: pm.Moments) -> Floats:
        return super().pullback(batch, n_labels, moments) / len(batch)


class UnknownBlock(SmoothModel):
    nonnegative = ("smooth",)


class WrongGradient(BoundedModel):
    def apply(self, w: Floats, batch: Dataset, n_labels: int) -> Any:
        f, _ = super().apply(w, batch, n_labels)
        return f, lambda moments: batch.features.pullback(moments.unary).ravel()


class AcceptsAnything(pm.LinearModel):
    """`MatchingModel` without its check."""

    def shapes(self, data: Dataset, n_labels: int) -> dict[str, tuple[int, ...]]:
        return pm.MatchingModel().shapes(data, n_labels)

    def potentials(self, w: Floats, batch: Dataset, n_labels: int) -> pm.Potentials:
        return pm.MatchingModel().potentials(w, batch, n_labels)

    def pullback(self, batch: Dataset, n_labels: int, moments: pm.Moments) -> Floats:
        return pm.MatchingModel().pullback(batch, n_labels, moments)


def check_on_chains(model: Any) -> None:
    rng = np.random.default_rng(0)
    pm.testing.check_model(model, [rng.normal(size=(n, 2)).round(3) for n in (3, 1, 2)], n_labels=2)


def check_on_matchings(model: Any) -> None:
    X = [pm.Example(np.eye(2), label_features=np.eye(2)), pm.Example(np.ones((1, 2)), label_features=np.eye(2))]
    pm.testing.check_model(model, X, n_labels=2, refused=[[np.eye(2)]])


@pytest.mark.parametrize(
    ("check", "model", "claim"),
    [
        (check_on_chains, WrongAdjoint(), "the pullback of a linear model is its adjoint"),
        (check_on_chains, NewStreams(), "keep the random streams"),
        (check_on_chains, SeesTheBatch(), "of an example are the same in every batch"),
        (check_on_chains, UnknownBlock(), "every name in `nonnegative` is that of a block"),
        (check_on_chains, WrongGradient(), "by finite differences: block 'features'"),
        (check_on_matchings, AcceptsAnything(), "`check` refuses examples that do not fit, refused[0]"),
    ],
    ids=lambda value: value.__name__ if callable(value) else repr(value),
)
def test_a_wrong_model_is_caught(check: Check, model: pm.Model, claim: str) -> None:
    """With the features on which it is wrong."""
    assert_caught(check, model, claim, "features", "edges", "n_labels")


# Objectives.


class ForgetsWeights(Perceptron):
    def value_and_grad(self, f: Any, targets: Targets, structure: Any, noise: Any) -> Any:
        return super().value_and_grad(f, targets.weighted(np.ones(len(f))), structure, noise)


class NeedsEdges(Perceptron):
    def value_and_grad(self, f: Any, targets: Targets, structure: Any, noise: Any) -> Any:
        value, gradient = super().value_and_grad(f, targets, structure, noise)
        return value, pm.Moments(gradient.unary, gradient.pairwise.copy())  # type: ignore[union-attr]  # None, at times


class WrongTables(Perceptron):
    def value_and_grad(self, f: Any, targets: Targets, structure: Any, noise: Any) -> Any:
        value, gradient = super().value_and_grad(f, targets, structure, noise)
        tables = gradient.pairwise
        return value, pm.Moments(gradient.unary, None if tables is None else tables.swapaxes(-1, -2))


class SaysSmooth(Perceptron):
    is_smooth = True


class SaysHinge(Perceptron):
    is_hinge = True

    def augmented(self, f: pm.Potentials, label_weights: Floats) -> pm.Potentials:
        return f.with_unary(f.unary + 1.0 - label_weights)


class MeanOfTheBatch(Perceptron):
    def value_and_grad(self, f: Any, targets: Targets, structure: Any, noise: Any) -> Any:
        value, gradient = super().value_and_grad(f, targets, structure, noise)
        return value / len(f), gradient.scaled(1 / len(f))


@pytest.mark.parametrize(
    ("objective", "claim"),
    [
        (ForgetsWeights(), "by finite differences: unary"),
        (NeedsEdges(), "it answers without an error"),
        (WrongTables(), "by finite differences: pairwise"),
        (SaysSmooth(), "the gradient has no jumps"),
        (SaysHinge(), "minus the maximum of `augmented`"),
        (MeanOfTheBatch(), "the value of an example is the same in every batch"),
    ],
    ids=repr,
)
def test_a_wrong_objective_is_caught(objective: pm.Objective, claim: str) -> None:
    """With the potentials and labels on which it is wrong."""
    assert_caught(pm.testing.check_objective, objective, claim, "unary", "pairwise", "labels", "weights")
