"""Parts of speech: the same named features, learned from in five ways; and from few tags in four.

Features.   Names, binary: the word, its affixes and shape, its neighbours; how many of these, the CRF says on dev.
Penalties.  Each method's is chosen by its accuracy on dev, in steps of half a decade until both neighbours are worse.
Few tags.   Every tenth sentence is labelled, and of the others nothing is known, or the tags of some words:
            Algorithm 3, with kappa chosen on dev, beside the tenth alone and beside all tags. The penalty is that of
            the tenth.
Judging.    Words of the test sentences whose tag is right, by the best labelling; and how reliable the probabilities
            of the most probable tags are, by the marginals that each method has.
Measuring.  Each tagger is learned in a process of its own: seconds from names to weights, the memory that this added,
            and the bytes of the file that tagging needs.
"""

from __future__ import annotations

import hashlib
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, final

from perturbmap.experiments.results import Results
from perturbmap.experiments.tagging.data import FEATURES, KNOWN, Corpus
from perturbmap.experiments.tagging.learning import Job, run
from perturbmap.experiments.tagging.plan import BASE, C2S, FIRST_KAPPA, KAPPAS, METHODS, OURS, Effort
from perturbmap.support.progress import Progress
from perturbmap.support.workers import delayed

#: From a job to an entry of the results.
Run = Callable[[Job], dict[str, Any]]


def in_a_process(job: Job) -> dict[str, Any]:
    """What `learning.run` says, in a process of its own, which ends with this one: its memory is its own."""
    task, arguments, options = delayed(run)(job)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        entry: dict[str, Any] = pool.submit(task, *arguments, **options).result()
    return entry


def entry_name(job: Job) -> str:
    """The name of the entry of a tagger."""
    name = f"{job.method}/{job.features}/{job.known}/c2 {job.c2:g}"
    return f"{name}/kappa {job.kappa:g}" if job.known in ("none", "some") else name


@final
@dataclass(frozen=True)
class Experiment:
    """Where the sentences are, and what all runs have in common."""

    folder: Path
    corpus: Corpus
    effort: Effort
    seed: int
    n_threads: int | None

    @property
    def fingerprint(self) -> str:
        """A digest of the data and of what the methods are: results with another do not mix."""
        text = f"{version('perturbmap')} {METHODS} {FEATURES} {KNOWN} {self.effort} {self.corpus.fingerprint}"
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def run(self, results: Results, methods: Sequence[str], progress: Progress, run: Run = in_a_process) -> None:
        """Fills in what is missing of the results, one tagger after another: each may use all cores."""
        n_searches = len(methods) + (3 if OURS in methods else 0)
        progress.start(3 * n_searches + len(FEATURES) if self.effort.is_searched else n_searches, 0)  # about
        for job in self._missing(results, methods):
            progress.begin(entry_name(job))
            entry = run(job)
            results[entry_name(job)] = entry
            progress.finish(1 - entry["accuracy"])

    def _missing(self, results: Results, methods: Sequence[str]) -> Iterator[Job]:
        """What is to be learned; what comes next may depend on the results of what came before."""
        if self.effort.is_searched:
            yield from (job for f in FEATURES if entry_name(job := self.job(BASE, f)) not in results)
        for method in methods:
            yield from self._search(results, self.candidates(results, method, "all"))
        for known in ("tenth", "none", "some") if OURS in methods else ():
            yield from self._search(results, self.candidates(results, OURS, known))

    def _search(self, results: Results, candidates: list[Job]) -> Iterator[Job]:
        """From where the search begins, to the best whose neighbours in the list are both known to be worse."""
        first = next(job for job in candidates if self._is_first(job))
        if entry_name(first) not in results:
            yield first
        while self.effort.is_searched:
            place = candidates.index(_best(results, candidates))
            around = candidates[max(0, place - 1) : place + 2]
            missing = [job for job in around if entry_name(job) not in results]
            if not missing:
                return
            yield from missing

    def _is_first(self, job: Job) -> bool:
        if job.known in ("none", "some"):
            return job.kappa == FIRST_KAPPA
        return job.c2 == METHODS[job.method].first_c2

    def job(self, method: str, features: str) -> Job:
        """A tagger that learns from all tags, with the penalty at which the search begins."""
        c2 = METHODS[method].first_c2
        return Job(self.folder, method, features, "all", c2, FIRST_KAPPA, self.effort, self.seed, self.n_threads)

    def candidates(self, results: Results, method: str, known: str) -> list[Job]:
        """Among which one is chosen: penalties, or with the penalty of the tenth, weights of the other sentences."""
        if known in ("none", "some"):
            return [replace(self.chosen(results, method, "tenth"), known=known, kappa=kappa) for kappa in KAPPAS]
        job = replace(self.job(method, self.features(results)), known=known)
        return [replace(job, c2=c2) for c2 in C2S]

    def features(self, results: Results) -> str:
        """The features with which the CRF is best on dev."""
        if not self.effort.is_searched:
            return list(FEATURES)[-1]
        return _best(results, [self.job(BASE, features) for features in FEATURES]).features

    def chosen(self, results: Results, method: str, known: str) -> Job:
        """The tagger of a method that is best on dev; KeyError where none was learned."""
        return _best(results, self.candidates(results, method, known))


def _best(results: Results, jobs: Sequence[Job]) -> Job:
    """The first of those that are there whose accuracy on dev is the greatest."""
    there = [job for job in jobs if entry_name(job) in results]
    if not there:
        raise KeyError(entry_name(jobs[0]))
    return max(there, key=lambda job: float(results[entry_name(job)]["accuracy"]))
