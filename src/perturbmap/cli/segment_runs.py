"""What ``perturbmap segment`` does, and what it says while doing it."""

from __future__ import annotations

import csv as csv_module
import io
import sys
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np

from perturbmap.cli.plainly import plainly
from perturbmap.images import Classes, ImageFeatures, Quality, Segmenter, TrainingSet, cross_validate
from perturbmap.images.class_masks import AnyMasks
from perturbmap.images.classes import CLASSES_FILE
from perturbmap.images.folders import list_images, match_masks, read_boxes
from perturbmap.images.parallel import for_each
from perturbmap.images.reading import SkippedImageWarning
from perturbmap.images.results import columns, result_files, write_results
from perturbmap.images.segmenter import read_masks, segmentation_predictor
from perturbmap.images.time_estimate import seconds_to_fit
from perturbmap.inference import CONVERGING
from perturbmap.support.files import check_writable, clear_leftovers, write_atomically
from perturbmap.support.progress import Bar

N_FOLDS = 3
LONG = 10.0  # seconds, after which one would like to know how many more
SUMMARY = "summary.csv"
TEMPORARY = "perturbmap-features-"  # the folder for features, where --cache names none


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
    classes: Path | None,
    boxes: Path | None,
    out: Path,
    cache: Path | None,
    superpixels: int,
    side: int,
    l2: float | None,
    seed: int,
    check: bool,
    jobs: int | None,
    mask_threshold: float | None,
    overwrite: bool,
) -> None:
    """Learns a model and writes it, then estimates its error."""
    before = _stamp(out)

    def interrupted() -> str:
        if _stamp(out) != before:
            return f"Interrupted, but the model is written: {out}"
        kept = "Features that are done are kept in --cache." if cache else "With --cache DIR, features would be kept."
        return f"Interrupted before the model was written. {kept}"

    with plainly(interrupted):
        refuse_to_overwrite([out], overwrite)
        check_writable(out)
        if cache is not None:
            cache.mkdir(parents=True, exist_ok=True)
        named = find_classes(masks, classes)
        files, masked = find(images, masks, named, mask_threshold, has_boxes=boxes is not None)
        boxed = {} if boxes is None else match_boxes(files, read_boxes(boxes), masked, boxes)
        n_others = len(files) - len(masked) - len(boxed)
        click.echo(f"{count(len(masked), 'image')} with a mask, {len(boxed)} with boxes, {n_others} with neither.")
        n_labels = len(masked.names)
        if named is not None:
            click.echo(f"{n_labels} classes: {', '.join(named.names)}.")
        options: dict[str, Any] = {"seed": seed, "n_labels": n_labels} | ({} if l2 is None else {"l2": l2})
        predictor = segmentation_predictor(**options)
        segmenter = Segmenter(ImageFeatures(superpixels, max_side=side, seed=seed), predictor, named)
        n_folds = min(N_FOLDS, len(masked)) if check and len(masked) > 1 else 0
        n_jobs = -1 if jobs is None else jobs
        seconds = seconds_to_fit(segmenter, len(files), masked, n_jobs, n_folds)
        if seconds is not None:
            less = "; less where --cache has been filled before" if cache else ""
            click.echo(f"{duration(seconds).capitalize()} to go{less}.")
        with ExitStack() as stack:
            bar = Stages()
            stack.callback(bar.close)
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=TEMPORARY)) if cache is None else cache
            examples = TrainingSet.load(
                segmenter.features, files.values(), masked, boxed, cache=folder, n_jobs=n_jobs, progress=bar
            )
            segmenter.learn(examples, progress=bar)
            segmenter.save(out)
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
            f"  by {n_folds}-fold cross-validation on {count(len(held_out), 'image')}; guessing has "
            f"{100 - 100 / n_labels:.0f} %"
        )
    elif check:
        click.echo("Expected error on new images:             unknown, it needs two masks")
    click.echo(f"Model: {out}\nNext:  perturbmap segment predict {out} --images NEW-IMAGES --out RESULTS")


def predict(*, model: Path, images: Path, out: Path, converging: bool, jobs: int | None, overwrite: bool) -> None:
    """Writes masks, probability maps, overlays and a table."""
    rows: dict[int, dict[str, Any]] = {}
    n_images = 0

    def interrupted() -> str:
        if not rows:
            return "Interrupted before any image was done."
        return (
            f"Interrupted: {len(rows)} of {count(n_images, 'image')} are done, in {out}. To do all, add --overwrite."
        )

    with plainly(interrupted):
        if out.resolve() == images.resolve():
            raise click.UsageError("--out must be another folder than --images, where results would pass for images.")
        segmenter = Segmenter.load(model)
        files = list_images(images)
        targets = [file for stem in files for file in result_files(stem, out).values()]
        refuse_to_overwrite([*targets, out / SUMMARY], overwrite)
        out.mkdir(parents=True, exist_ok=True)
        check_writable(out / SUMMARY)
        work = [(segmenter, path, out, CONVERGING if converging else None) for path in files.values()]
        n_images = len(work)
        try:
            work_through(write_results, work, jobs, "segmenting", rows)
        finally:
            clear_leftovers(out)  # of processes that were ended
        if not rows:
            raise ValueError(f"{images} holds no image that can be read.")
        write_csv(out / SUMMARY, columns(segmenter.classes), [rows[n] for n in sorted(rows)])
    click.echo(f"{count(len(rows), 'image')} segmented: {out}")


# What they have in common.


def find_classes(masks: Path, file: Path | None) -> Classes | None:
    """The classes that a file names, or that of the folder of masks; None where masks show a foreground."""
    there = masks / CLASSES_FILE
    if file is None and there.is_file():
        file = there
    return None if file is None else Classes.read(file)


def find(
    images: Path, masks: Path, classes: Classes | None, threshold: float | None, *, has_boxes: bool = False
) -> tuple[dict[str, Path], AnyMasks]:
    """The images by stem, and those of them that have a mask; what belongs nowhere is named."""
    if images.resolve() == masks.resolve():
        raise click.UsageError("--images and --masks must be two folders: masks would pass for images.")
    files = list_images(images)
    matched, strangers = match_masks(files, list_images(masks))
    name_strangers("mask", "masks", [path.name for path in strangers])
    usable = read_masks(matched, classes, threshold, has_boxes=has_boxes)
    if not usable:
        what = "images of 0 and 255, or of 0, 1 and 255 for void" if classes is None else "images of its classes"
        raise ValueError(f"{masks} holds no mask that can be used: {what}.")
    return files, usable


def match_boxes(
    files: Mapping[str, Path], boxes: Mapping[str, Any], masks: AnyMasks, source: Path
) -> dict[Path, Any]:
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


def work_through(
    function: Any, work: Sequence[tuple[Any, ...]], jobs: int | None, name: str, found: dict[int, dict[str, Any]]
) -> None:
    """Fills ``found`` with the results of all that can be read, by place; says after a while how long is to go."""
    bar = Stages()
    bar.begin(f"{name} {count(len(work), 'image')}")
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


def refuse_to_overwrite(targets: Iterable[Path], overwrite: bool) -> None:
    """Raises an error, before any work, where something exists that may not be replaced."""
    there = [path for path in targets if path.exists()]
    for path in there:
        if not path.is_file():
            raise click.UsageError(f"{path} is not a file that could be replaced: name another place.")
    if there and not overwrite:
        others = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise click.UsageError(f"{there[0]} exists{others}: name another place, or allow it with --overwrite.")


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes a table, whole or not at all."""
    text = io.StringIO()
    writer = csv_module.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, lambda file: file.write(text.getvalue().encode()))


def _stamp(path: Path) -> tuple[int, int] | None:
    """What changes when a file is written anew; None where it is not there."""
    try:
        there = path.stat()
    except OSError:
        return None
    return there.st_ino, there.st_mtime_ns


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
