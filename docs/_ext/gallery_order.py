"""The gallery in the order in which one would read it."""

from sphinx_gallery.sorting import ExplicitOrder

NAMES = (
    "sequence_labelling",
    "denoising",
    "scribbles",
    "boxes",
    "snakes",
    "matching",
    "weighted_loss",
    "grid_search",
    "own_solver",
)
GalleryOrder = ExplicitOrder([f"plot_{name}.py" for name in NAMES])
