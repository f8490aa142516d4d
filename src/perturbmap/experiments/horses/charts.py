"""The charts of the horse experiment's report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perturbmap.experiments.horses.findings import Cell, Findings
from perturbmap.experiments.horses.plan import COLUMNS, METHODS
from perturbmap.experiments.report import COLOURS
from perturbmap.inference.decoding import Decoding

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOUR = dict(zip(METHODS, COLOURS, strict=False))
_LINE = {"MAP": "--", "LOSS_AWARE": "-"}


def draw_masks(axes: Axes, findings: Findings, n_masks: dict[str, int]) -> None:
    """Loss against the number of masks: at the chosen decoding, or loss-aware without one, and thinly by MAP."""
    columns = sorted((c for c in findings.columns if not COLUMNS[c].weak), key=lambda c: n_masks[c])
    for i, method in enumerate(findings.methods):
        found = [findings.chosen(c, method) or findings.cells.get((c, method, "LOSS_AWARE")) for c in columns]
        cells = [cell for cell in found if cell is not None]
        aside = 1 + 0.025 * (i - (len(findings.methods) - 1) / 2)  # so that bars do not hide each other
        axes.errorbar(
            [aside * n_masks[cell.column] for cell in cells],
            [cell.mean for cell in cells],
            [cell.spread or 0 for cell in cells],
            fmt="o-",
            color=COLOUR[method],
            markersize=4,
            linewidth=1.8,
            elinewidth=1,
            capsize=2.5,
            label=METHODS[method].name,
        )
        by_map = [cell for c in columns if (cell := findings.cells.get((c, method, "MAP"))) is not None]
        x, y = [n_masks[cell.column] for cell in by_map], [cell.mean for cell in by_map]
        axes.plot(x, y, "--", color=COLOUR[method], linewidth=1)
    axes.plot([], [], "--", color="#888", linewidth=1, label="the same, by MAP")
    axes.set_xscale("log")
    axes.set_xticks([n_masks[c] for c in columns], [str(n_masks[c]) for c in columns])
    axes.minorticks_off()
    axes.set_xlabel("images with masks")
    axes.set_ylabel("balanced test loss, %")
    _legend(axes)


def draw_curves(axes: Axes, cells: list[Cell], against: str) -> None:
    """Test loss along a fit, against passes or seconds."""
    lasts = []
    for cell in cells:
        curve = cell.runs[0]["curve"]
        x, y = [p[against] for p in curve], [100 * p["loss"] for p in curve]
        axes.plot(x, y, "o-", color=COLOUR[cell.method], markersize=3, linewidth=1.5, label=METHODS[cell.method].name)
        lasts.append(y[-1])
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter("")
    axes.set_ylim(top=min(axes.get_ylim()[1], 2.5 * max(lasts)))
    axes.set_xlabel({"seconds": "seconds of training", "passes": "passes over the images"}[against])
    axes.set_ylabel("balanced test loss, %")
    _legend(axes)


def draw_choices(axes: Axes, findings: Findings, column: str) -> None:
    """Held-out loss against l2, both decodings; a dot is a choice."""
    for method in (m for m in findings.methods if findings.is_searched(column, m)):
        for decoding, style in _LINE.items():
            l2s = METHODS[method].l2s
            losses = {l2: 100 * findings.choices.held_out(column, method, decoding, l2, 0.0) for l2 in l2s}
            label = METHODS[method].name if decoding == Decoding.LOSS_AWARE.name else None
            axes.plot(l2s, list(losses.values()), style, color=COLOUR[method], linewidth=1.4, label=label)
            l2 = findings.choices.l2(column, method, decoding)
            axes.plot([l2], [losses[l2]], "o", color=COLOUR[method], markersize=6)
    axes.plot([], [], "--", color="#888", linewidth=1, label="the same, by MAP")
    axes.set_xscale("log")
    axes.set_xlabel("l2")
    axes.set_ylabel("balanced held-out loss, %")
    _legend(axes)


def _legend(axes: Axes) -> None:
    """Puts the legend below the axes, where it hides nothing."""
    axes.legend(fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2)
