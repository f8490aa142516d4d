"""Structured prediction by perturb-and-MAP.

Probabilities and likelihood learning for labels that depend on each other, wherever a best labelling can be found.
"""

from importlib.metadata import version
from importlib.util import find_spec

from lazy_loader import attach_stub

# What there is stands in __init__.pyi; each name is imported when it is first used.
__getattr__, _, __all__ = attach_stub(__name__, __file__)
# Without their extras these must not fail `from perturbmap import *`, nor `help(perturbmap)`, which asks `dir`.
_EXTRAS = {"images": "skimage", "nn": "torch"}
__all__ = [name for name in __all__ if name not in _EXTRAS]
__version__ = version("perturbmap")


def __dir__() -> list[str]:
    return [*__all__, "__version__", *(name for name, needed in _EXTRAS.items() if find_spec(needed))]
