"""What a UAI file holds: discrete variables and factors over some of them each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from numpy.typing import ArrayLike

from perturbmap.potentials import Floats

#: The most labels that a variable may have, as in `Chain` and `Tree`.
MAX_LABELS = 65535


class Factor(NamedTuple):
    """A factor, a table of values for the labels of some variables: ``table[y_i, y_j, ...]``, none negative.

    ``scope = (i, j, ...)`` holds the numbers of the variables.
    """

    scope: tuple[int, ...]
    table: Floats


@final
@dataclass(frozen=True, eq=False)
class FactorGraph:
    """``P(y) = prod_a factors[a].table[y_scope] / Z`` over variables with ``cardinalities[v]`` labels each."""

    cardinalities: Sequence[int]
    factors: Sequence[Factor]

    def __post_init__(self) -> None:
        n = len(self.cardinalities)
        if n == 0:
            raise ValueError("cardinalities must hold a number of labels for at least one variable, but is empty.")
        for v, labels in enumerate(self.cardinalities):
            if not 1 <= labels <= MAX_LABELS:
                raise ValueError(
                    f"cardinalities must be from 1 to {MAX_LABELS}, but that of variable {v} is {labels}."
                )
        for a, (scope, table) in enumerate(self.factors):
            if len(set(scope)) < len(scope) or not all(0 <= v < n for v in scope):
                raise ValueError(f"the scope of factor {a} must be different variables 0..{n - 1}, but is {scope}.")
            if table.shape != tuple(self.cardinalities[v] for v in scope):
                raise ValueError(
                    f"the table of factor {a} must have the shape of its variables' labels, "
                    f"{tuple(self.cardinalities[v] for v in scope)}, but has shape {table.shape}."
                )
        values = np.concatenate([np.empty(0), *(table.ravel() for _, table in self.factors)])
        if not (np.isfinite(values).all() and (values >= 0).all()):
            raise ValueError(
                "the tables of factors must be finite and not negative: they are factors, not logarithms."
            )

    def log_score(self, labels: ArrayLike) -> float:
        """``sum_a log factors[a].table[y_scope]``, with natural logarithms; -inf where a factor is zero."""
        y = np.asarray(labels).tolist()
        product = [float(table[tuple(y[v] for v in scope)]) for scope, table in self.factors]
        return math.fsum(map(math.log, product)) if all(x > 0 for x in product) else -math.inf
