"""Task losses, each with its value, its loss augmentation and its label weights; and the F1 of spans."""

from perturbmap.task_losses.base import TaskLoss
from perturbmap.task_losses.hamming import BalancedHamming, Hamming, WeightedHamming
from perturbmap.task_losses.spans import SpanScores, span_f1
from perturbmap.task_losses.zero_one import ZeroOne

__all__ = ["BalancedHamming", "Hamming", "SpanScores", "TaskLoss", "WeightedHamming", "ZeroOne", "span_f1"]
