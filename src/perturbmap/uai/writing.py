"""Models and results in the file format of the UAI inference competitions, written atomically.

Reference: V. Gogate, UAI 2014 Inference Competition, "Result File Format".
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from perturbmap.potentials import Floats
from perturbmap.support.files import write_atomically
from perturbmap.uai.factor_graph import FactorGraph

Path = str | os.PathLike[str]


def write_factors(path: Path, graph: FactorGraph) -> None:
    """Writes a MARKOV file; reading it gives the same numbers to the last bit."""
    lines = ["MARKOV", len(graph.cardinalities), _joined(graph.cardinalities), len(graph.factors)]
    lines += [_joined([len(scope), *scope]) for scope, _ in graph.factors]
    for _, table in graph.factors:
        lines += ["", table.size, _joined(table.ravel().tolist())]
    _write(path, lines)


def write_log_partition(path: Path, log_partition: float) -> None:
    """Writes the result of the task PR, ``log10 Z``, from the natural logarithm that this library computes with."""
    _write(path, ["PR", repr(float(log_partition) / math.log(10))])


def write_marginals(path: Path, marginals: Sequence[Floats]) -> None:
    """Writes the result of the task MAR: for each variable, the number of its labels and their probabilities."""
    numbers = (number for q in marginals for number in (len(q), *np.asarray(q, dtype=np.float64).tolist()))
    _write(path, ["MAR", _joined([len(marginals), *numbers])])


def write_labels(path: Path, labels: ArrayLike) -> None:
    """Writes the result of the task MPE (called MAP in some years): each variable's label in the best labelling."""
    y = np.asarray(labels).tolist()
    _write(path, ["MPE", _joined([len(y), *y])])


def _joined(numbers: Iterable[float]) -> str:
    return " ".join(map(repr, numbers))


def _write(path: Path, lines: Iterable[object]) -> None:
    text = "\n".join(map(str, lines)) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))
