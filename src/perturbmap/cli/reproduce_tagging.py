"""``perturbmap reproduce tagging``: parts of speech by sparse, named features."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from perturbmap.cli.options import once_each


@click.command()
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Folder with the sentences of train, dev and test: the .conllu files of a treebank, or .tsv.",
)
@click.option(
    "--method",
    "methods",
    type=click.Choice(["crfsuite", "crf", "ssvm", "perturb-map", "marginal"]),
    multiple=True,
    callback=once_each,
    help="A method to run; may be repeated. All by default; crfsuite where python-crfsuite is installed.",
)
@click.option("--threads", type=click.IntRange(min=1), help="Threads to use. All cores by default.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Random seed.")
@click.option("--quick", is_flag=True, help="A few hundred sentences, nothing searched: a minute.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for results.json and report.html.  [default: perturbmap-tagging, or perturbmap-tagging-quick]",
)
def tagging(
    data: Path, methods: tuple[str, ...], threads: int | None, seed: int, quick: bool, out: Path | None
) -> None:
    """Parts of speech of words: not in the paper.

    crfsuite, our CRF, a structured SVM, perturb&MAP and marginal perturb&MAP learn from the same named features.
    Besides, a tenth of the sentences is labelled, the others in part or not at all, and Algorithm 3 of the paper
    learns from them.
    """
    from perturbmap.experiments.results import Results
    from perturbmap.experiments.tagging import report as tagging_report
    from perturbmap.experiments.tagging.data import Corpus
    from perturbmap.experiments.tagging.experiment import Experiment
    from perturbmap.experiments.tagging.plan import METHODS, PEER, QUICK, Effort
    from perturbmap.support.progress import Bars

    tagging_report.check_installed()
    is_there = find_spec("pycrfsuite") is not None
    if PEER in methods and not is_there:
        raise click.UsageError("--method crfsuite needs python-crfsuite: pip install python-crfsuite.")
    chosen = methods or tuple(method for method in METHODS if is_there or method != PEER)
    folder = out or Path("perturbmap-tagging-quick" if quick else "perturbmap-tagging")
    effort = QUICK if quick else Effort()
    experiment = Experiment(data, Corpus.load(data, effort.n_train), effort, seed, threads)
    results = Results(folder, "tagging", {"seed": seed, "quick": quick, "threads": threads}, experiment.fingerprint)
    bars = Bars()
    try:
        experiment.run(results, chosen, bars)
    finally:
        bars.close()
    try:
        report = tagging_report.write(results, experiment, folder / "report.html")
        click.echo(tagging_report.text_table(results, experiment))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{results.path} is damaged ({error}): remove it, or name another folder.") from error
    click.echo(f"\nReport:  {report}\nResults: {results.path}")
