"""The command line: ``perturbmap --help``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import click

import perturbmap
from perturbmap.infer_cli import infer
from perturbmap.prepare_voc_cli import prepare_voc
from perturbmap.segment_cli import segment

#: What a command returns: all well, an error, wrong usage (click's own), Ctrl-C.
EXIT_ERROR, EXIT_INTERRUPTED = 1, 130


class Folds(click.ParamType[list[int]]):
    """Numbers and ranges, such as ``0,3-5``."""

    name = "folds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """A sorted list without repetition."""
        if isinstance(value, list):
            return value
        folds: set[int] = set()
        for part in str(value).split(","):
            match = re.fullmatch(r"\s*(\d)\s*(?:-\s*(\d)\s*)?", part)
            if match is None or int(match[2] or match[1]) < int(match[1]):
                self.fail(f"{value!r} must be folds from 0 to 9, such as 0 or 0,3-5.", param, ctx)
            folds.update(range(int(match[1]), int(match[2] or match[1]) + 1))
        return sorted(folds)


_ABOUT = """Structured prediction by perturb-and-MAP.

The library is used from Python (import perturbmap). This command cuts things out of images, solves models in
the UAI format, and regenerates the experiments of the paper that the library implements, with a report to open in a
browser.

\b
Try:
  perturbmap segment --help            from a folder of images and some masks to masks for others
  perturbmap infer model.uai           its log-partition function, best labelling and marginals
  perturbmap reproduce ocr --quick     one fold, under a minute
  perturbmap reproduce ocr             the whole table, up to half an hour
  perturbmap reproduce horses --help   segmentation: masks, boxes, images with neither
"""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, help=_ABOUT)
@click.version_option(perturbmap.__version__, prog_name="perturbmap")
@click.option("--debug", is_flag=True, help="Show the whole traceback of an error.")
def cli(debug: bool) -> None:
    """All commands; `main` reads --debug by itself."""


cli.add_command(segment)
cli.add_command(infer)
cli.add_command(prepare_voc)


@cli.group()
def reproduce() -> None:
    """Regenerate the paper's tables.

    Each experiment writes results.json and report.html into a folder. Interrupted, the same command goes on where it
    stopped.
    """


def _choices(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value))


@reproduce.command()
@click.option(
    "--method",
    "methods",
    type=click.Choice(["crf", "ssvm", "perturb-map", "marginal", "exact-marginal"]),
    multiple=True,
    callback=_choices,
    help="A method to run; may be repeated. All by default.",
)
@click.option(
    "--protocol",
    "protocols",
    type=click.Choice(["small", "large"]),
    multiple=True,
    callback=_choices,
    help="small: train on one fold, test on nine. large: the other way round. Both by default.",
)
@click.option("--folds", type=Folds(), help="Folds to run, such as 0 or 0,3-5. All ten by default.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads to use. All cores by default.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Of everything random.")
@click.option("--quick", is_flag=True, help="All methods on one fold of the small protocol: under a minute.")
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The original letter.data, instead of the copy in the package.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for results.json and report.html.  [default: perturbmap-ocr, or perturbmap-ocr-quick]",
)
def ocr(
    methods: tuple[str, ...],
    protocols: tuple[str, ...],
    folds: list[int] | None,
    threads: int | None,
    seed: int,
    quick: bool,
    data: Path | None,
    out: Path | None,
) -> None:
    """Handwritten words: Table 2 of the paper.

    Per-letter error of a CRF, a structured SVM, perturb&MAP, marginal perturb&MAP and the exact marginal likelihood,
    beside the paper's numbers. The data are in the package.
    """
    from perturbmap.datasets import load_ocr
    from perturbmap.experiments import ocr_report
    from perturbmap.experiments.ocr import METHODS, Experiment
    from perturbmap.experiments.progress import Bars
    from perturbmap.experiments.results import Results

    if quick and (protocols or folds):
        raise click.UsageError("--quick is one fold of the small protocol: leave out --protocol and --folds.")
    ocr_report.check_installed()
    folder = out or Path("perturbmap-ocr-quick" if quick else "perturbmap-ocr")
    words = load_ocr(data)
    experiment = Experiment.make(words, seed=seed, n_threads=threads, quick=quick)
    settings = {"seed": seed, "quick": quick, "data": data.name if data else "package"}
    results = Results(folder, "ocr", settings, experiment.fingerprint)
    bars = Bars()
    try:
        parts = ("small",) if quick else protocols or ("small", "large")
        experiment.run(results, methods or tuple(METHODS), parts, [0] if quick else folds or list(range(10)), bars)
    finally:
        bars.close()
    try:
        report = ocr_report.write(results, words, folder / "report.html")
        click.echo(ocr_report.text_table(results))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{results.path} is damaged ({error}): remove it, or name another folder.") from error
    click.echo(f"\nReport:  {report}\nResults: {results.path}")


@reproduce.command()
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Folder with images, masks and boxes, as perturbmap prepare-voc makes it.",
)
@click.option(
    "--method",
    "methods",
    type=click.Choice(["ssvm", "perturb-map", "marginal", "weighted"]),
    multiple=True,
    callback=_choices,
    help="A method to run; may be repeated. All by default.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Processes to use. One a core by default.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Of everything random.")
@click.option(
    "--quick", is_flag=True, help="One draw, few steps, l2 as it stands, no unlabelled images: under 3 minutes."
)
@click.option("--timing/--no-timing", default=True, help="Whether the pins are timed (Table 5).")
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("perturbmap-horses-features"),
    show_default=True,
    help="Folder for the images' features, computed once; 3 MB an image.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for results.json and report.html.  [default: perturbmap-horses, or perturbmap-horses-quick]",
)
def horses(
    data: Path,
    methods: tuple[str, ...],
    jobs: int | None,
    seed: int,
    quick: bool,
    timing: bool,
    cache: Path,
    out: Path | None,
) -> None:
    """Horses cut out of images: Tables 3, 4 and 5 and Figure 1 of the paper.

    A structured SVM, perturb&MAP and marginal perturb&MAP, plain and weighted by the loss, learned from masks, from
    boxes and from images with neither. Each is read by its best labelling and by that of least expected loss.
    """
    from perturbmap.experiments import horses_report
    from perturbmap.experiments.horse_data import load_horses
    from perturbmap.experiments.horses import Experiment
    from perturbmap.experiments.horses_plan import (
        COLUMNS,
        METHODS,
        QUICK,
        QUICK_COLUMNS,
        Effort,
        possible_columns,
    )
    from perturbmap.experiments.progress import Bars
    from perturbmap.experiments.results import Results, machine
    from perturbmap.images.bar import Bar

    horses_report.check_installed()
    folder = out or Path("perturbmap-horses-quick" if quick else "perturbmap-horses")
    folder.mkdir(parents=True, exist_ok=True)
    n_jobs = jobs or int(machine()["cores"])
    bar = Bar()
    try:
        weak = ("medium",) if quick else ("medium", "unlabelled")
        images = load_horses(data, cache, weak=weak, n_jobs=n_jobs, progress=bar)
    finally:
        bar.close()
    bars = Bars()
    try:
        experiment = Experiment(images, QUICK if quick else Effort(), seed, n_jobs)
        results = Results(folder, "horses", {"seed": seed, "quick": quick}, experiment.fingerprint)
        columns = possible_columns(images, QUICK_COLUMNS if quick else tuple(COLUMNS))
        experiment.run(results, methods or tuple(METHODS), columns, bars)
        if timing and (not methods or "weighted" in methods):
            experiment.time_pins(results, bars)
    finally:
        bars.close()
    try:
        report = horses_report.write(results, experiment, folder / "report.html")
        click.echo(horses_report.text_table(results, experiment))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{results.path} is damaged ({error}): remove it, or name another folder.") from error
    click.echo(f"\nReport:  {report}\nResults: {results.path}")


def main() -> None:
    """The entry point: errors in one line, unless ``--debug`` asks for more."""
    try:
        sys.exit(cli.main(standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted. What is finished is kept: the same command goes on from there.", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        click.echo(f"Error: {error or type(error).__name__} (perturbmap --debug ... shows where)", err=True)
        sys.exit(EXIT_ERROR)
