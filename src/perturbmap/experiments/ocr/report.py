"""The report of the handwriting experiment: from results to words, tables and charts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import t as student_t

from perturbmap.datasets import N_FOLDS, OCR, PROTOCOLS
from perturbmap.experiments.ocr.experiment import choice_name, look_name, run_name
from perturbmap.experiments.ocr.plan import METHODS
from perturbmap.experiments.report import COLOURS, chart, check_installed, image, write_page
from perturbmap.experiments.results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["check_installed", "text_table", "write"]

_COLOUR = dict(zip(METHODS, COLOURS, strict=False))
_KINDS = {"EXACT": "exact", "PINNED": "pinned", "INTEGRATED": "integrated", "COUNTED": "counted"}


@dataclass(frozen=True)
class Cell:
    """One method under one protocol, in per cent."""

    folds: list[int]
    errors: list[float]
    errors_by_marginals: list[float]
    seconds: float
    l2: float
    paper: tuple[float, float] | None

    @property
    def mean(self) -> float:
        """The mean error over folds."""
        return float(np.mean(self.errors))

    @property
    def text(self) -> str:
        """Mean and spread as they stand in the table."""
        return _mean_and_spread(self.errors)

    @property
    def text_by_marginals(self) -> str:
        """The same as `text`, each letter read by itself."""
        return _mean_and_spread(self.errors_by_marginals)

    @property
    def paper_text(self) -> str:
        """The paper's mean and spread, in the same form."""
        return "-" if self.paper is None else f"{self.paper[0]:.1f} ± {self.paper[1]:.1f}"

    @property
    def verdict(self) -> str:
        """How it compares with the paper: within its spread, better, worse, or nothing to compare with."""
        if self.paper is None:
            return "none"
        difference = self.mean - self.paper[0]
        if abs(difference) <= self.paper[1]:
            return "within"
        return "better" if difference < 0 else "worse"

    @property
    def difference(self) -> str:
        """The difference from the paper's mean."""
        return "" if self.paper is None else f"{self.mean - self.paper[0]:+.1f}"


def _mean_and_spread(values: list[float]) -> str:
    """Mean and spread over folds; a single fold has no spread."""
    spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{spread}"


def table(results: Results) -> dict[str, dict[str, Cell]]:
    """Cells by protocol and method; only those with some fold done."""
    cells: dict[str, dict[str, Cell]] = {}
    for protocol in PROTOCOLS:
        for method, about in METHODS.items():
            folds = [fold for fold in range(N_FOLDS) if run_name(protocol, method, fold) in results]
            runs = [results[run_name(protocol, method, fold)] for fold in folds]
            if runs:
                cells.setdefault(protocol, {})[method] = Cell(
                    folds,
                    [100 * run["error"] for run in runs],
                    [100 * run["error_by_marginals"] for run in runs],
                    float(np.mean([run["seconds"] for run in runs])),
                    results[choice_name(protocol, method)]["l2"],
                    about.paper.get(protocol),
                )
    return cells


def text_table(results: Results) -> str:
    """The table as text, for a terminal."""
    cells = table(results)
    lines = [f"{'letter error, %':<28}" + "".join(f"{protocol:>14}{'paper':>14}" for protocol in cells)]
    for method, about in METHODS.items():
        if any(method in column for column in cells.values()):
            row = [column.get(method) for column in cells.values()]
            lines.append(
                f"{about.name:<28}"
                + "".join(f"{'-' if c is None else c.text:>14}{'-' if c is None else c.paper_text:>14}" for c in row)
            )
    counts = {len(cell.errors) for column in cells.values() for cell in column.values()}
    folds = str(counts.pop()) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    lines.append(f"({folds} fold{'' if folds == '1' else 's'}; mean ± standard deviation over folds)")
    return "\n".join(lines)


def write(results: Results, ocr: OCR, path: Path) -> Path:
    """Writes the page and returns its path."""
    cells = table(results)
    looks = {
        protocol: {m: results[look_name(protocol, m)] for m in column if look_name(protocol, m) in results}
        for protocol, column in cells.items()
    }
    choices = {protocol: {m: results[choice_name(protocol, m)] for m in column} for protocol, column in cells.items()}
    return write_page(
        path,
        "ocr.html",
        {
            "methods": {key: method.name for key, method in METHODS.items() if any(key in c for c in cells.values())},
            "colours": _COLOUR,
            "cells": cells,
            "curves": {
                protocol: {
                    "seconds": chart(partial(_draw_curves, looks=column, against="seconds")),
                    "passes": chart(partial(_draw_curves, looks=column, against="passes")),
                }
                for protocol, column in looks.items()
            },
            "choices": choices,
            "choice_charts": {p: chart(partial(_draw_choices, choices=column)) for p, column in choices.items()},
            "examples": _examples(looks, ocr),
            "kinds": _KINDS,
            "calibration": {p: _calibration(p, column, cells[p]) for p, column in looks.items()},
            "solvers": {
                key: " / ".join(
                    dict.fromkeys(
                        " ".join(repr(METHODS[key].solvers["quick" if results.settings["quick"] else p]).split())
                        for p in cells
                    )
                )
                for key in METHODS
                if any(key in column for column in cells.values())
            },
            "settings": results.settings,
            "machine": results.machine,
            "n_words": len(ocr.X),
        },
    )


def _draw_curves(axes: Axes, looks: dict[str, Any], against: str) -> None:
    highest = 0.0
    for method, look in looks.items():
        x, y = [p[against] for p in look["curve"]], [100 * p["error"] for p in look["curve"]]
        axes.plot(x, y, "o-", color=_COLOUR[method], markersize=3, linewidth=1.5, label=METHODS[method].name)
        highest = max(highest, y[-1])
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter("")
    axes.set_ylim(top=min(axes.get_ylim()[1], 1.6 * highest))
    axes.set_xlabel({"seconds": "seconds of training", "passes": "passes over the training words"}[against])
    axes.set_ylabel("test error, % of letters")
    axes.legend(fontsize=8.5)


def _draw_choices(axes: Axes, choices: dict[str, Any]) -> None:
    for method, choice in choices.items():
        x, y = zip(*choice["tried"], strict=True)
        axes.plot(x, [100 * e for e in y], "o-", color=_COLOUR[method], markersize=3, label=METHODS[method].name)
        at = dict(choice["tried"])[choice["l2"]]
        axes.plot([choice["l2"]], [100 * at], "o", color=_COLOUR[method], markersize=8)
    axes.set_xscale("log")
    axes.set_xlabel("l2")
    axes.set_ylabel("held-out error, % of letters")
    axes.legend(fontsize=8.5)


def _draw_reliability(axes: Axes, kinds: dict[str, Any]) -> None:
    axes.plot([0, 1], [0, 1], color="#bbb", linewidth=1)
    for (kind, name), colour in zip(_KINDS.items(), COLOURS, strict=False):
        confidence, right, _ = zip(*kinds[kind]["reliability"], strict=True)
        axes.plot(confidence, right, "o-", color=colour, markersize=3.5, linewidth=1.5, label=name)
    axes.set_xlabel("probability of the predicted letter")
    axes.set_ylabel("how often it is right")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    axes.legend(fontsize=8.5)


def _examples(looks: dict[str, dict[str, Any]], ocr: OCR) -> dict[str, Any] | None:
    """Words of the largest protocol there is, by marginal perturb&MAP if it was run."""
    for protocol in reversed(list(looks)):
        method = "marginal" if "marginal" in looks[protocol] else next(iter(looks[protocol]), None)
        if method is not None:
            break
    else:
        return None
    words = [
        {
            "is_right": example["predicted"] == example["truth"],
            **example,
            "letters": [
                {
                    "image": image((255 * (1 - pixels)).astype(np.uint8).reshape(16, 8)),
                    "predicted": predicted,
                    "truth": truth,
                    "likely": likely,
                }
                for pixels, predicted, truth, likely in zip(
                    ocr.X[example["word"]], example["predicted"], example["truth"], example["likely"], strict=True
                )
            ],
        }
        for example in looks[protocol][method]["examples"]
    ]
    return {"protocol": protocol, "method": METHODS[method].name, "words": words}


def _calibration(protocol: str, looks: dict[str, Any], cells: dict[str, Cell]) -> dict[str, Any] | None:
    """How far the marginals are from the exact ones, and which make the better predictor."""
    if not looks:
        return None
    method = "crf" if "crf" in looks else next(iter(looks))
    kinds = looks[method]["marginals"]
    return {
        "method": METHODS[method].name,
        "by_kind": kinds,
        "n_compared": looks[method]["n_compared"],
        "by_method": {m: look["marginals"] for m, look in looks.items() if m != "ssvm"},
        "chart": chart(partial(_draw_reliability, kinds=kinds)),
        "training": _compare_training(cells),
    }


def _compare_training(cells: dict[str, Cell]) -> dict[str, Any] | None:
    """Marginal perturb&MAP against the exact marginal likelihood, fold by fold."""
    if not {"marginal", "exact-marginal"} <= cells.keys():
        return None
    ours, exact = (dict(zip(c.folds, c.errors, strict=True)) for c in (cells["marginal"], cells["exact-marginal"]))
    common = sorted(ours.keys() & exact.keys())
    if not common:
        return None
    differences = np.array([ours[fold] - exact[fold] for fold in common])
    mean, n = float(differences.mean()), len(common)
    error = float(np.std(differences, ddof=1) / np.sqrt(n)) if n > 1 else None
    is_clear = error is not None and abs(mean) > student_t.ppf(0.975, n - 1) * error
    return {
        "ours": float(np.mean([ours[fold] for fold in common])),
        "exact": float(np.mean([exact[fold] for fold in common])),
        "difference": mean,
        "error": error,
        "n": n,
        "verdict": "undecided" if not is_clear else "exact" if mean > 0 else "ours",
    }
