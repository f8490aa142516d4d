"""From images with masks, boxes or nothing to a program that cuts out what the masks show."""

from __future__ import annotations

import copy
import os
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from perturbmap.estimator import FitInterruptedWarning, StructuredPredictor
from perturbmap.images.class_masks import AnyMasks, ClassMasks
from perturbmap.images.classes import Classes
from perturbmap.images.features import DescribedImage, ImageFeatures
from perturbmap.images.masks import Masks
from perturbmap.images.reading import Path_, image_size
from perturbmap.images.superpixels import paint, stretch
from perturbmap.images.training_set import TrainingSet
from perturbmap.inference import MarginalMethod
from perturbmap.inference.decoding import Decoding
from perturbmap.models import GraphModel
from perturbmap.objectives import MarginalLogLikelihood
from perturbmap.potentials import Floats, Labels
from perturbmap.solvers import DoubleSGD
from perturbmap.structures import BinaryGraph, Graph
from perturbmap.support import archive
from perturbmap.support.damage import shown
from perturbmap.support.progress import Progress, as_progress
from perturbmap.task_losses import BalancedHamming

KIND = "segmenter"
# Fewer masks than this are not calibrated by: there would be next to nothing in a fold.
FEW_MASKS = 6
# Of a fit of more than two labels, at least, however few images there are.
MANY_LABELS_STEPS = 1000


def segmentation_predictor(l2: float = 3e-3, seed: int | None = 0, n_labels: int = 2) -> StructuredPredictor:
    """The predictor of a `Segmenter`: what is learned from superpixels, how, and how a labelling is chosen.

    l2 : strength of the penalty on the weights; a larger one suits fewer masks. The default is near that of the horse
        experiment
    seed : the seed of learning; None gives another fit each time
    n_labels : the number of labels: 2 for background and foreground

    It learns for the balanced loss (`BalancedHamming`), which does not let a small foreground go. The labelling of
    least expected loss is better than that of the highest score, by far where masks are few, and better still where
    the scale of the scores is fitted to held-out masks.

    More than two labels are for `Graph`, which is approximate. Each step takes longer there: so there are fewer
    steps, there is no calibration, and the best labelling is what is found (docs/decisions.md, 48).
    """
    is_two = n_labels == 2
    return StructuredPredictor(
        GraphModel(),
        BinaryGraph() if is_two else Graph(),
        MarginalLogLikelihood(BalancedHamming()),
        l2=l2,
        solver=None if is_two else DoubleSGD(min_steps=MANY_LABELS_STEPS),
        unlabelled_weight=3.0,
        calibration=3 if is_two else None,
        decoding=Decoding.LOSS_AWARE if is_two else Decoding.MAP,
        classes=list(range(n_labels)),
        random_state=seed,
    )


@final
@dataclass(frozen=True, eq=False)
class Segmentation:
    """What a `Segmenter` finds in an image, for each of its D superpixels.

    regions : (height, width), the superpixel of each pixel of the image
    labels : (D,), 1 for the superpixels that are foreground, else 0; with classes, the label of each superpixel
    probabilities : (D,), the probability of foreground; with classes, (D, n_classes), that of each class
    classes : what the labels stand for; None for background and foreground
    """

    regions: Labels
    labels: Labels
    probabilities: Floats
    classes: Classes | None = None

    @property
    def n_labels(self) -> int:
        """The number of labels: two for background and foreground."""
        return 2 if self.classes is None else len(self.classes)

    @property
    def mask(self) -> NDArray[np.uint8]:
        """The mask of the image, (height, width), 1 for foreground; with classes, the label of each pixel."""
        return paint(self.regions, self.labels).astype(np.uint8)

    @property
    def probability(self) -> NDArray[np.float32]:
        """The probability of foreground at each pixel, (height, width); with classes, of the class in the mask."""
        p = self.probabilities
        shown = (
            p if self.classes is None else np.take_along_axis(p, self.labels[:, None].astype(np.intp), axis=1)[:, 0]
        )
        return paint(self.regions, shown.astype(np.float32))

    @property
    def foreground_share(self) -> float:
        """The share of the area that is foreground."""
        return self._mean(self.labels == 1)

    @property
    def class_shares(self) -> list[float]:
        """The share of the area of each label, in their order."""
        return [self._mean(self.labels == k) for k in range(self.n_labels)]

    @property
    def uncertainty(self) -> float:
        """The mean entropy of a pixel's label in bits: 0 is certain; with two labels, 1 means nothing is known."""
        if self.classes is not None:
            q = self.probabilities.clip(1e-12, 1.0)
            return self._mean(-(q * np.log2(q)).sum(axis=1))
        p = self.probabilities.clip(1e-12, 1 - 1e-12)
        return self._mean(-p * np.log2(p) - (1 - p) * np.log2(1 - p))

    def _mean(self, values: Any) -> float:
        return float(np.average(values, weights=np.bincount(self.regions.ravel(), minlength=len(self.labels))))


@final
class _Solves:
    """Moves a bar through the solves of a fit, one after another."""

    def __init__(self, n_solves: int, bar: Progress) -> None:
        self._n_solves, self._bar = n_solves, bar
        self._n_done, self._last = 0, 0

    def __call__(self, at: dict[str, Any]) -> None:
        """See the callback of `StructuredPredictor.fit`."""
        self._n_done += at["iteration"] < self._last
        self._last = at["iteration"]
        self._bar.advance(min(1.0, (self._n_done + self._last / at["n_iter"]) / self._n_solves))


@final
class Segmenter:
    """Learns foreground from masks, and also from boxes and from images without either; then finds it in others.

    features : how images become examples; its vocabularies are learned from the images of `fit`. By default
        `ImageFeatures` of images that are reduced to 400 pixels of the longer side
    predictor : how foreground is learned; `segmentation_predictor` by default. With fewer than 6 masks it is not
        calibrated
    classes : what masks show, where it is not foreground and background; boxes are for foreground alone
    """

    def __init__(
        self,
        features: ImageFeatures | None = None,
        predictor: StructuredPredictor | None = None,
        classes: Classes | None = None,
    ) -> None:
        n_labels = 2 if classes is None else len(classes)
        self.features = ImageFeatures(max_side=400) if features is None else features
        self.predictor = segmentation_predictor(n_labels=n_labels) if predictor is None else predictor
        self.classes = classes

    def fit(
        self,
        images: Iterable[Path_],
        masks: Mapping[Any, Path_],
        boxes: Mapping[Any, Any] | None = None,
        *,
        mask_threshold: float | None = None,
        cache: str | os.PathLike[str] | None = None,
        n_jobs: int = 1,
        progress: bool | Progress = True,
    ) -> Segmenter:
        """Learns from ``images``, of which some have a mask and some have boxes; see `TrainingSet` and `learn`.

        masks : a dict from an image's path to that of its mask file; the image is as viewers show it
        boxes : a dict from an image's path to its boxes around foreground, see `labels_from_boxes`
        mask_threshold : the grey from which on a pixel of a mask is foreground, see `Masks`
        cache : a folder that keeps features for the next time; without it, they are kept until the end of the fit
        n_jobs : processes that compute features; -1 is one per core

        Ctrl-C leaves the segmenter as it was.
        """
        usable = read_masks(masks, self.classes, mask_threshold, has_boxes=bool(boxes))
        with tempfile.TemporaryDirectory() as temporary:
            examples = TrainingSet.load(
                copy.copy(self.features),
                images,
                usable,
                {Path(path): entries for path, entries in (boxes or {}).items()},
                cache=temporary if cache is None else cache,
                n_jobs=n_jobs,
                progress=progress,
            )
            return self.learn(examples, progress=progress)

    def learn(self, examples: TrainingSet, *, progress: bool | Progress = True) -> Segmenter:
        """Learns from images that are described already: the second half of `fit`."""
        bar = as_progress(progress)
        bar.begin("learning")
        predictor = clone(self.predictor)
        if examples.is_masked.sum() < FEW_MASKS:
            predictor.set_params(calibration=None)
        n_solves = (predictor.calibration or 0) + (1 if examples.is_masked.all() else 2)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", FitInterruptedWarning)
                fitted = predictor.fit(examples.X, examples.y, callback=_Solves(n_solves, bar))
        except FitInterruptedWarning:
            raise KeyboardInterrupt from None
        finally:
            if bar is not progress:
                bar.close()
        fitted.set_params(calibration=self.predictor.calibration)  # for the next time, with more masks
        self.features, self.predictor = examples.features, fitted
        return self

    def predict(
        self,
        image: Path_ | DescribedImage,
        shape: tuple[int, int] | None = None,
        *,
        method: MarginalMethod | None = None,
    ) -> Segmentation:
        """Foreground, or classes, and probabilities, on the pixels of an image file, or of an image described before.

        shape : (height, width) of the answer; by default the file's, or that in which the image was described
        method : how probabilities are found, as in `StructuredPredictor.predict_marginals`; the foreground does not
            depend on it
        """
        if not isinstance(image, DescribedImage):
            size = image_size(image) if shape is None else shape
            return self.predict(self.features.describe(image), size, method=method)
        (q,) = self.predictor.predict_marginals([image.example], method=method)
        is_same = method is None and self.predictor.decoding_calibration_ is None
        (labels,) = self.predictor.predict([image.example], marginals=[q] if is_same else None)
        regions = image.superpixels.map if shape is None else stretch(image.superpixels.map, shape)
        probabilities = q[:, 1] if self.classes is None else q
        return Segmentation(regions, labels.astype(np.int32), probabilities, self.classes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes vocabularies, weights and settings to one file, atomically, without pickle."""
        about, arrays = {}, {}
        for part in ("features", "predictor"):
            about[part], values = getattr(self, part).contents()
            arrays.update({f"{part}.{name}": array for name, array in values.items()})
        if self.classes is not None:
            about["classes"] = self.classes.to_json()
        archive.write(path, KIND, about, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Segmenter:
        """The segmenter that `save` wrote; ValueError for a damaged, truncated or foreign file."""
        return archive.load(path, KIND, ["features", "predictor"], [], cls._from_contents)

    @classmethod
    def _from_contents(cls, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Segmenter:
        def values(part: str) -> dict[str, NDArray[Any]]:
            return {name.removeprefix(f"{part}."): v for name, v in arrays.items() if name.startswith(f"{part}.")}

        features = ImageFeatures.from_contents(about["features"], values("features"))
        predictor = StructuredPredictor.from_contents(about["predictor"], values("predictor"))
        if predictor.n_features_in_ != features.n_features:
            raise ValueError(f"{predictor.n_features_in_} weights for {features.n_features} features.")
        classes = Classes.from_json(about["classes"]) if "classes" in about else None
        if predictor.classes_.tolist() != list(range(2 if classes is None else len(classes))):
            what = "background and foreground" if classes is None else f"those of {len(classes)} classes"
            raise ValueError(f"its labels are {shown(predictor.classes_.tolist())}, not {what}.")
        return cls(features, predictor, classes)


def read_masks(
    files: Mapping[Any, Path_], classes: Classes | None, mask_threshold: float | None, *, has_boxes: bool
) -> AnyMasks:
    """The masks of images, of classes or of foreground; ValueError where boxes or a threshold are for classes."""
    if classes is None:
        return Masks(files, mask_threshold=mask_threshold)
    if mask_threshold is not None:
        raise ValueError("mask_threshold cuts masks into foreground and background: with classes, leave it out.")
    if has_boxes:
        raise ValueError("boxes are those of a foreground: with classes, leave them out.")
    return ClassMasks(files, classes)
