"""``perturbmap segment`` on a made folder with its warts: fit, predict, evaluate, and their parts."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("skimage", reason='needs pip install "perturbmap[images]"')

from PIL import Image

from perturbmap import CONVERGING, StructuredPredictor
from perturbmap.cli.segment_runs import duration
from perturbmap.images import (
    Masks,
    Quality,
    Segmentation,
    Segmenter,
    SkippedImageWarning,
    TrainingSet,
    cross_validate,
)
from perturbmap.images.folders import list_images, match_masks, read_boxes
from perturbmap.images.reading import image_size, read_image, reduce_image
from perturbmap.images.results import TINT, overlay
from perturbmap.images.superpixels import stretch
from perturbmap.images.time_estimate import seconds_to_fit
from perturbmap.solvers.passes import Passes

from .command import Done, run
from .scenes import FIT, coarse, fit_small, make_small, quick, scene


def save_as(kind: str, image: NDArray[np.uint8], path: Path) -> Path:
    """In one of the kinds that folders hold."""
    picture = Image.fromarray(image)
    if kind == "grey":
        picture = picture.convert("L")
    elif kind == "deep":
        picture = Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 257)
    elif kind == "clear":
        picture.putalpha(255)
    elif kind == "palette":
        picture = picture.quantize(128)
    path = path.with_suffix({"deep": ".tif", "palette": ".gif", "clear": ".PNG"}.get(kind, ".png"))
    picture.save(path)
    return path


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perturbmap.cli.segment_runs.segmentation_predictor", quick)
        patch.setattr("perturbmap.cli.segment_runs.ImageFeatures", coarse)
        yield


KINDS = ["colour", "colour", "grey", "clear", "deep", "palette"]


class World(NamedTuple):
    root: Path
    truth: dict[str, NDArray[np.uint8]]
    said: Done


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Photos (12 masks, 2 boxes, 2 nothing, and what should not be there), masks, new (6), a model fitted on them."""
    root = tmp_path_factory.mktemp("world")
    for name in ("photos", "masks", "new", "new-masks"):
        (root / name).mkdir()
    truth, boxes = {}, {"nowhere": [[1, 1, 5, 5]]}
    for n in range(22):
        image, mask = scene(n, *((84, 100) if n % 3 else (100, 84)))
        name = f"scene{n:02}"
        save_as(KINDS[n % 6], image, root / ("photos" if n < 16 else "new") / name)
        if n < 12 or n >= 16:
            Image.fromarray(255 * mask).save(root / ("masks" if n < 12 else "new-masks") / f"{name}.png")
        elif n < 14:
            rows, columns = np.nonzero(mask)
            boxes[name] = [np.array([columns.min(), rows.min(), columns.max(), rows.max()]).__add__(1).tolist()]
        truth[name] = mask
    photos = root / "photos"
    Image.fromarray(scene(0)[0]).save(photos / "cut.jpg")
    (photos / "cut.jpg").write_bytes((photos / "cut.jpg").read_bytes()[:1500])
    Image.new("RGB", (9, 200)).save(photos / "tiny.png")
    shutil.copy(photos / "tiny.png", photos / ".hidden.png")
    (photos / "notes.txt").write_text("not an image")
    (photos / "folder.png").mkdir()
    shutil.copy(root / "masks" / "scene00.png", root / "masks" / "gone.png")
    (root / "boxes.json").write_text(json.dumps(boxes))
    said = run(
        *["segment", "fit", "--images", photos, "--masks", root / "masks", "--boxes", root / "boxes.json"],
        *["--out", root / "model.pm", "--cache", root / "cache", *FIT],
    )
    assert said.code == 0, said
    return World(root, truth, said)


@pytest.fixture(scope="module")
def results(world: World) -> Path:
    out = world.root / "results"
    done = run(
        "segment", "predict", world.root / "model.pm", "--images", world.root / "new", "--out", out, "--jobs", 1
    )
    assert done.code == 0, done
    return out


def pixels(path: Path) -> NDArray[np.uint8]:
    with Image.open(path) as image:
        return np.asarray(image)


# The tool


def test_fit_says_what_it_found_how_long_it_takes_and_how_good_it_is(world: World) -> None:
    """And names what it leaves out, each once; hidden files and files that are no images are no matter."""
    assert "12 images with a mask, 2 with boxes, 4 with neither." in world.said.stdout
    assert re.search(r"(Less than a minute|About \d+ minutes?) to go; less where --cache", world.said.stdout)
    error = re.search(r"Expected error on new images: +(\S+)% ± .*intersection over union (\S+) ±", world.said.stdout)
    assert error is not None
    assert 0 < float(error[1]) < 15
    assert float(error[2]) > 0.75
    assert f"Model: {world.root / 'model.pm'}" in world.said.stdout
    for word in ("cut.jpg is damaged", "tiny.png is 9 x 200 pixels", "1 mask without an image: gone.png", "nowhere"):
        assert world.said.stderr.count(word) == 1
    assert "hidden" not in world.said.stderr
    assert "notes" not in world.said.stderr


def test_held_out_scenes_are_segmented(world: World, results: Path) -> None:
    """Of every kind of file, in its own size; the table says what the masks show."""
    with open(results / "summary.csv", newline="") as file:
        rows = {Path(row["image"]).stem: row for row in csv.DictReader(file)}
    names = [f"scene{n}" for n in range(16, 22)]
    assert list(rows) == names
    assert len(list(results.iterdir())) == 1 + 3 * len(names)
    overlaps = []
    for name in names:
        mask, probability = pixels(results / f"{name}_mask.png"), pixels(results / f"{name}_probability.png")
        truth = world.truth[name]
        assert mask.shape == probability.shape == truth.shape == pixels(results / f"{name}_overlay.jpg").shape[:2]
        assert set(np.unique(mask)) == {0, 255}
        found = mask == 255
        overlaps.append((found & (truth == 1)).sum() / (found | (truth == 1)).sum())
        assert probability[found].mean() > 160 > 90 > probability[~found].mean()
        assert float(rows[name]["foreground_share"]) == pytest.approx(found.mean(), abs=1e-4)
        p = np.clip(probability / 255, 1e-9, 1 - 1e-9)
        bits = -(p * np.log2(p) + (1 - p) * np.log2(1 - p)).mean()
        assert float(rows[name]["mean_uncertainty_bits"]) == pytest.approx(bits, abs=0.02)
        assert (int(rows[name]["height"]), int(rows[name]["width"])) == truth.shape
        assert 25 <= int(rows[name]["superpixels"]) <= 100
    assert np.mean(overlaps) > 0.75
    assert min(overlaps) > 0.5


def test_evaluate_measures_what_the_masks_say(world: World, results: Path, tmp_path: Path) -> None:
    """Its numbers are those of the masks that predict wrote; best and worst are named."""
    arguments = ["segment", "evaluate", world.root / "model.pm", "--images", world.root / "new"]
    arguments += ["--masks", world.root / "new-masks", "--csv", tmp_path / "each.csv", "--jobs", 1]
    done = run(*arguments)
    assert done.code == 0, done
    with open(tmp_path / "each.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    for row in rows:
        name = Path(row["image"]).stem
        found, truth = pixels(results / f"{name}_mask.png") == 255, world.truth[name] == 1
        assert float(row["pixel_error"]) == pytest.approx((found != truth).mean())
        assert float(row["iou"]) == pytest.approx((found & truth).sum() / (found | truth).sum())
        assert float(row["balanced_error"]) == pytest.approx(0.5 * ((~found)[truth].mean() + found[~truth].mean()))
        assert float(row["superpixel_balanced_error"]) <= float(row["balanced_error"]) + 0.05
    mean = np.mean([float(row["iou"]) for row in rows])
    assert re.search(rf"intersection over union +{mean:.3f} ± 0\.\d+", done.stdout)
    ranked = sorted(rows, key=lambda row: float(row["balanced_error"]))
    assert re.search(rf"best: +{ranked[0]['image']} ", done.stdout)
    assert re.search(rf"worst: +{ranked[-1]['image']} ", done.stdout)
    again = run(*arguments)
    assert (again.code, "each.csv exists" in again.stderr) == (2, True)


@pytest.mark.slow
def test_processes_do_not_matter_and_models_move(world: World, results: Path, tmp_path: Path) -> None:
    """The same seed gives the same model and the same masks, byte for byte, wherever the file lies."""
    model = tmp_path / "elsewhere.model"
    fit = ["segment", "fit", "--images", world.root / "photos", "--masks", world.root / "masks", "--no-check"]
    fit += ["--boxes", world.root / "boxes.json", "--superpixels", 50]
    assert run(*fit, "--jobs", 2, "--out", model, "--cache", world.root / "cache").code == 0
    assert model.read_bytes() == (world.root / "model.pm").read_bytes()
    out = tmp_path / "out"
    assert run("segment", "predict", model, "--images", world.root / "new", "--out", out, "--jobs", 2).code == 0
    for path in results.iterdir():
        assert (out / path.name).read_bytes() == path.read_bytes()


def test_converging_probabilities_are_others_and_the_masks_stay(world: World, results: Path, tmp_path: Path) -> None:
    """They are those of the model without the bias of perturb-and-MAP, calibrated as the pinned ones are."""
    model, new = world.root / "model.pm", world.root / "new"
    done = run("segment", "predict", model, "--images", new, "--out", tmp_path / "out", "--converging", "--jobs", 1)
    assert done.code == 0, done
    segmenter = Segmenter.load(model)
    is_other = []
    for image in sorted(new.iterdir()):
        mask, probability = (tmp_path / "out" / f"{image.stem}_{kind}.png" for kind in ("mask", "probability"))
        assert mask.read_bytes() == (results / mask.name).read_bytes()
        is_other.append(probability.read_bytes() != (results / probability.name).read_bytes())
        described = segmenter.features.describe(image)
        (q,) = segmenter.predictor.predict_marginals([described.example], method=CONVERGING)
        expected = segmenter.predict(described, method=CONVERGING).probability
        np.testing.assert_allclose(expected, q[described.superpixels.map, 1], rtol=1e-6)
    assert any(is_other)


def test_nothing_is_overwritten_without_a_word(world: World, results: Path, tmp_path: Path) -> None:
    """Refused before any work, with the first name and how many; allowed with --overwrite."""
    model = world.root / "model.pm"
    before = model.read_bytes()
    fit = ["segment", "fit", "--images", world.root / "photos", "--masks", world.root / "masks", "--out", model]
    done = run(*fit)
    assert (done.code, done.stdout) == (2, "")
    assert "model.pm exists: name another place, or allow it with --overwrite" in done.stderr
    assert model.read_bytes() == before
    out = tmp_path / "out"
    out.mkdir()
    (out / "scene17_mask.png").write_text("mine")
    (out / "summary.csv").write_text("mine")
    predict = ["segment", "predict", model, "--images", world.root / "new", "--out", out, "--jobs", 1]
    done = run(*predict)
    assert done.code == 2
    assert "scene17_mask.png exists and 1 more" in done.stderr
    assert len(list(out.iterdir())) == 2
    assert run(*predict, "--overwrite").code == 0
    assert (out / "scene17_mask.png").read_bytes() == (results / "scene17_mask.png").read_bytes()
    same = run(
        "segment", "predict", model, "--images", world.root / "new", "--out", world.root / "new", "--overwrite"
    )
    assert same.code == 2
    assert "--out must be another folder than --images" in same.stderr
    assert len(list((world.root / "new").iterdir())) == 6


def test_predicted_masks_are_masks_to_learn_from(world: World, results: Path, tmp_path: Path) -> None:
    """NAME_mask.png is the mask of NAME; the other results in the folder are named as strangers."""
    matched, strangers = match_masks(list_images(world.root / "new"), list_images(results))
    assert {image.stem: mask.name for image, mask in matched.items()} == {
        f"scene{n}": f"scene{n}_mask.png" for n in range(16, 22)
    }
    assert len(strangers) == 12
    assert len(Masks(matched)) == 6


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Four images with masks, in a folder of one's own."""
    return make_small(tmp_path)


def test_masks_of_another_shape_are_refused(small: Path) -> None:
    """Both sizes are named; one that lies on its side is said to; one of another size alone is stretched."""
    Image.fromarray(255 * scene(1, 168, 200)[1]).save(small / "masks" / "s1.png")
    assert fit_small(small).code == 0
    for shape, words in (((100, 84), "lies on its side"), ((100, 300), "differ in shape")):
        Image.fromarray(255 * scene(1, *shape)[1]).save(small / "masks" / "s1.png")
        done = fit_small(small, "--overwrite")
        assert done.code == 1
        for word in (f"s1.png is {shape[1]} x {shape[0]} pixels", "s1.png is 100 x 84", words):
            assert word in done.stderr


def spoil_names(root: Path) -> None:
    for path in sorted((root / "masks").iterdir()):
        path.rename(path.with_name(f"label-{path.name}"))


def spoil_masks(root: Path) -> None:
    for path in sorted((root / "masks").iterdir()):
        Image.fromarray(pixels(path) // 9).save(path)


def break_masks(root: Path) -> None:
    for path in sorted((root / "masks").iterdir()):
        path.write_bytes(b"no image")


def empty_masks(root: Path) -> None:
    for path in sorted((root / "masks").iterdir()):
        Image.fromarray(0 * pixels(path)).save(path)


@pytest.mark.parametrize(
    ("spoil", "arguments", "code", "words"),
    [
        (lambda root: shutil.copy(root / "photos" / "s1.png", root / "photos" / "s1.tiff"), [], 1, ["s1.tiff"]),
        (spoil_names, [], 1, ["mask of s0.png must be s0.png", "named like label-s0.png"]),
        (spoil_masks, [], 1, ["s0.png is not a mask", "--mask-threshold T", "first of 4"]),
        (break_masks, [], 1, ["s0.png is damaged", "s3.png is damaged", "masks holds no mask that can be used"]),
        (empty_masks, [], 1, ["masks must show some foreground"]),
        (lambda root: shutil.rmtree(root / "photos"), [], 2, ["photos"]),
        (lambda root: [p.unlink() for p in (root / "photos").iterdir()], [], 1, ["photos holds no image files"]),
        (lambda root: (root / "b.json").write_text("{"), ["--boxes", "b.json"], 1, ["b.json is not JSON"]),
        (lambda root: (root / "b.json").write_text("[]"), ["--boxes", "b.json"], 1, ["b.json must hold"]),
        (lambda root: (root / "b.json").write_text('{"s1": [[1, 2]]}'), ["--boxes", "b.json"], 1, ["for 's1'"]),
        (lambda root: (root / "b.json").write_text('{"z": []}'), ["--boxes", "b.json"], 1, ["like 'z'", "like 's0'"]),
        (lambda root: None, ["--masks", "photos"], 2, ["must be two folders"]),
        (lambda root: None, ["--out", "photos"], 2, ["photos"]),
        (lambda root: None, ["--out", "no/m.pm"], 1, ["the folder no does not exist"]),
        (lambda root: None, ["--l2", "0"], 2, ["--l2"]),
        (lambda root: None, ["--cache", "/sys/kernel/cache"], 1, ["/sys/kernel"]),
    ],
)
def test_mistakes_are_said_before_the_work(
    spoil: Any, arguments: list[str], code: int, words: list[str], small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In words that name the file or the option; no model is left."""
    monkeypatch.chdir(small)
    spoil(Path())
    done = fit_small(Path(), *arguments)
    assert done.code == code
    for word in words:
        assert word in done.stderr
    assert not (small / "m.pm").exists()


def test_boxes_outside_their_image_name_it(small: Path) -> None:
    """Before any feature is computed."""
    (small / "masks" / "s3.png").unlink()
    (small / "boxes.json").write_text(json.dumps({"s3.png": [[500, 1, 600, 20]]}))
    done = fit_small(small, "--boxes", small / "boxes.json")
    assert done.code == 1
    assert re.search(r"boxes of .*s3\.png: .*outside the image of 100 x 84 pixels", done.stderr)
    assert "looking at images" not in done.stderr


def test_models_that_are_none_are_said_to_be_none(world: World, tmp_path: Path) -> None:
    """Cut, a bit flipped, another kind of file, or nothing at all."""
    whole = (world.root / "model.pm").read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for content in (whole[: len(whole) // 2], bytes(flipped), b"", b"hello"):
        (tmp_path / "bad.pm").write_bytes(content)
        out = tmp_path / "out"
        done = run("segment", "predict", tmp_path / "bad.pm", "--images", world.root / "new", "--out", out)
        assert done.code == 1
        assert "bad.pm is damaged" in done.stderr
        assert not out.exists()
    words = StructuredPredictor(random_state=0).fit([np.eye(2)], [[0, 1]])
    words.save(tmp_path / "words.pm")
    with pytest.raises(ValueError, match=r"words\.pm is not a perturbmap segmenter"):
        Segmenter.load(tmp_path / "words.pm")
    assert run("segment", "predict", "nowhere.pm", "--images", world.root / "new", "--out", "x").code == 2
    done = run(
        "segment", "predict", world.root / "model.pm", "--images", world.root / "new", "--out", "/sys/kernel/x"
    )
    assert done.code == 1


def test_broken_images_do_not_stop_the_others(world: World, tmp_path: Path) -> None:
    """Each is named; where all are broken there is no table."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "bad.png").write_bytes(b"no image")
    arguments = ["segment", "predict", world.root / "model.pm", "--images", tmp_path / "in", "--jobs", 1]
    done = run(*arguments, "--out", tmp_path / "none")
    assert done.code == 1
    assert "bad.png is damaged" in done.stderr
    assert not (tmp_path / "none" / "summary.csv").exists()
    shutil.copy(world.root / "new" / "scene18.png", tmp_path / "in")
    done = run(*arguments, "--out", tmp_path / "some")
    assert done.code == 0
    assert done.stdout.startswith("1 image segmented")
    assert "bad.png is damaged" in done.stderr


# Its parts


@pytest.fixture(scope="module")
def photos(world: World) -> tuple[list[Path], dict[Path, Path]]:
    files = list_images(world.root / "photos")
    masks = match_masks(files, list_images(world.root / "masks"))[0]
    return [path for stem, path in files.items() if stem.startswith("scene")], masks


def test_a_segmenter_is_kept_in_one_file(photos: tuple[list[Path], dict[Path, Path]], tmp_path: Path) -> None:
    """Its answers survive, without pickle; fitted again in vain, it stays as it was."""
    images, masks = photos
    boxes = {images[12]: [[20, 20, 70, 70]]}
    segmenter = Segmenter(coarse(), quick()).fit(images, masks, boxes, progress=False)
    segmenter.save(tmp_path / "m.pm")
    assert b"pickle" not in (tmp_path / "m.pm").read_bytes()
    loaded = Segmenter.load(tmp_path / "m.pm")
    for image in images[:2]:
        a, b = segmenter.predict(image), loaded.predict(segmenter.features.describe(image))
        np.testing.assert_array_equal(a.mask, b.mask)
        np.testing.assert_array_equal(a.probability, b.probability)
        assert a.probability.dtype == np.float32
        assert a.mask.shape == image_size(image)
    before, coef = segmenter.features.fingerprint(), segmenter.predictor.coef_

    def interrupt(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Passes, "batch", interrupt)
        with pytest.raises(KeyboardInterrupt):
            segmenter.fit(images[:6], {path: masks[path] for path in images[:6]}, progress=False)
    assert segmenter.features.fingerprint() == before
    assert segmenter.predictor.coef_ is coef
    with pytest.raises(ValueError, match="masks must be of images"):
        segmenter.fit(images[1:3], masks, progress=False)


def test_few_masks_are_not_calibrated_by(photos: tuple[list[Path], dict[Path, Path]]) -> None:
    """Nor are they forgotten: the same segmenter, given more, is."""
    images, masks = photos
    segmenter = Segmenter(coarse(), quick())
    for n, is_calibrated in ((4, False), (8, True)):
        segmenter.fit(images[:n], {path: masks[path] for path in images[:n]}, progress=False)
        assert (segmenter.predictor.calibration_ is not None) == is_calibrated
        assert segmenter.predictor.calibration == 3


def test_large_images_are_looked_at_small_and_answered_large(
    photos: tuple[list[Path], dict[Path, Path]], tmp_path: Path
) -> None:
    """The same picture three times as large gets the same answer three times as large."""
    images, masks = photos
    segmenter = Segmenter(coarse(max_side=100), quick()).fit(images, masks, progress=False)
    small, large = tmp_path / "small.png", tmp_path / "large.png"
    pixels_ = scene(50)[0]
    Image.fromarray(pixels_).save(small)
    Image.fromarray(np.kron(pixels_, np.ones((3, 3, 1), dtype=np.uint8))).save(large)
    a, b = segmenter.predict(small), segmenter.predict(large)
    assert b.mask.shape == (252, 300)
    assert (stretch(a.mask, (252, 300)) == b.mask).mean() > 0.9
    segmenter.save(tmp_path / "m.pm")
    assert Segmenter.load(tmp_path / "m.pm").features.max_side == 100
    assert "max_side" not in coarse().settings()  # without it, files and caches are what they were
    thin = reduce_image(np.zeros((20, 4000, 3), dtype=np.float32), 100)
    assert thin.shape == (16, 3200, 3)
    assert reduce_image(read_image(small), 100).shape == (84, 100, 3)


def test_void_superpixels_count_for_nothing(tmp_path: Path) -> None:
    """An image with some is still fully labelled: they have no area."""
    image, mask = scene(3)
    mask[:40, :50] = 255
    Image.fromarray(image).save(tmp_path / "a.png")
    Image.fromarray(mask).save(tmp_path / "a-mask.png")
    masks = Masks({tmp_path / "a.png": tmp_path / "a-mask.png"})
    examples = TrainingSet.load(coarse(), [tmp_path / "a.png"], masks, {}, cache=tmp_path / "c", progress=False)
    assert examples.is_masked.all()
    labels, sizes = examples.y[0], examples.X[0].sizes
    assert labels is not None
    assert set(labels.tolist()) == {0, 1}
    assert 0 < (sizes == 0).sum() < len(sizes) / 2
    regions = examples.described[tmp_path / "a.png"].superpixels.map
    assert (mask[np.isin(regions, np.flatnonzero(sizes == 0))] == 255).all()


def test_one_mask_with_void_makes_255_void_in_all(tmp_path: Path) -> None:
    """Else black and white would be read as foreground beside it; without one, each file decides."""
    values = {"a": [[0, 1, 255, 255]], "b": [[0, 255, 255, 0]], "c": [[0, 1, 1, 0]]}
    files = {}
    for name, row in values.items():
        Image.new("RGB", (4, 1)).save(tmp_path / f"{name}.png")
        Image.fromarray(np.array(row, dtype=np.uint8)).save(tmp_path / f"{name}-mask.png")
        files[tmp_path / f"{name}.png"] = tmp_path / f"{name}-mask.png"
    found = Masks(files)
    assert {path.stem: found[path].tolist() for path in found} == values
    del files[tmp_path / "a.png"]
    found = Masks(files)
    assert {path.stem: found[path].tolist() for path in found} == {"b": [[0, 1, 1, 0]], "c": [[0, 1, 1, 0]]}
    (tmp_path / "c-mask.png").write_bytes(b"no")
    with pytest.warns(SkippedImageWarning, match=r"c-mask\.png is damaged"):
        assert [path.stem for path in Masks(files)] == ["b"]


def test_quality_on_a_picture_of_eight_pixels() -> None:
    """By hand: two superpixels, void left out, the absent class left out."""
    regions = np.array([[0, 0, 1, 1], [0, 0, 1, 1]], dtype=np.int32)
    found = Segmentation(regions, np.array([0, 1], dtype=np.int32), np.array([0.25, 1.0]))
    mask = np.array([[0, 1, 1, 255], [0, 0, 1, 0]], dtype=np.uint8)
    quality = Quality.of(found, mask)
    assert quality.balanced_error == pytest.approx((1 / 3 + 1 / 4) / 2)
    assert quality.pixel_error == pytest.approx(2 / 7)
    assert quality.iou == pytest.approx(2 / 4)
    assert quality.superpixel_balanced_error == 0
    assert found.foreground_share == 0.5
    assert found.uncertainty == pytest.approx(0.5 * 0.8113, abs=1e-4)
    empty = Quality.of(
        Segmentation(regions, np.zeros(2, dtype=np.int32), np.zeros(2)), np.zeros((2, 4), dtype=np.uint8)
    )
    assert (empty.balanced_error, empty.pixel_error, empty.iou) == (0, 0, 1)
    void = Quality.of(found, np.full((2, 4), 255, dtype=np.uint8))
    assert np.isnan(void.balanced_error)
    mean, spread = Quality.mean([quality, empty, void])
    assert mean.iou == 0.75
    assert spread.iou == pytest.approx(0.25)


def test_the_check_holds_out_what_it_measures(photos: tuple[list[Path], dict[Path, Path]], tmp_path: Path) -> None:
    """Masks that say nothing of their images are learned by heart, but found out."""
    images, masks = photos
    shuffled = dict(zip(images[:12], [masks[path] for path in images[3:12] + images[:3]], strict=True))
    found = Masks(shuffled)
    predictor = quick().set_params(l2=1e-6, solver__min_steps=3000)
    examples = TrainingSet.load(coarse(), images[:12], found, {}, cache=tmp_path, progress=False)
    segmenter = Segmenter(predictor=predictor).learn(examples, progress=False)
    learned = segmenter.predictor.losses(examples.X, examples.y).mean()
    held_out = Quality.mean(cross_validate(segmenter, examples, progress=False))[0].superpixel_balanced_error
    assert held_out > learned + 0.02
    with pytest.raises(ValueError, match="n_folds must be from 2"):
        cross_validate(segmenter, examples, 13)


def test_the_estimate_grows_with_the_work(photos: tuple[list[Path], dict[Path, Path]]) -> None:
    """Ten times the images, many times the seconds; and words for seconds."""
    segmenter = Segmenter(coarse(), quick())
    masks = Masks(photos[1])
    few, many = (seconds_to_fit(segmenter, n, masks, 1, 3) for n in (12, 1200))
    assert few is not None
    assert many is not None
    assert 0 < 5 * few < many
    for seconds, words in (
        (3, "less than a minute"),
        (59, "about 1 minute"),
        (200, "about 3 minutes"),
        (9000, "about 2 h"),
    ):
        assert duration(seconds).startswith(words)


def test_the_overlay_tints_the_foreground_alone() -> None:
    """Far from the outline, background is the image itself and foreground is tinted."""
    image = np.full((60, 80, 3), 0.5, dtype=np.float32)
    regions = np.zeros((60, 80), dtype=np.int32)
    regions[20:40, 20:60] = 1
    shown = overlay(image, Segmentation(regions, np.array([0, 1], dtype=np.int32), np.array([0.0, 1.0])))
    np.testing.assert_array_equal(shown[:15], image[:15])
    np.testing.assert_allclose(shown[30, 40], 0.6 * image[30, 40] + 0.4 * TINT, atol=1e-6)
    assert (shown[20, 40] == 1).all()
    assert (shown[19, 40] < 0.2).all()
    assert 0 <= shown.min() <= shown.max() <= 1


def test_boxes_may_be_named_by_file(tmp_path: Path) -> None:
    """A known suffix is left out; another dot belongs to the name."""
    (tmp_path / "b.json").write_text('{"a.JPG": [[1, 2, 3, 4]], "b.c": []}')
    assert read_boxes(tmp_path / "b.json") == {"a": [[1, 2, 3, 4]], "b.c": []}


def test_boxes_that_are_none_are_told_of_in_short(tmp_path: Path) -> None:
    """However deep, however long."""
    for text in (
        "[" * 100_000,
        '{"a": ' * 100_000,
        '{"a": [' + "[1]," * 10_000 + "[1]]}",
        "\xff",
        '{"a": [[1, 2, 3, Infinity]]',
    ):
        (tmp_path / "b.json").write_text(text, encoding="latin-1")
        with pytest.raises(ValueError, match=r"b\.json (is not JSON|must hold)") as caught:
            read_boxes(tmp_path / "b.json")
        assert len(str(caught.value)) < 1000


def test_help_tells_what_there_is() -> None:
    """On lines of their own."""
    text = run("segment", "--help").stdout
    assert "\n    perturbmap segment fit --images photos --masks masks --out model.pm\n" in text
    assert "NAME_probability.png" in run("segment", "predict", "--help").stdout
    for option in (
        "--boxes",
        "--cache",
        "--superpixels",
        "--l2",
        "--jobs",
        "--seed",
        "--overwrite",
        "--mask-threshold",
    ):
        assert option in run("segment", "fit", "--help").stdout
