"""What annotation leaves on disk: files that a person and ``perturbmap segment`` read; and what is learned there."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("skimage", reason='needs pip install "perturbmap[images]"')

from PIL import Image

from perturbmap.annotate import Box, Mark, Stroke, lesson, marks_from_json
from perturbmap.annotate.export import bounding_box, coco, run_lengths, write_zip
from perturbmap.annotate.folder import AnnotationFolder, UnknownPhotoError, boxes_of
from perturbmap.annotate.learner import Learner
from perturbmap.annotate.pictures import LARGEST_SIDE
from perturbmap.images import Classes, Segmentation, Segmenter

from .annotated import keep_few_words, make_photos, strokes, truth
from .command import run
from .scenes import coarse, fit_small, quick

CLASSES = Classes({"grass": 1, "cow": 2, "sky": 7}, void=(0, 255))


@pytest.fixture
def folder(tmp_path: Path) -> AnnotationFolder:
    return AnnotationFolder(make_photos(tmp_path))


def test_marks_masks_and_boxes_are_found_again(folder: AnnotationFolder) -> None:
    """By a folder that is opened anew; a mask that is taken back is gone, and its marks are not."""
    marks = (*marks_from_json(strokes(0)), Box(10.2, 4, 60, 50.5))
    folder.write_marks("s0", marks)
    folder.write_mask("s0", truth(0))
    again = AnnotationFolder(folder.photos)
    assert again.masks == folder.photos.with_name("photos-masks")
    assert again.marks("s0") == marks
    assert list(again.accepted()) == ["s0"]
    np.testing.assert_array_equal(again.mask("s0"), truth(0))
    assert again.boxes() == {"s0": [[11, 5, 60, 51]]}
    again.remove_mask("s0")
    again.write_marks("s0", marks[:-1])
    assert not again.accepted()
    assert again.boxes() == {}
    assert again.marks("s0") == marks[:-1]
    again.write_marks("s0", ())
    assert not again.has_marks("s0")


def test_the_boxes_of_other_photos_stay(folder: AnnotationFolder) -> None:
    """Those that someone has written by hand, of a photo that nobody has marked here."""
    (folder.masks / "boxes.json").write_text('{"s1": [[1, 2, 30, 40]]}')
    folder.write_marks("s0", [Box(0, 0, 5, 5)])
    folder.write_marks("s0", [])
    assert folder.boxes() == {"s1": [[1, 2, 30, 40]]}


def test_boxes_are_cut_off_at_the_edges_of_the_photo() -> None:
    """In pixels that are counted from 1; what is outside is no box."""
    boxes = [Box(-5, -5, 200, 200), Box(300, 0, 400, 10), Box(2.5, 3.0, 4.5, 6.0)]
    marks: list[Mark] = [*boxes, Stroke(1, 3.0, ((1.0, 1.0),))]
    assert boxes_of(marks, (80, 100)) == [[1, 1, 100, 80], [3, 4, 5, 6]]


def test_segment_fit_reads_the_folder(tmp_path: Path) -> None:
    """Masks, and boxes of a photo without one, by the command as it is."""
    folder = AnnotationFolder(make_photos(tmp_path))
    for n in range(2):
        folder.write_mask(f"s{n}", truth(n))
    folder.write_marks("s2", [Box(10, 10, 90, 80)])
    folder.masks.rename(tmp_path / "masks")
    done = fit_small(tmp_path, "--boxes", tmp_path / "masks" / "boxes.json")
    assert done.code == 0, done.stderr
    assert "2 images with a mask, 1 with boxes, 1 with neither." in done.stdout


def test_classes_are_kept_with_the_masks(tmp_path: Path) -> None:
    """The file beside the masks is the one that ``segment`` looks for, and other classes are refused afterwards."""
    photos = make_photos(tmp_path, 1)
    labels = truth(0) + 2 * (np.arange(84) < 4)[:, None].astype(np.uint8)
    AnnotationFolder(photos, classes=CLASSES).write_mask("s0", labels)
    again = AnnotationFolder(photos)
    assert again.names == ("grass", "cow", "sky")
    np.testing.assert_array_equal(again.mask("s0"), labels)
    assert set(np.unique(np.asarray(Image.open(again.masks / "s0.png")))) == {1, 2, 7}
    with pytest.raises(ValueError, match="classes must be those of"):
        AnnotationFolder(photos, classes=Classes({"a": 1, "b": 2}))


def test_a_folder_of_a_foreground_takes_no_classes(folder: AnnotationFolder) -> None:
    """Since its masks would mean something else."""
    folder.write_mask("s0", truth(0))
    with pytest.raises(ValueError, match="whose masks show a foreground"):
        AnnotationFolder(folder.photos, classes=CLASSES)


def test_broken_photos_are_listed_with_the_reason(tmp_path: Path) -> None:
    """And the others can be used."""
    photos = make_photos(tmp_path, 2)
    (photos / "bad.jpg").write_bytes(b"no image")
    Image.new("RGB", (8, 200)).save(photos / "thin.png")
    folder = AnnotationFolder(photos)
    assert folder.usable() == ["s0", "s1"]
    assert "no image" in folder.broken["bad"]
    assert "smaller than 16" in folder.broken["thin"]


@pytest.mark.parametrize("name", ["../photos/s0", "/etc/passwd", "s0.png", "", "..", "S0"])
def test_names_are_looked_up(folder: AnnotationFolder, name: str) -> None:
    """Whatever is not in the list is no photo, and no file is touched."""
    for ask in (folder.path, folder.marks, folder.mask, folder.is_accepted, folder.remove_mask):
        with pytest.raises(UnknownPhotoError):
            ask(name)


def test_a_damaged_file_of_marks_is_named(folder: AnnotationFolder) -> None:
    """And is neither taken for no marks nor written over."""
    file = folder.masks / "s0.marks.json"
    file.write_text('[{"label": 7}]')
    with pytest.raises(ValueError, match=r"s0\.marks\.json cannot be read .* Mend it or remove it"):
        folder.write_marks("s0", ())
    assert file.read_text() == '[{"label": 7}]'


def test_what_is_damaged_in_progress_is_left_out(folder: AnnotationFolder) -> None:
    """It is a record, and nothing but the order of photos depends on it."""
    good = {"n_masks": 2, "balanced_error": 0.2, "standard_error": 0.1, "iou": 0.5}
    for text in ("[]", "{", '{"errors": 1, "doubts": []}', '{"errors": [[], {"n_masks": 1}], "doubts": {"s0": "x"}}'):
        (folder.masks / "progress.json").write_text(text)
        assert folder.progress() == {"errors": [], "doubts": {}}
    (folder.masks / "progress.json").write_text(
        json.dumps({"errors": [good, {**good, "iou": float("nan")}], "doubts": {"s0": float("inf"), "s1": 0.5}})
    )
    assert folder.progress() == {"errors": [good], "doubts": {"s1": 0.5}}


def test_masks_of_another_format_are_refused(folder: AnnotationFolder) -> None:
    """Before a second mask of the same photo is written beside them."""
    Image.new("L", (100, 84)).save(folder.masks / "s1.bmp")
    with pytest.raises(ValueError, match=r"holds s1\.bmp, but masks that are made here are PNG"):
        AnnotationFolder(folder.photos)


def test_a_folder_is_held_by_one_process(folder: AnnotationFolder) -> None:
    """Which another finds out, and is told what to do."""
    pytest.importorskip("fcntl", reason="this system has no locks of this kind")
    folder.hold()
    with pytest.raises(ValueError, match="in use by another perturbmap annotate"):
        AnnotationFolder(folder.photos).hold()


def test_a_mask_of_another_size_is_refused(folder: AnnotationFolder) -> None:
    """Since ``segment`` would stretch it."""
    with pytest.raises(ValueError, match=r"mask must have the size of the photo, \(84, 100\)"):
        folder.write_mask("s0", truth(0)[1:])


# Export.


def decode(counts: list[int], size: list[int]) -> np.ndarray:
    """COCO's runs as a mask, by their definition."""
    flat = [value for n, count in enumerate(counts) for value in [n % 2] * count]
    return np.array(flat, dtype=np.uint8).reshape(size[::-1]).T


def test_coco_runs_are_the_masks(folder: AnnotationFolder) -> None:
    """Decoded, they are the masks on disk, with their areas and boxes; there is one category."""
    for n in (0, 2):
        folder.write_mask(f"s{n}", truth(n))
    found = coco(folder)
    assert [image["file_name"] for image in found["images"]] == ["s0.png", "s2.png"]
    assert found["categories"] == [{"id": 1, "name": "foreground", "supercategory": ""}]
    for annotation, n in zip(found["annotations"], (0, 2), strict=True):
        mask = decode(annotation["segmentation"]["counts"], annotation["segmentation"]["size"])
        np.testing.assert_array_equal(mask, truth(n))
        left, top, width, height = annotation["bbox"]
        assert mask[top : top + height, left : left + width].sum() == annotation["area"] == truth(n).sum()


def test_runs_begin_with_background(rng: np.random.Generator) -> None:
    """With a run of length zero, where the first pixel is inside; for any mask."""
    for shape in [(1, 1), (1, 7), (5, 1), (6, 9)]:
        for share in (0.0, 0.5, 1.0):
            mask = rng.random(shape) < share
            np.testing.assert_array_equal(decode(run_lengths(mask), list(shape)), mask)
    assert bounding_box(np.eye(3, dtype=bool)[:, 1:]) == [0, 1, 2, 2]


def test_the_zip_has_everything(tmp_path: Path) -> None:
    """Masks as on disk, the classes, and a category for each of them."""
    folder = AnnotationFolder(make_photos(tmp_path, 2), classes=CLASSES)
    folder.write_mask("s1", truth(1))
    file = io.BytesIO()
    assert write_zip(folder, file) == 1
    with zipfile.ZipFile(file) as archive:
        assert sorted(archive.namelist()) == ["coco.json", "masks/classes.json", "masks/s1.png"]
        assert archive.read("masks/s1.png") == (folder.masks / "s1.png").read_bytes()
        found = json.loads(archive.read("coco.json"))
    assert [one["name"] for one in found["categories"]] == ["grass", "cow", "sky"]
    assert [one["category_id"] for one in found["annotations"]] == [1, 2]


# Lessons.


@pytest.fixture
def quick_lesson(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lesson with few words and few steps."""
    monkeypatch.setattr(
        lesson, "ImageFeatures", type("Few", (), {"__new__": lambda cls, **_: coarse(), "load": coarse})
    )
    monkeypatch.setattr(lesson, "segmentation_predictor", lambda n_labels: quick(n_labels=n_labels))


def test_a_lesson_leaves_a_model_its_error_and_the_doubts(folder: AnnotationFolder, quick_lesson: None) -> None:
    """All on disk; a second one from the same masks is not learned again, and one more mask is."""
    stages: list[str] = []

    def learn() -> list[str]:
        stages.clear()
        lesson.learn(folder, lambda stage, fraction: stages.append(stage))
        return stages

    assert "learned" not in learn()
    assert not folder.model.exists()
    for n in range(2):
        folder.write_mask(f"s{n}", truth(n))
    assert "learned" in learn()
    progress = folder.progress()
    assert [one["n_masks"] for one in progress["errors"]] == [2]
    assert 0 <= progress["errors"][0]["balanced_error"] <= 1
    assert sorted(progress["doubts"]) == ["s2", "s3"]
    assert all(lesson.thought_file(folder, name).is_file() for name in ("s2", "s3"))
    found = Segmenter.load(folder.model).predict(folder.path("s2"))
    assert progress["doubts"]["s2"] == pytest.approx(lesson.doubt(found), abs=1e-4)
    assert "learned" not in learn()
    folder.write_mask("s2", truth(2))
    assert "learned" in learn()
    assert [one["n_masks"] for one in folder.progress()["errors"]] == [2, 3]
    assert sorted(folder.progress()["doubts"]) == ["s3"]


def test_doubt_is_the_share_of_pixels_expected_to_be_wrong() -> None:
    """Superpixels count by their area; with classes, too."""
    regions = np.array([[0, 0, 0, 1]], dtype=np.int32)
    labels = np.array([1, 0], dtype=np.int32)
    two = Segmentation(regions, labels, np.array([0.9, 0.4]))
    assert lesson.doubt(two) == pytest.approx((3 * 0.1 + 0.4) / 4)
    three = np.array([[0.2, 0.7, 0.1], [0.5, 0.25, 0.25]])
    assert lesson.doubt(Segmentation(regions, labels, three, CLASSES)) == pytest.approx((3 * 0.3 + 0.5) / 4)


def test_masks_of_one_label_teach_nothing(folder: AnnotationFolder, quick_lesson: None) -> None:
    """Which is said."""
    folder.write_mask("s0", np.zeros_like(truth(0)))
    with pytest.raises(ValueError, match="masks must show some foreground"):
        lesson.learn(folder, lambda stage, fraction: None)


def test_doubtful_photos_come_first(folder: AnnotationFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then those that the model has not seen, those that are done, and broken ones."""
    folder.write_progress({"errors": [], "doubts": {"s3": 0.4, "s1": 0.1}})
    learner = Learner(folder)
    assert learner.order() == ["s3", "s1", "s0", "s2"]
    folder.write_mask("s3", truth(3))
    folder.broken["s1"] = "it is"
    assert learner.order() == ["s0", "s2", "s3", "s1"]
    learner.close()


def test_lessons_are_given_in_another_process(folder: AnnotationFolder) -> None:
    """Its model is taken up; what cannot be learned is told, and the next mask is learned from."""
    keep_few_words(folder.photos)
    learner = Learner(folder)
    folder.write_mask("s0", np.zeros_like(truth(0)))
    learner.ask()
    wait(lambda: "problem" in learner.status)
    assert "masks must show some foreground" in learner.status["problem"]
    assert learner.model is None
    folder.write_mask("s0", truth(0))
    learner.ask()
    wait(lambda: learner.model is not None)
    learner.ask()
    learner.close()
    assert folder.model.is_file()
    assert not list(folder.masks.glob("*.tmp"))


def test_a_lesson_ends_with_who_began_it(folder: AnnotationFolder) -> None:
    """A server that is killed leaves no process behind: the end of stdin is its end."""
    command = [sys.executable, "-m", "perturbmap.annotate.lesson", str(folder.photos), str(folder.masks)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "stage" in json.loads(process.stdout.readline())
        process.communicate(timeout=20)  # which closes stdin
        assert process.returncode == 1


def wait(is_so: object, seconds: float = 120.0) -> None:
    """Until something is so; fails after a while."""
    assert callable(is_so)
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.05)


# The documentation.


def test_the_page_of_the_documentation_has_the_limits_of_the_code() -> None:
    """Whoever changes one finds the other."""
    text = (Path(__file__).parents[1] / "docs" / "annotate.md").read_text(encoding="utf-8")
    for said in (
        f"beyond {LARGEST_SIDE:,} pixels",
        f"at most {lesson.MOST_FOR_WORDS} photos",
        "three folds",
        "at most ten\nphotos without a mask",
    ):
        assert said in text
    assert (lesson.N_FOLDS, lesson.MOST_OTHERS) == (3, 10)


# The command.


def test_the_command_names_what_is_wrong(tmp_path: Path) -> None:
    """A port that is taken, a folder without images, classes that are none: one line each, no traceback."""
    pytest.importorskip("uvicorn", reason='needs pip install "perturbmap[annotate]"')
    (tmp_path / "empty").mkdir()
    done = run("annotate", tmp_path / "empty", "--no-browser")
    assert done.code == 1
    assert "holds no image files" in done.stderr
    photos = make_photos(tmp_path, 1)
    done = run("annotate", photos, "--no-browser", "--host", "192.0.2.1")
    assert done.code == 2
    assert "cannot be listened at" in done.stderr
    (tmp_path / "classes.json").write_text('{"one": 1}')
    done = run("annotate", photos, "--no-browser", "--classes", tmp_path / "classes.json")
    assert done.code == 1
    assert "classes must be from 2" in done.stderr
