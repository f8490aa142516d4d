"""The tagging experiment: its files and features, how it learns, judges and compares, and its command."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perturbmap.datasets import load_tagged_words
from perturbmap.experiments.results import Results
from perturbmap.experiments.tagging import report as tagging_report
from perturbmap.experiments.tagging.data import FEATURES, KNOWN, PARTS, Corpus, named_features, shape
from perturbmap.experiments.tagging.experiment import Experiment, entry_name, in_a_process
from perturbmap.experiments.tagging.findings import Cell, Difference, Findings
from perturbmap.experiments.tagging.learning import Job, run
from perturbmap.experiments.tagging.plan import METHODS, OURS, PEER, Effort
from perturbmap.support.progress import Progress

from .command import run as command

EFFORT = Effort(n_passes=3, min_steps=20, n_hinge_passes=3, tolerance=0.05, n_perturbations=3)
SIZES = {"train": 60, "dev": 15, "test": 20}


def make_folder(folder: Path) -> None:
    """Sentences of a small grammar, in which "run" is a noun after "the" and a verb after a noun."""
    rng = np.random.default_rng(0)
    words = {"DET": ["the", "a"], "NOUN": ["dog", "Tree", "run", "stone"], "VERB": ["walks", "saw", "run"]}
    folder.mkdir()
    for part, n in SIZES.items():
        lines = []
        for _ in range(n):
            for tag in ["DET", "NOUN", "VERB", "DET", "NOUN"][: int(rng.integers(3, 6))]:
                lines.append(f"{rng.choice(words[tag])}\t{tag}")
            lines.append("")
        (folder / f"{part}.tsv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sentences") / "data"
    make_folder(folder)
    return folder


def experiment_of(folder: Path, effort: Effort = EFFORT) -> Experiment:
    return Experiment(folder, Corpus.load(folder, effort.n_train), effort, seed=0, n_threads=1)


@pytest.fixture(scope="module")
def experiment(folder: Path) -> Experiment:
    return experiment_of(folder)


def methods_here() -> list[str]:
    try:
        import pycrfsuite  # noqa: F401
    except ImportError:
        return [method for method in METHODS if method != PEER]
    return list(METHODS)


@pytest.fixture(scope="module")
def results(experiment: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Results:
    results = Results(tmp_path_factory.mktemp("out"), "tagging", {}, experiment.fingerprint)
    experiment.run(results, methods_here(), Progress(), run)
    return results


# Files.


def test_conllu_and_tables_of_words_are_read_alike(tmp_path: Path) -> None:
    """Comments, ranges and empty nodes are no words; packed or not, with or without an empty line at the end."""
    cells = ["_"] * 6
    rows = [["1-2", "don't", "_", "_"], ["1", "do", "do", "AUX"], ["2", "n't", "not", "PART"], ["2.1", "x", "_", "_"]]
    text = "# sent_id = 1\n" + "\n".join("\t".join([*row, *cells]) for row in rows) + "\n\n# text = Go\n"
    text += "\t".join(["1", "Go", "go", "VERB", *cells])
    (tmp_path / "a.conllu").write_text(text, encoding="utf-8")
    (tmp_path / "b.tsv").write_bytes(gzip.compress(b"do\tAUX\nn't\tPART\n\n\nGo\tVERB\n\n"))
    expected = ([["do", "n't"], ["Go"]], [["AUX", "PART"], ["VERB"]])
    assert load_tagged_words(tmp_path / "a.conllu") == expected
    assert load_tagged_words(tmp_path / "b.tsv") == expected


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"dog\tNOUN\ncat\n", r"line 2: a line must have a word, a tab and a tag, .* but has 1 columns"),
        (b"dog\tNOUN\tx\n", "line 1: .* has 3 columns"),
        (b"dog\t\n", "line 1: .* has 2 columns"),
        (b"# nothing\n\n", "must hold words with tags, but holds none"),
        (b"\xff\xfe\x00", "is damaged, or no text"),
        (gzip.compress(b"dog\tNOUN\n" * 100, mtime=0)[:-12], "is damaged, or no text"),
    ],
)
def test_files_that_are_something_else_are_named(contents: bytes, message: str, tmp_path: Path) -> None:
    """With the line where it is known."""
    (tmp_path / "words.tsv").write_bytes(contents)
    with pytest.raises(ValueError, match=message) as caught:
        load_tagged_words(tmp_path / "words.tsv")
    assert "words.tsv" in str(caught.value)


def test_the_parts_of_a_treebank_are_found(folder: Path, tmp_path: Path) -> None:
    """By the names that treebanks give their files; a part that is missing is named."""
    for part in PARTS:
        words = load_tagged_words(folder / f"{part}.tsv.gz")
        lines = [f"{w}\t{t}" for w, t in zip(words.words[0], words.tags[0], strict=True)]
        (tmp_path / f"en_ewt-ud-{part}.conllu").write_text("\n".join(lines), encoding="utf-8")
    assert [len(Corpus.load(tmp_path).parts[part].words) for part in PARTS] == [1, 1, 1]
    (tmp_path / "en_ewt-ud-dev.conllu").unlink()
    with pytest.raises(ValueError, match=r"must hold the sentences of dev, as one of dev.tsv.gz"):
        Corpus.load(tmp_path)


# Features, and what is known.


def test_each_set_of_features_has_those_before_it() -> None:
    """Names of words, affixes, shapes and neighbours; marks beyond the ends."""
    words = ["The", "U.S.", "in", "1999"]
    sets = [named_features(words, features) for features in FEATURES]
    for fewer, more in pairwise(sets):
        assert all(set(a) < set(b) for a, b in zip(fewer, more, strict=True))
    assert sets[0][0] == ["word:The", "small:the"]
    assert {"shape:Xx", "begins:t", "ends:the"} <= set(sets[1][0])
    assert {"+1:u.s.", "+2:in", "+1 ends:.s.", "-1 is beyond the end"} <= set(sets[2][0])
    assert [shape(word) for word in words] == ["Xx", "X.X.", "x", "0"]


def test_of_the_tags_as_much_is_known_as_is_said(experiment: Experiment) -> None:
    """All, every tenth sentence, and beside it nothing or a fifth of the tags, which are right."""
    tags = experiment.corpus.parts["train"].tags
    assert list(KNOWN) == ["all", "tenth", "none", "some"]
    for known in KNOWN:
        X, y = experiment.corpus.training_set("words", known)
        assert len(X) == len(y) == (6 if known == "tenth" else 60)
        chosen = tags[::10] if known == "tenth" else tags
        share = []
        for n, (true, seen) in enumerate(zip(chosen, y, strict=True)):
            assert seen is not None
            assert all(b in (a, None) for a, b in zip(true, seen, strict=True))
            if known in ("all", "tenth") or n % 10 == 0:
                assert seen == true
            else:
                share += [tag is not None for tag in seen]
        if known in ("none", "some"):
            assert np.mean(share) == pytest.approx(0 if known == "none" else 0.2, abs=0.08)


# Learning and judging.


@pytest.mark.slow
def test_every_method_learns_the_grammar(results: Results, experiment: Experiment) -> None:
    """Beyond what words alone tell, since "run" is told by its neighbours; memory, seconds and bytes are measured."""
    findings = Findings(results, experiment)
    assert list(findings.methods) == methods_here()
    for method, cell in findings.methods.items():
        assert cell.accuracy > 97, method
        assert cell.seconds > 0
        assert cell.file_megabytes > 0
        assert (cell.log_loss is None) == (method == "ssvm")
        assert cell.right.shape == (20,)
    assert set(findings.known) == set(KNOWN)
    assert {cell.job.c2 for known, cell in findings.known.items() if known != "all"} == {
        findings.known["tenth"].job.c2
    }


def made_up(best: dict[str, float]) -> Any:
    """A run that learns nothing: the nearer a tagger is to the best c2 and kappa, the better; affixes are best."""

    def accuracy(job: Job) -> dict[str, Any]:
        far = abs(np.log10(job.c2 / best["c2"])) + abs(np.log10(job.kappa / best["kappa"]))
        return {"accuracy": float((job.features == "affixes") - far)}

    return accuracy


@pytest.mark.parametrize("c2", [0.01, 0.1, 0.3, 3.0])
def test_the_search_ends_at_the_best_on_dev(c2: float, experiment: Experiment, tmp_path: Path) -> None:
    """For features, penalties and kappa; no further than its neighbours, and the penalty of a tenth is kept."""
    results = Results(tmp_path, "tagging", {}, experiment.fingerprint)
    learned: list[Job] = []

    def spy(job: Job) -> dict[str, Any]:
        learned.append(job)
        return dict(made_up({"c2": c2, "kappa": 1.0})(job))

    experiment.run(results, ["crf", OURS], Progress(), spy)
    assert experiment.features(results) == "affixes"
    for known in KNOWN:
        chosen = experiment.chosen(results, OURS, known)
        assert chosen.c2 == c2
        if known in ("none", "some"):
            assert chosen.kappa == 1.0
    for known in ("none", "some"):
        assert sorted(job.kappa for job in learned if job.known == known) == [0.3, 1.0, 3.0, 10.0]
    tried = sorted(job.c2 for job in learned if (job.method, job.known) == (OURS, "all"))
    assert (
        tried
        == {
            0.01: [0.01, 0.03, 0.1, 0.3],
            0.1: [0.03, 0.1, 0.3],
            0.3: [0.03, 0.1, 0.3, 1],
            3.0: [0.03, 0.1, 0.3, 1, 3],
        }[c2]
    )
    assert len({entry_name(job) for job in learned}) == len(learned)


def test_a_quick_look_searches_nothing(folder: Path, tmp_path: Path) -> None:
    """All features, and the values at which a search would begin."""
    quick = experiment_of(folder, replace(EFFORT, is_searched=False))
    results = Results(tmp_path, "tagging", {}, quick.fingerprint)
    learned: list[Job] = []

    def spy(job: Job) -> dict[str, Any]:
        learned.append(job)
        return {"accuracy": 0.5}

    quick.run(results, [OURS], Progress(), spy)
    assert [job.known for job in learned] == ["all", "tenth", "none", "some"]
    assert {(job.features, job.c2, job.kappa) for job in learned} == {("neighbours", 0.1, 3.0)}


@pytest.mark.slow
def test_a_run_that_was_interrupted_goes_on(results: Results, experiment: Experiment, tmp_path: Path) -> None:
    """What is there is not learned again, and the rest comes out the same, but for the time it takes."""
    begun = Results(tmp_path, "tagging", {}, experiment.fingerprint)
    entries = json.loads(results.path.read_text())["entries"]
    left = [name for name in entries if name.startswith(("crf/words", "ssvm/"))][:2]
    begun.update({name: entry for name, entry in entries.items() if name not in left})
    learned = []

    def spy(job: Any) -> dict[str, Any]:
        learned.append(entry_name(job))
        return run(job)

    experiment.run(begun, methods_here(), Progress(), spy)
    assert learned == left
    for name in learned:
        assert begun[name]["right"] == entries[name]["right"]


@pytest.mark.slow
def test_a_process_of_its_own_says_the_same(results: Results, experiment: Experiment) -> None:
    """All but the time and the memory, which is its own."""
    job = experiment.job("crf", "words")
    apart, here = in_a_process(job), results[entry_name(job)]
    assert apart["right"] == here["right"]
    assert apart["reliability"] == here["reliability"]
    if apart["memory"] is not None:
        assert 0 < apart["memory"]["before"] <= apart["memory"]["peak"]


def test_a_fingerprint_tells_data_and_efforts_apart(folder: Path, experiment: Experiment) -> None:
    """Results with another do not mix."""
    other = experiment_of(folder, replace(EFFORT, n_passes=4))
    fewer = experiment_of(folder, replace(EFFORT, n_train=30))
    assert len({experiment.fingerprint, other.fingerprint, fewer.fingerprint}) == 3
    assert len(fewer.corpus.parts["train"].words) == 30


# Comparing.


def cell_of(experiment: Experiment, right: Any, n_words: Any) -> Cell:
    return Cell(experiment.job("crf", "words"), {}, np.array(right, dtype=float), np.array(n_words, dtype=float))


def test_errors_are_those_of_sentences_drawn_again(experiment: Experiment) -> None:
    """The standard error of a paired difference is the spread of the difference over bootstrap samples."""
    rng = np.random.default_rng(0)
    n_words = rng.integers(1, 40, size=400)
    a = rng.binomial(n_words, 0.9)
    b = np.minimum(n_words, rng.binomial(a, 0.97))
    found = Difference.of(cell_of(experiment, a, n_words), cell_of(experiment, b, n_words))
    assert found.mean == pytest.approx(100 * (a.sum() - b.sum()) / n_words.sum())
    again = rng.integers(0, 400, size=(4000, 400))
    spread = (100 * (a - b)[again].sum(axis=1) / n_words[again].sum(axis=1)).std()
    assert found.error == pytest.approx(spread, rel=0.1)
    assert found.verdict == "better"
    same = Difference.of(cell_of(experiment, a, n_words), cell_of(experiment, a, n_words))
    assert (same.mean, same.error, same.verdict) == (0, 0, "within")


@pytest.mark.slow
def test_the_report_has_the_numbers(results: Results, experiment: Experiment, tmp_path: Path) -> None:
    """The page and the text have a row for each method and for each kind of knowledge, and nothing from elsewhere."""
    pytest.importorskip("matplotlib", reason='needs pip install "perturbmap[report]"')
    findings = Findings(results, experiment)
    text = tagging_report.text_table(results, experiment)
    page = tagging_report.write(results, experiment, tmp_path / "report.html").read_text(encoding="utf-8")
    for method, cell in findings.methods.items():
        assert f"| {METHODS[method].name} | {cell.accuracy:.2f} |" in text
        assert METHODS[method].name.replace("&", "&amp;") in page
    for known, cell in findings.known.items():
        assert f"| {KNOWN[known]} | {cell.accuracy:.2f} |" in text
        assert KNOWN[known] in page
    assert "http://" not in page
    assert "https://" not in page


@pytest.mark.slow
def test_the_command_writes_a_report(folder: Path, tmp_path: Path) -> None:
    """With one method, quickly; a second time nothing is learned again."""
    pytest.importorskip("matplotlib", reason='needs pip install "perturbmap[report]"')
    options = [
        "reproduce",
        "tagging",
        "--data",
        str(folder),
        "--quick",
        "--method",
        "crf",
        "--out",
        str(tmp_path / "out"),
    ]
    assert "| CRF |" in command(*options).stdout
    before = (tmp_path / "out" / "results.json").read_bytes()
    assert command(*options).code == 0
    assert (tmp_path / "out" / "results.json").read_bytes() == before
    assert (tmp_path / "out" / "report.html").is_file()
    missing = command("reproduce", "tagging", "--data", str(tmp_path), "--quick", "--out", str(tmp_path / "none"))
    assert missing.code != 0
    assert "must hold the sentences of train" in missing.stderr
