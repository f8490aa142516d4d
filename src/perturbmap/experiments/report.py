"""One self-contained page from a template: what the reports of all experiments share."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perturbmap.support.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Colours that stay apart on white and for the colour-blind (Okabe and Ito 2008).
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]


def check_installed() -> None:
    """Raises ModuleNotFoundError where a report cannot be made: before hours of work, not after."""
    missing = [name for name in ("matplotlib", "jinja2") if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(f"reports need {' and '.join(missing)}: pip install 'perturbmap[report]'.")


def chart(draw: Callable[[Axes], object], size: tuple[float, float] = (5.2, 3.4)) -> str:
    """A figure as a data URI; nothing outside the page is needed to see it."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    style: Any = {
        "font.family": "sans-serif",
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": "#888",
        "axes.labelcolor": "#444",
        "xtick.color": "#666",
        "ytick.color": "#666",
        "axes.grid": True,
        "grid.color": "#e8e8e8",
        "legend.frameon": False,
        "svg.hashsalt": "perturbmap",
    }
    with rc_context(style):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.add_subplot())
        file = io.BytesIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(file.getvalue()).decode()


def image(pixels: NDArray[np.uint8]) -> str:
    """Grey values as a data URI; or colours, (height, width, 3), as JPEG, since photographs are large."""
    from matplotlib.image import imsave

    file = io.BytesIO()
    kind = "png" if pixels.ndim == 2 else "jpeg"
    options = {} if pixels.ndim == 2 else {"quality": 82, "subsampling": 0}
    imsave(file, pixels, cmap="gray", vmin=0, vmax=255, format=kind, pil_kwargs=options)
    return f"data:image/{kind};base64," + base64.b64encode(file.getvalue()).decode()


def write_page(path: Path, template: str, values: Mapping[str, Any]) -> Path:
    """Fills a template of this package and writes the page, whole or not at all."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("perturbmap.experiments"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template(template).render(**values)
    write_atomically(path, lambda file: file.write(text.encode()))
    return path
