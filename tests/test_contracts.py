"""A class of the package is abstract, and cannot be made while a method is missing, or final."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

import perturbmap as pm
from perturbmap.distributed import LocalSGD
from perturbmap.inference import COUNTED, EXACT, INTEGRATED, PINNED
from perturbmap.objectives import ExactObjective, LabellingObjective, SiteObjective
from perturbmap.potentials import Layout
from perturbmap.solvers import Averaging, Problem, State
from perturbmap.support.parts import Part


class LazySolver(pm.Solver[State]):
    def n_iter(self, n_examples: int) -> int:
        return 1


class EndlessSolver(pm.Solver[State]):
    def run(self, *arguments: Any, **options: Any) -> State:
        raise NotImplementedError


class NoModel(pm.Model):
    def shapes(self, data: Any, n_labels: int) -> dict[str, tuple[int, ...]]:
        return {}


class NoLinearModel(pm.LinearModel):
    def shapes(self, data: Any, n_labels: int) -> dict[str, tuple[int, ...]]:
        return {}


class NoObjective(pm.Objective):
    def label_weights(self, known: pm.SiteLabels) -> Any:
        return known.q


class NoSiteObjective(SiteObjective): ...


class NoLabellingObjective(LabellingObjective): ...


class NoExactObjective(ExactObjective): ...


class NoLoss(pm.TaskLoss): ...


class NoStructure(pm.Structure): ...


class NoSums(pm.SummableStructure):
    def maximise(self, f: pm.Potentials, given: Any = None) -> Any:
        return pm.Chain().maximise(f, given)


class NoAverage(Averaging): ...


class NoMethod(pm.MarginalMethod): ...


@pytest.mark.parametrize(
    ("made", "missing"),
    [
        (LazySolver, ["run"]),
        (EndlessSolver, ["n_iter"]),
        (NoModel, ["apply"]),
        (NoLinearModel, ["potentials", "pullback"]),
        (NoObjective, ["task_loss", "value_and_grad"]),
        (NoSiteObjective, ["value_and_grad"]),
        (NoLabellingObjective, ["value_and_grad"]),
        (NoExactObjective, ["label_weights", "task_loss", "value_and_grad"]),
        (NoLoss, ["site_weights"]),
        (NoStructure, ["maximise"]),
        (NoSums, ["log_partition", "pinned_sums"]),
        (NoAverage, ["rate"]),
        (NoMethod, ["with_pullback"]),
    ],
)
def test_a_part_without_its_methods_cannot_be_made(made: Callable[[], object], missing: list[str]) -> None:
    """The error names every method that is missing."""
    with pytest.raises(TypeError, match="abstract") as error:
        made()
    for name in missing:
        assert name in str(error.value)


KINDS = (pm.Model, pm.Structure, pm.Objective, pm.TaskLoss, pm.Solver, Averaging, pm.MarginalMethod)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_abstract(kind: type[Part]) -> None:
    """The bases themselves cannot be made."""
    with pytest.raises(TypeError, match="abstract"):
        kind()


def exported() -> list[type]:
    """The classes that the package and its public modules export, and those of its own objects."""
    modules = [pm, pm.models, pm.objectives, pm.solvers, pm.structures, pm.task_losses, pm.testing]
    classes = {
        value for module in modules for name in module.__all__ if isinstance(value := getattr(module, name), type)
    }
    classes |= {type(method) for method in (COUNTED, EXACT, INTEGRATED, PINNED)} | {LocalSGD, Layout, Problem}
    # Values and choices, errors and warnings, protocols: none of them is made to be derived from or completed.
    return sorted((c for c in classes if issubclass(c, Part)), key=lambda c: c.__name__)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="typing.final leaves no mark before Python 3.11")
@pytest.mark.parametrize("cls", exported(), ids=lambda cls: cls.__name__)
def test_every_exported_part_is_abstract_or_final(cls: type) -> None:
    """Nobody derives from a part that works, and nobody makes one that does not."""
    is_abstract = bool(getattr(cls, "__abstractmethods__", ()))
    is_final = bool(vars(cls).get("__final__", False))
    assert is_abstract != is_final


def test_the_list_of_exported_parts_is_not_empty() -> None:
    """Parts of every kind are looked at."""
    for kind in KINDS:
        assert any(issubclass(cls, kind) and cls is not kind for cls in exported())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="typing.final leaves no mark before Python 3.11")
@pytest.mark.parametrize("cls", [pm.Potentials, Layout, pm.SiteLabels, Problem, pm.Store, pm.StructuredPredictor])
def test_values_are_final(cls: type) -> None:
    """They are used, not derived from."""
    assert vars(cls).get("__final__", False)
