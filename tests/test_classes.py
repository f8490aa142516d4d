"""Segmenting more classes than two: files of classes, masks of numbers and colours, measures, pictures, commands."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("skimage", reason='needs pip install "perturbmap[images]"')

from PIL import Image

from perturbmap.images import (
    Classes,
    ClassMasks,
    Confusion,
    ImageError,
    MaskWarning,
    Quality,
    Segmentation,
    Segmenter,
    SkippedImageWarning,
    TrainingSet,
    fill_unknown,
    labels_from_mask,
    read_class_mask,
    segment,
)
from perturbmap.images.class_results import class_overlay, class_picture

from .command import run
from .scenes import FIT, coarse, fit_small, make_small, quick, scene

THREE = Classes({"ground": 4, "ellipse": 9, "sky": 7}, void=(0, 255))
COLOURED = Classes({"ground": (0, 99, 0), "ellipse": (200, 0, 0), "sky": (0, 0, 255)}, void=((0, 0, 0),))


def three(seed: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """An ellipse on mottled ground under a plain sky, and the label of each pixel."""
    image, labels = scene(seed)
    horizon = 12 + seed % 5
    image[:horizon] = np.random.default_rng(seed).normal([150, 180, 230], 4, (horizon, 100, 3)).clip(0, 255)
    labels[:horizon] = 2
    return image, labels


def save(classes: Classes, labels: NDArray[np.uint8], path: Path) -> None:
    """As a mask file: of numbers or of colours."""
    Image.fromarray(np.array(list(classes.values.values()), dtype=np.uint8)[labels]).save(path)


def make_folders(root: Path, classes: Classes, n_images: int = 4) -> Path:
    """Photos, masks with a file of their classes."""
    for name in ("photos", "masks"):
        (root / name).mkdir()
    for n in range(n_images):
        image, labels = three(n)
        Image.fromarray(image).save(root / "photos" / f"s{n}.png")
        save(classes, labels, root / "masks" / f"s{n}.png")
    (root / "masks" / "classes.json").write_text(json.dumps(classes.to_json()))
    return root


# Classes and their masks


@pytest.mark.parametrize("classes", [THREE, COLOURED], ids=["numbers", "colours"])
def test_classes_are_read_as_they_were_written(classes: Classes, tmp_path: Path) -> None:
    """Names in the order of their labels; the colours of pictures are their own, or all different."""
    (tmp_path / "classes.json").write_text(json.dumps(classes.to_json()))
    assert Classes.read(tmp_path / "classes.json") == classes
    assert classes.names == ("ground", "ellipse", "sky")
    assert len(np.unique(classes.colours, axis=0)) == 3
    many = Classes({f"class {k}": k for k in range(60)})
    assert len(np.unique(many.colours, axis=0)) == 60


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[1, 2]", "it must hold"),
        ('{"a": 1}', "from 2 to 255, but there are 1"),
        ('{"a": 1, "b": 1}', "1 stands for two"),
        ('{"a": 1, "b": 2, "void": [2]}', "2 stands for two"),
        ('{"a": 1, "b": 256}', "numbers from 0 to 255.*but one is 256"),
        ('{"a": 1, "b": true}', "numbers from 0 to 255.*but one is True"),
        ('{"a": [1, 2], "b": [1, 2, 3]}', r"but one is \(1, 2\)"),
        ('{"a": 1, "b": [1, 2, 3]}', "all numbers or all colours"),
        ('{"a": 1, "b": 2, "void": 0}', '"void" must be a list'),
        ('{"a": 1, " ": 2}', "must have names of 1 to 60 letters"),
    ],
)
def test_a_file_of_classes_that_makes_no_sense_is_refused(text: str, message: str, tmp_path: Path) -> None:
    """By an error that names the file and what is wrong."""
    (tmp_path / "classes.json").write_text(text)
    with pytest.raises(ValueError, match=f"classes.json.*{message}"):
        Classes.read(tmp_path / "classes.json")


def test_masks_of_numbers_palettes_and_colours_are_labels(tmp_path: Path) -> None:
    """Void is 255; the numbers of a palette count, whatever its colours; three equal channels are a number."""
    numbers = np.array([[4, 9, 7], [0, 255, 4]], dtype=np.uint8)
    expected = [[0, 1, 2], [255, 255, 0]]
    grey = Image.fromarray(numbers)
    palette = grey.copy()
    palette.putpalette(list(range(256)) * 3)
    deep = Image.fromarray(numbers.astype(np.uint16))
    for name, picture in {"grey": grey, "palette": palette, "rgb": grey.convert("RGB"), "deep": deep}.items():
        picture.save(tmp_path / f"{name}.png")
        np.testing.assert_array_equal(read_class_mask(tmp_path / f"{name}.png", THREE), expected)
    colours = np.array([[[0, 99, 0], [200, 0, 0], [0, 0, 255]], [[0, 0, 0], [0, 0, 0], [0, 99, 0]]], dtype=np.uint8)
    for name, picture in {
        "coloured": Image.fromarray(colours),
        "alpha": Image.fromarray(colours).convert("RGBA"),
        "few": Image.fromarray(colours).quantize(8),
    }.items():
        picture.save(tmp_path / f"{name}.png")
        np.testing.assert_array_equal(read_class_mask(tmp_path / f"{name}.png", COLOURED), expected)


@pytest.mark.parametrize(
    ("classes", "pixels", "suffix", "message"),
    [
        (THREE, np.full((20, 20), 5), ".png", "holds 5, which is not a class"),
        (COLOURED, np.full((20, 20, 3), 7), ".png", r"holds \[7, 7, 7\], which is not a class"),
        (THREE, np.full((20, 20), 4), ".jpg", "JPEG changes numbers"),
        (THREE, np.full((20, 20, 3), [4, 9, 7]), ".png", "coloured, but classes are numbers"),
    ],
)
def test_what_is_no_class_is_named(
    classes: Classes, pixels: NDArray[Any], suffix: str, message: str, tmp_path: Path
) -> None:
    """With its file, by the reader and by the folder, before anything is learned."""
    mask, image = tmp_path / f"mask{suffix}", tmp_path / "image.png"
    Image.fromarray(pixels.astype(np.uint8)).save(mask)
    Image.new("RGB", (20, 20)).save(image)
    with pytest.raises(ImageError, match=message):
        read_class_mask(mask, classes)
    with pytest.raises(ValueError, match=message):
        ClassMasks({image: mask}, classes)


def test_a_folder_of_masks_leaves_out_what_says_nothing(tmp_path: Path) -> None:
    """Void all over, damaged; another size is stretched, another shape refused."""
    sizes = {"a": (30, 20), "b": (60, 40), "void": (30, 20), "cut": (30, 20)}
    for name, size in sizes.items():
        Image.new("RGB", (30, 20)).save(tmp_path / f"{name}.jpg")
        Image.new("L", size, 0 if name == "void" else 9).save(tmp_path / f"{name}.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:40])
    files = {tmp_path / f"{name}.jpg": tmp_path / f"{name}.png" for name in sizes}
    with pytest.warns() as said:
        masks = ClassMasks(files, THREE)
    texts = {(warning.category, str(warning.message)) for warning in said}
    assert any(kind is SkippedImageWarning and "void.png is void all over" in text for kind, text in texts)
    assert any(kind is SkippedImageWarning and "cut.png is damaged" in text for kind, text in texts)
    assert any(kind is MaskWarning and "1 of 2 masks has another size" in text for kind, text in texts)
    assert [path.stem for path in masks] == ["a", "b"]
    assert masks.labels == {1}
    assert masks[tmp_path / "b.jpg"].shape == (20, 30)
    Image.new("L", (20, 30), 9).save(tmp_path / "a.png")
    with pytest.raises(ValueError, match="lies on its side"):
        ClassMasks({tmp_path / "a.jpg": tmp_path / "a.png"}, THREE)


def test_labels_of_superpixels_are_those_that_cover_most(rng: np.random.Generator) -> None:
    """Of three labels, and of two as before; void does not count, and gaps are filled by neighbours."""
    regions = segment(rng.uniform(size=(40, 50, 3)).astype(np.float32), 20)
    mask = rng.integers(0, 3, (40, 50)).astype(np.uint8)
    mask[regions.map == 3] = 255
    labels = labels_from_mask(regions, mask, 3)
    for d in range(len(regions)):
        counts = np.bincount(mask[(regions.map == d) & (mask < 3)], minlength=3)
        assert labels[d] == (-1 if d == 3 else counts.argmax())
    filled = fill_unknown(regions, labels)
    assert 0 <= filled[3] < 3
    with pytest.raises(ValueError, match="the labels 0 to 2 and 255"):
        labels_from_mask(regions, np.full((40, 50), 3), 3)


# Measures and pictures


def test_the_confusion_has_its_measures() -> None:
    """Two of three sky pixels found, the ellipse never shown: as counted by hand."""
    regions = np.array([[0, 1, 2, 3, 4]], dtype=np.int32)
    q = np.full((5, 3), 1 / 3)
    found = Segmentation(regions, np.array([0, 2, 2, 1, 0], dtype=np.int32), q, THREE)
    mask = np.array([[0, 2, 2, 2, 255]], dtype=np.uint8)
    confusion = Confusion.of(found, mask)
    np.testing.assert_array_equal(confusion.table, [[1, 0, 0], [0, 0, 0], [0, 1, 2]])
    assert confusion.accuracy == 3 / 4
    np.testing.assert_allclose(confusion.class_accuracies, [1, np.nan, 2 / 3])
    np.testing.assert_allclose(confusion.ious, [1, 0, 2 / 3])
    assert confusion.mean_class_accuracy == pytest.approx(5 / 6)
    assert confusion.mean_iou == pytest.approx(5 / 9)
    np.testing.assert_array_equal(confusion.plus(confusion).table, 2 * confusion.table)
    quality = Quality.of(found, mask)
    assert quality.balanced_error == pytest.approx(1 / 6)
    assert quality.pixel_error == 1 / 4
    assert quality.iou == pytest.approx(5 / 9)
    assert found.uncertainty == pytest.approx(np.log2(3))
    np.testing.assert_allclose(found.class_shares, [2 / 5, 1 / 5, 2 / 5])


@pytest.mark.parametrize("classes", [THREE, COLOURED], ids=["numbers", "colours"])
def test_a_mask_that_was_written_is_read_as_what_was_found(classes: Classes, tmp_path: Path) -> None:
    """In the numbers or colours of the masks that were learned from; the picture has a colour for each class."""
    labels = three(0)[1]
    regions = np.arange(labels.size, dtype=np.int32).reshape(labels.shape)
    found = Segmentation(regions, labels.ravel().astype(np.int32), np.eye(3)[labels.ravel()], classes)
    class_picture(found.mask, classes).save(tmp_path / "mask.png")
    np.testing.assert_array_equal(read_class_mask(tmp_path / "mask.png", classes), labels)
    with Image.open(tmp_path / "mask.png") as picture:
        np.testing.assert_array_equal(np.asarray(picture.convert("RGB")), classes.colours[labels])
    assert found.probability.min() == 1


def test_an_overlay_has_a_legend_of_what_is_there() -> None:
    """Below the image: patches of the colours of the classes that were found, and of no others."""
    labels = np.zeros((60, 80), dtype=np.int32)
    labels[:, 50:] = 2
    regions = (labels > 0).astype(np.int32)
    found = Segmentation(regions, np.array([0, 2], dtype=np.int32), np.eye(3)[[0, 2]], THREE)
    shown = class_overlay(np.full((60, 80, 3), 0.5, dtype=np.float32), found, THREE)
    legend = {tuple(colour) for colour in shown[60:].reshape(-1, 3).tolist()}
    for k, colour in enumerate(THREE.colours.tolist()):
        assert (tuple(colour) in legend) == (k != 1)
    left, right = shown[30, 10].astype(float), shown[30, 70].astype(float)
    assert np.abs(left - right).max() > 30
    assert (shown[:60, 49] == 255).all()


# Learning, and the tool


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perturbmap.cli.segment_runs.segmentation_predictor", quick)
    monkeypatch.setattr("perturbmap.cli.segment_runs.ImageFeatures", coarse)


@pytest.mark.parametrize("classes", [THREE, COLOURED], ids=["numbers", "colours"])
def test_three_classes_are_learned_found_and_measured(classes: Classes, tmp_path: Path) -> None:
    """From the command line: fit, predict, evaluate; what is predicted can be evaluated against itself."""
    root = make_folders(tmp_path, classes, 8)
    for n in range(4, 8):
        (root / "masks" / f"s{n}.png").unlink()
    folders = ["--images", root / "photos", "--masks", root / "masks"]
    done = run("segment", "fit", *folders, "--out", root / "m.pm", *FIT)
    assert done.code == 0, done
    assert "3 classes: ground, ellipse, sky." in done.stdout
    assert "4 images with a mask, 0 with boxes, 4 with neither." in done.stdout
    assert "guessing has 67 %" in done.stdout
    done = run("segment", "predict", root / "m.pm", "--images", root / "photos", "--out", root / "out", "--jobs", 1)
    assert done.code == 0, done
    with open(root / "out" / "summary.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    for n, row in enumerate(rows):
        found = read_class_mask(root / "out" / f"s{n}_mask.png", classes)
        assert (found == three(n)[1]).mean() > 0.85
        for k, name in enumerate(classes.names):
            assert float(row[f"{name}_share"]) == pytest.approx((found == k).mean(), abs=1e-4)
    done = run(
        *["segment", "evaluate", root / "m.pm", *folders, "--csv", root / "each.csv", "--jobs", 1],
    )
    assert done.code == 0, done
    assert len((root / "each.csv").read_text().splitlines()) == 5
    accuracy = re.search(r"All pixels together\n +accuracy +(\S+)%", done.stdout)
    assert accuracy is not None
    assert float(accuracy[1]) > 85
    for text in ("mean class accuracy", "mean intersection over union", "mostly taken for", "Confusion: of 100"):
        assert text in done.stdout
    for k, name in enumerate(classes.names):
        assert len(re.findall(rf"^ *{k + 1}  {name} ", done.stdout, re.MULTILINE)) == 2


def test_a_segmenter_of_classes_is_loaded_as_it_was_saved(tmp_path: Path) -> None:
    """With its classes; a file whose weights are of another number of classes is refused."""
    root = make_folders(tmp_path, THREE, 3)
    masks = {root / "photos" / f"s{n}.png": root / "masks" / f"s{n}.png" for n in range(3)}
    segmenter = Segmenter(coarse(), quick(n_labels=3), THREE).fit(list(masks), masks, progress=False)
    segmenter.save(root / "m.pm")
    loaded = Segmenter.load(root / "m.pm")
    assert loaded.classes == THREE
    image = root / "photos" / "s0.png"
    np.testing.assert_array_equal(loaded.predict(image).probabilities, segmenter.predict(image).probabilities)
    segmenter.classes = Classes({"a": 0, "b": 1, "c": 2, "d": 3})
    segmenter.save(root / "m.pm")
    with pytest.raises(ValueError, match="not those of 4 classes"):
        Segmenter.load(root / "m.pm")


def test_classes_come_from_the_file_that_is_named(tmp_path: Path) -> None:
    """Two classes with names are classes too; a model of a foreground knows nothing of classes."""
    root = make_small(tmp_path)
    (root / "named.json").write_text('{"ground": 0, "ellipse": 255}')
    done = fit_small(root, "--classes", root / "named.json")
    assert done.code == 0, done
    assert "2 classes: ground, ellipse." in done.stdout
    assert Segmenter.load(root / "m.pm").classes == Classes({"ground": 0, "ellipse": 255})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mask-threshold", "100"], "mask_threshold cuts masks into foreground and background"),
        (["--boxes", "boxes.json"], "boxes are those of a foreground"),
    ],
)
def test_what_is_for_a_foreground_is_refused_for_classes(
    options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any work is done."""
    root = make_folders(tmp_path, THREE, 2)
    (root / "boxes.json").write_text("{}")
    monkeypatch.chdir(root)
    done = fit_small(root, *options)
    assert done.code != 0
    assert message in done.stderr
    assert not (root / "m.pm").exists()


def test_masks_must_show_two_classes_and_say_what_they_lack(tmp_path: Path) -> None:
    """One class is nothing to learn; a class that is never shown is named."""
    root = make_folders(tmp_path, THREE, 2)
    masks = {root / "photos" / f"s{n}.png": root / "masks" / f"s{n}.png" for n in range(2)}
    for n in range(2):
        save(THREE, np.minimum(three(n)[1], 1), root / "masks" / f"s{n}.png")
    with pytest.warns(MaskWarning, match="no mask shows sky, which will hardly be found"):
        TrainingSet.load(coarse(), list(masks), ClassMasks(masks, THREE), {}, cache=root / "cache", progress=False)
    for n in range(2):
        save(THREE, np.zeros((84, 100), dtype=np.uint8), root / "masks" / f"s{n}.png")
    with pytest.raises(ValueError, match="two classes at least to learn from, but lack ellipse, sky"):
        TrainingSet.load(coarse(), list(masks), ClassMasks(masks, THREE), {}, cache=root / "cache", progress=False)
