"""The report of the MSRC experiment: from results to words, tables and pictures."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np

from perturbmap.experiments.differences import CLEAR
from perturbmap.experiments.msrc.data import LEFT_OUT, Msrc
from perturbmap.experiments.msrc.experiment import Experiment, learned_name
from perturbmap.experiments.msrc.findings import MEASURES, Cell, Findings, decodings
from perturbmap.experiments.msrc.gallery import colours, hang, hexadecimal, scale
from perturbmap.experiments.msrc.plan import BASE, METHODS
from perturbmap.experiments.report import COLOURS, check_installed, write_page
from perturbmap.experiments.results import Results
from perturbmap.potentials import Floats

__all__ = ["check_installed", "text_table", "write"]

_COLOUR = dict(zip(METHODS, COLOURS, strict=False))
_OURS = "weighted"


def text_table(results: Results, experiment: Experiment) -> str:
    """The table as text, for a terminal."""
    findings = Findings(results, experiment)
    gains = findings.gains()
    lines = [f"{'pixels of test, %':<43}" + "".join(f"{name:>24}" for name in MEASURES.values())]
    for (method, decoding), cell in findings.cells.items():
        row = f"{METHODS[method].name + ', ' + decodings()[decoding]:<43}"
        for measure in MEASURES:
            gain = gains.get((method, decoding, measure))
            row += f"{cell.value(measure):>10.1f}{'' if gain is None else '(' + gain.text + ')':>14}"
        lines.append(row)
    return "\n".join([*lines, "(in brackets: minus the unaries alone, with the standard error over photos, paired)"])


def write(results: Results, experiment: Experiment, msrc: Msrc, path: Path) -> Path:
    """Writes the page and returns its path."""
    findings = Findings(results, experiment)
    shown = _shown(findings)
    palette = [hexadecimal(colour) for colour in colours(experiment.classes)]
    return write_page(
        path,
        "msrc.html",
        {
            "methods": {m: METHODS[m].name for m in findings.methods},
            "colours": _COLOUR,
            "decodings": decodings(),
            "measures": MEASURES,
            "classes": dict(zip(experiment.classes, palette, strict=True)),
            "left_out": LEFT_OUT,
            "parts": {part: len(photos) for part, photos in experiment.parts.items()},
            "n_repeated": msrc.n_repeated,
            "cells": findings.cells,
            "best": {measure: findings.best(measure).value(measure) for measure in MEASURES},
            "gains": findings.gains(),
            "base": METHODS[BASE].name,
            "summary": _summary(findings),
            "by_class": {m: findings.cells[m, "MAP"].by_class.tolist() for m in findings.methods},
            "ceiling": _ceiling(experiment),
            "shown": shown,
            "confusion": _shares(shown).tolist(),
            "gallery": hang(findings, experiment, msrc),
            "scale": scale(),
            "searched": _searched(findings),
            "effort": asdict(experiment.effort),
            "solvers": {m: repr(experiment.effort.solver(METHODS[m].objective)) for m in findings.methods},
            "objectives": {m: _objective(m) for m in findings.methods},
            "clear": CLEAR,
            "settings": results.settings,
            "machine": results.machine,
        },
    )


def _shown(findings: Findings) -> Cell:
    """The cell whose confusion is shown: our method's by MAP, or else that of the best mean class accuracy."""
    return findings.cells.get((_OURS, "MAP"), findings.best("class_accuracy"))


def _shares(cell: Cell) -> Floats:
    """The confusion in per cent of each true class; zero for a class that no photo shows."""
    totals = cell.judged.confusion.sum(axis=1, keepdims=True)
    return np.asarray(100 * cell.judged.confusion / np.maximum(1, totals))


def _ceiling(experiment: Experiment) -> float:
    """The accuracy of the best class of each superpixel, in per cent: no labelling of these superpixels has more."""
    pixels = np.concatenate([photo.pixels for photo in experiment.parts["test"]])
    return float(100 * pixels.max(axis=1).sum() / pixels.sum())


def _summary(findings: Findings) -> list[str]:
    """Sentences that follow from the numbers."""
    said = []
    gains = {key: gain for key, gain in findings.gains().items() if key[1:] == ("MAP", "accuracy")}
    if gains:
        (method, _, _), gain = max(gains.items(), key=lambda pair: pair[1].mean)
        word = {"better": "beyond", "worse": "beyond", "within": "not beyond"}[gain.verdict]
        said.append(
            f"Edges: {METHODS[method].name} minus the same unaries alone, best labellings of both, is {gain.text} "
            f"points of accuracy, {word} {CLEAR:g} standard errors."
        )
    lead = findings.lead(_OURS, "class_accuracy")
    if lead is not None:
        ours, other, difference = lead
        names = [f"{METHODS[cell.method].name} ({decodings()[cell.decoding]})" for cell in (ours, other)]
        said.append(
            f"Mean class accuracy: {names[0]} has {ours.value('class_accuracy'):.1f} %; the best of all others, "
            f"{names[1]}, has {other.value('class_accuracy'):.1f} %: a difference of {difference.text} points."
        )
    return said


def _searched(findings: Findings) -> list[tuple[str, float, dict[str, float], bool]]:
    """What validation says of each model: method, l2, measures in per cent, and whether it was chosen."""
    rows = []
    for method in findings.methods:
        chosen = findings.experiment.chosen(findings.results, method)
        for l2 in findings.experiment.effort.l2s(method):
            entry = findings.results[learned_name(method, l2)]
            rows.append((method, l2, {m: 100 * entry[m] for m in MEASURES}, l2 == chosen))
    return rows


def _objective(method: str) -> str:
    """The objective as it is written, but for the costs of twenty-one classes."""
    name = type(METHODS[method].objective).__name__
    return (
        f"{name}(WeightedHamming(costs of classes))" if METHODS[method].has_costs else repr(METHODS[method].objective)
    )
