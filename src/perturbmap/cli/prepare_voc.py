"""``perturbmap prepare-voc``: the experiment's folder from a download of VOC2012."""

from __future__ import annotations

from pathlib import Path

import click

from perturbmap.cli.interrupts import while_loading

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command(name="prepare-voc")
@click.argument("path", type=FOLDER)
@click.option("--class", "class_name", default="horse", show_default=True, help="One of VOC's twenty classes.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The folder to make; it must not exist.")
@click.option("--sbd", type=FOLDER, help="Folder of the data set SBD (benchmark_RELEASE): masks for the test set.")
@click.option("--unlabelled", type=FOLDER, help="Folder of more images of the class, of which nothing is known.")
@click.option("--test", "n_test", type=click.IntRange(min=1), help="Test images from SBD.  [default: half of them]")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Seed of that draw.")
def prepare_voc(
    path: Path, class_name: str, out: Path, sbd: Path | None, unlabelled: Path | None, n_test: int | None, seed: int
) -> None:
    """Make the folder of the horse experiment from VOC2012.

    PATH is VOCdevkit, or the folder VOC2012 in it. With --sbd, all VOC segmentation images of the class are the small
    training set, and the test set is drawn from the images that only SBD has masks for; without --sbd, VOC's "train"
    is the small set and its "val" the test set. Images with boxes alone are the medium set; for horses, VOC's action
    set gives unlabelled images.
    """
    with while_loading():
        from perturbmap.cli.plainly import plainly
        from perturbmap.images.voc import prepare_voc as prepare

    if n_test is not None and sbd is None:
        raise click.UsageError("--test is for --sbd; without it, VOC's own validation images are the test set.")
    with plainly(lambda: "Interrupted; nothing was written."):
        counts = prepare(path, out, class_name, sbd=sbd, unlabelled=unlabelled, n_test=n_test, seed=seed)
    for part, n in counts.items():
        click.echo(f"{part:<11}{n:>6} images")
    click.echo(f"Folder: {out}")
