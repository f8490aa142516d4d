"""One lesson: a model of what a folder of masks holds now, its expected error, and its view of the other photos.

It is a program of its own, ``python -m perturbmap.annotate.lesson PHOTOS MASKS``, since a fit would take
the time of answers. All that it reads and writes is in the folder. What it is doing goes to stdout, a line of JSON
each; when its stdin ends, so does it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.base import clone

from perturbmap.annotate.folder import WORDS, AnnotationFolder
from perturbmap.annotate.pictures import THUMB_SIDE, shown_size
from perturbmap.images import (
    FeatureCache,
    ImageFeatures,
    Quality,
    Segmentation,
    Segmenter,
    SkippedImageWarning,
    TrainingSet,
    cross_validate,
)
from perturbmap.images.encoding import encode
from perturbmap.images.segmenter import read_masks, segmentation_predictor
from perturbmap.images.superpixels import stretch
from perturbmap.support.files import write_atomically
from perturbmap.support.progress import Progress

MAX_SIDE = 400  # pixels, at which photos are looked at, as `segment fit` does
MOST_FOR_WORDS = 40  # photos that the visual words are learned from
MOST_OTHERS = 10  # photos without a mask that a lesson learns from, which would take most of its time
N_FOLDS = 3
PAUSE = 2.0  # seconds between two writes of how doubtful photos are

Tell = Callable[[str, float], None]


@final
class Stages(Progress):
    """Tells the name of a stage, and how much of it is done."""

    def __init__(self, tell: Tell) -> None:
        self._tell, self._name = tell, ""

    def begin(self, name: str) -> None:
        self._name = name
        self._tell(name, 0.0)

    def advance(self, fraction: float, error: float | None = None, note: str = "") -> None:
        self._tell(self._name, fraction)


def learn(folder: AnnotationFolder, tell: Tell) -> None:
    """Learns from masks, boxes and some photos with neither; writes model.pm, then progress.json as it goes on.

    Without a mask there is no model, and photos are described for later. ValueError where masks do not show enough.
    """
    stages = Stages(tell)
    features = _features(folder, stages)
    segmenter = None
    if folder.accepted():
        known = _what_is_known(folder)
        segmenter = _learned_before(folder, features, known)
        if segmenter is None:
            segmenter, examples = _fit(folder, features, stages)
            segmenter.save(folder.model)
            tell("learned", 1.0)
            _check(folder, segmenter, examples, stages)
            folder.write_progress({**folder.progress(), "learned_from": known})
    _look_at_others(folder, features, segmenter, tell)


def _what_is_known(folder: AnnotationFolder) -> str:
    """A digest that changes with every mask that is written or taken back, and with the boxes."""
    files = {name: path.stat() for name, path in folder.accepted().items()}
    text = json.dumps([[[n, s.st_mtime_ns, s.st_size] for n, s in files.items()], folder.boxes()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _learned_before(folder: AnnotationFolder, features: ImageFeatures, known: str) -> Segmenter | None:
    """The model on disk, where it was learned from just this; None where it has to be learned."""
    if folder.progress().get("learned_from") != known:
        return None
    try:
        found = Segmenter.load(folder.model)
    except (OSError, ValueError):
        return None
    return found if found.features.fingerprint() == features.fingerprint() else None


def _features(folder: AnnotationFolder, stages: Stages) -> ImageFeatures:
    """The features with their words, which are learned once and kept: features then need not be computed again."""
    path = folder.masks / WORDS
    fresh = ImageFeatures(max_side=MAX_SIDE)
    try:
        kept = ImageFeatures.load(path)
        if kept.settings() == fresh.settings():
            return kept
    except (OSError, ValueError):
        pass
    names = folder.usable()
    some = np.unique(np.linspace(0, len(names) - 1, min(len(names), MOST_FOR_WORDS)).round().astype(int))
    fresh.fit([folder.path(names[n]) for n in some], progress=stages)
    fresh.save(path)
    return fresh


def _fit(folder: AnnotationFolder, features: ImageFeatures, stages: Stages) -> tuple[Segmenter, TrainingSet]:
    """The segmenter of this moment; of other photos, those with boxes come first, then evenly chosen ones."""
    masks = {folder.path(name): path for name, path in folder.accepted().items()}
    others = [name for name in folder.usable() if not folder.is_accepted(name)]
    boxes = folder.boxes() if folder.classes is None else {}
    boxed = [name for name in others if name in boxes][:MOST_OTHERS]
    plain = [name for name in others if name not in boxes]
    n_plain = min(len(plain), MOST_OTHERS - len(boxed))
    chosen = [plain[n] for n in np.linspace(0, len(plain) - 1, n_plain).round().astype(int)]
    examples = TrainingSet.load(
        features,
        [*masks, *(folder.path(name) for name in [*boxed, *chosen])],
        read_masks(masks, folder.classes, None, has_boxes=bool(boxed)),
        {folder.path(name): boxes[name] for name in boxed},
        cache=folder.cache,
        progress=stages,
        learn_words=False,
    )
    # A scale that is fitted to held-out masks would take three more fits, and those of the check nine.
    predictor = segmentation_predictor(n_labels=len(folder.names)).set_params(calibration=None)
    segmenter = Segmenter(features, predictor, folder.classes)
    return segmenter.learn(examples, progress=stages), examples


def _check(folder: AnnotationFolder, segmenter: Segmenter, examples: TrainingSet, stages: Stages) -> None:
    """Adds the expected error on new photos to progress.json: by cross-validation, from the masks alone."""
    masked = examples.take(np.flatnonzero(examples.is_masked))
    if len(masked.paths) < 2:
        return
    fresh = Segmenter(segmenter.features, clone(segmenter.predictor), segmenter.classes)
    try:
        found = cross_validate(fresh, masked, min(N_FOLDS, len(masked.paths)), progress=stages)
        mean, spread = Quality.mean(found)
    except ValueError:
        return  # in some fold, masks do not show enough to learn from
    progress = folder.progress()
    progress["errors"].append(
        {
            "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "n_masks": len(masked.paths),
            "balanced_error": round(mean.balanced_error, 5),
            "standard_error": round(float(np.nan_to_num(spread.balanced_error)), 5),
            "iou": round(mean.iou, 5),
        }
    )
    folder.write_progress(progress)


def _look_at_others(
    folder: AnnotationFolder, features: ImageFeatures, segmenter: Segmenter | None, tell: Tell
) -> None:
    """Describes each photo without a mask, and keeps what the model makes of it: its doubt, and a small mask."""
    cache = FeatureCache(folder.cache, features)
    names = [name for name in folder.usable() if not folder.is_accepted(name)]
    doubts = {name: value for name, value in folder.progress()["doubts"].items() if name in names}
    # What has been doubtful is looked at first: it is what will be shown next.
    names.sort(key=lambda name: -doubts.get(name, 0.0))
    written = time.monotonic()

    def write() -> None:
        folder.write_progress({**folder.progress(), "doubts": doubts})

    for n, name in enumerate(names):
        tell("looking at the other photos", n / len(names))
        path = folder.path(name)
        described = cache.load([path], progress=False).get(path)
        if segmenter is None or described is None:
            continue
        found = segmenter.predict(described)
        doubts[name] = round(doubt(found), 5)
        keep_thought(folder, name, found.mask)
        if time.monotonic() - written > PAUSE:
            write()
            written = time.monotonic()
    if segmenter is not None:
        write()


def doubt(found: Segmentation) -> float:
    """How wrong a segmentation expects to be: the mean over pixels of the probability that the label is wrong."""
    p = found.probabilities
    of_labels = p if found.classes is not None else np.stack([1 - p, p], axis=1)
    right = np.take_along_axis(of_labels, found.labels[:, None].astype(np.intp), axis=1)[:, 0]
    return float(np.average(1 - right, weights=np.bincount(found.regions.ravel(), minlength=len(right))))


def thought_file(folder: AnnotationFolder, name: str) -> Path:
    """The file of a small picture of what the model makes of a photo, or of its accepted mask."""
    folder.path(name)
    return folder.cache / "thoughts" / f"{name}.png"


def keep_thought(folder: AnnotationFolder, name: str, mask: NDArray[np.uint8]) -> None:
    """Writes a small picture of a mask, labels in their colours; background is transparent."""
    path = thought_file(folder, name)
    path.parent.mkdir(exist_ok=True)
    small = stretch(mask, shown_size((mask.shape[0], mask.shape[1]), THUMB_SIDE))
    table = np.array([[*colour, 255] for colour in folder.colours], dtype=np.uint8)
    if folder.classes is None:
        table[0] = 0
    content = encode(Image.fromarray(table[small]), "PNG")
    write_atomically(path, lambda file: file.write(content))


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def _give_way() -> None:
    """Leaves a core to answers, where there is more than one, and lets other programs go first."""
    if hasattr(os, "nice"):
        os.nice(10)
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[1:] or cores)


def _say(**line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    """The program: politely slow, and silent but for its lines."""
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    _give_way()
    photos, masks = sys.argv[1:]
    told: list[Any] = ["", 0.0]

    def tell(stage: str, fraction: float) -> None:
        if stage != told[0] or fraction - told[1] > 0.02:
            told[:] = [stage, fraction]
            _say(stage=stage, fraction=round(fraction, 3))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("ignore", SkippedImageWarning)
        try:
            learn(AnnotationFolder(photos, masks), tell)
        except (ValueError, OSError) as error:
            _say(problem=str(error))


if __name__ == "__main__":
    main()
