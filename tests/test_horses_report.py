"""The report of the horse experiment: what it says follows from the results, whole or in part, and it can be seen."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skimage", reason='needs pip install "perturbmap[images]"')
pytest.importorskip("matplotlib", reason='needs pip install "perturbmap[report]"')

from perturbmap.experiments import exhibits
from perturbmap.experiments.horses import gallery as horses_gallery
from perturbmap.experiments.horses import report as horses_report
from perturbmap.experiments.horses.data import Horses, judge, load_horses
from perturbmap.experiments.horses.experiment import Experiment
from perturbmap.experiments.horses.findings import Cell, Difference, Findings
from perturbmap.experiments.horses.learning import calibrations_of, read
from perturbmap.experiments.horses.plan import COLUMNS, DECODINGS, KAPPAS, METHODS, Choices, Effort, Task
from perturbmap.experiments.horses.reliability import Reliability, reliabilities
from perturbmap.experiments.results import Results
from perturbmap.inference import LabelPrior
from perturbmap.support.progress import Progress

from .browser import BROWSER, NEEDS_BROWSER
from .horse_folder import make_folder
from .test_cli import dom

pytestmark = pytest.mark.slow

EFFORT = Effort(
    n_steps=20,
    n_weak_steps=10,
    n_passes=2,
    n_draws=2,
    n_searched_draws=1,
    n_curve_draws=2,
    n_folds=2,
    n_perturbations=5,
    tolerance=0.3,
)
PARTS = {"small": 6, "medium": 2, "test": 5}
TIMING: dict[str, Any] = {
    "iterations": [100, 1500, 15_000],
    "is_extrapolated": [False, False, True],
    "seconds": {"basic": [1.0, 12.0, 120.0], "both": [0.1, 0.5, 4.0]},
    "standard_errors": {"basic": [0.0, 0.12, 1.2], "both": [0.0, 0.01, 0.1]},
    "decades": [
        {
            "last": n,
            "n_timed": 100,
            "unsatisfied": 9.5,
            "flipped": 1.2,
            "microseconds": {"basic": 8000.0, "both": 290.0},
        }
        for n in (100, 1500)
    ],
    "microseconds_at_end": {"basic": 8000.0, "both": 290.0},
    "ratio": 24.0,
}


@pytest.fixture(scope="module", autouse=True)
def _few_l2s() -> Iterator[None]:
    """Two of the six of each method, far apart: a third of the run."""
    with pytest.MonkeyPatch.context() as patch:
        for name, method in METHODS.items():
            patch.setitem(METHODS, name, replace(method, l2s=method.l2s[::3]))
        yield


@pytest.fixture(scope="module")
def horses(tmp_path_factory: pytest.TempPathFactory) -> Horses:
    folder = tmp_path_factory.mktemp("ellipses")
    make_folder(folder, PARTS)
    return load_horses(folder, tmp_path_factory.mktemp("cache"), n_jobs=1, progress=Progress())


@pytest.fixture(scope="module")
def experiment(horses: Horses) -> Experiment:
    return Experiment(horses, EFFORT, seed=0, n_jobs=1)


def begin(folder: Path, experiment: Experiment) -> Results:
    return Results(folder, "horses", {"seed": 0}, experiment.fingerprint)


def page_of(results: Results, experiment: Experiment) -> str:
    path = horses_report.write(results, experiment, results.path.with_name("report.html"))
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def real(experiment: Experiment, tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Path]:
    """A run of a few steps, with all methods, and its page."""
    results = begin(tmp_path_factory.mktemp("real"), experiment)
    experiment.run(results, list(METHODS), ["small", "small+boxes", "14", "14+boxes", "5"], Progress())
    results["timing"] = TIMING
    page_of(results, experiment)
    return results, results.path.with_name("report.html")


Losses = Callable[[str, str, str], float]


def invent(folder: Path, experiment: Experiment, test: Losses, held_out: Losses | None = None) -> Results:
    """Results in which each column, method and decoding has the loss that is asked for, on average."""
    results = begin(folder, experiment)
    entries: dict[str, Any] = {}
    rng = np.random.default_rng(0)
    for column, method, draw in ((c, m, d) for c in COLUMNS for m in METHODS for d in range(EFFORT.n_draws)):
        task = Task(column, method, draw, ())
        noise = 0.01 * rng.standard_normal(PARTS["test"])
        noise -= noise.mean()
        images = {d.name: (test(column, method, d.name) + noise).tolist() for d in DECODINGS}
        entry = {
            "images": images,
            "losses": {name: dict.fromkeys(horses_report._LEVELS, float(np.mean(v))) for name, v in images.items()},
        }
        held = {d.name: (held_out or test)(column, method, d.name) for d in DECODINGS}
        for l2 in METHODS[method].l2s:
            for kappa in KAPPAS if COLUMNS[column].weak else (0.0,):
                entries[task.key(l2, kappa)] = entry
                entries[replace(task, is_held_out=True).key(l2, kappa)] = {"losses": held}
    results.update(entries)
    return results


def lowest(winner: str) -> Losses:
    return lambda column, method, decoding: 0.1 if method == winner else 0.3


# A real run.


def test_the_page_of_a_run_stands_alone(real: tuple[Results, Path]) -> None:
    """Every section is there, nothing is fetched from anywhere, and it is not large."""
    text = real[1].read_text(encoding="utf-8")
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", text)
    assert "url(" not in text
    assert "<script" not in text
    for heading in (
        "Table 3",
        "Table 4",
        "What weak labels add",
        "Four ways to judge",
        "How many masks",
        "Learning curves",
        "Are the probabilities right",
        "What they see",
        "Table 5",
        "How l2 and kappa",
        "Settings",
    ):
        assert f"<h2>{heading}" in text
    assert "6 images with masks, 2 with bounding boxes" in text
    assert "24.0\u00d7 as fast as basic over 1,500 iterations" in text
    assert "15,000 (extrapolated)" in text
    assert len(text) < 4e6


@pytest.mark.skipif(BROWSER is None, reason=NEEDS_BROWSER)
@pytest.mark.parametrize("width", [1280, 500])
def test_the_page_opens_in_a_browser(real: tuple[Results, Path], width: int, tmp_path: Path) -> None:
    """Every image is drawn, the tables have their cells, and nothing sticks out of a wide or a narrow window."""
    page = tmp_path / "probe.html"
    probe = """<script>addEventListener("load", () => {
      const broken = [...document.images].filter(i => !i.complete || i.naturalWidth === 0).length;
      const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
      const cells = document.querySelectorAll(".results td.value").length;
      document.title = `images ${document.images.length} broken ${broken} overflow ${wide} cells ${cells}`;
    });</script>"""
    page.write_text(real[1].read_text(encoding="utf-8").replace("</body>", probe + "</body>"), encoding="utf-8")
    title = re.search(r"<title>images (\d+) broken (\d+) overflow (-?\d+) cells (\d+)</title>", dom(page, width))
    assert title is not None
    images, broken, overflow, cells = map(int, title.groups())
    assert images == 6 + 5 * (2 + 2 * len(METHODS))  # charts; five test images, with the truth and two a method
    assert broken == 0
    assert overflow <= 0
    assert cells == 4 * len(METHODS) * len(DECODINGS)


def test_the_gallery_shows_what_was_judged(real: tuple[Results, Path], experiment: Experiment) -> None:
    """The labels that are shown have the losses that are written beside them."""
    cell = Findings(real[0], EFFORT).cells["small", "weighted", "MAP"]
    run, test = cell.runs[0], experiment.horses.parts["test"]
    w, prior = np.array(run["weights"]), LabelPrior(*np.array(run["prior"]))
    calibrations = calibrations_of(run["calibrations"])
    labels, _ = read(experiment.horses, "weighted", w, prior, calibrations, test, EFFORT, 0)
    for name, predicted in labels.items():
        found = judge(predicted, experiment.horses, test)["balanced superpixels"]
        np.testing.assert_allclose(found, run["images"][name], atol=1e-5)
    gallery = horses_gallery.hang(Findings(real[0], EFFORT), experiment)
    assert gallery is not None
    shown = [e for group in gallery.groups.values() for e in group]
    losses = [next(p for p in e.panels if p.method == "weighted").losses[gallery.ordered_by.decoding] for e in shown]
    assert losses == sorted(losses)
    assert {e.name for e in shown} == {f"test{n}" for n in range(5)}


def test_probabilities_that_are_right_lie_on_the_diagonal() -> None:
    """And have the entropy for their log-loss; those that are too sure lie beside it, and lose more."""
    rng = np.random.default_rng(0)
    q, sizes = rng.random(200_000), rng.uniform(1, 3, 200_000)
    is_horse = rng.random(len(q)) < q
    right = Reliability.of(q, is_horse, sizes)
    np.testing.assert_allclose(right.share, right.probability, atol=0.015)
    assert right.log_loss == pytest.approx(0.5 / np.log(2), rel=0.01)  # the mean entropy of uniform ones, in bits
    sure = Reliability.of(q**2 / (q**2 + (1 - q) ** 2), is_horse, sizes)
    assert (sure.share - sure.probability)[1] > 0.1 > -0.1 > (sure.share - sure.probability)[-2]
    assert sure.log_loss > right.log_loss


def test_reliability_is_that_of_the_test_images(real: tuple[Results, Path], experiment: Experiment) -> None:
    """Pinned and converging ones, calibrated and not: four lines, of probabilities that differ."""
    gallery = horses_gallery.hang(Findings(real[0], EFFORT), experiment)
    assert gallery is not None
    found = reliabilities(gallery.ordered_by, experiment)
    assert set(found) == {(name, b) for name in ("PINNED", "CONVERGING") for b in (True, False)}
    assert found["PINNED", False].log_loss != found["CONVERGING", False].log_loss
    assert all(found[name, True].log_loss != found[name, False].log_loss for name in ("PINNED", "CONVERGING"))
    for one in found.values():
        assert (np.diff(one.probability) > 0).all()
        assert ((one.share >= 0) & (one.share <= 1)).all()


@pytest.mark.parametrize("n", [1, 2, 3, 8, 13, 200])
def test_the_gallery_has_no_image_twice(n: int) -> None:
    """The best, those in between and the worst, in their order."""
    losses = np.random.default_rng(n).random(n)
    picked = [
        i for group in exhibits.pick(losses, horses_gallery.N_BEST, horses_gallery.N_BETWEEN).values() for i in group
    ]
    assert len(picked) == len(set(picked)) == min(n, 13)
    assert (np.diff(losses[picked]) >= 0).all()


# A part of one.


def test_a_quick_run_of_some_methods_has_its_page(experiment: Experiment, tmp_path: Path) -> None:
    """Nothing is marked as chosen, since nothing was cross-validated; what was not run is a dash."""
    quick = replace(experiment, effort=Effort(40, 20, 2, 1, 1, 2, 5, tolerance=0.1, is_searched=False))
    results = begin(tmp_path, quick)
    quick.run(results, ["perturb-map", "weighted"], ["small"], Progress())
    text = page_of(results, quick)
    assert 'class="chosen' not in text
    assert "a quick run takes one l2" in text
    assert "structured SVM" not in text
    assert "Table 4:" not in text
    assert "<h2>Table 5" not in text
    assert "What weak labels add" not in text
    assert '<td class="group">\u2013</td>' in text
    assert "*" not in horses_report.text_table(results, quick)


def test_an_interrupted_run_has_its_page(real: tuple[Results, Path], experiment: Experiment, tmp_path: Path) -> None:
    """From no entry at all to all of them."""
    entries = json.loads(real[0].path.read_text())["entries"]
    for n in (0, 20, len(entries) // 2, len(entries) - 30):
        results = begin(tmp_path / str(n), experiment)
        results.update(dict(list(entries.items())[:n]))
        assert "Cutting out horses" in page_of(results, experiment)
        horses_report.text_table(results, experiment)
    last = next(key for key in reversed(entries) if key.startswith("14/weighted/draw 1"))
    results = begin(tmp_path / "draw", experiment)
    results.update({key: entry for key, entry in entries.items() if key != last})
    assert "standard deviation over 1 to 2 draws" in page_of(results, experiment)


# Words and numbers.


@pytest.mark.parametrize(
    ("winner", "name", "against"),
    [
        ("weighted", "weighted marginal perturb&MAP", "below in 6 of 6"),
        ("ssvm", "structured SVM", "above in 6 of 6"),
        ("marginal", "marginal perturb&MAP", "undecided in 6 of 6"),
    ],
)
def test_words_follow_from_numbers(
    winner: str, name: str, against: str, experiment: Experiment, tmp_path: Path
) -> None:
    """Other losses name another winner."""
    results = invent(tmp_path, experiment, lowest(winner))
    summary = " ".join(horses_report._summary(*_read(results)))
    assert f"best decoding: {name} in 6 of 6 columns" in summary
    assert f"against the structured SVM, each at its best decoding: {against} columns" in summary
    assert summary.replace("&", "&amp;").split(":")[0] in page_of(results, experiment)


def _read(results: Results) -> tuple[Findings, list[horses_report.Glance]]:
    findings = Findings(results, EFFORT)
    return findings, horses_report._glances(findings)


@pytest.mark.parametrize(
    ("gain", "word"), [(-0.1, "less in 8 of 8"), (0.1, "more in 8 of 8"), (0.0, "undecided in 8 of 8")]
)
def test_weak_labels_are_said_to_help_only_if_they_do(
    gain: float, word: str, experiment: Experiment, tmp_path: Path
) -> None:
    """For each method, over columns and decodings."""
    results = invent(tmp_path, experiment, lambda c, m, d: 0.3 + (gain if COLUMNS[c].weak else 0.0))
    summary = horses_report._summary(*_read(results))[-1]
    assert summary.count(word) == len(METHODS)


def test_a_decoding_is_chosen_by_held_out_loss_and_not_by_test_loss(experiment: Experiment, tmp_path: Path) -> None:
    """The star and the shade are MAP's, the best one is the other."""
    results = invent(
        tmp_path,
        experiment,
        lambda c, m, d: 0.3 if d == "MAP" else 0.2,
        lambda c, m, d: 0.2 if d == "MAP" else 0.3,
    )
    findings = Findings(results, EFFORT)
    for column in COLUMNS:
        chosen, best = findings.chosen(column, "weighted"), findings.best(column, "weighted")
        assert chosen is not None
        assert best is not None
        assert (chosen.decoding, best.decoding) == ("MAP", "LOSS_AWARE")
    lines = horses_report.text_table(results, experiment).splitlines()
    assert [line.count("*") for line in lines if "MAP   " in line] == [3] * 2 * len(METHODS)
    assert not any("*" in line for line in lines if "loss-aware" in line)


def test_cells_are_at_the_choice_of_their_decoding(real: tuple[Results, Path]) -> None:
    """Each decoding has its own l2 and kappa."""
    choices = Choices(real[0], EFFORT)
    cells = Findings(real[0], EFFORT).cells
    assert len(cells) == 5 * len(METHODS) * len(DECODINGS)
    for (column, method, decoding), cell in cells.items():
        assert (cell.l2, cell.kappa) == choices.best(column, method, decoding)
        assert len(cell.runs) == (1 if COLUMNS[column].n_masks is None else 2)


def test_differences_are_paired_over_images_and_over_draws() -> None:
    """Against the formulas; with one draw of the masks nothing is decided."""
    rng = np.random.default_rng(0)
    losses = rng.random((2, 4, 30))

    def cell(column: str, which: int, n_draws: int) -> Cell:
        runs = {d: {"images": {"MAP": losses[which, d].tolist()}} for d in range(n_draws)}
        return Cell(column, "weighted", "MAP", 0.1, 0.0, runs)

    d = 100 * (losses[0] - losses[1])
    found = Difference.of(cell("14", 0, 4), cell("14", 1, 4))
    assert found is not None
    assert found.mean == pytest.approx(d.mean())
    assert found.over_draws == pytest.approx(np.std(d.mean(axis=1), ddof=1) / 2)
    assert found.over_images == pytest.approx(np.std(d.mean(axis=0), ddof=1) / np.sqrt(30))
    assert found.verdict == "within"
    assert replace(found, mean=-90.0).verdict == "better"
    assert replace(found, mean=90.0).verdict == "worse"
    once = Difference.of(cell("14", 0, 1), cell("14", 1, 4))
    assert once is not None
    assert (once.n_draws, once.over_draws) == (1, None)
    assert replace(once, mean=-90.0).verdict == "within"
    small = Difference.of(cell("small", 0, 1), cell("small", 1, 1))
    assert small is not None
    assert replace(small, mean=-90.0).verdict == "better"
    assert Difference.of(None, cell("14", 1, 4)) is None
