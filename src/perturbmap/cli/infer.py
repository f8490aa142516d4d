"""``perturbmap infer``: bounds, the best labelling and marginals of a model in the UAI format."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perturbmap.cli.exit_codes import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from perturbmap.inference import Estimate, LogPartition
    from perturbmap.potentials import Labels, Potentials
    from perturbmap.structures import Structure
    from perturbmap.uai import PairwiseModel

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

#: What fits on a screen: variables and labels of the table of marginals.
MAX_ROWS, MAX_COLUMNS = 20, 8

#: Perturbed potentials from which on the work is announced: a few seconds.
LONG = 2 * 10**7

#: How often the best labelling is looked for, where that is no matter of one cut or one sweep.
EFFORT = 100

#: A gap to the upper bound that is rounding, relative to the score: the labelling is the maximum.
GAP = 1e-9

_ABOUT = """Solve a model in the UAI format by perturb-and-MAP.

MODEL is a MARKOV or BAYES file of the UAI inference competitions whose factors have at most two variables once the
evidence is known. The labelling that is found is certain to be the best for chains, forests, and graphs of two labels
in which neighbours attract each other, possibly after an exchange of labels; elsewhere a bound says how much better
another labelling can be.

\b
With --out DIR, writes the whole results in the competitions' formats:
  MODEL.PR    log10 of the partition function: exact, or an estimate that converges, or the upper bound
  MODEL.MAR   marginals, the probability of each label of each variable: exact, or converging, or of
              perturb-and-MAP; the output says which
  MODEL.MPE   the best labelling
"""


@click.command(help=_ABOUT)
@click.argument("model", type=FILE)
@click.option("--evidence", type=FILE, help="File of observed variables: n variable label variable label ...")
@click.option(
    "--perturbations",
    type=click.IntRange(min=2),
    default=100,
    show_default=True,
    help="Random perturbations for the bound, and for marginals of perturb-and-MAP: more leave less noise.",
)
@click.option(
    "--max-seconds",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Time for an estimate that converges, where nothing is exact; with 0, the bound and the marginals of "
    "perturb-and-MAP take its place.",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Seed of the noise.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for the results.")
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
def infer(
    model: Path,
    evidence: Path | None,
    perturbations: int,
    max_seconds: float,
    seed: int,
    out: Path | None,
    overwrite: bool,
) -> None:
    """Solves a model in the UAI format; the help of the command is `_ABOUT`."""
    files = {} if out is None else {task: out / f"{model.name}.{task}" for task in ("PR", "MAR", "MPE")}
    there = [] if overwrite else [path for path in files.values() if path.exists()]
    if there:
        raise click.UsageError(f"{there[0]} exists: name another folder, or allow it with --overwrite.")
    try:
        _infer(model, evidence, perturbations, max_seconds, seed, files)
    except KeyboardInterrupt:
        click.echo("Interrupted; no results were written.", err=True)
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None


def _infer(path: Path, evidence: Path | None, n: int, max_seconds: float, seed: int, files: dict[str, Path]) -> None:
    from perturbmap import uai
    from perturbmap.inference import log_partition_bound, marginals
    from perturbmap.structures import Graph
    from perturbmap.support.files import check_writable

    model = uai.read(path, evidence)
    f, given = model.potentials, model.given
    _say_what_was_read(path, evidence, model)
    structure = model.structure()
    click.echo(f"Structure:   {_reason(structure, model)}")
    for file in files.values():
        file.parent.mkdir(parents=True, exist_ok=True)
        check_writable(file)
    if f.unary.size * n > LONG:
        click.echo(f"{n} perturbations of {f.n_sites} variables ...", err=True)
    best = (structure if structure.is_exact else Graph(effort=EFFORT)).maximise_with_bound(f, given)
    labels = model.labels(best.labels)
    bound = log_partition_bound(structure, f, given=given, n_perturbations=n, rng=seed)
    _say_bound(bound, n)
    found = _converge(structure, f, given, n, max_seconds, seed)
    _say_best(model.graph.log_score(labels), float(best.bounds[0] - best.values[0]))
    if found is None:
        log_z, how = float(bound.mean[0]), "of perturb-and-MAP"
        q = model.marginals(marginals(structure, f, given=given, n_perturbations=n, rng=seed).mean)
    else:
        log_z, off = float(found.estimate.mean[0]), float(found.marginals.standard_error.max(initial=0.0))
        how = "exact" if found.is_exact[0] else f"by particles, standard errors up to {off:.2g}"
        q = model.marginals(found.marginals.mean)
    click.echo(f"\nMarginals, {how}, and the best labelling (*):")
    click.echo(_table(labels.tolist(), q))
    if files:
        uai.write_log_partition(files["PR"], log_z)
        uai.write_marginals(files["MAR"], q)
        uai.write_labels(files["MPE"], labels)
        click.echo("\nResults: " + ", ".join(str(file) for file in files.values()))
    elif len(q) > MAX_ROWS or max(map(len, q)) > MAX_COLUMNS:
        click.echo("\nThe whole table, and the best labelling, are written by --out DIR.")


def _converge(
    structure: Structure, f: Potentials, given: Labels, n: int, max_seconds: float, seed: int
) -> LogPartition | None:
    """Log Z and marginals, exact or converging, with a line that says how; None where there is no time for them."""
    from perturbmap.inference import NotConvergedWarning, log_partition

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NotConvergedWarning)
        try:
            # However little time there is, what is exact at once is exact.
            found = log_partition(
                structure, f, given=given, max_seconds=max(max_seconds, 1e-9), n_perturbations=n, rng=seed
            )
        except ValueError as reason:
            click.echo(f"Estimate:    none; {reason}")
            return None
    if found.is_exact[0]:
        click.echo(f"Exact:       log Z  = {_both(float(found.estimate.mean[0]))}")
        return found
    low, high = found.interval[0].tolist()
    click.echo(f"Estimate:    log Z  = {_both(float(found.estimate.mean[0]))}, by particles")
    click.echo(f"             from {low:.6f} to {high:.6f} with a probability of about 95 %")
    upper, error = float(found.upper.mean[0]), float(found.upper.standard_error[0])
    click.echo(f"             not above {upper:.6f} ± {error:.6f}, whatever the particles say")
    for warning in caught:
        click.echo(f"             {warning.message}")
    return found


def _say_what_was_read(path: Path, evidence: Path | None, model: PairwiseModel) -> None:
    graph = model.graph
    fewest, most = min(graph.cardinalities), max(graph.cardinalities)
    sizes = Counter(len(factor.scope) for factor in graph.factors)
    over = ", ".join(f"{count} over {size}" for size, count in sorted(sizes.items()))
    click.echo(
        f"Model:       {path}: {_count(len(graph.cardinalities), 'variable')} with "
        f"{f'{fewest} to ' if fewest < most else ''}{_count(most, 'label')}, {_count(len(graph.factors), 'factor')}"
        + (f" ({over} variables)" if over else "")
    )
    if evidence is not None:
        click.echo(f"Evidence:    {evidence}: {_count(len(model.evidence), 'variable')} observed")
    n_known = int((model.given >= 0).sum())
    has_several = [labels > 1 for labels in graph.cardinalities]
    implied = sum(has_several[v] for v, known in enumerate(model.given.tolist()) if known >= 0)
    implied -= sum(has_several[v] for v in model.evidence)
    if implied:
        click.echo(f"             zeros of factors leave one label to {_count(implied, 'more variable')}")
    if n_known:
        click.echo(f"             {_count(len(model.given) - n_known, 'variable')} not known")


def _reason(structure: Structure, model: PairwiseModel) -> str:
    from perturbmap.structures import BinaryGraph, Chain, Tree

    pairs = _count(model.potentials.n_edges, "pair")
    if isinstance(structure, BinaryGraph):
        order = model.label_of[model.given < 0]
        n_exchanged = int((order[:, 0] > order[:, 1]).sum())
        exchanged = f", with the labels of {_count(n_exchanged, 'variable')} exchanged" if n_exchanged else ""
        return f"BinaryGraph: two labels, {pairs} with cycles, all attractive{exchanged}"
    if isinstance(structure, Chain):
        alone = "no two variables that are not known depend on each other"
        return f"Chain: {'each variable depends on the next' if model.potentials.n_edges else alone}"
    if isinstance(structure, Tree):
        return f"Tree: {pairs} without a cycle"
    return f"Graph: {pairs} with cycles, {_count(model.potentials.n_labels, 'label')}, approximate"


def _say_bound(bound: Estimate, n: int) -> None:
    mean, error = float(bound.mean[0]), float(bound.standard_error[0])
    click.echo(
        f"Bound:       log Z <= {mean:.6f} ± {error:.6f}   (log10: {mean / math.log(10):.6f} ± "
        f"{error / math.log(10):.6f}), {n} perturbations"
    )


def _say_best(score: float, gap: float) -> None:
    """The score of the best labelling, and whether it is the maximum, or how much more there can be."""
    if gap <= GAP * (1 + abs(score)):
        how = "the maximum"
    elif math.isfinite(score):
        how = f"no labelling has more than {gap:.6f} above it"
    else:
        how = "every labelling that was found has a factor of zero"
    click.echo(f"Best:        log of the product of factors {_both(score)}, {how}")


def _both(value: float) -> str:
    return f"{value:.6f}   (log10: {value / math.log(10):.6f})"


def _table(labels: Sequence[int], q: Sequence[Any]) -> str:
    """One line for each variable; of many variables the first and the last, of many labels the first."""
    half = MAX_ROWS // 2
    shown = list(range(len(q))) if len(q) <= MAX_ROWS else [*range(half), *range(len(q) - half, len(q))]
    columns = min(MAX_COLUMNS, max(len(q[v]) for v in shown))
    width = max(8, len(str(len(q))))
    lines = [f"{'variable':>{width}}  {'best':>5}  " + " ".join(f"{f'P({k})':>8}" for k in range(columns))]
    for row, v in enumerate(shown):
        if len(q) > MAX_ROWS and row == half:
            lines.append(f"{'...':>{width}}  ({len(q) - len(shown)} more)")
        cells = " ".join(f"{p:>7.4f}{'*' if k == labels[v] else ' '}" for k, p in enumerate(q[v][:columns].tolist()))
        lines.append(f"{v:>{width}}  {labels[v]:>5}  {cells}{' ...' if len(q[v]) > columns else ''}".rstrip())
    return "\n".join(lines)


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
