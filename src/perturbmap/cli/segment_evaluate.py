"""What ``perturbmap segment evaluate`` measures, and how it prints it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from perturbmap.cli.plainly import plainly
from perturbmap.cli.segment_runs import count, find, refuse_to_overwrite, work_through, write_csv
from perturbmap.images import Classes, Confusion, Quality, Segmenter
from perturbmap.images.class_masks import AnyMasks
from perturbmap.support.files import check_writable

N_TAKEN_FOR = 3  # classes, which a class is taken for most often, that are named
LEAST_TAKEN = 0.01  # of its pixels


def evaluate(
    *,
    model: Path,
    images: Path,
    masks: Path,
    csv: Path | None,
    jobs: int | None,
    mask_threshold: float | None,
    overwrite: bool,
) -> None:
    """Prints measures on images with masks."""
    with plainly(lambda: "Interrupted; nothing was written."):
        segmenter = Segmenter.load(model)
        if csv is not None:
            refuse_to_overwrite([csv], overwrite)
            check_writable(csv)
        _, masked = find(images, masks, segmenter.classes, mask_threshold)
        found: dict[int, dict[str, Any]] = {}
        work_through(_measure, [(segmenter, path, masked) for path in masked], jobs, "segmenting", found)
        rows = [found[n] for n in sorted(found) if not np.isnan(found[n]["balanced_error"])]
        if not rows:
            raise ValueError("there is no image to measure on: all are broken, or their masks are all void.")
    tables = [row.pop("confusion") for row in rows]
    click.echo(f"{count(len(rows), 'image')} with a mask; mean ± standard error")
    _print_means(rows)
    ranked = sorted(rows, key=lambda row: float(row["balanced_error"]))
    for text, some in (("best: ", ranked[:3]), ("worst:", ranked[:-4:-1])):
        click.echo(f"  {text} " + ", ".join(f"{row['image']} ({row['balanced_error']:.1%})" for row in some))
    if segmenter.classes is not None:
        _print_classes(Confusion(sum(tables)), segmenter.classes)
    if csv is not None:
        write_csv(csv, list(rows[0]), rows)
        click.echo(f"Each image: {csv}")


def _measure(segmenter: Segmenter, path: Path, masks: AnyMasks) -> dict[str, Any]:
    found, mask = segmenter.predict(path), masks[path]
    return {"image": path.name, **asdict(Quality.of(found, mask)), "confusion": Confusion.of(found, mask).table}


def _print_means(rows: Sequence[Mapping[str, Any]]) -> None:
    mean, spread = Quality.mean([Quality(*list(row.values())[1:]) for row in rows])
    for name, text, form in (
        ("balanced_error", "balanced error, pixels", ".1%"),
        ("superpixel_balanced_error", "balanced error, superpixels", ".1%"),
        ("pixel_error", "wrong pixels", ".1%"),
        ("iou", "intersection over union", ".3f"),
    ):
        error = "" if len(rows) == 1 else f" ± {getattr(spread, name):{form}}"
        click.echo(f"  {text:<28} {getattr(mean, name):{form}}{error}")


def _print_classes(confusion: Confusion, classes: Classes) -> None:
    """All pixels together: three numbers, a line for each class, and what it was taken for in per cent."""
    click.echo("All pixels together")
    for text, value in (
        ("accuracy", f"{confusion.accuracy:.1%}"),
        ("mean class accuracy", f"{confusion.mean_class_accuracy:.1%}"),
        ("mean intersection over union", f"{confusion.mean_iou:.3f}"),
    ):
        click.echo(f"  {text:<28} {value}")
    wide = max(5, *(len(name) for name in classes.names))
    areas = confusion.table.sum(axis=1)
    click.echo(f"     {'class':<{wide}}  of all  accuracy    iou  mostly taken for")
    for k, name in enumerate(classes.names):
        share = areas[k] / max(1, areas.sum())
        accuracy, iou = (_or_dash(values[k], form) for values, form in _measures_of_classes(confusion))
        click.echo(
            f"{k + 1:>3}  {name:<{wide}}  {share:6.1%}  {accuracy:>8}  {iou:>5}  {_taken_for(confusion, classes, k)}"
        )
    click.echo("Confusion: of 100 pixels of a class (row), so many were taken for each (column)")
    click.echo(f"{'':<{wide + 5}}" + "".join(f"{k + 1:>4}" for k in range(len(classes))))
    for k, name in enumerate(classes.names):
        cells = 100 * confusion.table[k] / max(1, areas[k])
        click.echo(
            f"{k + 1:>3}  {name:<{wide}}" + "".join(f"{cell:>4.0f}" if cell >= 0.5 else "   ." for cell in cells)
        )


def _measures_of_classes(confusion: Confusion) -> tuple[tuple[np.ndarray, str], tuple[np.ndarray, str]]:
    return (confusion.class_accuracies, ".1%"), (confusion.ious, ".3f")


def _or_dash(value: float, form: str) -> str:
    return "-" if np.isnan(value) else f"{value:{form}}"


def _taken_for(confusion: Confusion, classes: Classes, k: int) -> str:
    """The classes that a class is taken for most often, but itself."""
    shares = confusion.table[k] / max(1, int(confusion.table[k].sum()))
    order = [j for j in np.argsort(-shares, kind="stable").tolist() if j != k and shares[j] >= LEAST_TAKEN]
    return ", ".join(f"{classes.names[j]} {shares[j]:.0%}" for j in order[:N_TAKEN_FOR])
