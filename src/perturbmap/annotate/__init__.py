"""Strokes become masks, and masks a model: the page of ``perturbmap annotate``, and what is behind it."""
