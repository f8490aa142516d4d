"""The report of the tagging experiment: from results to words, tables and a chart."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from perturbmap.experiments.differences import CLEAR
from perturbmap.experiments.report import COLOURS, chart, check_installed, write_page
from perturbmap.experiments.results import Results
from perturbmap.experiments.tagging.data import FEATURES, KNOWN
from perturbmap.experiments.tagging.experiment import Experiment, entry_name
from perturbmap.experiments.tagging.findings import Cell, Findings
from perturbmap.experiments.tagging.plan import BASE, METHODS, OURS, PEER

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["check_installed", "text_table", "write"]

_COLOUR = dict(zip(METHODS, COLOURS, strict=False))


def text_table(results: Results, experiment: Experiment) -> str:
    """Both tables in Markdown, for a terminal and for a page."""
    findings = Findings(results, experiment)
    over = findings.over(BASE)
    lines = [
        f"| all tags | accuracy, % | minus the {METHODS[BASE].name} | c2 | seconds | MB to learn | MB of the file | "
        "calibration error | log loss |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for method, cell in findings.methods.items():
        gain = over[method].text if method in over else ""
        numbers = [_number(cell.megabytes, 0), f"{cell.file_megabytes:.1f}"]
        numbers += [_number(cell.calibration_error, 1), _number(cell.log_loss, 3)]
        lines.append(
            f"| {METHODS[method].name} | {cell.accuracy:.2f} | {gain} | {cell.job.c2:g} | {cell.seconds:.0f} | "
            f"{' | '.join(numbers)} |"
        )
    if findings.known:
        gains = findings.over_the_tenth()
        lines += [
            "",
            f"| {METHODS[OURS].name}, known: | accuracy, % | minus the tenth alone | kappa | seconds |",
            "|---|---|---|---|---|",
        ]
        for known, cell in findings.known.items():
            gain = gains[known].text if known in gains else ""
            kappa = f"{cell.job.kappa:g}" if known in ("none", "some") else ""
            lines.append(f"| {KNOWN[known]} | {cell.accuracy:.2f} | {gain} | {kappa} | {cell.seconds:.0f} |")
    return "\n".join([*lines, "", "(± the standard error over sentences, paired)"])


def write(results: Results, experiment: Experiment, path: Path) -> Path:
    """Writes the page and returns its path."""
    findings = Findings(results, experiment)
    shown = {m: cell for m, cell in findings.methods.items() if cell.log_loss is not None}
    return write_page(
        path,
        "tagging.html",
        {
            "methods": {m: METHODS[m].name for m in findings.methods},
            "colours": _COLOUR,
            "cells": findings.methods,
            "best": max((cell.accuracy for cell in findings.methods.values()), default=0.0),
            "over": findings.over(BASE),
            "base": METHODS[BASE].name,
            "ours": METHODS[OURS].name,
            "known": findings.known,
            "what_is_known": KNOWN,
            "gains": findings.over_the_tenth(),
            "summary": _summary(findings),
            "reliability": chart(partial(_draw_reliability, cells=shown)) if shown else None,
            "features": FEATURES,
            "searched": _searched(findings),
            "chosen_features": experiment.features(results),
            "parts": {part: len(words) for part, (words, _) in experiment.corpus.parts.items()},
            "n_words": {part: sum(map(len, words)) for part, (words, _) in experiment.corpus.parts.items()},
            "tags": experiment.corpus.tags,
            "effort": asdict(experiment.effort),
            "solvers": {
                m: repr(experiment.effort.solver(objective))
                for m in findings.methods
                if (objective := METHODS[m].objective) is not None
            },
            "clear": CLEAR,
            "settings": results.settings,
            "machine": results.machine,
        },
    )


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _summary(findings: Findings) -> list[str]:
    """Sentences that follow from the numbers."""
    said, cells = [], findings.methods
    beyond = {"better": "beyond", "worse": "beyond", "within": "not beyond"}
    if PEER in cells:
        for method, gain in findings.over(PEER).items():
            said.append(
                f"{METHODS[method].name} minus {METHODS[PEER].name}: {gain.text} points, {beyond[gain.verdict]} "
                f"{CLEAR:g} standard errors, in {cells[method].seconds / cells[PEER].seconds:.2f} times its seconds."
            )
    for known, gain in findings.over_the_tenth().items():
        if known != "all":
            said.append(
                f"Algorithm 3, from {KNOWN[known]}, minus the tenth alone: {gain.text} points, "
                f"{beyond[gain.verdict]} {CLEAR:g} standard errors."
            )
    return said


def _searched(findings: Findings) -> list[tuple[str, str, str, float, bool]]:
    """What was tried on dev: method, features, what was known and how, accuracy in per cent, and if it was chosen."""
    experiment, results = findings.experiment, findings.results
    chosen = {entry_name(cell.job) for cell in (*findings.methods.values(), *findings.known.values())}
    jobs = [experiment.job(BASE, features) for features in FEATURES]
    jobs += [job for m in findings.methods for job in experiment.candidates(results, m, "all")]
    jobs += [job for known in findings.known for job in experiment.candidates(results, OURS, known)]
    rows = {
        entry_name(job): (
            METHODS[job.method].name,
            job.features,
            f"{job.known}, c2 {job.c2:g}" + (f", kappa {job.kappa:g}" if job.known in ("none", "some") else ""),
            100 * float(results[entry_name(job)]["accuracy"]),
            entry_name(job) in chosen,
        )
        for job in jobs
        if entry_name(job) in results
    }
    return list(rows.values())


def _draw_reliability(axes: Axes, cells: dict[str, Cell]) -> None:
    axes.plot([0, 1], [0, 1], color="#bbb", linewidth=1)
    for method, cell in cells.items():
        said, right, _ = zip(*cell.entry["reliability"]["bins"], strict=True)
        axes.plot(said, right, "o-", color=_COLOUR[method], markersize=3.5, linewidth=1.5, label=METHODS[method].name)
    axes.set_xlabel("probability of the most probable tag")
    axes.set_ylabel("how often it is right")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    axes.legend(fontsize=8.5)
