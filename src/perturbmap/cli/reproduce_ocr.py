"""``perturbmap reproduce ocr``: Table 2 of the paper."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from perturbmap.cli.options import jobs_option, method_option, once_each, out_option, seed_option


class Folds(click.ParamType[list[int]]):
    """Numbers and ranges, such as ``0,3-5``."""

    name = "folds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """The folds as a sorted list without repetition."""
        if isinstance(value, list):
            return value
        folds: set[int] = set()
        for part in str(value).split(","):
            match = re.fullmatch(r"\s*(\d)\s*(?:-\s*(\d)\s*)?", part)
            if match is None or int(match[2] or match[1]) < int(match[1]):
                self.fail(f"{value!r} must be folds from 0 to 9, such as 0 or 0,3-5.", param, ctx)
            folds.update(range(int(match[1]), int(match[2] or match[1]) + 1))
        return sorted(folds)


@click.command()
@method_option(
    "crf",
    "ssvm",
    "perturb-map",
    "marginal",
    "exact-marginal",
    default="All by default (with --quick the paper's four).",
)
@click.option(
    "--protocol",
    "protocols",
    type=click.Choice(["small", "large"]),
    multiple=True,
    callback=once_each,
    help="small: train on one fold, test on nine. large: the other way round. Both by default.",
)
@click.option("--folds", type=Folds(), help="Folds to run, such as 0 or 0,3-5. All ten by default.")
@jobs_option
@seed_option
@click.option("--quick", is_flag=True, help="The paper's methods on one fold of the small protocol: under a minute.")
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The original letter.data, instead of the copy in the package.",
)
@out_option("ocr")
def ocr(
    methods: tuple[str, ...],
    protocols: tuple[str, ...],
    folds: list[int] | None,
    jobs: int | None,
    seed: int,
    quick: bool,
    data: Path | None,
    out: Path | None,
) -> None:
    """Handwritten words: Table 2 of the paper.

    The table has the share of wrong letters of a CRF, a structured SVM, perturb&MAP, marginal perturb&MAP and the
    exact marginal likelihood, beside the paper's numbers. The data are in the package.
    """
    from perturbmap.datasets import load_ocr
    from perturbmap.experiments.ocr import report as ocr_report
    from perturbmap.experiments.ocr.experiment import Experiment
    from perturbmap.experiments.ocr.plan import METHODS
    from perturbmap.experiments.results import Results, machine
    from perturbmap.support.progress import Bars

    if quick and (protocols or folds):
        raise click.UsageError("--quick is one fold of the small protocol: leave out --protocol and --folds.")
    ocr_report.check_installed()
    folder = out or Path("perturbmap-ocr-quick" if quick else "perturbmap-ocr")
    words = load_ocr(data)
    experiment = Experiment.make(words, seed=seed, n_jobs=jobs or int(machine()["cores"]), quick=quick)
    settings = {"seed": seed, "quick": quick, "data": data.name if data else "package"}
    results = Results(folder, "ocr", settings, experiment.fingerprint)
    bars = Bars()
    try:
        parts = ("small",) if quick else protocols or ("small", "large")
        chosen = methods or tuple(name for name, method in METHODS.items() if method.paper or not quick)
        experiment.run(results, chosen, parts, [0] if quick else folds or list(range(10)), bars)
    finally:
        bars.close()
    try:
        report = ocr_report.write(results, words, folder / "report.html")
        click.echo(ocr_report.text_table(results))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{results.path} is damaged ({error}): remove it, or name another folder.") from error
    click.echo(f"\nReport:  {report}\nResults: {results.path}")
