"""Data that come with the package, and loaders for data that do not."""

from perturbmap.datasets.horseseg import Segmentation, load_horseseg_features, load_horseseg_mat
from perturbmap.datasets.ocr import N_FOLDS, OCR, PROTOCOLS, load_ocr
from perturbmap.datasets.snakes import SNAKE_DIRECTIONS, Snakes, load_snakes
from perturbmap.datasets.tagged_words import TaggedWords, load_tagged_words

__all__ = [
    "N_FOLDS",
    "OCR",
    "PROTOCOLS",
    "SNAKE_DIRECTIONS",
    "Segmentation",
    "Snakes",
    "TaggedWords",
    "load_horseseg_features",
    "load_horseseg_mat",
    "load_ocr",
    "load_snakes",
    "load_tagged_words",
]
