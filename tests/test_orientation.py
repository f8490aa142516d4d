"""Photos that are stored turned and shown upright: all that is read, learned and written is of the photo as shown."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("skimage", reason='needs pip install "perturbmap[images]"')

from PIL import Image

from perturbmap.images import FeatureCache, Masks, Segmenter, TrainingSet, features, read_image, read_mask
from perturbmap.images.reading import image_size
from perturbmap.images.voc import prepare_voc

from .command import run
from .scenes import coarse, quick, scene

#: What is stored, for each EXIF orientation, of a picture that shall be shown as ``a``.
STORED: dict[int, Any] = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, 1),
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: np.rot90(a, -1),
}
ORIENTATION = 0x0112


def save(shown: NDArray[np.uint8], orientation: int, path: Path, **options: Any) -> Path:
    """A file that viewers show as ``shown``."""
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    Image.fromarray(np.ascontiguousarray(STORED[orientation](shown))).save(path, exif=exif, **options)
    return path


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
def test_images_and_masks_are_read_as_they_are_shown(orientation: int, suffix: str, tmp_path: Path) -> None:
    """Pixels and size; of the formats that know of turning."""
    image, mask = scene(0)
    lossy = suffix in ("jpg", "webp")
    options = {"quality": 95} if lossy else {}
    path = save(image, orientation, tmp_path / f"a.{suffix}", **options)
    assert image_size(path) == (84, 100)
    read = 255 * read_image(path)
    assert np.abs(read - image).mean() < (12 if lossy else 1e-4)
    assert np.abs(read - image[:, ::-1]).mean() > 15
    if suffix in ("png", "tif"):
        drawn = save(255 * mask, orientation, tmp_path / f"a-mask.{suffix}")
        np.testing.assert_array_equal(read_mask(drawn, path), mask)


def test_a_damaged_exif_turns_nothing(tmp_path: Path) -> None:
    """Such a photo is read as it is stored, as viewers do, and not left out."""
    image = scene(0)[0]
    path = save(image, 6, tmp_path / "a.jpg", quality=95)
    whole = path.read_bytes()
    at = whole.index(b"Exif\0\0") + 6
    path.write_bytes(whole[:at] + b"XX" + whole[at + 2 :])
    assert read_image(path).shape == (100, 84, 3)
    assert image_size(path) == (100, 84)
    for wrong in (0, 9, 77):
        exif = Image.Exif()
        exif[ORIENTATION] = wrong
        Image.fromarray(image).save(tmp_path / "b.png", exif=exif)
        assert image_size(tmp_path / "b.png") == (84, 100)
        np.testing.assert_allclose(255 * read_image(tmp_path / "b.png"), image, atol=1e-4)


def test_a_mask_of_the_stored_pixels_is_refused(tmp_path: Path) -> None:
    """Where it lies on its side; the error says that images count as shown."""
    image, mask = scene(0)
    save(image, 6, tmp_path / "a.jpg")
    Image.fromarray(np.ascontiguousarray(np.rot90(255 * mask))).save(tmp_path / "m.png")
    with pytest.raises(ValueError, match=r"m\.png is 84 x 100 .*lies on its side.*as shown"):
        Masks({tmp_path / "a.jpg": tmp_path / "m.png"})


@pytest.fixture(scope="module")
def segmenter(tmp_path_factory: pytest.TempPathFactory) -> Segmenter:
    """Learned from eight upright scenes."""
    folder = tmp_path_factory.mktemp("upright")
    masks = {}
    for n in range(8):
        image, mask = scene(n)
        masks[save(image, 1, folder / f"{n}.png")] = save(255 * mask, 1, folder / f"{n}-mask.png")
    return Segmenter(coarse(), quick()).fit(masks, masks, progress=False)


def test_results_are_of_the_photo_as_shown(segmenter: Segmenter, tmp_path: Path) -> None:
    """The files that predict writes, and its table, are the same however the photo is stored."""
    image, mask = scene(20)
    (tmp_path / "in").mkdir()
    for orientation in STORED:
        save(image, orientation, tmp_path / "in" / f"p{orientation}.png")
    segmenter.save(tmp_path / "m.pm")
    out = tmp_path / "out"
    arguments = ["segment", "predict", tmp_path / "m.pm", "--images", tmp_path / "in", "--out", out, "--jobs", 1]
    assert run(*arguments).code == 0
    with open(out / "summary.csv", newline="") as file:
        assert {(row["width"], row["height"]) for row in csv.DictReader(file)} == {("100", "84")}
    for kind in ("mask.png", "probability.png", "overlay.jpg"):
        assert len({(out / f"p{orientation}_{kind}").read_bytes() for orientation in STORED}) == 1
    found = np.asarray(Image.open(out / "p6_mask.png")) == 255
    assert (found & (mask == 1)).sum() / (found | (mask == 1)).sum() > 0.5


@pytest.mark.parametrize("orientation", [3, 6, 7])
def test_masks_and_boxes_are_of_the_photo_as_shown(orientation: int, segmenter: Segmenter, tmp_path: Path) -> None:
    """The same examples and labels are learned from turned photos and from upright ones."""
    found = []
    for turn in (1, orientation):
        folder = tmp_path / str(turn)
        folder.mkdir()
        images = [save(scene(n)[0], turn, folder / f"{n}.png") for n in range(2)]
        Image.fromarray(255 * scene(0)[1]).save(folder / "mask.png")
        masks, boxes = Masks({images[0]: folder / "mask.png"}), {images[1]: [[5, 10, 95, 30]]}
        found.append(TrainingSet.load(coarse(), images, masks, boxes, cache=folder / "c", progress=False))
    for a, b in zip(*(zip(examples.X, examples.y, strict=True) for examples in found), strict=True):
        np.testing.assert_array_equal(a[0].features, b[0].features)
        np.testing.assert_array_equal(a[1], b[1])


def test_a_cache_has_no_features_of_unturned_photos(
    segmenter: Segmenter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a version before wrote of the photo as stored is not taken for what it is as shown."""
    image = scene(3)[0]
    turned = save(image, 6, tmp_path / "turned.png")
    Image.fromarray(np.ascontiguousarray(STORED[6](image))).save(tmp_path / "stored.png")
    stale = segmenter.features.describe(tmp_path / "stored.png")
    with monkeypatch.context() as patch:
        patch.setattr(features, "FEATURES_VERSION", 1)
        patch.setattr(type(segmenter.features), "describe", lambda *_: stale)
        old = FeatureCache(tmp_path / "cache", segmenter.features).load([turned], progress=False)[turned]
        assert old.superpixels.map.shape == (100, 84)
    new = FeatureCache(tmp_path / "cache", segmenter.features).load([turned], progress=False)[turned]
    assert new.superpixels.map.shape == (84, 100)


def test_further_images_of_voc_are_upright(tmp_path: Path) -> None:
    """They are reduced and written anew, without a word of their turning."""
    root, more = tmp_path / "VOC2012", tmp_path / "more"
    for name in ("JPEGImages", "Annotations", "SegmentationClass", "ImageSets/Segmentation"):
        (root / name).mkdir(parents=True)
    more.mkdir()
    Image.fromarray(scene(0)[0]).save(root / "JPEGImages" / "a.jpg")
    Image.fromarray(13 * scene(0)[1]).save(root / "SegmentationClass" / "a.png")
    for name, ids in (("train", "a\n"), ("val", "")):
        (root / "ImageSets" / "Segmentation" / f"{name}.txt").write_text(ids)
    large, small = scene(1, 420, 500)[0], scene(1)[0]
    save(large, 6, more / "large.jpg", quality=95)
    save(small, 6, more / "small.jpg", quality=95)
    prepare_voc(root, tmp_path / "out", unlabelled=more, progress=False)
    folder = tmp_path / "out" / "images" / "unlabelled"
    assert image_size(folder / "large.jpg") == (336, 400)
    assert image_size(folder / "small.jpg") == (84, 100)
    assert np.abs(255 * read_image(folder / "small.jpg") - small).mean() < 12


def test_boxes_beyond_the_photo_as_shown_are_refused(tmp_path: Path, segmenter: Segmenter) -> None:
    """Though they were inside what is stored."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "masks").mkdir()
    image, mask = scene(0)
    save(image, 1, tmp_path / "photos" / "a.png")
    Image.fromarray(255 * mask).save(tmp_path / "masks" / "a.png")
    save(image, 6, tmp_path / "photos" / "b.png")
    (tmp_path / "boxes.json").write_text(json.dumps({"b": [[10, 90, 60, 99]]}))
    folders = ["--images", tmp_path / "photos", "--masks", tmp_path / "masks", "--boxes", tmp_path / "boxes.json"]
    done = run("segment", "fit", *folders, "--out", tmp_path / "m.pm")
    assert done.code == 1
    assert "outside the image of 100 x 84 pixels" in done.stderr
    assert "as shown" in done.stderr
