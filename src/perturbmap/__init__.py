"""Structured prediction by perturb-and-MAP.

Probabilities and likelihood learning for labels that depend on each other, wherever a best labelling can be found.
"""

from importlib.metadata import version

from lazy_loader import attach_stub

# What there is stands in __init__.pyi; each name is imported when it is first used.
__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
__version__ = version("perturbmap")
