"""``perturbmap reproduce horses``: Tables 3, 4 and 5 and Figure 1 of the paper."""

from __future__ import annotations

from pathlib import Path

import click

from perturbmap.cli.options import cache_option, jobs_option, method_option, once_each, out_option, seed_option


@click.command()
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Folder with images, masks and boxes, as perturbmap prepare-voc makes it.",
)
@method_option("ssvm", "perturb-map", "marginal", "weighted")
@click.option(
    "--column",
    "names",
    type=click.Choice(["small", "small+boxes", "small+all", "14", "14+boxes", "14+nothing", "5", "30", "70"]),
    multiple=True,
    callback=once_each,
    help="A column of the tables to run, besides small and 14, on which the others build; may be repeated. All by "
    "default.",
)
@jobs_option
@seed_option
@click.option(
    "--quick", is_flag=True, help="One draw, few steps, l2 not searched, no unlabelled images: under 3 minutes."
)
@click.option("--timing/--no-timing", default=True, help="Time the pins, cuts with one label held (Table 5).")
@cache_option("horses", "image")
@out_option("horses")
def horses(
    data: Path,
    methods: tuple[str, ...],
    names: tuple[str, ...],
    jobs: int | None,
    seed: int,
    quick: bool,
    timing: bool,
    cache: Path,
    out: Path | None,
) -> None:
    """Horses cut out of images: Tables 3, 4 and 5 and Figure 1 of the paper.

    A structured SVM, perturb&MAP and marginal perturb&MAP, plain and weighted by the loss, learn from masks, from
    boxes and from images with neither. Each predicts in two ways: by the labelling of the highest score, and by that
    of least expected loss.
    """
    from perturbmap.experiments.horses import report as horses_report
    from perturbmap.experiments.horses.data import load_horses
    from perturbmap.experiments.horses.experiment import Experiment
    from perturbmap.experiments.horses.plan import (
        COLUMNS,
        METHODS,
        QUICK,
        QUICK_COLUMNS,
        SEARCHED,
        Effort,
        possible_columns,
    )
    from perturbmap.experiments.results import Results, machine
    from perturbmap.support.progress import Bar, Bars

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
        wanted = tuple(c for c in COLUMNS if not names or c in (*names, *SEARCHED))
        columns = possible_columns(images, tuple(c for c in wanted if not quick or c in QUICK_COLUMNS))
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
