"""Parts of speech: the same named features, learned from in five ways; and from few tags in four.

Features.   Names, binary: the word, its affixes and shape, its neighbours; how many of these, the CRF says on dev.
Penalties.  Each method's is chosen by its accuracy on dev.
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
from perturbmap.experiments.tagging.plan import BASE, METHODS, OURS, Effort
from perturbmap.support.progress import Progress

#: From a job to an entry of the results.
Run = Callable[[Job], dict[str, Any]]


def in_a_process(job: Job) -> dict[str, Any]:
    """What `learning.run` says, in a process of its own: its memory is its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(run, job).result()


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
        n_known = len(self.effort.c2s(OURS)) + 2 * len(self.effort.kappas) if OURS in methods else 0
        n_features = len(FEATURES) if self.effort.is_searched else 0
        progress.start(n_features + sum(len(self.effort.c2s(m)) for m in methods) + n_known, 0)
        for batch in self._batches(results, methods):
            for job in batch:
                name = entry_name(job)
                if name in results:
                    progress.finish(None)
                    continue
                progress.begin(name)
                results[name] = run(job)
                progress.finish(1 - results[name]["accuracy"])

    def _batches(self, results: Results, methods: Sequence[str]) -> Iterator[list[Job]]:
        """What is to be learned, in the order of the choices: a batch may depend on the results of those before."""
        if self.effort.is_searched:
            yield [self.job(BASE, features) for features in FEATURES]
        chosen = self.features(results)
        for method in methods:
            yield self.candidates(method, chosen, "all")
        if OURS in methods:
            yield self.candidates(OURS, chosen, "tenth")
            for known in ("none", "some"):
                yield [replace(self.chosen(results, OURS, "tenth"), known=known, kappa=k) for k in self.effort.kappas]

    def job(self, method: str, features: str) -> Job:
        """A tagger that learns from all tags, with the penalty that is taken without a search."""
        c2 = METHODS[method].quick_c2
        return Job(self.folder, method, features, "all", c2, 1.0, self.effort, self.seed, self.n_threads)

    def candidates(self, method: str, features: str, known: str) -> list[Job]:
        """The taggers of a method, one for each penalty."""
        return [replace(self.job(method, features), known=known, c2=c2) for c2 in self.effort.c2s(method)]

    def features(self, results: Results) -> str:
        """The features with which the CRF is best on dev."""
        if not self.effort.is_searched:
            return list(FEATURES)[-1]
        return max(FEATURES, key=lambda features: float(results[entry_name(self.job(BASE, features))]["accuracy"]))

    def chosen(self, results: Results, method: str, known: str) -> Job:
        """The tagger of a method that is best on dev; KeyError where some are missing."""
        features = self.features(results)
        if known in ("none", "some"):
            base = self.chosen(results, method, "tenth")
            jobs = [replace(base, known=known, kappa=kappa) for kappa in self.effort.kappas]
        else:
            jobs = self.candidates(method, features, known)
        return max(jobs, key=lambda job: float(results[entry_name(job)]["accuracy"]))
