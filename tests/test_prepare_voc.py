"""The experiment's folder from a VOC2012 download, on a made one of a few tiny images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("skimage", reason='needs pip install "perturbmap[images]"')

from PIL import Image
from scipy.io import savemat

from perturbmap.images import SkippedImageWarning, labels_from_boxes
from perturbmap.images.reading import image_size
from perturbmap.images.voc import prepare_voc, scale_box

from .command import run

HORSE, PERSON = 13, 15


def classes(width: int, height: int, index: int) -> NDArray[np.uint8]:
    """The class in the middle, with a border of void, beside a person."""
    values = np.zeros((height, width), dtype=np.uint8)
    values[height // 4 - 2 : -height // 4 + 2, width // 4 - 2 : -width // 4 + 2] = 255
    values[height // 4 : -height // 4, width // 4 : -width // 4] = index
    values[:, :3] = PERSON
    return values


def annotation(boxes: list[tuple[str, list[int]]]) -> str:
    objects = "".join(
        f"<object><name>{name}</name><bndbox><xmax>{b[2]}</xmax><xmin>{b[0]}</xmin><ymax>{b[3]}</ymax>"
        f"<ymin>{b[1]}</ymin></bndbox><part><name>head</name><bndbox><xmin>1</xmin></bndbox></part></object>"
        for name, b in boxes
    )
    return f"<annotation><size><width>500</width></size>{objects}</annotation>"


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    """Horses: a b (train), c (val), d e f g (boxes); h rides one; i is a cow (train)."""
    root = tmp_path / "VOCdevkit" / "VOC2012"
    for name in ("JPEGImages", "Annotations", "SegmentationClass", "ImageSets/Segmentation", "ImageSets/Action"):
        (root / name).mkdir(parents=True)
    rng = np.random.default_rng(0)
    palette = rng.integers(0, 256, 768).tolist()
    for image in "abcdefghi":
        width, height = (500, 250) if image in "ad" else (60, 80)
        pixels = np.kron(rng.integers(0, 256, (height // 10, width // 10, 3), dtype=np.uint8), np.ones((10, 10, 1)))
        Image.fromarray(pixels.astype(np.uint8)).save(root / "JPEGImages" / f"{image}.jpg")
        box = [width // 4 + 1, height // 4 + 1, width - width // 4, height - height // 4]
        name = "cow" if image == "i" else "person" if image == "h" else "horse"
        (root / "Annotations" / f"{image}.xml").write_text(annotation([(name, box), ("person", [1, 1, 3, height])]))
        if image in "abci":
            mask = Image.fromarray(classes(width, height, 10 if image == "i" else HORSE))
            mask.putpalette(palette)
            mask.save(root / "SegmentationClass" / f"{image}.png")
    (root / "ImageSets" / "Segmentation" / "train.txt").write_text("a\nb\ni\n")
    (root / "ImageSets" / "Segmentation" / "val.txt").write_text("c\n")
    (root / "ImageSets" / "Action" / "ridinghorse_trainval.txt").write_text("h  1  1\nd  2  1\ne  1 -1\nz  1 -1\n")
    return root


@pytest.fixture
def sbd(tmp_path: Path) -> Path:
    """Masks of d, e, f, and of a, which VOC has too."""
    folder = tmp_path / "benchmark_RELEASE" / "dataset" / "cls"
    folder.mkdir(parents=True)
    for image in "adef":
        width, height = (500, 250) if image in "ad" else (60, 80)
        values = np.where(classes(width, height, HORSE) == 255, 0, classes(width, height, HORSE))
        savemat(folder / f"{image}.mat", {"GTcls": {"Boundaries": 0, "Segmentation": values, "CategoriesPresent": 1}})
    return folder.parents[1]


def names(folder: Path) -> str:
    return "".join(sorted(path.stem for path in folder.iterdir()))


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_the_folder_of_the_experiment(voc: Path, depth: int, tmp_path: Path) -> None:
    """Without SBD: train, val, boxes, actions; masks of 0, 1 and void; 400 pixels; whichever folder is named."""
    out = tmp_path / "new" / "horses"
    counts = prepare_voc([voc, voc.parent, voc.parent.parent][depth], out, progress=False)
    assert counts == {"small": 2, "test": 1, "medium": 4, "unlabelled": 1}
    assert sorted(path.name for path in out.iterdir()) == ["boxes.json", "images", "masks"]
    for part, expected in {"small": "ab", "test": "c", "medium": "defg", "unlabelled": "h"}.items():
        assert names(out / "images" / part) == expected
    assert names(out / "masks" / "small") == "ab"
    assert names(out / "masks" / "test") == "c"
    assert image_size(out / "images" / "small" / "a.jpg") == (200, 400)
    assert (out / "images" / "small" / "b.jpg").read_bytes() == (voc / "JPEGImages" / "b.jpg").read_bytes()
    mask = np.asarray(Image.open(out / "masks" / "small" / "a.png"))
    assert mask.shape == (200, 400)
    assert set(np.unique(mask)) == {0, 1, 255}
    assert (mask == 1).mean() == pytest.approx(0.25, abs=0.01)
    assert (mask[:, :2] == 0).all()  # the person is background
    boxes = json.loads((out / "boxes.json").read_text())
    assert set(boxes) == set("abcdefg")
    rows, columns = np.nonzero(mask == 1)
    tight = [columns.min() + 1, rows.min() + 1, columns.max() + 1, rows.max() + 1]
    np.testing.assert_allclose(boxes["a"], [tight], atol=1)
    inside = (
        labels_from_boxes(np.arange(mask.size, dtype=np.int32).reshape(mask.shape), boxes["a"]).reshape(mask.shape)
        == -1
    )
    assert inside[mask == 1].all()
    assert boxes["b"] == [[16, 21, 45, 60]]
    assert not list(out.parent.glob(".horses*"))


def test_with_sbd_all_of_voc_is_small_and_the_test_set_is_drawn(voc: Path, sbd: Path, tmp_path: Path) -> None:
    """From images that SBD alone has; the seed decides; the rest is medium."""
    seen = set()
    for seed in range(6):
        out = tmp_path / f"out{seed}"
        counts = prepare_voc(voc, out, sbd=sbd, n_test=2, seed=seed, progress=False)
        assert counts == {"small": 3, "test": 2, "medium": 2, "unlabelled": 1}
        assert names(out / "images" / "small") == "abc"
        drawn = names(out / "masks" / "test")
        assert drawn == names(out / "images" / "test")
        assert set(drawn) < set("def")
        assert set(drawn) | set(names(out / "images" / "medium")) == set("defg")
        seen.add(drawn)
        mask = np.asarray(Image.open(out / "masks" / "test" / f"{drawn[-1]}.png"))
        assert set(np.unique(mask)) == {0, 1}
    assert len(seen) > 1
    assert prepare_voc(voc, tmp_path / "half", sbd=sbd, progress=False)["test"] == 1
    again = tmp_path / "again"
    prepare_voc(voc, again, sbd=sbd, n_test=2, seed=5, progress=False)
    assert names(again / "masks" / "test") == names(tmp_path / "out5" / "masks" / "test")


def test_what_is_broken_is_left_out_by_name(voc: Path, sbd: Path, tmp_path: Path) -> None:
    """An annotation, an image, masks of both kinds, a missing image: each with a warning, the rest is written."""
    (voc / "Annotations" / "g.xml").write_text("<annotation><object>")
    (voc / "JPEGImages" / "b.jpg").write_bytes(b"no image")
    (voc / "JPEGImages" / "h.jpg").unlink()
    (voc / "SegmentationClass" / "c.png").write_bytes(b"no mask")
    for image in "de":
        (sbd / "dataset" / "cls" / f"{image}.mat").write_bytes(b"no matrix")
    with pytest.warns(SkippedImageWarning) as caught:
        counts = prepare_voc(voc, tmp_path / "out", sbd=sbd, n_test=3, progress=False)
    said = "\n".join(str(warning.message) for warning in caught)
    for name in ("g.xml", "b.jpg", "h.jpg", "c.png", "d.mat", "e.mat"):
        assert name in said
    assert counts == {"small": 1, "test": 1, "medium": 3, "unlabelled": 0}
    assert names(tmp_path / "out" / "masks" / "small") == "a"
    assert names(tmp_path / "out" / "images" / "medium") == "cde"


def test_further_images_are_unlabelled(voc: Path, tmp_path: Path) -> None:
    """Of any kind; one with the name of an image that is there already is left out."""
    further = tmp_path / "more"
    further.mkdir()
    Image.new("L", (30, 900)).save(further / "tall.png")
    Image.new("RGB", (30, 30)).save(further / "a.png")
    with pytest.warns(SkippedImageWarning, match=r"a\.png has the name of an image of VOC"):
        prepare_voc(voc, tmp_path / "out", unlabelled=further, progress=False)
    assert sorted(p.name for p in (tmp_path / "out" / "images" / "unlabelled").iterdir()) == ["h.jpg", "tall.jpg"]
    assert image_size(tmp_path / "out" / "images" / "unlabelled" / "tall.jpg") == (400, 13)


def test_mistakes_are_named_and_nothing_is_left_behind(
    voc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that exists, one that is not VOC, an unknown class, an interruption."""
    out = tmp_path / "out"
    (tmp_path / "there").mkdir()
    calls: list[tuple[Any, str]] = [
        (lambda: prepare_voc(voc, tmp_path / "there"), "there exists"),
        (lambda: prepare_voc(tmp_path, tmp_path / "there" / "a", "unicorn"), "class must be one of aeroplane"),
        (lambda: prepare_voc(tmp_path / "there", out), "there is not VOC2012"),
        (lambda: prepare_voc(voc, out, sbd=tmp_path / "there"), "there is not SBD"),
        (lambda: prepare_voc(voc, out, "sheep"), "no segmentation image of the class sheep"),
    ]
    for call, message in calls:
        with pytest.raises((ValueError, FileExistsError), match=message):
            call()

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("perturbmap.images.voc._write_mask", interrupt)
    with pytest.raises(KeyboardInterrupt):
        prepare_voc(voc, out, progress=False)
    assert not out.exists()
    assert not list(tmp_path.glob(".out*"))


def test_scaled_boxes_hold_what_they_held() -> None:
    """Every pixel of the box is in the scaled one, which is at most a pixel larger; the whole stays the whole."""
    assert scale_box([1, 1, 500, 375], (500, 375), (400, 300)) == [1, 1, 400, 300]
    assert scale_box([5, 6, 7, 8], (50, 40), (50, 40)) == [5, 6, 7, 8]
    rng = np.random.default_rng(0)
    for _ in range(200):
        xmin, ymin = int(rng.integers(1, 400)), int(rng.integers(1, 300))
        box = [xmin, ymin, int(rng.integers(xmin, 501)), int(rng.integers(ymin, 376))]
        found = scale_box(box, (500, 375), (400, 300))
        assert found[0] - 1 <= 0.8 * (box[0] - 1) < found[0]
        assert found[2] - 1 < 0.8 * box[2] <= found[2] + 1e-9


def test_the_command_prepares_a_folder(voc: Path, tmp_path: Path) -> None:
    """Counts on standard output, warnings as one line; a second run refuses."""
    (voc / "Annotations" / "g.xml").write_text("<annotation>")
    arguments = ["prepare-voc", voc, "--class", "horse", "--out", tmp_path / "out"]
    done = run(*arguments)
    assert done.code == 0
    assert "medium          3 images" in done.stdout
    assert done.stderr.startswith("Warning: left out: ")
    assert "g.xml" in done.stderr
    done = run(*arguments)
    assert done.code == 1
    assert "exists" in done.stderr
