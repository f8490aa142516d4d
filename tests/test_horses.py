"""The horse experiment: its data, how it judges, what it learns from, and its command."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perturbmap import SiteLabels

pytest.importorskip("skimage", reason='needs pip install "perturbmap[images]"')
pytest.importorskip("matplotlib", reason='needs pip install "perturbmap[report]"')

from PIL import Image

from perturbmap.experiments.horses import plan
from perturbmap.experiments.horses.data import Horses, judge, load_horses
from perturbmap.experiments.horses.experiment import Experiment, work
from perturbmap.experiments.horses.learning import learn, masked_images, read
from perturbmap.experiments.horses.plan import COLUMNS, METHODS, Choices, Effort, Task, possible_columns
from perturbmap.experiments.results import Results
from perturbmap.images import fill_unknown, paint, read_mask
from perturbmap.inference import Calibration
from perturbmap.learning.calibrating import Calibrations
from perturbmap.support.progress import Progress
from perturbmap.task_losses import BalancedHamming

from .command import run
from .horse_folder import make_folder

pytestmark = pytest.mark.slow

EFFORT = Effort(
    n_steps=60, n_weak_steps=30, n_passes=20, n_draws=1, n_curve_draws=1, n_folds=2, n_perturbations=5, tolerance=0.1
)
AS_THEY_ARE = Calibrations(Calibration(1.0, np.zeros(2)), None)
PARTS = {"small": 16, "medium": 2, "unlabelled": 2, "test": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ellipses")
    make_folder(folder, PARTS)
    first = folder / "masks" / "small" / "small0.png"
    mask = np.array(Image.open(first))
    mask[:, :40] = 255  # superpixels of nothing but void
    Image.fromarray(mask).save(first)
    return folder


@pytest.fixture(scope="module")
def horses(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Horses:
    return load_horses(folder, tmp_path_factory.mktemp("cache"), n_jobs=1, progress=Progress())


# The data.


def test_all_parts_are_there_with_what_is_known_of_them(horses: Horses) -> None:
    """Masks of small and test, the background around boxes of medium, nothing of the others."""
    assert {part: len(images) for part, images in horses.parts.items()} == PARTS
    for part, images in horses.parts.items():
        for n in images:
            sites = horses.data.layout.sites(n)
            labels, taught = set(horses.labels[sites].tolist()), set(horses.taught[sites].tolist())
            assert labels == ({0, 1} if part in ("small", "test") else {-1}) | ({-1} if n == 0 else set())
            assert taught == {"small": {0, 1}, "medium": {-1, 0}}.get(part, {-1})
            assert part in horses.files[n].stem


def test_void_is_filled_from_its_neighbours(horses: Horses) -> None:
    """What is known stays; a superpixel of void alone gets the label that is more of its known surroundings."""
    sites = horses.data.layout.sites(0)
    labels, regions = horses.labels[sites], horses.regions[0]
    filled = fill_unknown(regions, labels)
    np.testing.assert_array_equal(filled[labels >= 0], labels[labels >= 0])
    np.testing.assert_array_equal(filled, horses.taught[sites])
    near = regions.supports()[1].toarray() > 0
    for d in np.flatnonzero(labels < 0):
        around = near[d] & (labels >= 0)
        areas = [regions.areas[around & (labels == k)].sum() for k in (0, 1)]
        if sum(areas):
            assert filled[d] == np.argmax(areas)
    with pytest.raises(ValueError, match="some of them must be known"):
        fill_unknown(regions, np.full(len(regions), -1, dtype=np.int32))


def test_features_are_the_same_from_a_damaged_cache(folder: Path, horses: Horses, tmp_path: Path) -> None:
    """The matrix in the cache is written anew, never trusted."""
    shutil.copytree(Path(horses.data.features.matrix.filename).parent, tmp_path / "cache")
    for path in tmp_path.glob("cache/matrix-*"):
        path.write_bytes(b"nothing")
    for path in tmp_path.glob("cache/words-*"):
        path.write_bytes(b"nothing")
    again = load_horses(folder, tmp_path / "cache", n_jobs=1, progress=Progress())
    np.testing.assert_array_equal(again.data.features.matrix, horses.data.features.matrix)
    assert again.fingerprint == horses.fingerprint


# The judging.


def test_losses_are_those_of_the_painted_pixels(horses: Horses, rng: np.random.Generator) -> None:
    """Counted on the mask itself, and by the library's loss."""
    images = np.concatenate([horses.parts["test"], horses.parts["small"][:1]])
    data = horses.data.take(images)
    predicted = rng.integers(0, 2, data.n_sites).astype(np.int32)
    losses = judge(predicted, horses, images)
    truth = horses.labels[horses.sites(images)]
    np.testing.assert_allclose(
        losses["balanced superpixels"],
        BalancedHamming().value(SiteLabels.of(truth, 2, data.layout, data.sizes), predicted),
    )
    for i, n in enumerate(images):
        sites = data.layout.sites(i)
        part = "test" if n in horses.parts["test"] else "small"
        mask = read_mask(horses.files[n].parents[2] / "masks" / part / horses.files[n].name, binary=False)
        wrong = paint(horses.regions[n], predicted[sites]) != mask
        shares = [wrong[mask == k].mean() for k in (0, 1)]
        assert losses["balanced pixels"][i] == pytest.approx(np.mean(shares))
        assert losses["plain pixels"][i] == pytest.approx(wrong[mask < 2].mean())
        known = truth[sites] >= 0
        assert losses["plain superpixels"][i] == pytest.approx((predicted != truth)[sites][known].mean())


# The learning.


def test_draws_are_nested_and_repeat(horses: Horses) -> None:
    """Fewer masks are some of more; another draw is another."""
    few, many = (set(masked_images(horses, n, 0, 7).tolist()) for n in (2, 4))
    assert few < many < set(horses.parts["small"].tolist())
    assert few == set(masked_images(horses, 2, 0, 7).tolist())
    assert any(few != set(masked_images(horses, 2, draw, 7).tolist()) for draw in range(1, 5))


def test_columns_need_their_images(horses: Horses) -> None:
    """No draw of all images, no column without its weak labels or without the one it takes l2 from."""
    everything = tuple(COLUMNS)
    assert possible_columns(horses, everything) == [
        "small",
        "small+boxes",
        "small+all",
        "14",
        "14+boxes",
        "14+nothing",
        "5",
    ]
    few = replace(horses, parts={**horses.parts, "small": horses.parts["small"][:9]})
    assert possible_columns(few, everything) == ["small", "small+boxes", "small+all"]
    none = replace(horses, parts={**horses.parts, "medium": horses.parts["medium"][:0]})
    assert possible_columns(none, everything) == ["small", "14", "5"]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_without_the_masks_it_is_judged_by(horses: Horses, method: str) -> None:
    """Ellipses are found; and other masks, and labels of test images, change nothing."""
    l2 = METHODS[method].quick_l2
    task = Task("small+all", method, 0, ((l2, 1.0),))
    masked = horses.parts["small"][:4]
    (_, _, w, mass), *_ = learn(horses, task, masked, EFFORT, 0)
    held_out = np.concatenate([horses.parts["small"][4:], horses.parts["test"]])
    labels, q = read(horses, method, w, mass, AS_THEY_ARE, held_out, EFFORT, 0)
    assert judge(labels["MAP"], horses, held_out)["balanced superpixels"].mean() < 0.2
    assert ((q >= 0) & (q <= 1)).all()
    taught = horses.taught.copy()
    taught[horses.sites(held_out)] = 1
    other = replace(horses, taught=taught, labels=1 - horses.labels, pixels=horses.pixels[:, ::-1])
    (_, _, same, _), *_ = learn(other, task, masked, EFFORT, 0)
    np.testing.assert_array_equal(w, same)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_boxes_count_only_where_they_are_given(horses: Horses) -> None:
    """The column without boxes does not see them."""
    taught = horses.taught.copy()
    taught[horses.sites(horses.parts["medium"])] = -1
    blind = replace(horses, taught=taught)
    for column, matters in (("14+boxes", True), ("14+nothing", False)):
        task = Task(column, "weighted", 0, ((0.01, 1.0),))
        (_, _, w, _), *_ = learn(horses, task, horses.parts["small"], EFFORT, 0)
        (_, _, other, _), *_ = learn(blind, task, horses.parts["small"], EFFORT, 0)
        assert (w != other).any() == matters


def test_processes_do_not_matter(horses: Horses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One or two: the same losses and weights; and what is there is not run again."""
    method = METHODS["weighted"]
    monkeypatch.setitem(METHODS, "weighted", replace(method, l2s=method.l2s[1:4:2]))
    columns, effort = ["small", "small+boxes"], replace(EFFORT, n_steps=20, n_weak_steps=10)
    found = []
    for n_jobs in (1, 2):
        experiment = Experiment(horses, effort, 0, n_jobs)
        results = Results(tmp_path / str(n_jobs), "horses", {}, experiment.fingerprint)
        experiment.run(results, ["weighted"], columns, Progress())
        found.append(json.loads(results.path.read_text())["entries"])
    assert found[0].keys() == found[1].keys()
    for name, entry in found[0].items():
        assert entry["losses"] == found[1][name]["losses"]
        assert entry.get("weights") == found[1][name].get("weights")
    before = results.path.read_text()
    experiment.run(results, ["weighted"], columns, Progress())
    assert results.path.read_text() == before


def test_held_out_masks_are_judged_once_each(horses: Horses) -> None:
    """By models that did not see them: with labels that are noise, the held-out loss is that of guessing."""
    rng = np.random.default_rng(0)
    noise = replace(horses, taught=rng.integers(0, 2, horses.data.n_sites).astype(np.int32))
    noise = replace(noise, labels=noise.taught)
    task = Task("small", "weighted", 0, ((3e-4, 0.0),), is_held_out=True)
    (entry,) = work(noise, task, EFFORT, 0).values()
    assert 0.3 < entry["losses"]["MAP"] < 0.7


def test_what_is_chosen_for_its_best_labelling_alone_is_not_calibrated(horses: Horses, tmp_path: Path) -> None:
    """Nor read in any other way; what is chosen for decoding by the loss is, in draws that no search has seen too."""
    effort, l2s = replace(EFFORT, n_draws=2, n_searched_draws=1), METHODS["ssvm"].l2s
    results = Results(tmp_path, "horses", {}, "")
    for rank, l2 in enumerate(l2s):
        key = Task("14", "ssvm", 0, (), True).key(l2, 0.0)
        results[key] = {"losses": {"MAP": rank, "LOSS_AWARE": -rank}, "calibrations": [[1.0, 0.0, 0.0]] * 2}
    choices = Choices(results, effort)
    assert choices.of("14", "ssvm") == ((l2s[0], 0.0), (l2s[-1], 0.0))
    task = choices.calibrate("14", "ssvm", 1)
    assert task.choices == ((l2s[-1], 0.0),)
    results.update(work(horses, task, effort, 0))
    by_labelling, by_loss = work(horses, choices.test("14", "ssvm", 1), effort, 0).values()
    assert by_labelling["losses"].keys() == {"MAP"}
    assert by_loss["losses"].keys() == {"MAP", "LOSS_AWARE"}


# The command.


def test_the_command_makes_tables_and_a_page_and_goes_on(
    folder: Path, horses: Horses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a user would: quick, then the same again, which has nothing left to do.

    Two of the methods, and fewer steps; test_horses_report.py has a run of all.
    """
    effort = replace(plan.QUICK, n_steps=60, n_weak_steps=30, n_perturbations=5, n_timed=1_200, tolerance=0.1)
    monkeypatch.setattr(plan, "QUICK", effort)
    cache = Path(horses.data.features.matrix.filename).parent
    places = ("--data", str(folder), "--out", str(tmp_path / "out"), "--cache", str(cache))
    arguments = ("reproduce", "horses", *places, "--quick", "--jobs", "1", "--method", "ssvm", "--method", "weighted")
    done = run(*arguments)
    assert done.code == 0, done.stderr
    assert "Table 3: balanced loss" in done.stdout
    assert "Table 4: balanced loss" in done.stdout
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    entries = json.loads((tmp_path / "out" / "results.json").read_text())["entries"]
    assert entries["timing"]["ratio"] > 1
    again = run(*arguments)
    assert again.code == 0
    assert again.stdout == done.stdout
    assert json.loads((tmp_path / "out" / "results.json").read_text())["entries"] == entries


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda root: shutil.rmtree(root / "images" / "small"),
            r"images/small must hold images: --data is a folder as",
        ),
        (lambda root: (root / "masks" / "test" / "test1.png").unlink(), r"test1.png is missing: every image of test"),
        (lambda root: (root / "boxes.json").write_text("{"), r"boxes.json must be a JSON file of boxes by image"),
        (
            lambda root: (root / "boxes.json").write_text("{}"),
            r"boxes.json must have boxes of every image in .*medium0",
        ),
    ],
    ids=["no images", "no mask", "no JSON", "no boxes"],
)
def test_a_folder_that_lacks_something_is_told_what(spoil, message: str, folder: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Before features are computed."""
    root = tmp_path / "data"
    shutil.copytree(folder, root)
    spoil(root)
    places = ("--data", str(root), "--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache"))
    done = run("reproduce", "horses", *places, "--quick")
    assert done.code == 1
    assert re.search(message, done.stderr), done.stderr
