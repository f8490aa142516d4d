"""What is known of the examples: their features, their labels; in memory or on disk."""

from perturbmap.data.dataset import Dataset
from perturbmap.data.examples import Example

__all__ = ["Dataset", "Example"]
