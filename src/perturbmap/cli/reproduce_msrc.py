"""``perturbmap reproduce msrc``: photos cut into twenty-one classes."""

from __future__ import annotations

from pathlib import Path

import click

from perturbmap.cli.options import cache_option, jobs_option, method_option, out_option, seed_option


@click.command()
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Folder with images, labels and split.json.",
)
@method_option("unaries", "ssvm", "perturb-map", "marginal", "weighted")
@jobs_option
@seed_option
@click.option("--quick", is_flag=True, help="Few steps, l2 not searched: minutes, most of them for features.")
@cache_option("msrc", "photo")
@out_option("msrc")
def msrc(
    data: Path, methods: tuple[str, ...], jobs: int | None, seed: int, quick: bool, cache: Path, out: Path | None
) -> None:
    """Photos cut into the classes of MSRC: not in the paper.

    The same scores of single superpixels (unaries) predict alone, and with edges that are learned by a structured
    SVM, perturb&MAP and marginal perturb&MAP, plain and weighted by the loss. Each predicts in two ways: by the
    labelling of the highest score, and by that of least expected loss.
    """
    from perturbmap.experiments.msrc import report as msrc_report
    from perturbmap.experiments.msrc.appearance import with_appearance
    from perturbmap.experiments.msrc.data import load_msrc
    from perturbmap.experiments.msrc.experiment import Experiment
    from perturbmap.experiments.msrc.plan import METHODS, QUICK, Effort
    from perturbmap.experiments.results import Results, machine
    from perturbmap.support.progress import Bar, Bars

    msrc_report.check_installed()
    folder = out or Path("perturbmap-msrc-quick" if quick else "perturbmap-msrc")
    folder.mkdir(parents=True, exist_ok=True)
    n_jobs = jobs or int(machine()["cores"])
    bar = Bar()
    try:
        photos = load_msrc(data, cache, n_jobs=n_jobs, progress=bar)
        parts = with_appearance(photos, cache, seed=seed, n_jobs=n_jobs, progress=bar)
    finally:
        bar.close()
    bars = Bars()
    try:
        effort = QUICK if quick else Effort()
        experiment = Experiment(photos.classes, parts, photos.fingerprint, effort, seed, n_jobs)
        results = Results(folder, "msrc", {"seed": seed, "quick": quick}, experiment.fingerprint)
        experiment.run(results, methods or tuple(METHODS), bars)
    finally:
        bars.close()
    try:
        report = msrc_report.write(results, experiment, photos, folder / "report.html")
        click.echo(msrc_report.text_table(results, experiment))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{results.path} is damaged ({error}): remove it, or name another folder.") from error
    click.echo(f"\nReport:  {report}\nResults: {results.path}")
