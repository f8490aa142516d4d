"""Masks as people have them: JPEG files, soft edges, other sizes; and what must not pass for a mask."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("skimage", reason='needs pip install "perturbmap[images]"')

from PIL import Image, ImageFilter

from perturbmap.images import ImageError, Masks, MaskWarning, Segmenter, SkippedImageWarning, read_mask
from perturbmap.images.mask_files import same_shape

from .command import run
from .scenes import coarse, fit_small, make_small, quick, scene

Grey = NDArray[np.uint8]


def drawn(seed: int = 0) -> Grey:
    """A mask of 0 and 1."""
    return scene(seed)[1]


def save(values: Any, path: Path, mode: str = "L", **options: Any) -> Path:
    Image.fromarray(np.asarray(values, dtype=np.uint8)).convert(mode).save(path, **options)
    return path


def soft(mask: Grey) -> Grey:
    """Drawn three times as large and reduced, as a brush with smooth edges does."""
    large = Image.fromarray(255 * np.kron(mask, np.ones((3, 3), dtype=np.uint8)))
    return np.asarray(large.filter(ImageFilter.GaussianBlur(2)).resize(mask.shape[::-1], Image.Resampling.LANCZOS))


def trimap(mask: Grey, unknown: int = 127, width: int = 5) -> Grey:
    """Black and white with a band of another grey between them."""
    picture = Image.fromarray(255 * mask)
    near = (
        np.asarray(picture.filter(ImageFilter.MaxFilter(width))),
        np.asarray(picture.filter(ImageFilter.MinFilter(width))),
    )
    return np.where(near[0] != near[1], unknown, 255 * mask).astype(np.uint8)


# One file


@pytest.mark.parametrize("quality", [50, 75, 85, 95, 100])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_a_jpeg_of_a_mask_is_that_mask(quality: int, mode: str, tmp_path: Path) -> None:
    """All but a few pixels of its edge, with one word of the threshold; 1 and 255 are never foreground and void."""
    path = save(255 * drawn(), tmp_path / "m.jpg", mode, quality=quality)
    assert not set(np.unique(np.asarray(Image.open(path)))) <= {0, 255}
    with pytest.warns(MaskWarning, match=r"m\.jpg is grey: pixels of at least 128") as heard:
        mask = read_mask(path)
    assert len(heard) == 1
    assert set(np.unique(mask)) == {0, 1}
    assert (mask != drawn()).mean() < 0.002
    np.testing.assert_array_equal(read_mask(path, mask_threshold=128), mask)


def test_a_jpeg_whose_numbers_are_those_of_a_mask_with_void(tmp_path: Path) -> None:
    """Compression makes a 0 a 1: a few are black, not foreground beside void; areas of them may be either."""
    path = tmp_path / "m.jpg"
    rows = np.zeros((64, 64))
    rows[:, 16:40] = 255
    for width in (4, 16):
        rows[:width, :width] = 1
        save(rows, path, quality=100)
        assert set(np.unique(np.asarray(Image.open(path)))) == {0, 1, 255}
        if width == 4:
            with pytest.warns(MaskWarning, match="grey"):
                np.testing.assert_array_equal(read_mask(path), rows == 255)
        else:
            with pytest.raises(ImageError, match="it holds 0, 1 and 255"):
                read_mask(path)


@pytest.mark.parametrize("make", [soft, lambda m: 30 + 170 * m, lambda m: 127 * m, lambda m: soft(m) // 2])
def test_grey_masks_are_cut_in_the_middle(make: Any, tmp_path: Path) -> None:
    """Smooth edges, or other greys than black and white."""
    path = save(make(drawn()), tmp_path / "m.png")
    with pytest.warns(MaskWarning):
        mask = read_mask(path)
    assert (mask != drawn()).mean() < 0.01


def test_other_kinds_of_files_are_masks_too(tmp_path: Path) -> None:
    """Compressed WebP, and 16 bits."""
    path = tmp_path / "m.webp"
    Image.fromarray(255 * drawn()).convert("RGB").save(path, quality=90)
    with pytest.warns(MaskWarning):
        assert (read_mask(path) != drawn()).mean() < 0.002
    Image.fromarray(drawn().astype(np.uint16) * 65535).save(tmp_path / "m.png")
    np.testing.assert_array_equal(read_mask(tmp_path / "m.png"), drawn())
    Image.fromarray(drawn().astype(np.uint16) * 60000).save(tmp_path / "m.png")
    with pytest.warns(MaskWarning, match="at least 117"):
        np.testing.assert_array_equal(read_mask(tmp_path / "m.png"), drawn())


def classes(mask: Grey) -> Grey:
    """Numbers of seven classes, and void."""
    columns = np.arange(100) // 15 + 0 * mask
    return np.where(trimap(mask) == 127, 255, columns * (1 - mask)).astype(np.uint8)


def reduced(values: Grey) -> Grey:
    """In half the size, as if numbers were greys."""
    size = values.shape[1] // 2, values.shape[0] // 2
    return np.asarray(Image.fromarray(values.astype(np.uint8)).resize(size, Image.Resampling.BICUBIC))


def photo(mask: Grey) -> Grey:
    return np.asarray(Image.fromarray(scene(0)[0]).convert("L"))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (trimap, "it holds 0, 127 and 255, of which one may stand for unknown"),
        (lambda m: trimap(m, 127, 3), "it holds 0, 127 and 255"),
        (lambda m: trimap(m, 220), "it holds 0, 220 and 255"),
        (lambda m: trimap(m, 126) // 2, "it holds 0, 63 and 127"),
        (
            lambda m: np.where(np.arange(100) < 25, 85, 255 * m),
            "only 75% of its pixels are near two greys, 0 and 255",
        ),
        (lambda m: np.where(trimap(m) == 127, 255, 13 * m), "it holds 0, 13 and 255"),
        (lambda m: np.where(trimap(m) == 127, 255, 2 * m), "it holds 0, 2 and 255"),
        (classes, r"it holds 0, \d+ and 255"),
        (lambda m: reduced(np.where(trimap(m) == 127, 255, m)), "it holds 0, 1 and 255"),
        (lambda m: 13 * m, r"0 to 13, are too close"),
        (lambda m: 1 + m, r"1 to 2, are too close"),
        (lambda m: 77 + 0 * m, r"77 to 77, are too close"),
        (photo, "near|similar greys"),
        (lambda m: np.broadcast_to(np.linspace(0, 255, 100), m.shape), "near two greys"),
    ],
)
def test_what_is_not_of_two_greys_is_refused(make: Any, why: str, tmp_path: Path) -> None:
    """With the file's name, the reason, and what to do; a threshold settles it."""
    path = save(make(drawn()), tmp_path / "odd.png")
    with pytest.raises(
        ImageError, match=rf"odd\.png is not a mask: .*{why}.*--mask-threshold T, or mask_threshold=T"
    ):
        read_mask(path)
    values = np.asarray(Image.open(path))
    np.testing.assert_array_equal(read_mask(path, mask_threshold=100.5), values >= 100.5)


@pytest.mark.parametrize("quality", [75, 95])
def test_a_third_grey_is_found_in_a_jpeg_too(quality: int, tmp_path: Path) -> None:
    """Where it covers areas."""
    path = save(trimap(drawn(), width=9), tmp_path / "m.jpg", quality=quality)
    with pytest.raises(ImageError, match=r"may stand for unknown|near two greys"):
        read_mask(path)


def test_numbers_of_a_palette_are_no_greys(tmp_path: Path) -> None:
    """They may be classes: 0 and 200 are two colours, whichever is brighter."""
    picture = Image.fromarray(200 * drawn())
    picture.putpalette([value for n in range(256) for value in (255 - n, 0, n)])
    picture.save(tmp_path / "m.png")
    with pytest.raises(ImageError, match=r"its palette has the numbers \[200\]"):
        read_mask(tmp_path / "m.png")
    np.testing.assert_array_equal(read_mask(tmp_path / "m.png", mask_threshold=1), drawn())


def test_a_mask_with_void_is_never_cut(tmp_path: Path) -> None:
    """Its numbers count, unless a threshold is given; a caller who knows of void has no use for grey."""
    values = np.where(trimap(drawn()) == 127, 255, drawn())
    path = save(values, tmp_path / "m.png")
    np.testing.assert_array_equal(read_mask(path), values)
    np.testing.assert_array_equal(read_mask(path, mask_threshold=255), values == 255)
    blurred = save(255 * drawn(), tmp_path / "m.jpg", quality=75)
    with pytest.raises(ImageError, match=r"m\.jpg is not a mask with void"):
        read_mask(blurred, binary=False)


def test_arguments_that_make_no_sense_are_named(tmp_path: Path) -> None:
    """A threshold that all pixels pass, or two answers to one question."""
    path = save(255 * drawn(), tmp_path / "m.png")
    for threshold in (0, -3, float("nan"), True, "128"):
        with pytest.raises(ValueError, match="mask_threshold must be a number above 0"):
            read_mask(path, mask_threshold=threshold)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="mask_threshold must be a number above 0"):
            Masks({}, mask_threshold=threshold)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="binary and mask_threshold"):
        read_mask(path, binary=True, mask_threshold=128)


# Sizes


def test_shapes_are_compared_up_to_rounding() -> None:
    """Whichever is larger, however it was rounded; never a mask of next to no pixels."""
    for size in ((84, 100), (333, 500), (375, 500), (3024, 4032), (17, 23)):
        for scale in (0.25, 0.3337, 0.5, 1.5, 3, 7.77):
            for rounded in (np.floor, np.ceil, np.round):
                other = tuple(int(rounded(scale * side)) for side in size)
                if min(other) >= 16:
                    assert same_shape(size, other)
                    assert same_shape(other, size)
    for a, b in (((84, 100), (100, 84)), ((84, 100), (90, 100)), ((1, 1), (84, 100)), ((480, 640), (512, 640))):
        assert not same_shape(a, b)
    assert not same_shape((1000, 1000), (1020, 1000))


@pytest.mark.parametrize("scale", [0.5, 1.5, 2])
def test_a_mask_of_another_size_is_stretched_with_a_note(scale: float, tmp_path: Path) -> None:
    """By the nearest pixel, so that numbers stay what they are."""
    Image.fromarray(scene(0)[0]).save(tmp_path / "a.png")
    size = round(100 * scale), round(84 * scale)
    values = np.where(trimap(drawn()) == 127, 255, drawn()).astype(np.uint8)
    Image.fromarray(values).resize(size, Image.Resampling.NEAREST).save(tmp_path / "m.png")
    with pytest.warns(MaskWarning, match=rf"m\.png is {size[0]} x {size[1]} pixels, its image 100 x 84: stretched"):
        mask = read_mask(tmp_path / "m.png", tmp_path / "a.png")
    assert mask.shape == (84, 100)
    assert set(np.unique(mask)) == {0, 1, 255}
    assert (mask != values).mean() < 0.05


# Many files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images a, b, c, ... to which masks may be made."""
    for n, name in enumerate("abcdef"):
        Image.fromarray(scene(n)[0]).save(tmp_path / f"{name}.png")
    return tmp_path


def many(folder: Path, suffix: str = "png", /, **values: Any) -> dict[Path, Path]:
    """Masks of some images."""
    return {folder / f"{name}.png": save(v, folder / f"{name}-mask.{suffix}") for name, v in values.items()}


@pytest.fixture
def silence() -> Iterator[None]:
    """Warnings are errors, but for notes on masks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MaskWarning)
        yield


def test_grey_masks_are_told_of_once(folder: Path) -> None:
    """How many, which, and at what they are cut; reading them later is silent."""
    files = many(folder, "jpg", **{name: 255 * drawn(n) for n, name in enumerate("abcde")})
    files |= many(folder, f=255 * drawn(5))
    with pytest.warns(MaskWarning) as heard:
        masks = Masks(files)
    assert [str(w.message) for w in heard] == [
        "5 of 6 masks are grey (first: a-mask.jpg): pixels of at least 128 are taken for foreground; "
        "--mask-threshold, or mask_threshold=, sets another value."
    ]
    assert masks.labels == {0, 1}
    for n, path in enumerate(masks):
        assert (masks[path] != drawn(n)).mean() < 0.002


def test_a_threshold_is_used_for_all(folder: Path) -> None:
    """Without a word: it was asked for."""
    files = many(folder, a=trimap(drawn(0)), b=255 * drawn(1), c=200 * drawn(2), d=13 * drawn(3))
    masks = Masks(files, mask_threshold=201)
    assert masks.labels == {0, 1}
    sums = [int(masks[path].sum()) for path in masks]
    assert sums == [int((trimap(drawn(0)) == 255).sum()), int(drawn(1).sum()), 0, 0]
    assert Masks(many(folder, c=200 * drawn(2)), mask_threshold=201).labels == {0}


def test_one_error_tells_of_all_that_are_refused(folder: Path) -> None:
    """And not a warning for each, in which the error would be lost."""
    files = many(folder, **{name: trimap(drawn(n)) for n, name in enumerate("abcdef")})
    with pytest.raises(ValueError, match=r"a-mask\.png is not a mask: .*127.*The first of 6 such masks"):
        Masks(files)
    files[folder / "a.png"].write_bytes(b"no")
    with (
        pytest.warns(SkippedImageWarning, match=r"a-mask\.png is damaged"),
        pytest.raises(ValueError, match=r"b-mask\.png is not a mask.*first of 5"),
    ):
        Masks(files)
    Image.fromarray(scene(0)[0]).save(files[folder / "b.png"])
    with (
        pytest.warns(SkippedImageWarning, match=r"a-mask\.png is damaged"),
        pytest.raises(ValueError, match=r"b-mask\.png is not a mask: it is coloured"),
    ):
        Masks(files)


@pytest.mark.usefixtures("silence")
def test_masks_of_one_set_have_the_same_greys(folder: Path) -> None:
    """Else what is unknown in some would pass for foreground in others, that show background and unknown alone."""
    assert len(Masks(many(folder, a=127 * drawn(0), b=120 * drawn(1), c=0 * drawn(2)))) == 3
    for others in (255 * drawn(1), soft(drawn(1))):
        files = many(folder, a=127 * drawn(0), b=others, c=255 * drawn(2))
        with pytest.raises(
            ValueError, match=r"a-mask\.png is of the greys 0 and 127, but most masks are of 0 and 255"
        ):
            Masks(files)
    files = many(folder, a=soft(drawn(0)), b=np.where(trimap(drawn(1)) == 127, 255, drawn(1)))
    with pytest.raises(ValueError, match=r"a-mask\.png is grey, but .*b-mask\.png has void"):
        Masks(files)
    assert Masks(files, mask_threshold=128).labels == {0, 1}


def test_a_segmenter_learns_from_jpeg_masks(folder: Path) -> None:
    """Nearly what it learns from the masks themselves."""
    exact = many(folder, **{name: 255 * drawn(n) for n, name in enumerate("abcd")})
    blurred = many(folder, "jpg", **{name: 255 * drawn(n) for n, name in enumerate("abcd")})
    found = []
    for files in (exact, blurred):
        segmenter = Segmenter(coarse(), quick())
        found.append(segmenter.fit(exact, files, mask_threshold=128, progress=False).predict(folder / "f.png").mask)
    assert (found[0] != found[1]).mean() < 0.05


# The command


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four images with masks, and a quick recipe."""
    monkeypatch.setattr("perturbmap.cli.segment_runs.segmentation_predictor", quick)
    monkeypatch.setattr("perturbmap.cli.segment_runs.ImageFeatures", coarse)
    return make_small(tmp_path)


def remake_masks(root: Path, make: Any, suffix: str = "png") -> None:
    for path in sorted((root / "masks").iterdir()):
        values = make(np.asarray(Image.open(path)) // 255)
        path.unlink()
        save(values, path.with_suffix(f".{suffix}"))


def test_the_command_says_once_what_it_does_with_masks(small: Path) -> None:
    """In fit and in evaluate; one line for grey ones, one for other sizes."""
    remake_masks(small, lambda m: np.kron(255 * m, np.ones((2, 2))), "jpg")
    done = fit_small(small)
    assert done.code == 0, done
    notes = [line for line in done.stderr.splitlines() if "mask" in line]
    assert len(notes) == 2
    assert notes[0].startswith("Note: 4 of 4 masks are grey (first: s0.jpg): pixels of at least 128 are taken")
    assert notes[1] == (
        "Note: 4 of 4 masks have another size than the image (first: s0.jpg is 200 x 168 pixels, its image "
        "100 x 84): stretched, by the nearest pixel."
    )
    evaluate = ["segment", "evaluate", small / "m.pm", "--images", small / "photos", "--masks", small / "masks"]
    done = run(*evaluate, "--jobs", 1)
    assert (done.code, done.stderr.count("4 of 4 masks are grey")) == (0, 1)
    done = run(*evaluate, "--jobs", 1, "--mask-threshold", 100)
    assert (done.code, done.stderr.count("grey")) == (0, 0)


def test_the_command_refuses_masks_of_three_greys_unless_told(small: Path) -> None:
    """In one line that names the file and the option, before any work."""
    remake_masks(small, trimap)
    done = fit_small(small)
    assert done.code == 1
    assert len(done.stderr.splitlines()) == 1
    assert "s0.png is not a mask: it holds 0, 127 and 255" in done.stderr
    assert "--mask-threshold T" in done.stderr
    assert not (small / "m.pm").exists()
    done = fit_small(small, "--mask-threshold", 200)
    assert (done.code, "Note" in done.stderr) == (0, False)
    assert fit_small(small, "--mask-threshold", 0, "--overwrite").code == 2
    done = fit_small(small, "--mask-threshold", 255.5, "--overwrite")
    assert (done.code, "--mask-threshold" in done.stderr) == (2, True)
