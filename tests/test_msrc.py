"""The MSRC experiment: its photos, how it learns and judges, what its errors mean, and its command."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("skimage", reason='needs pip install "perturbmap[images]"')
pytest.importorskip("matplotlib", reason='needs pip install "perturbmap[report]"')

from perturbmap.experiments.msrc.appearance import FLOOR, with_appearance
from perturbmap.experiments.msrc.data import Msrc, load_msrc
from perturbmap.experiments.msrc.experiment import Experiment, learned_name, outcome_name
from perturbmap.experiments.msrc.findings import MEASURES, Cell, Difference, Findings
from perturbmap.experiments.msrc.learning import Judged, class_costs
from perturbmap.experiments.msrc.plan import METHODS, Effort
from perturbmap.experiments.results import Results
from perturbmap.images import paint
from perturbmap.support.progress import Progress

from .command import run
from .msrc_folder import make_folder

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")]

PARTS = {"train": 8, "validation": 3, "test": 4}
EFFORT = Effort(n_steps=30, n_passes=5, tolerance=0.05, n_perturbations=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cows")
    make_folder(folder, PARTS)
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def msrc(folder: Path, cache: Path) -> Msrc:
    return load_msrc(folder, cache, n_jobs=1, progress=Progress())


@pytest.fixture(scope="module")
def experiment(msrc: Msrc, cache: Path) -> Experiment:
    parts = with_appearance(msrc, cache, seed=0, n_jobs=1, progress=Progress())
    return Experiment(msrc.classes, parts, msrc.fingerprint, EFFORT, seed=0, n_jobs=1)


@pytest.fixture(scope="module")
def results(experiment: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Results:
    results = Results(tmp_path_factory.mktemp("out"), "msrc", {}, experiment.fingerprint)
    experiment.run(results, list(METHODS), Progress())
    return results


# The photos.


def test_classes_are_counted_pixel_by_pixel_and_the_rest_is_void(msrc: Msrc) -> None:
    """Horses are no class; a superpixel has the class of most of its pixels, unless most of them are void."""
    assert msrc.classes == ["grass", "cow", "sky", "flower"]
    assert {part: len(photos) for part, photos in msrc.parts.items()} == PARTS
    for photo in (photo for photos in msrc.parts.values() for photo in photos):
        regions, labels = msrc.superpixels[photo.file].map, msrc.label_map(photo)
        for d in range(len(photo.areas)):
            inside = labels[regions == d]
            counts = [(inside == k).sum() for k in range(4)]
            np.testing.assert_array_equal(photo.pixels[d], counts)
            assert photo.labels[d] == (-1 if sum(counts) < (inside == -1).sum() else np.argmax(counts))
    assert (msrc.parts["train"][0].labels == -1).any()  # the horse


def test_void_is_not_learned_from(msrc: Msrc) -> None:
    """Superpixels that are not void, with the edges between them and no others."""
    photo = msrc.parts["train"][0]
    x, y = photo.labelled()
    kept = np.flatnonzero(photo.labels >= 0)
    np.testing.assert_array_equal(y, photo.labels[kept])
    np.testing.assert_array_equal(x.features, photo.example.features[kept])
    np.testing.assert_array_equal(x.sizes, photo.areas[kept])
    whole = {
        tuple(edge): row for edge, row in zip(photo.example.edges.tolist(), photo.example.edge_features, strict=True)
    }
    found = {tuple(kept[edge]): row for edge, row in zip(x.edges, x.edge_features, strict=True)}
    assert found.keys() == {edge for edge in whole if set(edge) <= set(kept.tolist())}
    for edge, row in found.items():
        np.testing.assert_array_equal(row, whole[edge])


def test_no_test_photo_is_learned_from(folder: Path, tmp_path: Path) -> None:
    """One that is also among those of train or validation, under another name, is left out there."""
    root = tmp_path / "data"
    shutil.copytree(folder, root)
    shutil.copy(root / "images" / "test_1.png", root / "images" / "train_2.png")
    shutil.copy(root / "images" / "test_2.png", root / "images" / "validation_1.png")
    msrc = load_msrc(root, tmp_path / "cache", n_jobs=1, progress=Progress())
    assert {part: len(photos) for part, photos in msrc.parts.items()} == {"train": 7, "validation": 2, "test": 4}
    assert msrc.n_repeated == 2


def test_appearance_is_learned_from_other_photos(msrc: Msrc, experiment: Experiment, tmp_path: Path) -> None:
    """The labels of a photo change nothing of its own probabilities, but those of others."""
    photos = list(msrc.parts["train"])
    photos[1] = replace(photos[1], pixels=np.roll(photos[1].pixels, 1, axis=1))
    other = replace(msrc, parts={**msrc.parts, "train": photos})
    found = with_appearance(other, tmp_path, seed=0, n_jobs=2, progress=Progress())["train"]
    before = experiment.parts["train"]
    np.testing.assert_array_equal(found[1].example.features, before[1].example.features)
    changed = [not np.array_equal(a.example.features, b.example.features) for a, b in zip(found, before, strict=True)]
    assert sum(changed) >= len(photos) - 3  # all but its own fold
    for photo in found:
        p = FLOOR * np.expm1(photo.example.features * np.log1p(1 / FLOOR))
        np.testing.assert_allclose(p.sum(axis=1), 1)


def test_a_damaged_cache_of_appearance_is_made_again(msrc: Msrc, experiment: Experiment, tmp_path: Path) -> None:
    """What cannot be read is learned again, whatever the number of threads; what can be is taken."""
    first = with_appearance(msrc, tmp_path, seed=0, n_jobs=2, progress=Progress())
    (path,) = tmp_path.glob("appearance-*")
    path.write_bytes(b"nothing")
    for found in (first, with_appearance(msrc, tmp_path, seed=0, n_jobs=1, progress=Progress())):
        for part, photos in found.items():
            for a, b in zip(photos, experiment.parts[part], strict=True):
                np.testing.assert_array_equal(a.example.features, b.example.features)
    assert path.stat().st_size > 1000


# The judging.


def test_pixels_are_judged_by_the_label_maps(msrc: Msrc, rng: np.random.Generator) -> None:
    """Counted on the painted labels themselves."""
    photos = msrc.parts["test"]
    predicted = [rng.integers(0, 4, len(photo.areas)).astype(np.int32) for photo in photos]
    judged = Judged.of(predicted, photos)
    painted = [paint(msrc.superpixels[p.file], y).ravel() for p, y in zip(photos, predicted, strict=True)]
    truth = [msrc.label_map(photo).ravel() for photo in photos]
    a, b = np.concatenate(truth), np.concatenate(painted)
    for k in range(4):
        np.testing.assert_array_equal(judged.confusion[k], [((a == k) & (b == j)).sum() for j in range(4)])
        np.testing.assert_array_equal(
            judged.right[:, k], [((t == k) & (p == k)).sum() for t, p in zip(truth, painted, strict=True)]
        )
    assert judged.accuracy == pytest.approx((a == b)[a >= 0].mean())
    assert judged.class_accuracy == pytest.approx(np.mean([(b[a == k] == k).mean() for k in range(4)]))


@pytest.mark.parametrize("measure", MEASURES)
def test_errors_of_differences_are_those_of_the_jackknife(measure: str, rng: np.random.Generator) -> None:
    """Paired over photos; and they are smaller than those of unrelated photos where both err on the same ones."""
    totals = rng.integers(0, 500, (60, 3)).astype(np.float64)
    hard = rng.uniform(0.2, 0.9, (60, 1))

    def cell(right: np.ndarray, totals: np.ndarray) -> Cell:
        confusion = np.diag(right.sum(axis=0))
        confusion[:, 0] += totals.sum(axis=0) - right.sum(axis=0)
        confusion[0, 0] = totals[:, 0].sum()
        return Cell("marginal", "MAP", 1.0, 0.0, Judged(confusion, right), totals)

    rights = [np.floor(totals * np.clip(hard + shift + rng.normal(0, 0.02, (60, 3)), 0, 1)) for shift in (0.1, 0.0)]
    for right in rights:
        right[:, 0] = totals[:, 0]
    difference = Difference.of(cell(rights[0], totals), cell(rights[1], totals), measure)
    without = []
    for n in range(60):
        kept = np.arange(60) != n
        a, b = (cell(right[kept], totals[kept]) for right in rights)
        without.append(a.value(measure) - b.value(measure))
    jackknife = np.sqrt(59 / 60 * np.sum((np.array(without) - np.mean(without)) ** 2))
    assert difference.error == pytest.approx(jackknife, rel=0.1)
    assert difference.mean > 0
    assert difference.verdict == "better"
    alone = np.sqrt(np.sum(cell(rights[0], totals).influence(measure) ** 2))
    assert difference.error < alone


# The learning.


def test_l2_means_the_same_whatever_the_loss(msrc: Msrc) -> None:
    """Costs share a superpixel's weight of 1 out to the classes evenly, however many pixels a superpixel has."""
    photos = msrc.parts["train"]
    areas = np.sum([photo.pixels.sum(axis=0) for photo in photos], axis=0)
    n_superpixels = sum((photo.labels >= 0).sum() for photo in photos)
    costs = class_costs(photos)
    np.testing.assert_allclose(costs * areas, n_superpixels / len(areas))
    larger = [
        replace(photo, example=replace(photo.example, sizes=4 * photo.areas), pixels=4 * photo.pixels)
        for photo in photos
    ]
    np.testing.assert_allclose(4 * class_costs(larger), costs)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_the_classes(method: str, results: Results, experiment: Experiment) -> None:
    """Nearly all pixels of made photos, in both decodings."""
    findings = Findings(results, experiment)
    for decoding in ("MAP", "LOSS_AWARE"):
        assert findings.cells[method, decoding].value("accuracy") > 85


def test_choices_do_not_depend_on_test_photos(results: Results, experiment: Experiment, tmp_path: Path) -> None:
    """With other label maps of test, and in two processes, the same models are learned and the same l2 chosen."""
    wrong = [replace(photo, pixels=np.roll(photo.pixels, 1, axis=1)) for photo in experiment.parts["test"]]
    other = replace(experiment, parts={**experiment.parts, "test": wrong}, n_jobs=2)
    again = Results(tmp_path, "msrc", {}, other.fingerprint)
    other.run(again, ["unaries", "weighted"], Progress())
    for method in ("unaries", "weighted"):
        assert other.chosen(again, method) == experiment.chosen(results, method)
        for l2 in experiment.effort.l2s(method):
            a, b = (dict(some[learned_name(method, l2)]) for some in (results, again))
            assert a.pop("seconds") > 0
            assert b.pop("seconds") > 0
            assert a == b
        assert again[outcome_name(method)]["calibrations"] == results[outcome_name(method)]["calibrations"]
        assert again[outcome_name(method)]["accuracy"] < 0.5


# The command.


def test_the_command_makes_a_table_and_a_page_and_goes_on(folder: Path, cache: Path, tmp_path: Path) -> None:
    """As a user would: quick, then the same again, which has nothing left to do."""
    places = ("--data", str(folder), "--out", str(tmp_path / "out"), "--cache", str(cache))
    arguments = (
        "reproduce",
        "msrc",
        *places,
        "--quick",
        "--jobs",
        "1",
        "--method",
        "unaries",
        "--method",
        "weighted",
    )
    done = run(*arguments)
    assert done.code == 0, done.stderr
    assert "weighted marginal perturb&MAP, loss-aware" in done.stdout
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for words in ("horse and mountain", "the truth", 'id="confusion"', "its probabilities", "flower"):
        assert words in page
    entries = json.loads((tmp_path / "out" / "results.json").read_text())["entries"]
    again = run(*arguments)
    assert again.code == 0
    assert again.stdout == done.stdout
    assert json.loads((tmp_path / "out" / "results.json").read_text())["entries"] == entries


def _small_map(root: Path) -> None:
    from PIL import Image

    Image.new("L", (5, 5)).save(root / "labels" / "test_1.png")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: (root / "split.json").unlink(), r"split.json is missing: --data is a folder with images"),
        (lambda root: (root / "split.json").write_text("{}"), r'split.json must be a JSON file with "classes"'),
        (lambda root: (root / "labels" / "test_1.png").unlink(), r"labels must hold test_1, which split.json names"),
        (_small_map, r"test_1.png must have a number for each pixel of its photo, \(80, 96\), but has \(5, 5\)"),
    ],
    ids=["no split", "empty split", "no label map", "another size"],
)
def test_a_folder_that_lacks_something_is_told_what(
    spoil: Callable[[Path], object], message: str, folder: Path, cache: Path, tmp_path: Path
) -> None:
    """Errors name the file and what to do."""
    root = tmp_path / "data"
    shutil.copytree(folder, root)
    spoil(root)
    done = run("reproduce", "msrc", "--data", str(root), "--out", str(tmp_path / "out"), "--cache", str(cache))
    assert done.code == 1
    assert re.search(message, done.stderr), done.stderr
    assert "Traceback" not in done.stderr
