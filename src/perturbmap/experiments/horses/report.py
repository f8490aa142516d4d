"""The report of the horse experiment: from results to words, tables, charts and pictures."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from perturbmap.experiments.horses.charts import COLOUR, draw_choices, draw_curves, draw_masks
from perturbmap.experiments.horses.data import Horses, judge
from perturbmap.experiments.horses.experiment import Experiment
from perturbmap.experiments.horses.findings import TABLES, Cell, Difference, Findings, title
from perturbmap.experiments.horses.gallery import FALSE, MISSED, OUTLINE, hang
from perturbmap.experiments.horses.pin_timing import PAPER
from perturbmap.experiments.horses.plan import COLUMNS, KAPPAS, METHODS, QUICK_KAPPA, SEARCHED
from perturbmap.experiments.horses.reliability import draw_reliabilities, reliabilities
from perturbmap.experiments.report import chart, check_installed, write_page
from perturbmap.experiments.results import Results

__all__ = ["check_installed", "text_table", "write"]

_DECODING = {"MAP": "MAP", "LOSS_AWARE": "loss-aware"}
_LEVELS = ["balanced superpixels", "balanced pixels", "plain superpixels", "plain pixels"]
_SIZE = (5.2, 3.9)
_OURS = "weighted"
_OUR_NAME = "Weighted marginal perturb&MAP"


def text_table(results: Results, experiment: Experiment) -> str:
    """Tables 3 and 4 for a terminal."""
    findings = Findings(results, experiment.effort)
    lines = []
    for name, columns in TABLES.items():
        present = [c for c in columns if c in findings.columns]
        if not present:
            continue
        heads = "".join(f"{COLUMNS[c].name:>18}{'paper':>7}" for c in present)
        lines.append(f"{f'{name}: balanced loss, %':<42}{heads}")
        for method in findings.methods:
            for decoding in _DECODING:
                label = METHODS[method].name if decoding == "MAP" else ""
                row = [findings.cells.get((c, method, decoding)) for c in present]
                cells = "".join(_text(cell, findings) for cell in row)
                lines.append(f"{label:<30}{_DECODING[decoding]:<12}{cells}")
        lines.append("")
    draws = _draws(findings, TABLES["Table 4"])
    notes = ["* the decoding chosen by cross-validation"] if experiment.effort.is_searched else []
    notes += [f"10 % of small: mean ± standard deviation over {draws} draws"] if draws not in ("", "1") else []
    notes += ["the paper reads by MAP"]
    return "\n".join([*lines, f"({'; '.join(notes)})"])


def _draws(findings: Findings, columns: list[str]) -> str:
    """How many draws the cells have; fewer in a run that is not over."""
    counts = {len(cell.runs) for (column, _, _), cell in findings.cells.items() if column in columns}
    return " to ".join(map(str, sorted({min(counts), max(counts)}))) if counts else ""


def _text(cell: Cell | None, findings: Findings) -> str:
    if cell is None:
        return f"{'-':>17} {'':>7}"
    mark = "*" if findings.chosen(cell.column, cell.method) is cell else " "
    return f"{cell.text:>17}{mark}{'' if cell.paper is None else cell.paper:>7}"


def write(results: Results, experiment: Experiment, path: Path) -> Path:
    """Writes the page and returns its path."""
    findings, horses = Findings(results, experiment.effort), experiment.horses
    glances, gallery = _glances(findings), hang(findings, experiment)
    found = {} if gallery is None else reliabilities(gallery.ordered_by, experiment)
    n_masks = {c: column.n_masks or len(horses.parts["small"]) for c, column in COLUMNS.items()}
    curves = [
        cell
        for m in findings.methods
        if (cell := findings.cells.get(("small", m, "MAP"))) and cell.runs[0].get("curve")
    ]
    searched = [c for c in reversed(SEARCHED) if any(findings.is_searched(c, m) for m in findings.methods)]
    searched = searched if experiment.effort.is_searched else []
    return write_page(
        path,
        "horses.html",
        {
            "methods": {m: METHODS[m].name for m in findings.methods},
            "colours": COLOUR,
            "decodings": _DECODING,
            "titles": {c: title(c) for c in COLUMNS},
            "names": {c: column.name for c, column in COLUMNS.items()},
            "parts": {part: len(images) for part, images in horses.parts.items()},
            "n_superpixels": round(horses.data.n_sites / len(horses.data)),
            "effort": asdict(experiment.effort),
            "quick_kappa": QUICK_KAPPA,
            "cells": findings.cells,
            "summary": _summary(findings, glances),
            "glance": glances,
            "tables": [_table(findings, name) for name in TABLES if set(TABLES[name]) & set(findings.columns)],
            "weak": [c for c in findings.columns if COLUMNS[c].weak],
            "alone": sorted((c for c in findings.columns if not COLUMNS[c].weak), key=lambda c: n_masks[c]),
            "drawn": [c for c in findings.columns if COLUMNS[c].n_masks],
            "gains": {(cell.column, cell.method, cell.decoding): change for cell, change in findings.gains()},
            "levels": _LEVELS,
            "judged": [c for c in SEARCHED[::-1] if c in findings.columns],
            "floor": _floor(horses),
            "masks_chart": chart(partial(draw_masks, findings=findings, n_masks=n_masks), (6.4, 4.4)),
            "curves": {
                against: chart(partial(draw_curves, cells=curves, against=against), _SIZE)
                for against in ("passes", "seconds")
                if curves
            },
            "gallery": gallery,
            "reliability": chart(partial(draw_reliabilities, found=found), (4.6, 5.6)) if found else None,
            "gallery_colours": {"missed": MISSED, "false": FALSE, "outline": OUTLINE},
            "timing": _timing(results["timing"]) if "timing" in results else None,
            "choice_charts": {c: chart(partial(draw_choices, findings=findings, column=c), _SIZE) for c in searched},
            "edges": {m: (METHODS[m].l2s[0], METHODS[m].l2s[-1]) for m in findings.methods},
            "held_out": {key: findings.held_out(*key) for key in findings.cells},
            "tried": KAPPAS,
            "kappas": _kappas(findings) if experiment.effort.is_searched else {},
            "solvers": {METHODS[m].name: _solver(m) for m in findings.methods},
            "settings": results.settings,
            "machine": results.machine,
        },
    )


@dataclass(frozen=True)
class Glance:
    """One column: who is best, our method minus the structured SVM, and what weak labels change for ours."""

    column: str
    best: Cell
    ours: Difference | None
    gain: Difference | None


def _glances(findings: Findings) -> list[Glance]:
    """Each method at its best decoding; the columns of the paper's tables."""
    gains = {(cell.column, cell.method, cell.decoding): change for cell, change in findings.gains()}
    found = []
    for column in (c for columns in TABLES.values() for c in columns):
        cells = [cell for m in findings.methods if (cell := findings.best(column, m)) is not None]
        if cells:
            ours = findings.best(column, _OURS)
            found.append(
                Glance(
                    column,
                    min(cells, key=lambda cell: cell.mean),
                    Difference.of(ours, findings.best(column, "ssvm")),
                    gains.get((column, _OURS, ours.decoding)) if ours else None,
                )
            )
    return found


def _summary(findings: Findings, glances: list[Glance]) -> list[str]:
    """Sentences that follow from the numbers."""
    said = [_say_best(glances), _say_ours(glances), _say_weights(findings), _say_weak(findings)]
    return [sentence for sentence in said if sentence]


def _say_best(glances: list[Glance]) -> str:
    wins = Counter(METHODS[glance.best.method].name for glance in glances)
    listed = ", ".join(f"{name} in {n}" for name, n in wins.most_common())
    return f"Least loss, each method at its best decoding: {listed} of {len(glances)} columns." if wins else ""


def _say_ours(glances: list[Glance]) -> str:
    pairs = [glance.ours for glance in glances if glance.ours is not None]
    if not pairs:
        return ""
    count = _count([pair.verdict for pair in pairs], "below", "above")
    return f"{_OUR_NAME} against the {METHODS['ssvm'].name}, each at its best decoding: {count} columns."


def _say_weights(findings: Findings) -> str:
    said = []
    for decoding, name in _DECODING.items():
        pair = (findings.cells.get(("small", m, decoding)) for m in (_OURS, "perturb-map"))
        difference = Difference.of(*pair)
        if difference is not None:
            said.append(f"{difference.text} read by {name} decoding")
    if not said:
        return ""
    return f"{_OUR_NAME} minus {METHODS['perturb-map'].name} on small, in points: {', '.join(said)}."


def _say_weak(findings: Findings) -> str:
    verdicts = {
        m: [change.verdict for cell, change in findings.gains() if cell.method == m] for m in findings.methods
    }
    said = [f"{METHODS[m].name}: {_count(found, 'less', 'more')}" for m, found in verdicts.items() if found]
    return f"Loss with weak labels against none, both decodings. {'; '.join(said)}." if said else ""


def _count(verdicts: list[str], better: str, worse: str) -> str:
    n = Counter(verdicts)
    kinds = ((better, n["better"]), (worse, n["worse"]), ("undecided", n["within"]))
    return ", ".join(f"{name} in {count}" for name, count in kinds if count) + f" of {len(verdicts)}"


@dataclass(frozen=True)
class Comparison:
    """Our method minus another in one column: at the decodings of least test loss, and of least held-out loss."""

    column: str
    other: str
    at_best: tuple[str, Difference] | None
    at_chosen: tuple[str, Difference] | None


def _compare(ours: Cell | None, other: Cell | None) -> tuple[str, Difference] | None:
    difference = Difference.of(ours, other)
    if ours is None or other is None or difference is None:
        return None
    return f"{_DECODING[ours.decoding]}, {_DECODING[other.decoding]}", difference


def _table(findings: Findings, name: str) -> dict[str, Any]:
    """One of the paper's tables, and what our method is better or worse by."""
    columns = TABLES[name]
    means = {c: [cell.mean for key, cell in findings.cells.items() if key[0] == c] for c in columns}
    comparisons = [
        Comparison(
            column,
            other,
            _compare(findings.best(column, _OURS), findings.best(column, other)),
            _compare(findings.chosen(column, _OURS), findings.chosen(column, other)),
        )
        for column in columns
        for other in findings.methods
        if other != _OURS
    ]
    return {
        "name": name,
        "columns": columns,
        "least": {c: min(values) for c, values in means.items() if values},
        "chosen": [(c, m, cell.decoding) for c in columns for m in METHODS if (cell := findings.chosen(c, m))],
        "paper": {(c, m, "MAP"): loss for c in columns for m, loss in COLUMNS[c].paper.items()},
        "draws": _draws(findings, columns),
        "is_drawn": COLUMNS[columns[0]].n_masks is not None,
        "comparisons": {
            c: rows for c in columns if (rows := [x for x in comparisons if x.column == c and x.at_best])
        },
    }


def _floor(horses: Horses) -> dict[str, float]:
    """The loss of the true labels of superpixels."""
    test = horses.parts["test"]
    return {
        kind: 100 * float(losses.mean())
        for kind, losses in judge(horses.labels[horses.sites(test)], horses, test).items()
    }


def _timing(timing: dict[str, Any]) -> dict[str, Any]:
    """Table 5, with what is faster by how much, ours and the paper's."""
    at = {n: i for i, n in enumerate((100, 1000, 10_000, 100_000, 1_000_000))}
    paper = {name: [row[at[n]] if n in at else None for n in timing["iterations"]] for name, row in PAPER.items()}
    return {
        **timing,
        "largest_error": max(
            e / max(s, 1e-9)
            for name, row in timing["seconds"].items()
            for e, s in zip(timing["standard_errors"][name], row, strict=True)
        ),
        "paper": paper,
        "faster": {
            name: [b / max(s, 1e-9) for b, s in zip(timing["seconds"]["basic"], row, strict=True)]
            for name, row in timing["seconds"].items()
            if name != "basic"
        },
        "paper_faster": {
            name: [b / s if b and s else None for b, s in zip(paper["basic"], row, strict=True)]
            for name, row in paper.items()
            if name != "basic"
        },
    }


def _kappas(findings: Findings) -> dict[tuple[str, str, str], dict[float, float]]:
    """Held-out losses by kappa, of every cell with weak labels, at the l2 of the masks alone."""
    found = {}
    for column, method, decoding in findings.cells:
        if (base := COLUMNS[column].base) and findings.held_out(column, method, decoding) is not None:
            l2 = findings.choices.l2(base, method, decoding)
            losses = {kappa: findings.choices.held_out(column, method, decoding, l2, kappa) for kappa in KAPPAS}
            found[column, method, decoding] = {kappa: 100 * loss for kappa, loss in losses.items()}
    return found


def _solver(method: str) -> str:
    about = METHODS[method]
    if about.objective.is_hinge:
        return f"{about.objective!r}, block-coordinate Frank-Wolfe, averaged"
    few = ", L-BFGS for fewer than 32 images" if about.objective.is_smooth_on_average else ""
    return f"{about.objective!r}, double SGD of batch 16 with adaptive steps{few}"
