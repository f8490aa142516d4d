"""From marks to a mask: scenes of known truth, odd marks, many classes, a learned segmenter, big photos."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("skimage", reason="scikit-image is not installed")

from PIL import Image

from perturbmap.annotate import Answer, Box, Mark, Photo, Stroke, answer, prepare
from perturbmap.annotate.evidence import majority
from perturbmap.images import Classes, Segmenter

from .scenes import coarse, quick, scene

Truth = NDArray[np.uint8]


def overlap(mask: Truth, truth: Truth, label: int = 1) -> float:
    return float(((mask == label) & (truth == label)).sum() / ((mask == label) | (truth == label)).sum())


def done(found: Answer | None) -> Answer:
    assert found is not None
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("photos")


@pytest.fixture(scope="module")
def blob(folder: Path) -> tuple[Photo, Truth]:
    """A striped ellipse on mottled ground."""
    image, truth = scene(0)
    Image.fromarray(image).save(folder / "blob.png")
    return prepare(folder / "blob.png", n_superpixels=300), truth


def centre(truth: Truth, label: int = 1) -> tuple[float, float]:
    y, x = np.nonzero(truth == label)
    return float(x.mean()) + 0.5, float(y.mean()) + 0.5


def two_strokes(truth: Truth) -> list[Mark]:
    x, y = centre(truth)
    return [Stroke(1, 3, ((x - 12, y), (x + 12, y))), Stroke(0, 3, ((5, 5), (95, 5), (95, 78)))]


def test_two_strokes_cut_out_an_object(blob: tuple[Photo, Truth]) -> None:
    """One on it, one beside it; the answer has the sizes it says, and is surer than not."""
    photo, truth = blob
    found = done(answer(photo, two_strokes(truth)))
    assert found.mask.shape == truth.shape
    assert found.mask.dtype == found.doubt.dtype == np.uint8
    assert found.doubt.shape == photo.working_shape
    assert overlap(found.mask, truth) > 0.9
    assert found.doubt.mean() < 100
    assert found.seconds > 0


def test_the_same_marks_have_the_same_answer(blob: tuple[Photo, Truth]) -> None:
    """To the bit: nothing is drawn from fresh randomness."""
    photo, truth = blob
    one, other = (done(answer(photo, two_strokes(truth))) for _ in range(2))
    np.testing.assert_array_equal(one.mask, other.mask)
    np.testing.assert_array_equal(one.doubt, other.doubt)


def test_without_marks_all_is_background_in_doubt(blob: tuple[Photo, Truth]) -> None:
    """Nobody has said anything; marks that are erased count as none."""
    photo, truth = blob
    for marks in ([], [*two_strokes(truth), Stroke(-1, 500, ((50, 40),))]):
        found = done(answer(photo, marks))
        assert not found.mask.any()
        assert (found.doubt == 255).all()


def test_a_box_is_enough_to_begin_with(blob: tuple[Photo, Truth]) -> None:
    """Outside there is background alone, inside the object is found for the greater part."""
    photo, truth = blob
    y, x = np.nonzero(truth)
    box = Box(x.min() - 3, y.min() - 3, x.max() + 4, y.max() + 4)
    found = done(answer(photo, [box]))
    assert overlap(found.mask, truth) > 0.7
    outside = np.ones(truth.shape, dtype=bool)
    outside[y.min() - 3 : y.max() + 4, x.min() - 3 : x.max() + 4] = False
    assert not found.mask[outside].any()


def test_marked_pixels_keep_their_label(blob: tuple[Photo, Truth]) -> None:
    """In the mask and without doubt, also where two labels meet in a superpixel, and against all colours."""
    photo, truth = blob
    x, y = centre(truth)
    dots: list[Mark] = [Stroke(0, 2, ((x, y),)), Stroke(1, 2, ((x + 5, y),)), Stroke(1, 1, ((10, 70),))]
    found = done(answer(photo, [*two_strokes(truth), *dots]))
    for label, at in ((0, (x, y)), (1, (x + 5, y)), (1, (10, 70))):
        assert found.mask[int(at[1]), int(at[0])] == label
        assert found.doubt[int(at[1]), int(at[0])] == 0


def test_a_superpixel_of_two_labels_has_that_of_more_pixels() -> None:
    """The least of equals; -1 where no pixel is marked."""
    regions = np.array([[0, 0, 0, 1, 1, 2]], dtype=np.int32)
    painted = np.array([[1, 1, 0, 1, 0, -1]], dtype=np.int8)
    np.testing.assert_array_equal(majority(regions, painted, 3, 2), [1, 0, -1])


def test_all_may_be_marked(blob: tuple[Photo, Truth]) -> None:
    """Then the marks are the mask, and there is no doubt."""
    photo, _ = blob
    found = done(answer(photo, [Box(-10, -10, -5, -5), Stroke(1, 9, ((50, 40),))]))
    expected = np.hypot(*(np.mgrid[:84, :100] + 0.5 - np.array([40, 50])[:, None, None]))
    assert found.mask[expected < 8].all()
    assert not found.mask[expected > 10].any()
    assert not found.doubt.any()


@pytest.mark.parametrize("label", [0, 1])
def test_strokes_of_one_label_alone_are_answered(blob: tuple[Photo, Truth], label: int) -> None:
    """The rest of the photo stands for the other label."""
    photo, truth = blob
    found = done(answer(photo, [two_strokes(truth)[1 - label]]))
    assert set(np.unique(found.mask)) == {0, 1}
    assert (found.mask == truth).mean() > 0.5


def test_a_photo_of_one_superpixel(folder: Path) -> None:
    """All of one colour: there is one region, no edge, and an answer."""
    Image.new("RGB", (32, 24), (90, 90, 90)).save(folder / "grey.png")
    photo = prepare(folder / "grey.png", n_superpixels=1)
    assert len(photo.regions) == 1
    found = done(answer(photo, [Stroke(1, 2, ((10, 10),))]))
    assert found.mask[10, 10] == 1
    assert found.mask.shape == (24, 32)


@pytest.mark.parametrize("patience", range(4))
def test_a_cancelled_answer_is_none(blob: tuple[Photo, Truth], patience: int) -> None:
    """Whenever the answer looks, which it does several times on the way."""
    photo, truth = blob
    looks = iter([False] * patience + [True] * 100)
    assert answer(photo, two_strokes(truth), is_cancelled=lambda: next(looks)) is None


def three_classes(height: int = 90, width: int = 120) -> tuple[NDArray[np.uint8], Truth]:
    """Sky, grass and a red disk, with noise."""
    y, x = np.mgrid[:height, :width]
    truth = np.where(y < 40, 0, 1)
    truth = np.where((y - 45) ** 2 + (x - 60) ** 2 < 400, 2, truth).astype(np.uint8)
    colours = np.array([[120, 150, 220], [60, 140, 60], [190, 60, 50]])
    image = colours[truth] + np.random.default_rng(0).normal(0, 12, (height, width, 3))
    return image.clip(0, 255).astype(np.uint8), truth


def test_three_classes(folder: Path) -> None:
    """A stroke of each finds all of them; the doubt is about the class shown."""
    image, truth = three_classes()
    Image.fromarray(image).save(folder / "three.png")
    photo = prepare(folder / "three.png", n_superpixels=200)
    marks = [Stroke(0, 3, ((20, 10), (100, 10))), Stroke(1, 3, ((20, 80), (100, 80))), Stroke(2, 3, ((60, 45),))]
    found = done(answer(photo, marks))
    for label in range(3):
        assert overlap(found.mask, truth, label) > 0.9
    assert found.doubt[45, 60] == 0


def test_a_class_without_marks_is_not_found(folder: Path) -> None:
    """Nobody has said what it looks like: it is nowhere, though a class above it is."""
    image, truth = three_classes()
    Image.fromarray(image).save(folder / "two.png")
    marks = [Stroke(0, 3, ((20, 10), (100, 10), (100, 80), (20, 80))), Stroke(2, 3, ((60, 45),))]
    found = done(answer(prepare(folder / "two.png", n_superpixels=200), marks))
    assert set(np.unique(found.mask)) == {0, 2}
    assert overlap(found.mask, truth, 2) > 0.9


def test_a_photo_of_many_pixels_is_answered_at_its_full_size(folder: Path) -> None:
    """Superpixels, doubt and outline are of bounded sizes; marks are in pixels of the full size."""
    image, truth = scene(1)
    big = Image.fromarray(image).resize((2500, 2100), Image.Resampling.BICUBIC)
    big.save(folder / "big.png")
    photo = prepare(folder / "big.png", n_superpixels=300)
    assert max(photo.working_shape) == 400
    assert photo.fine_shape[0] * photo.fine_shape[1] <= 2.11e6
    marks = [
        Stroke(mark.label, 25 * mark.radius, tuple((25 * x, 25 * y) for x, y in mark.points))
        for mark in two_strokes(truth)
        if isinstance(mark, Stroke)
    ]
    found = done(answer(photo, marks))
    assert found.mask.shape == (2100, 2500)
    assert overlap(found.mask, np.kron(truth, np.ones((25, 25), dtype=np.uint8))) > 0.9
    thin = done(answer(photo, [*marks, Stroke(1, 0.5, ((100, 100), (101, 100)))]))
    assert thin.mask[100, 100] == 1
    assert thin.doubt[int(100 * 400 / 2500), int(100 * 400 / 2500)] == 0


@pytest.fixture(scope="module")
def learned(folder: Path) -> Segmenter:
    """From six scenes with their masks."""
    images, masks = [], {}
    for n in range(10, 16):
        image, mask = scene(n)
        images.append(folder / f"s{n}.png")
        masks[images[-1]] = folder / f"m{n}.png"
        Image.fromarray(image).save(images[-1])
        Image.fromarray(255 * mask).save(masks[images[-1]])
    return Segmenter(coarse(), quick()).fit(images, masks, progress=False)


def test_a_segmenter_finds_the_object_before_any_mark(
    blob: tuple[Photo, Truth], learned: Segmenter, tmp_path: Path
) -> None:
    """And a mark against it wins where it is; what it was described by is kept in the cache."""
    photo, truth = blob
    photo = prepare(photo.path, n_superpixels=300, cache=tmp_path / "cache")
    found = done(answer(photo, [], learned))
    assert overlap(found.mask, truth) > 0.8
    assert len(list((tmp_path / "cache").iterdir())) == 1
    x, y = centre(truth)
    corrected = done(answer(photo, [Stroke(0, 4, ((x, y),))], learned))
    assert corrected.mask[int(y), int(x)] == 0
    assert photo.describe(learned.features) is photo.describe(learned.features)


def test_labels_that_a_segmenter_does_not_know_are_refused(blob: tuple[Photo, Truth], learned: Segmenter) -> None:
    """Its classes are the ones that the photo can have."""
    with pytest.raises(ValueError, match=r"labels below 2, .* but one has 2"):
        answer(blob[0], [Stroke(2, 3, ((5, 5),))], learned)


def test_a_segmenter_of_three_classes(folder: Path) -> None:
    """All of its classes are in the answer, with a mark of one of them alone."""
    image, truth = three_classes()
    paths = {}
    for n in range(3):
        noise = np.random.default_rng(n).normal(0, 5, image.shape)
        path, mask = folder / f"c{n}.png", folder / f"k{n}.png"
        Image.fromarray((image + noise).clip(0, 255).astype(np.uint8)).save(path)
        Image.fromarray(truth).save(mask)
        paths[path] = mask
    classes = Classes.from_json({"sky": 0, "grass": 1, "disk": 2})
    segmenter = Segmenter(coarse(), quick(n_labels=3), classes).fit(list(paths), paths, progress=False)
    Image.fromarray(image).save(folder / "three_again.png")
    found = done(
        answer(prepare(folder / "three_again.png", n_superpixels=200), [Stroke(1, 3, ((20, 80),))], segmenter)
    )
    assert set(np.unique(found.mask)) == {0, 1, 2}
    assert (found.mask == truth).mean() > 0.9
