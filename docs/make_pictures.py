"""The README's pictures of examples, from the examples themselves: ``python docs/make_pictures.py``."""

import runpy
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[1]
PICTURES = {"plot_denoising": "denoised.png", "plot_scribbles": "scribbles.jpg"}

for example, picture in PICTURES.items():
    plt.close("all")
    runpy.run_path(str(ROOT / "examples" / f"{example}.py"))
    plt.gcf().savefig(ROOT / "docs" / "images" / picture, dpi=100)
