"""What a tagger has learned, by name: its strongest features and transitions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from perturbmap.potentials import Floats
from perturbmap.support.checks import check_count

#: The name of the feature that every site has, whose weights are the model's bias.
_BIAS = "(bias)"


class FeatureWeight(NamedTuple):
    """How much a feature of a site adds to the score of a label; the bias is the feature "(bias)"."""

    weight: float
    feature: str
    label: Hashable


class TransitionWeight(NamedTuple):
    """How much two neighbouring labels add to the score; None in place of one stands for the end of the sequence."""

    weight: float
    before: Hashable | None
    after: Hashable | None


@final
@dataclass(frozen=True)
class Explanation:
    """The weights of the strongest features and transitions of a tagger, the strongest first; prints as two tables.

    A weight is as strong as its distance from zero. A transition from None to a label is a weight of the first site,
    one from a label to None a weight of the last site. `StructuredPredictor.explain` makes it.
    """

    features: list[FeatureWeight]
    transitions: list[TransitionWeight]

    @classmethod
    def of(
        cls, weights: Mapping[str, Floats], labels: Sequence[Hashable], names: Sequence[str] | None, top: int
    ) -> Explanation:
        """The strongest of the weights of a `SequenceModel`, which has blocks for all of this."""
        check_count("top", top)
        blocks = ("features", "bias", "transition", "first", "last")
        if any(block not in weights for block in blocks):
            raise ValueError(f"explain needs the weights of a SequenceModel, but the model's are {list(weights)}.")
        unary = weights["features"]
        if names is not None and len(names) != len(unary):
            raise ValueError(f"feature_names must have {len(unary)} names, one per feature, but has {len(names)}.")
        features = [
            FeatureWeight(float(unary[row, k]), f"feature {row}" if names is None else str(names[row]), labels[k])
            for row, k in _strongest(unary, top)
        ]
        features += [FeatureWeight(float(w), _BIAS, label) for w, label in zip(weights["bias"], labels, strict=True)]
        table = weights["transition"]
        transitions = [TransitionWeight(float(table[i, j]), labels[i], labels[j]) for i, j in _strongest(table, top)]
        transitions += [TransitionWeight(float(w), None, k) for w, k in zip(weights["first"], labels, strict=True)]
        transitions += [TransitionWeight(float(w), k, None) for w, k in zip(weights["last"], labels, strict=True)]
        features.sort(key=lambda one: -abs(one.weight))
        transitions.sort(key=lambda one: -abs(one.weight))
        return cls(features[:top], transitions[:top])

    def __str__(self) -> str:
        width = max([len("feature"), *(len(one.feature) for one in self.features)])
        lines = [f"{'weight':>9}  {'feature':<{width}}  label"]
        lines += [f"{w:>+9.4f}  {feature:<{width}}  {label}" for w, feature, label in self.features]
        lines += ["", f"{'weight':>9}  transition"]
        lines += [
            f"{w:>+9.4f}  {'(start)' if a is None else a} -> {'(end)' if b is None else b}"
            for w, a, b in self.transitions
        ]
        return "\n".join(lines)


def _strongest(table: NDArray[Any], top: int) -> list[tuple[int, int]]:
    """The rows and columns of the numbers of a table that are farthest from zero."""
    strength = np.abs(table).ravel()
    n = min(top, strength.size)
    some = np.argpartition(-strength, n - 1)[:n] if n else np.empty(0, dtype=np.intp)
    return [
        (int(row), int(column)) for row, column in zip(*np.unravel_index(np.sort(some), table.shape), strict=True)
    ]
