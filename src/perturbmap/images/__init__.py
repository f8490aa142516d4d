"""From image files to examples on superpixels, and back; needs ``pip install "perturbmap[images]"``."""

from importlib import import_module

from lazy_loader import attach_stub

try:
    for name in ("skimage", "PIL", "joblib"):
        import_module(name)
except ImportError as error:
    raise ImportError(f'perturbmap.images needs scikit-image ({error}): pip install "perturbmap[images]".') from error

# What there is stands in __init__.pyi; each name is imported when it is first used: processes that describe images
# need no learning.
__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
