"""What an answer is made of: corrections, nearness, colours, the outline; and the simulated annotator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("skimage", reason="scikit-image is not installed")

from PIL import Image

from benchmarks.simulated_annotator import VOID, annotate, next_stroke, overlap_of
from perturbmap.annotate import Answer, Mark, Photo, Stroke, paint, prepare
from perturbmap.annotate.band import refine
from perturbmap.annotate.evidence import MARGIN, Corrections, colour_counts, colour_tables, nearness
from perturbmap.annotate.palette import N_CELLS, cells_of, log_densities
from perturbmap.images import Superpixels, labels_from_mask

TRUTH = np.zeros((60, 90), dtype=np.uint8)
TRUTH[20:40, 33:71] = 1


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Photo:
    """A red bar on green, both with some noise."""
    colours = np.array([[60, 140, 60], [190, 60, 50]])
    image = colours[TRUTH] + np.random.default_rng(0).normal(0, 6, (60, 90, 3))
    path = tmp_path_factory.mktemp("photos") / "bar.png"
    Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(path)
    return prepare(path, n_superpixels=60)


def known_labels(photo: Photo, label: int, at: tuple[int, int]) -> NDArray[np.int32]:
    known = np.full(len(photo.regions), -1, dtype=np.int32)
    known[photo.regions.map[at]] = label
    return known


def test_without_marks_nothing_is_corrected(photo: Photo) -> None:
    """The scores come back as they were."""
    scores = np.random.default_rng(0).normal(size=(len(photo.regions), 2))
    none = np.full(len(photo.regions), -1, dtype=np.int32)
    np.testing.assert_array_equal(Corrections(photo, none, 2)(scores), scores)


def test_a_mark_that_was_foreseen_corrects_nothing(photo: Photo) -> None:
    """Scores that lead by the margin already stay where they are, everywhere."""
    scores = np.tile([-MARGIN, MARGIN], (len(photo.regions), 1))
    corrected = Corrections(photo, known_labels(photo, 1, (30, 50)), 2)(scores)
    np.testing.assert_allclose(corrected, scores, atol=1e-12)


def test_a_mark_corrects_what_looks_alike(photo: Photo) -> None:
    """A mark on the bar, against the scores, moves all of the bar, and the ground hardly."""
    scores = np.tile([1.0, -1.0], (len(photo.regions), 1))
    moved = (Corrections(photo, known_labels(photo, 1, (30, 50)), 2)(scores) - scores)[:, 1]
    is_bar = photo.colours[:, 1] > 20  # red
    is_ground = photo.colours[:, 1] < -20  # green
    assert moved[is_bar].min() > 0.5
    assert np.abs(moved[is_ground]).max() < 0.1


def test_nearness_prefers_the_label_of_the_nearer_mark(photo: Photo) -> None:
    """It is 1 at a mark of the label, 0 at one of another, and both sum to 1; a change of colour is a long way."""
    known = known_labels(photo, 1, (30, 50))
    assert not nearness(photo, known, 2).any()
    known[photo.regions.map[30, 5]] = 0
    near = nearness(photo, known, 2)
    np.testing.assert_allclose(near.sum(axis=1), 1)
    np.testing.assert_array_equal(near[known >= 0], np.eye(2)[known[known >= 0]])
    at = photo.regions.map
    assert near[at[30, 65], 1] > 0.5 > near[at[10, 50], 1]


def test_colours_speak_for_the_label_that_has_them(photo: Photo) -> None:
    """Red is that of the mark on the bar; without a mark of its own, a label has the colours of what is unmarked."""
    painted = paint([Stroke(1, 3, ((50, 30),))], TRUTH.shape)
    counts = colour_counts(photo, painted, 2)
    assert counts.sum() == (painted == 1).sum()
    rest = np.stack([np.ones(len(photo.regions)), np.zeros(len(photo.regions))], axis=1)
    tables = colour_tables(photo, counts, rest)
    assert tables.shape == (2, N_CELLS)
    of_pixels = tables[:, photo.fine_cells]
    assert (of_pixels[1] > of_pixels[0])[TRUTH == 1].mean() > 0.95
    assert (of_pixels[1] < of_pixels[0])[TRUTH == 0].mean() > 0.95


def test_densities_sum_to_one_and_leave_unseen_colours_open() -> None:
    """All cells together have probability 1; a colour that no label has is as likely under each."""
    counts = np.zeros((2, N_CELLS))
    here, there, unseen = cells_of(np.array([[50, 0, 0], [80, 0, 0], [20, 60, 40]], dtype=np.float32))
    counts[0, here] = counts[1, there] = 10
    everywhere = counts.sum(axis=0)
    everywhere[unseen] = 10
    tables = log_densities(counts, everywhere)
    np.testing.assert_allclose(np.exp(tables).sum(axis=1), 1, rtol=1e-6)
    assert tables[0, here] > tables[1, here] + 1
    assert abs(tables[0, unseen] - tables[1, unseen]) < 1e-6


def test_every_colour_has_a_cell() -> None:
    """The corners of the RGB cube are in the palette, each in a cell of its own."""
    from skimage.color import rgb2lab

    corners = np.array(np.meshgrid([0, 1], [0, 1], [0, 1]), dtype=float).reshape(3, -1).T
    cells = cells_of(rgb2lab(corners[None]).astype(np.float32))[0]
    assert len(set(cells.tolist())) == 8
    assert 0 <= cells.min() <= cells.max() < N_CELLS


def test_the_outline_is_finer_than_superpixels(photo: Photo) -> None:
    """From the best labels that squares can have, the cut of the band finds the bar to the pixel."""
    nothing = np.zeros((len(photo.regions), 2))
    tables = colour_tables(photo, colour_counts(photo, TRUTH.astype(np.int8), 2), nothing)
    squares = np.kron(np.arange(5 * 8).reshape(5, 8), np.ones((12, 12), dtype=int))[:, :90]
    photo = replace(photo, regions=Superpixels.from_map(squares))
    coarse = labels_from_mask(photo.regions, TRUTH)
    q = np.where(np.eye(2)[coarse] > 0, 0.9, 0.1)
    unknown = np.full(TRUTH.shape, -1, dtype=np.int8)
    by_superpixels = coarse[photo.regions.map].astype(np.uint8)
    found = refine(photo, coarse, unknown, q, tables)
    assert overlap_of(found, TRUTH) > 0.98 > 0.9 > overlap_of(by_superpixels, TRUTH)


def test_the_outline_changes_nothing_where_there_is_none(photo: Photo) -> None:
    """All of one label stays so, but for the pixels that are marked."""
    q = np.tile([0.9, 0.1], (len(photo.regions), 1))
    tables = np.zeros((2, N_CELLS))
    unknown = np.full(TRUTH.shape, -1, dtype=np.int8)
    assert not refine(photo, np.zeros(len(q), dtype=np.int32), unknown, q, tables).any()
    everything = TRUTH.astype(np.int8)
    np.testing.assert_array_equal(refine(photo, np.zeros(len(q), dtype=np.int32), everything, q, tables), TRUTH)


def test_the_simulated_annotator_marks_the_largest_mistake() -> None:
    """In its middle, with the true label, and inside of it; void is nobody's mistake."""
    truth = np.zeros((100, 100), dtype=np.uint8)
    truth[10:50, 20:60] = 1
    truth[60:100] = VOID
    stroke = next_stroke(np.zeros_like(truth), truth)
    assert stroke.label == 1
    np.testing.assert_allclose(stroke.points[0], (40, 30), atol=1)
    assert (paint([stroke], truth.shape)[truth != 1] == -1).all()
    missed = truth.copy()
    missed[0:8, 0:90] = 1
    missed[40:45, 30:35] = 0
    missed[60:] = 1
    assert next_stroke(missed, truth).label == 0


def test_a_session_ends_when_the_mask_is_good_or_strokes_are_spent() -> None:
    """An answer that follows every stroke gets there; one that ignores them takes all strokes there are."""

    def painter(marks: list[Mark]) -> tuple[Answer, float]:
        mask = np.maximum(paint(marks, TRUTH.shape), 0).astype(np.uint8)
        return Answer(mask, np.zeros(TRUTH.shape, np.uint8), 0.1), 0.2

    def deaf(marks: list[Mark]) -> tuple[Answer, float]:
        return Answer(np.zeros_like(TRUTH), np.full(TRUTH.shape, 255, np.uint8), 0.1), 0.2

    assert annotate(painter, TRUTH, 0.1, 20).n_strokes(0.1, 20) < 20
    session = annotate(deaf, TRUTH, 0.9, 5)
    assert session.n_strokes(0.9, 5) == 5
    assert session.overlaps == [0.0] * 6
    np.testing.assert_allclose(session.wrong, TRUTH.mean())
    np.testing.assert_allclose(session.doubted, 0.5)


def test_the_cache_of_a_photo_may_be_shared(photo: Photo, tmp_path: Path) -> None:
    """Photos are equal whatever cache they have: it is asked for a segmenter's features alone."""
    again = prepare(photo.path, n_superpixels=60, cache=tmp_path)
    np.testing.assert_array_equal(again.regions.map, photo.regions.map)
    assert not list(tmp_path.iterdir())
