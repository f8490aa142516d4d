"""Data that come with the package, and loaders for data that do not."""

from perturbmap.datasets.horseseg import Segmentation, load_horseseg_features, load_horseseg_mat
from perturbmap.datasets.ocr import N_FOLDS, OCR, PROTOCOLS, load_ocr

__all__ = ["N_FOLDS", "OCR", "PROTOCOLS", "Segmentation", "load_horseseg_features", "load_horseseg_mat", "load_ocr"]
