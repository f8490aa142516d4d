"""What ``perturbmap segment`` does, and what it says while doing it."""

from __future__ import annotations

import csv as csv_module
import io
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np
from tqdm import tqdm

from perturbmap.cli.exit_codes import EXIT_INTERRUPTED
from perturbmap.estimator import FitInterruptedWarning
from perturbmap.images import ImageFeatures, Masks, Quality, Segmenter, TrainingSet, cross_validate
from perturbmap.images.folders import list_images, match_masks, read_boxes
from perturbmap.images.parallel import for_each
from perturbmap.images.reading import SkippedImageWarning
from perturbmap.images.results import COLUMNS, result_files, write_results
from perturbmap.images.segmenter import segmentation_predictor
from perturbmap.images.time_estimate import seconds_to_fit
from perturbmap.support.files import check_writable, write_atomically
from perturbmap.support.progress import Bar

N_FOLDS = 3
LONG = 10.0  # seconds, after which one would like to know how many more
SUMMARY = "summary.csv"


class Stages(Bar):
    """One bar for each stage on a terminal; one line for each elsewhere, such as in a log."""

    def begin(self, name: str) -> None:
        if not sys.stderr.isatty():
            click.echo(f"{name} ...", err=True)
        super().begin(name)


def fit(
    *,
    images: Path,
    masks: Path,
    boxes: Path | None,
    out: Path,
    cache: Path | None,
    superpixels: int,
    side: int,
    l2: float | None,
    seed: int,
    check: bool,
    jobs: int | None,
    resize_masks: bool,
    overwrite: bool,
) -> None:
    """Learns a model and writes it, then estimates its error."""
    kept = "Features that are done are kept in --cache." if cache else "With --cache DIR, features would be kept."
    with plainly(f"Interrupted before the model was written. {kept}") as said:
        refuse_to_overwrite([out], overwrite)
        check_writable(out)
        if cache is not None:
            cache.mkdir(parents=True, exist_ok=True)
        files, masked = find(images, masks, resize_masks)
        boxed = {} if boxes is None else match_boxes(files, read_boxes(boxes), masked, boxes)
        n_others = len(files) - len(masked) - len(boxed)
        click.echo(f"{count(len(masked), 'image')} with a mask, {len(boxed)} with boxes, {n_others} with neither.")
        predictor = segmentation_predictor(seed=seed) if l2 is None else segmentation_predictor(l2, seed)
        segmenter = Segmenter(ImageFeatures(superpixels, max_side=side, seed=seed), predictor)
        n_folds = min(N_FOLDS, len(masked)) if check and len(masked) > 1 else 0
        n_jobs = -1 if jobs is None else jobs
        seconds = seconds_to_fit(segmenter, len(files), masked, n_jobs, n_folds)
        if seconds is not None:
            less = "; less where --cache has been filled before" if cache else ""
            click.echo(f"{duration(seconds).capitalize()} to go{less}.")
        with ExitStack() as stack:
            bar = Stages()
            stack.callback(bar.close)
            folder = stack.enter_context(tempfile.TemporaryDirectory()) if cache is None else cache
            examples = TrainingSet.load(
                segmenter.features, files.values(), masked, boxed, cache=folder, n_jobs=n_jobs, progress=bar
            )
            segmenter.learn(examples, progress=bar)
            segmenter.save(out)
            said.clear()
            said.append(f"Interrupted, but the model is written: {out}")
            trained = examples.take(np.flatnonzero(examples.is_masked))
            losses = segmenter.predictor.losses(trained.X, trained.y)
            n_folds = min(n_folds, len(trained.paths))
            held_out = cross_validate(segmenter, examples, n_folds, progress=bar) if n_folds > 1 else []
            bar.close()
    click.echo(f"Error on the masks that were learned from: {np.nanmean(losses):.1%} (balanced, superpixels)")
    if held_out:
        mean, spread = Quality.mean(held_out)
        click.echo(
            f"Expected error on new images:             {mean.balanced_error:.1%} ± {spread.balanced_error:.1%} "
            f"(balanced, pixels), intersection over union {mean.iou:.2f} ± {spread.iou:.2f}\n"
            f"  by {n_folds}-fold cross-validation on {count(len(held_out), 'image')}; guessing has 50 %"
        )
    elif check:
        click.echo("Expected error on new images:             unknown, it needs two masks")
    click.echo(f"Model: {out}\nNext:  perturbmap segment predict {out} --images NEW-IMAGES --out RESULTS")


def predict(*, model: Path, images: Path, out: Path, jobs: int | None, overwrite: bool) -> None:
    """Writes masks, probability maps, overlays and a table."""
    with plainly(f"Interrupted. What is finished is in {out}; to do all again, add --overwrite."):
        if out.resolve() == images.resolve():
            raise click.UsageError("--out must be another folder than --images, where results would pass for images.")
        segmenter = Segmenter.load(model)
        files = list_images(images)
        targets = [file for stem in files for file in result_files(stem, out).values()]
        refuse_to_overwrite([*targets, out / SUMMARY], overwrite)
        out.mkdir(parents=True, exist_ok=True)
        check_writable(out / SUMMARY)
        work = [(segmenter, path, out) for path in files.values()]
        rows = in_order(write_results, work, jobs, "segmenting")
        if not rows:
            raise ValueError(f"{images} holds no image that can be read.")
        write_csv(out / SUMMARY, COLUMNS, rows)
    click.echo(f"{count(len(rows), 'image')} segmented: {out}")


def evaluate(
    *, model: Path, images: Path, masks: Path, csv: Path | None, jobs: int | None, resize_masks: bool, overwrite: bool
) -> None:
    """Prints measures on images with masks."""
    with plainly("Interrupted."):
        segmenter = Segmenter.load(model)
        if csv is not None:
            refuse_to_overwrite([csv], overwrite)
            check_writable(csv)
        _, masked = find(images, masks, resize_masks)
        rows = in_order(_measure, [(segmenter, path, masked) for path in masked], jobs, "segmenting")
        rows = [row for row in rows if not np.isnan(row["balanced_error"])]
        if not rows:
            raise ValueError("there is no image to measure on: all are broken, or their masks are all void.")
        if csv is not None:
            write_csv(csv, list(rows[0]), rows)
    mean, spread = Quality.mean([Quality(*list(row.values())[1:]) for row in rows])
    click.echo(f"{count(len(rows), 'image')} with a mask; mean ± standard error")
    for name, text, form in (
        ("balanced_error", "balanced error, pixels", ".1%"),
        ("superpixel_balanced_error", "balanced error, superpixels", ".1%"),
        ("pixel_error", "wrong pixels", ".1%"),
        ("iou", "intersection over union", ".3f"),
    ):
        error = "" if len(rows) == 1 else f" ± {getattr(spread, name):{form}}"
        click.echo(f"  {text:<28} {getattr(mean, name):{form}}{error}")
    ranked = sorted(rows, key=lambda row: float(row["balanced_error"]))
    for text, some in (("best: ", ranked[:3]), ("worst:", ranked[:-4:-1])):
        click.echo(f"  {text} " + ", ".join(f"{row['image']} ({row['balanced_error']:.1%})" for row in some))
    if csv is not None:
        click.echo(f"Each image: {csv}")


def _measure(segmenter: Segmenter, path: Path, masks: Masks) -> dict[str, Any]:
    return {"image": path.name, **asdict(Quality.of(segmenter.predict(path), masks[path]))}


# What they have in common.


def find(images: Path, masks: Path, resize: bool) -> tuple[dict[str, Path], Masks]:
    """The images by stem, and those of them that have a mask; what belongs nowhere is named."""
    if images.resolve() == masks.resolve():
        raise click.UsageError("--images and --masks must be two folders: masks would pass for images.")
    files = list_images(images)
    matched, strangers = match_masks(files, list_images(masks))
    name_strangers("mask", "masks", [path.name for path in strangers])
    usable = Masks(matched, resize=resize)
    if not usable:
        raise ValueError(f"{masks} holds no mask that can be used: images of 0 and 255, or of 0, 1 and 255 for void.")
    return files, usable


def match_boxes(files: Mapping[str, Path], boxes: Mapping[str, Any], masks: Masks, source: Path) -> dict[Path, Any]:
    """The boxes of images without a mask, by path."""
    strangers = [stem for stem in boxes if stem not in files]
    if boxes and len(strangers) == len(boxes):
        raise ValueError(
            f"no entry of {source} belongs to any image: they are named like {strangers[0]!r}, images like "
            f"{next(iter(files))!r}."
        )
    name_strangers(f"entry of {source.name}", f"entries of {source.name}", strangers)
    return {files[stem]: entries for stem, entries in boxes.items() if stem in files and files[stem] not in masks}


def name_strangers(one: str, many: str, names: Sequence[str]) -> None:
    """Warns of what belongs to no image."""
    if names:
        some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        what = count(len(names), one, many)
        warnings.warn(f"{what} without an image: {some}", SkippedImageWarning, stacklevel=2)


def in_order(function: Any, work: Sequence[tuple[Any, ...]], jobs: int | None, name: str) -> list[dict[str, Any]]:
    """The results of all that can be read, in the order of the work; says after a while how long it will take."""
    bar = Stages()
    bar.begin(f"{name} {count(len(work), 'image')}")
    found: dict[int, dict[str, Any]] = {}
    began, told = perf_counter(), sys.stderr.isatty()  # where a bar tells
    try:
        for n, row in for_each(function, work, -1 if jobs is None else jobs):
            found[n] = row
            bar.advance(len(found) / len(work))
            if not told and perf_counter() - began > LONG:
                told = True
                left = (perf_counter() - began) * (len(work) / len(found) - 1)
                click.echo(f"{duration(left).capitalize()} to go.", err=True)
    finally:
        bar.close()
    return [found[n] for n in sorted(found)]


def refuse_to_overwrite(targets: Iterable[Path], overwrite: bool) -> None:
    """Raises an error, before any work, where a file exists that may not be replaced."""
    there = [] if overwrite else [path for path in targets if path.exists()]
    if there:
        others = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise click.UsageError(f"{there[0]} exists{others}: name another place, or allow it with --overwrite.")


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes a table, whole or not at all."""
    text = io.StringIO()
    writer = csv_module.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, lambda file: file.write(text.getvalue().encode()))


@contextmanager
def plainly(interrupted: str) -> Iterator[list[str]]:
    """Warnings as one line, each once; Ctrl-C with a word of what is left of the work, which may be replaced."""
    shown: set[str] = set()
    words = [interrupted]

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            tqdm.write(f"Warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.simplefilter("error", FitInterruptedWarning)
        warnings.showwarning = show
        try:
            yield words
        except (KeyboardInterrupt, FitInterruptedWarning):
            click.echo(words[-1], err=True)
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None


def count(n: int, one: str, many: str = "") -> str:
    """A number and its noun, as in "1 image" and "2 images"."""
    return f"{n} {one if n == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """A time in words, as exact as an estimate is."""
    if seconds < 50:
        return "less than a minute"
    minutes = round(seconds / 60)
    return (
        f"about {count(max(1, minutes), 'minute')}" if minutes < 90 else f"about {count(round(minutes / 60), 'hour')}"
    )
