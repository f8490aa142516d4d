"""Good files and folders of every kind that is read: small, and always the same. Others spoil copies of them."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fuzz.work import words
from perturbmap import (
    DoubleSGD,
    Example,
    MarginalLogLikelihood,
    Matching,
    MatchingModel,
    PlainStep,
    StructuredPredictor,
    uai,
)
from perturbmap.annotate import Box, Stroke
from perturbmap.annotate.folder import AnnotationFolder
from perturbmap.images import FeatureCache, ImageFeatures, Segmenter, segmentation_predictor
from perturbmap.images.folders import list_images
from tests.factor_graphs import random_binary_graph, random_forest
from tests.horse_folder import make_folder
from tests.stored import cutter, graphs, make_sparse_store, make_store, sentences, tagger

N_IMAGES = 4


def make_uai(folder: Path) -> None:
    """Two forests and two graphs with cycles, with evidence."""
    rng = np.random.default_rng(0)
    for n in range(4):
        graph, evidence = random_forest(rng) if n % 2 else (random_binary_graph(rng), {0: 1})
        (folder / str(n)).mkdir(parents=True)
        uai.write_factors(folder / str(n) / "model.uai", graph)
        observed = " ".join(f"{v} {label}" for v, label in evidence.items())
        (folder / str(n) / "model.evid").write_text(f"{len(evidence)} {observed}\n")


def matched() -> tuple[list[Example], list[np.ndarray]]:
    rng = np.random.default_rng(1)
    X = [Example(rng.normal(size=(3, 2)), label_features=rng.normal(size=(4, 2))) for _ in range(6)]
    return X, [rng.permutation(4)[:3] for _ in X]


def predictors() -> dict[str, tuple[StructuredPredictor, Any, Any]]:
    """Estimators with what they are fitted to, by name."""
    quick: dict[str, Any] = {"solver": DoubleSGD(n_passes=2), "n_perturbations": 4, "random_state": 0}
    matching = StructuredPredictor(MatchingModel(), Matching(), MarginalLogLikelihood(), **quick)
    return {
        "words": (StructuredPredictor(calibration=2, **quick), *words(np.random.default_rng(0))),
        "graphs": (cutter(), *graphs(12)),
        "sentences": (tagger(), *sentences(12)),
        "matchings": (matching, *matched()),
    }


def make_models(folder: Path) -> None:
    """The file of each estimator."""
    folder.mkdir()
    for name, (predictor, X, y) in predictors().items():
        predictor.fit(X, y).save(folder / f"{name}.pm")


def make_checkpoints(folder: Path) -> None:
    """Of each estimator, a checkpoint from the middle of its fit, and the last one."""
    for name, (predictor, X, y) in predictors().items():
        middle, end = (folder / f"{name}-{when}" / "fit.pm" for when in ("middle", "end"))
        middle.parent.mkdir(parents=True)
        end.parent.mkdir()

        def keep(_: Any, middle: Path = middle, end: Path = end) -> None:
            if end.exists() and not middle.exists():
                shutil.copyfile(end, middle)

        predictor.fit(X, y, checkpoint=end, checkpoint_seconds=0, callback=keep)


def make_images(folder: Path) -> None:
    """Images, masks of all but the last, boxes and classes: ``images``, ``masks``, ``boxes.json``, ``named.json``."""
    made = folder.with_name("made")
    make_folder(made, {"small": N_IMAGES})
    folder.mkdir()
    for kind in ("images", "masks"):
        (made / kind / "small").rename(folder / kind)
    (made / "boxes.json").rename(folder / "boxes.json")
    (folder / "masks" / f"small{N_IMAGES - 1}.png").unlink()
    (folder / "named.json").write_text('{"ground": 0, "horse": 1, "rim": 255, "void": [2]}')
    shutil.rmtree(made)


def few_words(n_superpixels: int = 20, **settings: Any) -> ImageFeatures:
    """With few words, which take little time to learn."""
    return ImageFeatures(
        n_superpixels,
        **{"n_position_words": 4, "n_colour_words": 8, "n_sift_words": 16, "n_samples": 2000, **settings},
    )


def few_steps(l2: float = 3e-3, seed: int = 0, n_labels: int = 2) -> StructuredPredictor:
    """The recipe of the segmenter, in less time."""
    predictor = segmentation_predictor(l2, seed, n_labels)
    predictor.set_params(solver=DoubleSGD(n_passes=4, step=PlainStep(0.5)), n_perturbations=4)
    return predictor


def make_segmenter(folder: Path, images: Path) -> None:
    """Learned from the images of `make_images`: ``segmenter.pm``, ``features.pm``, and a ``cache`` of features."""
    folder.mkdir()
    files = list_images(images / "images")
    masks = {path: images / "masks" / path.name for stem, path in files.items() if stem != f"small{N_IMAGES - 1}"}
    segmenter = Segmenter(few_words(), few_steps()).fit(files.values(), masks, progress=False)
    segmenter.save(folder / "segmenter.pm")
    segmenter.features.save(folder / "features.pm")
    FeatureCache(folder / "cache", segmenter.features).load(files.values(), progress=False)


def make_annotated(folder: Path, images: Path) -> None:
    """Two of the images of `make_images` as ``photos``; annotating one leaves the rest in ``photos-masks``."""
    (folder / "photos").mkdir(parents=True)
    for n in range(2):
        shutil.copy(images / "images" / f"small{n}.png", folder / "photos")
    annotated = AnnotationFolder(folder / "photos")
    annotated.write_marks("small0", [Stroke(1, 3.0, ((40.0, 40.0), (50.0, 40.0))), Box(10.0, 10.0, 80.0, 70.0)])
    annotated.write_mask("small0", np.asarray(Image.open(images / "masks" / "small0.png")))
    error = {"n_masks": 2, "balanced_error": 0.1, "standard_error": 0.01, "iou": 0.8}
    annotated.write_progress({"errors": [error], "doubts": {"small1": 0.2}})


def make_voc(folder: Path) -> None:
    """A download of PASCAL VOC2012, of three images, each of a horse."""
    made = folder.with_name("horses")
    make_folder(made, {"small": 3})
    for name in ("JPEGImages", "Annotations", "SegmentationClass", "ImageSets/Segmentation", "ImageSets/Action"):
        (folder / name).mkdir(parents=True)
    for stem, boxes in json.loads((made / "boxes.json").read_text()).items():
        Image.open(made / "images" / "small" / f"{stem}.png").save(folder / "JPEGImages" / f"{stem}.jpg")
        mask = np.asarray(Image.open(made / "masks" / "small" / f"{stem}.png"))
        Image.fromarray((13 * mask).astype(np.uint8)).save(folder / "SegmentationClass" / f"{stem}.png")
        named = zip(("xmin", "ymin", "xmax", "ymax"), boxes[0], strict=True)
        sides = "".join(f"<{side}>{x}</{side}>" for side, x in named)
        (folder / "Annotations" / f"{stem}.xml").write_text(
            f"<annotation><object><name>horse</name><bndbox>{sides}</bndbox></object></annotation>"
        )
    (folder / "ImageSets" / "Segmentation" / "train.txt").write_text("small0\nsmall1\n")
    (folder / "ImageSets" / "Segmentation" / "val.txt").write_text("small2\n")
    (folder / "ImageSets" / "Action" / "ridinghorse_trainval.txt").write_text("small2 1\nsmall0 -1\n")
    shutil.rmtree(made)


def make_samples(folder: Path) -> None:
    """All of them, in folders of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short fits say that they are short
        make_uai(folder / "uai")
        make_models(folder / "models")
        make_checkpoints(folder / "checkpoints")
        make_store(folder / "store", n=10, shards=2)
        make_sparse_store(folder / "sparse store")
        make_images(folder / "pictures")
        make_segmenter(folder / "segmenter", folder / "pictures")
        make_annotated(folder / "annotated", folder / "pictures")
