"""Data that come with the package."""

from perturbmap.datasets.ocr import N_FOLDS, OCR, PROTOCOLS, load_ocr

__all__ = ["N_FOLDS", "OCR", "PROTOCOLS", "load_ocr"]
