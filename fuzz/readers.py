"""What is read from files, how each is spoilt, and how it is read and used."""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import mutations
from fuzz.mutations import Generator, choose
from fuzz.samples import predictors
from perturbmap import Decoding, Store, StructuredPredictor, uai
from perturbmap.annotate import paint
from perturbmap.annotate.folder import AnnotationFolder
from perturbmap.images import (
    Classes,
    ClassMasks,
    FeatureCache,
    ImageError,
    ImageFeatures,
    Masks,
    Segmenter,
    labels_from_boxes,
    labels_from_mask,
    read_image,
)
from perturbmap.images.folders import list_images, read_boxes
from tests.stored import tagger


@dataclass(frozen=True)
class Reader:
    """A kind of files.

    pattern : which of the samples may be spoilt, files or folders
    spoil : damages or forges one, in place
    read : reads and uses it, and returns arrays of numbers that it decides; the second path is that of all samples
    is_checked : whether there are checksums, so that damage is always noticed
    """

    pattern: str
    spoil: Callable[[Generator, Path], None]
    read: Callable[[Path, Path], list[Any]]
    is_checked: bool = True


def content(mutate: Callable[[Generator, bytes], bytes]) -> Callable[[Generator, Path], None]:
    """Spoils a file by what is done to its bytes."""

    def spoil(rng: Generator, path: Path) -> None:
        path.write_bytes(mutate(rng, path.read_bytes()))

    return spoil


def spoil_image(rng: Generator, folder: Path) -> None:
    """Spoils an image, or a mask."""
    content(mutate_image)(rng, choose(rng, sorted(folder.rglob("*.png"))))


def mutate_image(rng: Generator, data: bytes) -> bytes:
    """A PNG, damaged, or with a forged size, whose checksum is right."""
    if rng.random() < 0.7:
        return mutations.damage(rng, data)
    header = b"IHDR" + struct.pack(">II", *(choose(rng, [0, 1, 15, 96, 2**16, 2**31 - 1]) for _ in range(2)))
    header += bytes([choose(rng, [1, 8, 16]), choose(rng, [0, 2, 3, 4, 6])]) + data[26:29]
    return data[:12] + header + struct.pack(">I", zlib.crc32(header)) + data[33:]


def read_uai(path: Path, root: Path) -> list[Any]:
    model = uai.read(path.with_suffix(".uai"), path.with_suffix(".evid"))
    structure = model.structure()
    model.graph.log_score(model.labels(structure.argmax(model.potentials, model.given)))
    return [structure.pinned(model.potentials, given=model.given).values]


def read_model(path: Path, root: Path) -> list[Any]:
    loaded = StructuredPredictor.load(path)
    repr(loaded)
    # Numbers that are a matter of taste, but might make it take for ever.
    loaded.set_params(n_perturbations=2, decoding=Decoding.MAP, n_jobs=None)
    _, X, y = predictors()[path.stem]
    loaded.score(X, y)
    loaded.save(path)
    return [loaded.coef_, *loaded.predict(X), *loaded.predict_marginals(X)]


def read_checkpoint(path: Path, root: Path) -> list[Any]:
    predictor, X, y = predictors()[path.parent.name.split("-")[0]]
    return [predictor.fit(X, y, checkpoint=path).coef_]


def read_store(path: Path, root: Path) -> list[Any]:
    store = Store(path)
    store.verify()
    examples = list(store)
    predictor = predictors()["graphs"][0].fit(store, store.y)
    return [predictor.coef_, *predictor.predict(store), *(x.features for x in examples)]


def read_sparse_store(path: Path, root: Path) -> list[Any]:
    store = Store(path)
    predictor = tagger().fit(store, store.y)
    store.verify()
    return [predictor.coef_, *predictor.predict(store), *(x.features.data for x in store)]


def read_masks(path: Path, root: Path) -> list[Any]:
    files = list_images(path / "images")
    masks = Masks({files[stem]: mask for stem, mask in list_images(path / "masks").items()})
    labels = [labels_from_mask(np.zeros(mask.shape, dtype=np.int32), mask) for mask in masks.values()]
    for image, mask in masks.items():
        with contextlib.suppress(ImageError):
            assert mask.shape == read_image(image).shape[:2]
    return labels


def read_box_file(path: Path, root: Path) -> list[Any]:
    return [labels_from_boxes(np.zeros((80, 96), dtype=np.int32), boxes) for boxes in read_boxes(path).values()]


def read_class_file(path: Path, root: Path) -> list[Any]:
    classes = Classes.read(path)
    assert Classes.from_json(classes.to_json()) == classes
    files = list_images(path.parent / "images")
    masks = ClassMasks({files[stem]: mask for stem, mask in list_images(path.parent / "masks").items()}, classes)
    for mask in masks.values():
        labels_from_mask(np.zeros(mask.shape, dtype=np.int32), mask, len(classes))
    return [classes.colours]


def read_cache(path: Path, root: Path) -> list[Any]:
    features = ImageFeatures.load(root / "segmenter" / "features.pm")
    images = list_images(root / "pictures" / "images")
    found = FeatureCache(path.parent, features).load(images.values(), progress=False)
    assert len(found) == len(images)
    for described in found.values():
        assert described.example.features.shape == (len(described.superpixels), features.n_features)
    return [described.example.features for described in found.values()]


def read_features(path: Path, root: Path) -> list[Any]:
    return [ImageFeatures.load(path).describe(root / "pictures" / "images" / "small0.png").example.features]


def read_segmenter(path: Path, root: Path) -> list[Any]:
    segmenter = Segmenter.load(path)
    segmenter.predictor.set_params(n_perturbations=2)
    found = segmenter.predict(root / "pictures" / "images" / "small0.png")
    assert found.mask.shape == (80, 96)
    segmenter.save(path)
    return [found.mask, found.probability]


def read_annotated(path: Path, root: Path) -> list[Any]:
    folder = AnnotationFolder(root / "annotated" / "photos")
    progress = folder.progress()
    boxes = folder.boxes()
    painted = paint(folder.marks("small0"), folder.size("small0"))
    return [painted, *progress["doubts"].values(), *(np.asarray(entries) for entries in boxes.values())]


READERS = [
    Reader("uai/*/model.*", content(mutations.mutate_text), read_uai, False),
    Reader("models/*.pm", content(mutations.mutate_archive), read_model),
    Reader("checkpoints/*/fit.pm", content(mutations.mutate_archive), read_checkpoint),
    Reader("store", mutations.mutate_store, read_store),
    Reader("sparse store", mutations.mutate_store, read_sparse_store),
    Reader("pictures", spoil_image, read_masks, False),
    Reader("pictures/boxes.json", content(mutations.mutate_json), read_box_file, False),
    Reader("pictures/named.json", content(mutations.mutate_json), read_class_file, False),
    Reader("annotated/photos-masks/*.json", content(mutations.mutate_json), read_annotated, False),
    Reader("segmenter/cache/*", mutations.mutate_cache, read_cache),
    Reader("segmenter/features.pm", content(mutations.mutate_archive), read_features),
    Reader("segmenter/segmenter.pm", content(mutations.mutate_archive), read_segmenter),
]
