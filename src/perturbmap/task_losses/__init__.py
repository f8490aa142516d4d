"""Task losses, each with its value, its loss augmentation and its label weights."""

from perturbmap.task_losses.base import TaskLoss
from perturbmap.task_losses.hamming import BalancedHamming, Hamming, WeightedHamming
from perturbmap.task_losses.zero_one import ZeroOne

__all__ = ["BalancedHamming", "Hamming", "TaskLoss", "WeightedHamming", "ZeroOne"]
