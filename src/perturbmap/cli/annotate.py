"""``perturbmap annotate``: opens the page on which strokes become masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from perturbmap.cli.interrupts import while_loading

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

_ABOUT = """Make masks for a folder of photos, in the browser: a few strokes, a look, accept, next.

Whatever is drawn and accepted is written to the folder PHOTOS-masks at once; if the command ends or is killed, the
same command goes on from there. After each accepted mask a model is learned from all of them, in the background. It
helps with the next photos, and the photos of which it is least sure come first.

\b
What is written:
  NAME.png          the mask of the photo NAME, as perturbmap segment reads it
  NAME.marks.json   what was drawn on it
  boxes.json        the boxes that were drawn, for perturbmap segment fit --boxes
  model.pm          the model, for perturbmap segment predict
  progress.json     the model's expected error, each time it was learned
"""


@click.command(help=_ABOUT)
@click.argument("photos", type=FOLDER)
@click.option(
    "--masks", type=click.Path(file_okay=False, path_type=Path), help="Folder of masks.  [default: PHOTOS-masks]"
)
@click.option(
    "--classes",
    type=FILE,
    help="File of classes, where masks show more than foreground and background: their names, and their numbers or "
    'colours in masks. JSON, {"NAME": 1, "NAME": 2, ..., "void": [0, 255]}, or {"NAME": [RED, GREEN, BLUE], ...}.  '
    "[default: classes.json in the folder of masks]",
)
@click.option(
    "--superpixels",
    type=click.IntRange(min=2),
    help="How many pieces a photo is cut into, about: more follow finer outlines, and take longer.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="Port; 0 takes any that is free."
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen at. With any other than the default, whoever is in your network and knows the address "
    "that is printed can see and mark the photos; nothing is encrypted.",
)
@click.option("--browser/--no-browser", default=True, show_default=True, help="Open the page in the browser.")
def annotate(**options: Any) -> None:
    """Opens the page on which strokes become masks; the help of the command is `_ABOUT`."""
    with while_loading():
        from perturbmap.cli import annotate_runs

    annotate_runs.annotate(**options)
