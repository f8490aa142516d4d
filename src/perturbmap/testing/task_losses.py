"""The check of task losses: values against a plain loop, and what is not known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from perturbmap.potentials import Floats, Labels, Layout, SiteLabels
from perturbmap.task_losses.base import TaskLoss
from perturbmap.testing.failure import Trial, describe
from perturbmap.testing.parts import check_part

#: ``definition(truth, predicted, sizes)``: the loss of one example, all of whose labels are known.
Definition = Callable[[Labels, Labels, Floats], float]

_CLOSE = 1e-12


def check_task_loss(
    loss: TaskLoss,
    definition: Definition | None = None,
    *,
    n_labels: int = 3,
    n_repeats: int = 40,
    seed: int = 0,
) -> None:
    """Checks that a loss is what it says, costs nothing where nothing is wrong or known, and keeps examples apart.

    `ConformanceError` says what is wrong.

    loss : the `TaskLoss` to check
    definition : the loss of one example, as a plain function ``(truth, predicted, sizes) -> float`` of its labels;
        without it, that of a loss which sums over sites is ``sum_d theta[d, y_d] [y_d != yhat_d]`` by its own
        ``site_weights``, up to a factor for each example, such as Hamming's ``1 / D``
    n_labels : the number of labels to try it with
    n_repeats : the number of random batches, those of few sites first
    seed : the seed of the random labels

    >>> def fraction_of_wrong_sites(truth, predicted, sizes):
    ...     return sum(a != b for a, b in zip(truth, predicted)) / len(truth)
    >>> pm.testing.check_task_loss(pm.Hamming(), fraction_of_wrong_sites)
    """
    check_part(loss, TaskLoss)
    rng = np.random.default_rng(seed)
    for repeat in range(n_repeats):
        known = _random_labels(rng, n_labels, 1 + repeat * 5 // n_repeats, hides=repeat % 2 == 1)
        predicted = rng.integers(0, n_labels, known.layout.n_sites).astype(np.int32)
        _check_on(loss, known, predicted, definition, rng)


def _check_on(
    loss: TaskLoss, known: SiteLabels, predicted: Labels, definition: Definition | None, rng: np.random.Generator
) -> None:
    with Trial(loss, lambda: _describe(known, predicted)) as trial:
        _check_value(trial, loss, known, predicted, definition)
        _check_unknown(trial, loss, known, predicted, rng)
        _check_layout(trial, loss, known, predicted, rng)
        _check_weights(trial, loss, known, rng)


def _random_labels(rng: np.random.Generator, n_labels: int, most_sites: int, *, hides: bool) -> SiteLabels:
    layout = Layout.of_counts(rng.integers(1, most_sites + 1, 1 + most_sites // 2))
    labels = rng.integers(0, n_labels, layout.n_sites)
    if hides:
        labels[rng.random(layout.n_sites) < 0.5] = -1
    return SiteLabels.of(labels, n_labels, layout, rng.uniform(0.5, 4, layout.n_sites).round(2))


def _describe(known: SiteLabels, predicted: Labels) -> str:
    return describe(
        labels=known.labels,
        predicted=predicted,
        sizes=known.sizes,
        site_offsets=known.layout.site_offsets,
        n_labels=known.n_labels,
    )


def _check_value(
    trial: Trial, loss: TaskLoss, known: SiteLabels, predicted: Labels, definition: Definition | None
) -> None:
    value = loss.value(known, predicted)
    trial.equal("`value` has one number for each example", value.shape, (len(known.layout),))
    trial.equal("`value` is NaN exactly where no label of the example is known", np.isnan(value), ~known.has_some)
    trial.holds("no loss is negative", ~(value < 0), f"found: {value.tolist()}")
    right = np.where(known.labels >= 0, known.labels, predicted).astype(np.int32)
    truth = loss.value(known, right)
    trial.holds("the truth costs nothing", truth[known.has_some] == 0, f"found: {truth.tolist()}")
    complete = np.flatnonzero(known.is_complete)
    if definition is not None:
        parts = [known.layout.sites(n) for n in complete.tolist()]
        plain = [definition(known.labels[s], predicted[s], known.sizes[s]) for s in parts]
        trial.close("`value` is the loss by its definition", value[complete], np.array(plain), 1e-9, _CLOSE)
    elif loss.sums_over_sites:
        _check_sum(trial, loss, known, predicted, value)


def _check_sum(trial: Trial, loss: TaskLoss, known: SiteLabels, predicted: Labels, value: Floats) -> None:
    """The value is the sum over sites for every prediction, up to one factor for each example."""
    worst = np.where(known.labels >= 0, (known.labels + 1) % known.n_labels, predicted).astype(np.int32)
    sums, most = _plain_sums(loss, known, predicted), _plain_sums(loss, known, worst)
    factor = np.divide(loss.value(known, worst), most, out=np.zeros_like(most), where=most > 0)
    some = known.has_some
    claim = "`value` is sum_d theta[d, y_d] [y_d != yhat_d], up to a factor for each example"
    trial.close(claim, value[some], (factor * sums)[some], 1e-9, _CLOSE)


def _plain_sums(loss: TaskLoss, known: SiteLabels, predicted: Labels) -> Floats:
    theta, totals = loss.site_weights(known), []
    for n in range(len(known.layout)):
        sites = range(known.layout.n_sites)[known.layout.sites(n)]
        wrong = [d for d in sites if known.labels[d] >= 0 and known.labels[d] != predicted[d]]
        totals.append(sum(float(theta[d, known.labels[d]]) for d in wrong))
    return np.array(totals, dtype=np.float64)


def _check_unknown(
    trial: Trial, loss: TaskLoss, known: SiteLabels, predicted: Labels, rng: np.random.Generator
) -> None:
    other = np.where(known.is_known, predicted, rng.integers(0, known.n_labels, len(predicted))).astype(np.int32)
    trial.equal(
        "what is predicted where no label is known makes no difference",
        loss.value(known, other),
        loss.value(known, predicted),
    )


def _check_layout(
    trial: Trial, loss: TaskLoss, known: SiteLabels, predicted: Labels, rng: np.random.Generator
) -> None:
    order = rng.permutation(len(known.layout))
    value, theirs = loss.value(known, predicted), predicted[known.layout.sites_of(order)]
    trial.close(
        "the loss of an example is the same in every batch",
        loss.value(known.take(order), theirs),
        value[order],
        _CLOSE,
        _CLOSE,
    )
    if loss.sums_over_sites:
        sites = known.layout.sites_of(order)
        trial.close(
            "the site weights of an example are the same in every batch",
            loss.site_weights(known.take(order)),
            loss.site_weights(known)[sites],
            _CLOSE,
            _CLOSE,
        )


def _check_weights(trial: Trial, loss: TaskLoss, known: SiteLabels, rng: np.random.Generator) -> None:
    sizes = loss.site_sizes(known)
    trial.equal("`site_sizes` has one number for each site", sizes.shape, known.sizes.shape)
    if not loss.sums_over_sites:
        trial.refuses(
            "a loss that does not sum over sites has no site weights", ValueError, lambda: loss.site_weights(known)
        )
        return
    soft = known.completed(rng.dirichlet(np.ones(known.n_labels), known.layout.n_sites))
    for what in (known, soft):
        theta = loss.site_weights(what)
        trial.equal("`site_weights` has shape (n_sites, n_labels)", theta.shape, what.q.shape)
        trial.holds(
            "no site weight is negative or infinite", np.isfinite(theta) & (theta >= 0), f"found: {theta.tolist()}"
        )
        trial.close("`label_weights` is q * theta", loss.label_weights(what), what.q * theta, _CLOSE, _CLOSE)
