"""``perturbmap segment``: fit, predict, evaluate. What they do is in `segment_runs`, which loads more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from perturbmap.cli.interrupts import while_loading

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)

_jobs = click.option("--jobs", type=click.IntRange(min=1), help="Processes to use.  [default: one per core]")
_overwrite = click.option("--overwrite", is_flag=True, help="Replace files that exist.")
_masks = click.option(
    "--masks",
    type=FOLDER,
    required=True,
    help="Folder of masks: NAME.png (or NAME_mask.png) for the image NAME.jpg. Black (0) is background; white (255), "
    "or 1, is foreground. Where a mask holds 1 and 255, 255 is void, which does not count. Grey masks, such as JPEG "
    "files, are cut in the middle if they are nearly black and white.",
)
_classes = click.option(
    "--classes",
    type=FILE,
    help="File of classes, where masks show more than foreground and background: their names, and their numbers or "
    'colours in masks. JSON, {"NAME": 1, "NAME": 2, ..., "void": [0, 255]}, or {"NAME": [RED, GREEN, BLUE], ...}.  '
    "[default: classes.json in the folder of masks]",
)
_threshold = click.option(
    "--mask-threshold",
    type=click.FloatRange(min=0, min_open=True, max=255),
    help="Grey from 0 to 255: pixels of masks that are at least as bright are foreground, all others background.",
)


_ABOUT = """Cut something out of images: learn it from some, find it in others.

\b
Try:
  perturbmap segment fit --images photos --masks masks --out model.pm
  perturbmap segment predict model.pm --images more-photos --out results
"""

_PREDICT = """Find the foreground in images.

\b
Writes for each image NAME:
  NAME_mask.png          255 where foreground is, 0 elsewhere
  NAME_probability.png   the probability of foreground, 0 to 255
  NAME_overlay.jpg       the image with its foreground tinted, to look at

Also writes summary.csv, with one line per image: its size, the foreground's share of the area, the mean uncertainty
of a pixel (0 bits: certain; 1 bit: nothing is known), the number of superpixels.

\b
For a model of classes, the files are:
  NAME_mask.png          the numbers or the colours of the classes, as in the masks
  NAME_probability.png   the probability of the class in the mask, 0 to 255
  NAME_overlay.jpg       the image with its classes tinted, and a legend
"""


@click.group(help=_ABOUT)
def segment() -> None:
    """Groups the commands for images; the help of the group is `_ABOUT`."""


@segment.command()
@click.option("--images", type=FOLDER, required=True, help="Folder of images to learn from.")
@_masks
@_classes
@click.option(
    "--boxes",
    type=FILE,
    help="File of boxes around the foreground of images without a mask, in pixels counted from 1: JSON, "
    '{"NAME": [[xmin, ymin, xmax, ymax], ...], ...}.',
)
@click.option("--out", type=NEW_FILE, default=Path("model.pm"), show_default=True, help="The model to write.")
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder that keeps features (1.4 MB per image), so that the next fit on these images is quick.",
)
@click.option(
    "--superpixels",
    type=click.IntRange(min=2),
    default=150,
    show_default=True,
    help="How many pieces an image is cut into, about: more follow finer outlines, and take longer.",
)
@click.option(
    "--side",
    type=click.IntRange(min=32),
    default=400,
    show_default=True,
    help="Larger images are shrunk to this many pixels of the longer side; results keep the size of the image.",
)
@click.option(
    "--l2",
    type=click.FloatRange(min=0, min_open=True),
    help="Strength of the penalty on the weights: try a larger one for few masks.  [default: 0.003]",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Random seed.")
@click.option(
    "--check/--no-check",
    default=True,
    show_default=True,
    help="Estimate the error on new images, by learning again without some of the masks.",
)
@_jobs
@_threshold
@_overwrite
def fit(**options: Any) -> None:
    """Learn from images with masks, and from others.

    Masks show a foreground, or classes that have names: then a file classes.json lies beside them, or --classes says
    where it is.

    Images without a mask are used too. For an image that --boxes has, everything outside its boxes is background; of
    the others, nothing is known. Files go together by name: photo7.jpg, its mask photo7.png, its boxes "photo7".
    """
    with while_loading():
        from perturbmap.cli import segment_runs

    segment_runs.fit(**options)


@segment.command(help=_PREDICT)
@click.argument("model", type=FILE)
@click.option("--images", type=FOLDER, required=True, help="Folder of images.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder for the results."
)
@click.option(
    "--converging",
    is_flag=True,
    help="Compute probabilities without the bias of perturb-and-MAP: exact, and as quick, for images of 150 "
    "superpixels; for many more, it takes seconds to minutes for each image. Masks stay the same.",
)
@_jobs
@_overwrite
def predict(**options: Any) -> None:
    """Segments images; the help of the command is `_PREDICT`."""
    with while_loading():
        from perturbmap.cli import segment_runs

    segment_runs.predict(**options)


@segment.command()
@click.argument("model", type=FILE)
@click.option("--images", type=FOLDER, required=True, help="Folder of images that the model has not learned from.")
@_masks
@click.option("--csv", type=NEW_FILE, help="Write the measures of each image to this file.")
@_jobs
@_threshold
@_overwrite
def evaluate(**options: Any) -> None:
    """Measure the errors of a model on images with masks.

    A model of classes is also measured for each class, with a table of what is taken for what.
    """
    with while_loading():
        from perturbmap.cli import segment_evaluate

    segment_evaluate.evaluate(**options)
