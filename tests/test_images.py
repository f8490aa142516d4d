"""From image files to examples: reading, superpixels, words, features, labels, the cache, and learning from them."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("skimage", reason='needs pip install "perturbmap[images]"')

from PIL import Image
from scipy.ndimage import label as components

import perturbmap as pm
from perturbmap import BalancedHamming, BinaryGraph, GraphModel, MarginalLogLikelihood, StructuredPredictor
from perturbmap.data import Dataset
from perturbmap.images import (
    DescribedImage,
    FeatureCache,
    ImageError,
    ImageFeatures,
    SkippedImageWarning,
    Superpixels,
    Vocabulary,
    describe_edges,
    labels_from_boxes,
    labels_from_mask,
    paint,
    read_image,
    read_mask,
    segment,
    store_images,
)
from perturbmap.images import cache as cache_module
from perturbmap.images.descriptors import dense_sift, positions
from perturbmap.support.progress import Progress

HEIGHT, WIDTH = 72, 90


def scene(rng: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """A blob with upright stripes on a ground with level ones, of similar colours, and its mask."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    cy, cx, ry, rx = rng.uniform(28, 44), rng.uniform(30, 60), rng.uniform(16, 24), rng.uniform(18, 28)
    blob = ((y - cy) / ry) ** 2 + ((x - cx) / rx) ** 2 < 1
    stripes = np.where(blob, np.sin(x * 1.1 + rng.uniform(0, 6)), np.sin(y * 0.7 + rng.uniform(0, 6)))
    tint = np.where(blob[..., None], [130, 115, 100], [110, 120, 100]) + rng.normal(0, 6, 3)
    image = tint + 40 * stripes[..., None] + rng.normal(0, 8, (HEIGHT, WIDTH, 3))
    return image.clip(0, 255).astype(np.uint8), blob.astype(np.uint8)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Twelve image files, each with a mask beside it."""
    folder = tmp_path_factory.mktemp("scenes")
    paths = []
    for n in range(12):
        image, mask = scene(np.random.default_rng(n))
        paths.append(folder / f"{n:02}.png")
        Image.fromarray(image).save(paths[-1])
        Image.fromarray(mask).save(mask_of(paths[-1]))
    return paths


def mask_of(path: Path) -> Path:
    return path.with_name(f"{path.stem}-mask.png")


def small(**settings: Any) -> ImageFeatures:
    words = {"n_position_words": 4, "n_colour_words": 12, "n_sift_words": 24, "n_samples": 4000}
    return ImageFeatures(**{"n_superpixels": 60, **words, **settings})


@pytest.fixture(scope="module")
def fitted(scenes: list[Path]) -> ImageFeatures:
    return small().fit(scenes[:8], progress=False)


# Reading


def test_every_kind_of_image_is_rgb_in_unit_range(tmp_path: Path) -> None:
    """Grey, palette, alpha, 16 bits and black-and-white show the colours that they show."""
    rng = np.random.default_rng(0)
    rgb = rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)

    def back(image: Any, name: str = "a.png") -> NDArray[np.float32]:
        image.save(tmp_path / name)
        array = read_image(tmp_path / name)
        assert array.shape == (20, 30, 3)
        assert array.dtype == np.float32
        assert array.min() >= 0
        assert array.max() <= 1
        return array

    np.testing.assert_allclose(back(Image.fromarray(rgb)), rgb / 255, atol=1e-6)
    grey = rgb[..., 0]
    np.testing.assert_allclose(back(Image.fromarray(grey)), np.repeat(grey[..., None], 3, axis=2) / 255, atol=1e-6)
    few = Image.fromarray(rgb).quantize(16)
    np.testing.assert_allclose(back(few), np.asarray(few.convert("RGB")) / 255, atol=1e-6)
    deep = rng.integers(0, 65536, (20, 30), dtype=np.uint16)
    np.testing.assert_allclose(back(Image.fromarray(deep))[..., 1], deep / 65535, atol=1e-6)
    bits = Image.fromarray(grey > 127)
    np.testing.assert_array_equal(back(bits)[..., 2], grey > 127)
    back(Image.fromarray(rgb).convert("CMYK"), "a.jpg")

    alpha = np.full((20, 30, 1), 255, dtype=np.uint8)
    alpha[:10] = 0
    alpha[10] = 51
    seen = back(Image.fromarray(np.concatenate([rgb, alpha], axis=2)))
    np.testing.assert_array_equal(seen[:10], 1)
    np.testing.assert_allclose(seen[10], 0.2 * rgb[10] / 255 + 0.8, atol=1e-6)
    np.testing.assert_allclose(seen[11:], rgb[11:] / 255, atol=1e-6)
    back(Image.fromarray(np.concatenate([rgb[..., :1], alpha], axis=2)[..., :2], "LA"))
    few.info["transparency"] = 0
    few.save(tmp_path / "clear.png", transparency=0)
    clear = read_image(tmp_path / "clear.png")
    assert (clear[np.asarray(few) == 0] == 1).all()


@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "tif", "bmp"])
def test_a_broken_image_is_an_error_that_names_it(suffix: str, tmp_path: Path) -> None:
    """Truncated anywhere, any byte flipped, or no image at all: an ImageError or a picture, never another error."""
    rng = np.random.default_rng(0)
    path = tmp_path / f"broken.{suffix}"
    Image.fromarray(rng.integers(0, 256, (24, 24, 3), dtype=np.uint8)).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ImageError, match=rf"broken\.{suffix} is damaged"):
        read_image(path)
    cuts = [whole[:n] for n in range(0, min(200, len(whole)), 7)]
    for at in range(0, min(300, len(whole)), 3):
        flipped = bytearray(whole)
        flipped[at] ^= int(rng.integers(1, 256))
        cuts.append(bytes(flipped))
    for content in [b"", b"not an image", *cuts]:
        path.write_bytes(content)
        with contextlib.suppress(ImageError):
            assert read_image(path).shape[2] == 3
    with pytest.raises(FileNotFoundError):
        read_image(tmp_path / "nowhere.png")


def test_a_tiny_image_is_an_error(tmp_path: Path) -> None:
    """Below 16 pixels a side."""
    Image.new("RGB", (200, 15)).save(tmp_path / "thin.png")
    with pytest.raises(ImageError, match=r"thin\.png is 200 x 15 pixels"):
        read_image(tmp_path / "thin.png")
    Image.new("RGB", (16, 16)).save(tmp_path / "just.png")
    assert read_image(tmp_path / "just.png").shape == (16, 16, 3)


def test_masks_of_both_conventions(tmp_path: Path) -> None:
    """255 is void beside a 1 and foreground without one, unless the caller knows; colours and sizes are checked."""
    path, picture = tmp_path / "mask.png", tmp_path / "image.png"

    def saved(values: Any, mode: str = "L") -> Path:
        Image.fromarray(np.asarray(values, dtype=np.uint8)).convert(mode).save(path)
        return path

    with_void = np.array([[0, 1, 255, 1]])
    black_white = np.array([[0, 255, 255, 0]])
    np.testing.assert_array_equal(read_mask(saved(with_void)), with_void)
    np.testing.assert_array_equal(read_mask(saved(black_white)), [[0, 1, 1, 0]])
    np.testing.assert_array_equal(read_mask(path, binary=False), black_white)
    np.testing.assert_array_equal(read_mask(saved(with_void), binary=True), [[0, 1, 1, 1]])
    np.testing.assert_array_equal(read_mask(saved(black_white, "RGB")), [[0, 1, 1, 0]])
    np.testing.assert_array_equal(read_mask(saved(black_white, "1")), [[0, 1, 1, 0]])
    assert read_mask(path).dtype == np.uint8
    with pytest.raises(ImageError, match=r"mask\.png is not a mask.*0 to 13"):
        read_mask(saved([[0, 13]]))
    Image.fromarray(np.array([[[0, 255, 0]]], dtype=np.uint8)).save(path)
    with pytest.raises(ImageError, match="coloured"):
        read_mask(path)
    Image.new("RGB", (20, 30)).save(picture)
    with pytest.raises(ImageError, match=r"mask\.png is 4 x 1 pixels, but its image .*image\.png is 20 x 30"):
        read_mask(saved(with_void), picture)


# Superpixels


@pytest.mark.parametrize("n", [1, 10, 150, 100_000])
def test_superpixels_partition_the_image(n: int, scenes: list[Path]) -> None:
    """Numbered without gaps, none empty, each connected, and edges are exactly the pairs that touch."""
    regions = segment(read_image(scenes[0]), n)
    D = len(regions)
    np.testing.assert_array_equal(np.unique(regions.map), np.arange(D))
    assert regions.areas.min() > 0
    assert regions.areas.sum() == HEIGHT * WIDTH
    if n <= 150:
        assert n / 2 <= D <= 2 * n
        assert regions.areas.min() >= HEIGHT * WIDTH / n / 4
        assert all(components(regions.map == d)[1] == 1 for d in range(D))
        touching = set()
        for y in range(HEIGHT):
            for x in range(WIDTH):
                for v, u in ((y + 1, x), (y, x + 1)):
                    if v < HEIGHT and u < WIDTH and regions.map[y, x] != regions.map[v, u]:
                        touching.add(tuple(sorted((int(regions.map[y, x]), int(regions.map[v, u])))))
        assert [tuple(e) for e in regions.edges.tolist()] == sorted(touching)
    np.testing.assert_array_equal(segment(read_image(scenes[0]), n).map, regions.map)


def test_flat_and_smallest_images_have_superpixels(tmp_path: Path) -> None:
    """Nothing to follow is no error, and neither are more superpixels than there is room for."""
    for size in ((16, 16), (16, 200), (64, 48)):
        regions = segment(np.full((*size, 3), 0.5, dtype=np.float32), 150)
        assert regions.areas.sum() == size[0] * size[1]


def test_parts_that_do_not_touch_become_regions_of_their_own() -> None:
    """Corners do not join; labels may be any integers."""
    regions = Superpixels.from_map(np.array([[-5, 9], [9, -5]]))
    assert len(regions) == 4
    np.testing.assert_array_equal(regions.edges, [[0, 1], [0, 2], [1, 3], [2, 3]])
    with pytest.raises(ValueError, match="regions must be a map"):
        Superpixels.from_map(np.zeros((2, 2)))


def test_supports_grow(scenes: list[Path]) -> None:
    """A superpixel is in the first support, neighbours in the second, theirs in the third, and no others."""
    regions = segment(read_image(scenes[0]), 60)
    own, near, far = (s.toarray() for s in regions.supports())
    np.testing.assert_array_equal(own, np.eye(len(regions)))
    joined = np.eye(len(regions), dtype=bool)
    joined[regions.edges[:, 0], regions.edges[:, 1]] = joined[regions.edges[:, 1], regions.edges[:, 0]] = True
    np.testing.assert_array_equal(near, joined)
    np.testing.assert_array_equal(far, (joined.astype(int) @ joined) > 0)
    assert (own <= near).all()
    assert (near <= far).all()
    assert (far.sum(axis=1) > near.sum(axis=1)).any()


def test_paint_puts_values_back_on_pixels() -> None:
    """Numbers or rows, one a superpixel."""
    regions = Superpixels.from_map(np.array([[0, 0, 1], [2, 2, 1]]))
    np.testing.assert_array_equal(paint(regions, [5, 6, 7]), [[5, 5, 6], [7, 7, 6]])
    assert paint(regions.map, np.zeros((3, 2))).shape == (2, 3, 2)
    with pytest.raises(ValueError, match="values must be one for each superpixel, 3"):
        paint(regions, [1, 2])


# Descriptors and words


def test_sift_is_normalised_and_knows_directions() -> None:
    """Norm 1 or 0; light and contrast do not matter; a ramp to the right has orientation 0, one down 2."""
    rng = np.random.default_rng(0)
    image = np.repeat(rng.random((37, 50, 1), dtype=np.float32), 3, axis=2)
    found = dense_sift(image, step=4, cell_size=4)
    assert found.shape == (10, 13, 128)
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), 1, atol=1e-5)
    np.testing.assert_allclose(dense_sift(0.5 * image + 0.2, 4, 4), found, atol=1e-4)
    assert not dense_sift(np.full((20, 20, 3), 0.3, dtype=np.float32)).any()
    ramp = np.repeat(np.linspace(0, 1, 64, dtype=np.float32)[None, :, None], 64, axis=0)
    for turned, orientation in ((ramp, 0), (ramp[:, ::-1], 4), (ramp.transpose(1, 0, 2), 2)):
        middle = dense_sift(np.repeat(turned, 3, axis=2), 8, 4)[4, 4].reshape(16, 8)
        assert (middle.argmax(axis=1) == orientation).all()
        assert middle.sum(axis=1) == pytest.approx(middle[:, orientation])
    with pytest.raises(ValueError, match="cell_size must be an even number"):
        dense_sift(image, cell_size=5)


def test_sift_moves_with_the_image() -> None:
    """Away from the borders, descriptors of a shifted image are the shifted descriptors."""
    image = np.repeat(np.random.default_rng(1).random((80, 80, 1), dtype=np.float32), 3, axis=2)
    whole, moved = dense_sift(image, 4, 4), dense_sift(image[8:, 4:], 4, 4)
    np.testing.assert_allclose(moved[5:13, 5:13], whole[7:15, 6:14], atol=1e-5)


def test_positions_are_fractions() -> None:
    """Centres of pixels, x before y."""
    found = positions(2, 4)
    np.testing.assert_allclose(found[1, 0], [0.125, 0.75])


def test_a_vocabulary_assigns_the_nearest_word(tmp_path: Path) -> None:
    """Chunks do not matter; the same seed learns the same bits, another seed others; files keep it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 5)).astype(np.float32)
    words = Vocabulary.learn("colour", X, 30, seed=3)
    distances = ((X[:, None, :100] - words.words) ** 2).sum(axis=2)
    assert (words.assign(X) == distances.argmin(axis=1)).mean() > 0.9999
    np.testing.assert_array_equal(words.assign(X.reshape(100, 200, 5)).ravel(), words.assign(X))
    np.testing.assert_array_equal(Vocabulary.learn("colour", X, 30, seed=3).words, words.words)
    assert (Vocabulary.learn("colour", X, 30, seed=4).words != words.words).any()
    words.save(tmp_path / "words.pm")
    np.testing.assert_array_equal(Vocabulary.load(tmp_path / "words.pm").words, words.words)
    few = Vocabulary.learn("colour", np.repeat(X[:3], 50, axis=0), 20, seed=0)
    assert len(set(few.assign(X[:3]).tolist())) == 3
    with pytest.raises(ValueError, match="n_colour_words must be at most"):
        Vocabulary.learn("colour", X[:10], 30, seed=0)
    with pytest.raises(ValueError, match="descriptors must have 5 columns"):
        words.assign(X[:, :4])


# Features


def test_features_have_the_shape_of_horseseg(scenes: list[Path]) -> None:
    """1,969 a superpixel, 100 an edge, float32, and a data set takes them."""
    features = ImageFeatures(n_samples=3000).fit(scenes[:3], progress=False)
    x = features.transform(scenes[4])
    D, E = len(features.superpixels(scenes[4])), len(x.edges)
    assert x.features.shape == (D, 1969) == (D, features.n_features)
    assert x.edge_features.shape == (E, 100) == (E, features.n_edge_features)
    assert x.features.dtype == x.edge_features.dtype == np.float32
    assert x.sizes.sum() == HEIGHT * WIDTH
    assert len(Dataset.from_examples([x, x])) == 2


def test_histograms_have_sum_one_and_edges_similarities(scenes: list[Path], fitted: ImageFeatures) -> None:
    """Squared rows of each of the nine histograms sum to 1; similarities are in (0, 1] and fall with the scale."""
    described = fitted.describe(scenes[9])
    x = described.example
    assert (x.features[:, 0] == 1).all()
    widths = [n for n in (4, 12, 24) for _ in range(3)]
    starts = np.cumsum([1, *widths])
    histograms = [x.features[:, a:b].astype(np.float64) ** 2 for a, b in itertools.pairwise(starts)]
    for histogram in histograms:
        np.testing.assert_allclose(histogram.sum(axis=1), 1, atol=1e-5)
    for own, _, far in (histograms[:3], histograms[3:6], histograms[6:]):
        assert ((own > 0).sum(axis=1) <= (far > 0).sum(axis=1)).all()
    assert (x.edge_features[:, 0] == 1).all()
    assert (x.edge_features > 0).all()
    assert (x.edge_features <= 1).all()
    assert (np.diff(x.edge_features[:, 1:].reshape(-1, 9, 11), axis=2) <= 0).all()
    np.testing.assert_allclose(describe_edges(histograms, x.edges), x.edge_features, atol=1e-4)
    p, q = histograms[3][x.edges[0]]
    chi2 = 0.5 * sum((a - b) ** 2 / (a + b) for a, b in zip(p, q, strict=True) if a + b > 0)
    assert x.edge_features[0, 1 + 3 * 11 + 5] == pytest.approx(np.exp(-chi2), rel=1e-4)
    np.testing.assert_array_equal(x.sizes, described.superpixels.areas)


def test_a_support_pools_the_pixels_of_its_superpixels(scenes: list[Path], fitted: ImageFeatures) -> None:
    """The middle histogram is the mean of the first over the neighbourhood, weighted by area."""
    described = fitted.describe(scenes[9])
    x, near = described.example, described.superpixels.supports()[1]
    own, pooled = x.features[:, 13:25] ** 2, x.features[:, 25:37] ** 2
    expected = near @ (own * x.sizes[:, None]) / (near @ x.sizes)[:, None]
    np.testing.assert_allclose(pooled, expected, atol=1e-5)


def test_the_same_seed_learns_the_same_words(scenes: list[Path], fitted: ImageFeatures) -> None:
    """In one process or two; another seed learns others; files keep everything."""
    again = small().fit(scenes[:8], n_jobs=2, progress=False)
    assert again.fingerprint() == fitted.fingerprint()
    assert small(seed=1).fit(scenes[:8], progress=False).fingerprint() != fitted.fingerprint()


def test_fitted_features_are_kept_in_a_file(scenes: list[Path], fitted: ImageFeatures, tmp_path: Path) -> None:
    """Without pickle; a damaged file is said to be one."""
    path = tmp_path / "features.pm"
    fitted.save(path)
    loaded = ImageFeatures.load(path)
    assert loaded.fingerprint() == fitted.fingerprint()
    np.testing.assert_array_equal(loaded.transform(scenes[0]).features, fitted.transform(scenes[0]).features)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ValueError, match="damaged"):
        ImageFeatures.load(path)


def test_wrong_arguments_are_named(scenes: list[Path], tmp_path: Path) -> None:
    """Before any work."""
    for settings, message in (
        ({"n_superpixels": 0}, "n_superpixels"),
        ({"sift_cell_sizes": (5,)}, "sift_cell_sizes must be even"),
        ({"sift_cell_sizes": ()}, "sift_cell_sizes"),
        ({"seed": -1}, "seed must be"),
        ({"compactness": 0}, "compactness"),
    ):
        with pytest.raises(ValueError, match=message):
            small(**settings)
    with pytest.raises(ValueError, match="call fit"):
        small().transform(scenes[0])
    with pytest.raises(ValueError, match="paths must be a list"):
        small().fit(str(scenes[0]))
    with pytest.raises(ValueError, match="paths must name at least one"):
        small().fit([])
    with pytest.raises(FileNotFoundError, match=r"nowhere\.png"):
        small().fit([tmp_path / "nowhere.png"])
    with pytest.raises(ValueError, match="n_jobs"):
        small().fit(scenes[:2], n_jobs=0)
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no")
    with (
        pytest.warns(SkippedImageWarning, match=r"broken\.png"),
        pytest.raises(ValueError, match="all 1 are broken"),
    ):
        small().fit([broken])


# Labels


def test_the_majority_of_a_mask_labels_a_superpixel() -> None:
    """Void does not vote, a tie is background, and nothing but void is unknown."""
    regions = Superpixels.from_map(np.repeat(np.arange(5), 4).reshape(5, 4))
    mask = np.array([[0, 0, 0, 1], [1, 1, 1, 0], [1, 255, 255, 255], [255] * 4, [0, 0, 1, 1]], dtype=np.uint8)
    np.testing.assert_array_equal(labels_from_mask(regions, mask), [0, 1, 1, -1, 0])
    np.testing.assert_array_equal(labels_from_mask(regions.map, mask), [0, 1, 1, -1, 0])
    with pytest.raises(ValueError, match="mask must have the size"):
        labels_from_mask(regions, mask[:2])
    with pytest.raises(ValueError, match="mask must hold"):
        labels_from_mask(regions, mask + 3)


def test_boxes_leave_what_they_touch_unknown() -> None:
    """Counted from 1, ends included, as in PASCAL VOC."""
    regions = Superpixels.from_map(np.arange(20).reshape(4, 5))
    for boxes, inside in (
        ([[1, 1, 5, 4]], np.ones((4, 5), dtype=bool)),
        ([[1, 1, 1, 1]], np.arange(20).reshape(4, 5) == 0),
        ([[5, 4, 5, 4]], np.arange(20).reshape(4, 5) == 19),
        ([[2, 1, 3, 2]], np.isin(np.arange(20), [1, 2, 6, 7]).reshape(4, 5)),
        ([[1, 1, 1, 1], [5, 4, 9, 9]], np.isin(np.arange(20), [0, 19]).reshape(4, 5)),
        ([[1.5, 1, 1.5, 1]], np.isin(np.arange(20), [0, 1]).reshape(4, 5)),
        ([], np.zeros((4, 5), dtype=bool)),
    ):
        np.testing.assert_array_equal(labels_from_boxes(regions, boxes), np.where(inside, -1, 0).ravel())
    large = Superpixels.from_map(np.array([[0, 0, 1, 1]] * 2))
    np.testing.assert_array_equal(labels_from_boxes(large, [[1, 1, 1, 1]]), [-1, 0])
    for box in ([3, 1, 2, 2], [6, 1, 8, 2], [1, 1, 2]):
        with pytest.raises(ValueError, match="boxes"):
            labels_from_boxes(regions, [box])


# The cache


def arrays(described: Any) -> list[NDArray[Any]]:
    x, regions = described.example, described.superpixels
    return [x.features, x.edges, x.edge_features, x.sizes, regions.map, regions.edges, regions.areas]


def same(a: Any, b: Any) -> bool:
    pairs = zip(arrays(a), arrays(b), strict=True)
    return all(p.dtype == q.dtype and np.array_equal(p, q) for p, q in pairs)


def test_a_cached_image_is_bit_identical_and_not_computed_again(
    scenes: list[Path], fitted: ImageFeatures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether mapped or read, in one process or two, under its name or another."""
    direct = {path: fitted.describe(path) for path in scenes[:4]}
    cache = FeatureCache(tmp_path / "a", fitted)
    assert list(cache.load(scenes[:4], n_jobs=2, progress=False)) == scenes[:4]

    def never(*_: Any) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(ImageFeatures, "describe", never)
    renamed = tmp_path / "renamed.png"
    renamed.write_bytes(scenes[0].read_bytes())
    for mmap in (True, False):
        found = FeatureCache(tmp_path / "a", fitted).load([*scenes[:4], renamed], progress=False, mmap=mmap)
        assert all(same(found[path], direct[path]) for path in scenes[:4])
        assert same(found[renamed], direct[scenes[0]])
        assert isinstance(found[scenes[0]].example.features, np.memmap) == mmap
    monkeypatch.setattr(cache_module, "_maps_left", lambda: 2)
    found = cache.load(scenes[:4], progress=False)
    assert sum(isinstance(d.example.features, np.memmap) for d in found.values()) == 2


def test_images_become_a_store(scenes: list[Path], fitted: ImageFeatures, tmp_path: Path) -> None:
    """With what is known of them; a broken file is left out, and one can learn from the store."""
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    cache = FeatureCache(tmp_path / "cache", fitted)

    def brightest(path: Path, image: DescribedImage) -> np.ndarray | None:
        return None if path == scenes[1] else (image.example.features[:, 1] > 0).astype(int)

    files = [scenes[0], broken, *scenes[1:4]]
    with pytest.warns(SkippedImageWarning, match=r"broken\.png"):
        stored = store_images(tmp_path / "s", files, cache, brightest, shard_bytes=10**6, progress=False)
    assert stored == scenes[:4]
    store = pm.Store(tmp_path / "s")
    direct = cache.load(scenes[:4], progress=False)
    for path, x in zip(scenes[:4], store, strict=True):
        np.testing.assert_array_equal(x.features, np.asarray(direct[path].example.features, dtype=np.float32))
        np.testing.assert_array_equal(x.edge_features, direct[path].example.edge_features)
        np.testing.assert_array_equal(x.sizes, direct[path].example.sizes)
    assert set(store.y[1]) == {None}
    assert store.y[0] == brightest(scenes[0], direct[scenes[0]]).tolist()  # type: ignore[union-attr]
    predictor = pm.StructuredPredictor(
        pm.GraphModel(), pm.BinaryGraph(), solver=pm.DoubleSGD(n_passes=5), random_state=0
    )
    assert len(predictor.fit(store, store.y).predict(store)) == 4
    assert store_images(tmp_path / "t", scenes[:2], cache, progress=False) == scenes[:2]
    assert pm.Store(tmp_path / "t").classes is None


def test_a_damaged_entry_is_computed_again(scenes: list[Path], fitted: ImageFeatures, tmp_path: Path) -> None:
    """Any file of it truncated, missing, or with a flipped byte."""
    cache = FeatureCache(tmp_path, fitted)
    path = scenes[0]
    direct = fitted.describe(path)
    cache.load([path], progress=False)
    files = sorted(cache.entry(path).iterdir())
    assert [file.name for file in files] == [
        "checksums.json",
        "edge_features.npy",
        "edges.npy",
        "features.npy",
        "map.npy",
    ]
    for file in files:
        whole = file.read_bytes()
        flipped = bytearray(whole)
        flipped[-len(whole) // 3] ^= 4
        for damaged in (whole[: len(whole) // 2], b"", bytes(flipped), None):
            if damaged is None:
                file.unlink()
            else:
                file.write_bytes(damaged)
            assert same(cache.load([path], progress=False)[path], direct)
            assert file.read_bytes() == whole


def test_other_settings_words_or_pixels_have_other_entries(
    scenes: list[Path], fitted: ImageFeatures, tmp_path: Path
) -> None:
    """In one folder, none is taken for another."""
    others = [small(n_superpixels=30), small(compactness=1.0), small(sift_step=3), small(sift_cell_sizes=(4,))]
    for other in others:
        other.vocabularies_ = fitted.vocabularies_
    others.append(small(seed=5).fit(scenes[:8], progress=False))
    for features in (fitted, *others):
        found = FeatureCache(tmp_path, features).load(scenes[:2], progress=False)
        assert same(found[scenes[0]], features.describe(scenes[0]))
    entries = {FeatureCache(tmp_path, f).entry(path) for f in (fitted, *others) for path in scenes[:2]}
    assert len(entries) == 12


def test_broken_images_are_left_out_with_a_warning(scenes: list[Path], fitted: ImageFeatures, tmp_path: Path) -> None:
    """The others are there, and progress is told of all that was done."""
    broken = tmp_path / "broken.png"
    broken.write_bytes(scenes[0].read_bytes()[:500])

    class Heard(Progress):
        fractions: list[float]

        def __init__(self) -> None:
            self.fractions = []

        def advance(self, fraction: float, error: float | None = None, note: str = "") -> None:
            self.fractions.append(fraction)

    heard = Heard()
    cache = FeatureCache(tmp_path / "cache", fitted)
    for n_jobs in (1, 2):
        with pytest.warns(SkippedImageWarning, match=r"broken\.png is damaged"):
            found = cache.load([scenes[0], broken, scenes[n_jobs]], n_jobs=n_jobs, progress=heard)
        assert list(found) == [scenes[0], scenes[n_jobs]]
    assert heard.fractions == sorted(heard.fractions[:3]) + sorted(heard.fractions[3:])
    with pytest.warns(SkippedImageWarning, match=r"broken\.png"):
        small().fit([*scenes[:4], broken], progress=False)


def test_the_package_does_not_import_scikit_image() -> None:
    """Who has no images needs neither it nor Pillow; who lacks it is told what to install."""
    unwanted = {"skimage", "PIL", "perturbmap.images"}
    code = f"import sys, perturbmap, perturbmap.cli; assert not {unwanted} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    code = "import sys; sys.modules['skimage'] = None; sys.modules['PIL'] = None; import perturbmap.images"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert 'pip install "perturbmap[images]"' in done.stderr


# Learning


def test_made_scenes_are_segmented(scenes: list[Path], fitted: ImageFeatures, tmp_path: Path) -> None:
    """Held-out blobs are found: balanced loss on pixels far below the half that a constant prediction has."""
    described = FeatureCache(tmp_path, fitted).load(scenes, n_jobs=2, progress=False)
    masks = [read_mask(mask_of(path), path) for path in scenes]
    X = [d.example for d in described.values()]
    y = [labels_from_mask(d.superpixels, mask) for d, mask in zip(described.values(), masks, strict=True)]
    learner = StructuredPredictor(
        GraphModel(), BinaryGraph(), MarginalLogLikelihood(BalancedHamming()), l2=0.01, random_state=0
    ).fit(X[:8], y[:8])
    losses = []
    for path, labels, mask in zip(scenes[8:], learner.predict(X[8:]), masks[8:], strict=True):
        painted = paint(described[path].superpixels, labels)
        losses.append(0.5 * ((painted != 1)[mask == 1].mean() + (painted != 0)[mask == 0].mean()))
    assert np.mean(losses) < 0.15


@pytest.mark.parametrize(("name", "value"), [("sift_step", 2**80), ("sift_cell_sizes", [4, 2**62]), ("sift_step", 0)])
def test_descriptors_have_the_size_of_something_in_an_image(name: str, value: object) -> None:
    """What a forged file asks for would not fit into memory."""
    with pytest.raises(ValueError, match=f"{name} must be an integer from 1 to 256"):
        ImageFeatures(**{name: value})  # type: ignore[arg-type]
