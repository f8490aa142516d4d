"""Data that come with the package."""

from perturbmap.datasets.ocr import OCR, load_ocr

__all__ = ["OCR", "load_ocr"]
