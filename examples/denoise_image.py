"""A noisy binary image as a grid graph: its best labelling, its marginals, its log-partition bound.

Notice the last panel: the best labelling is a guess without a word of doubt; the marginals say where it is one.
"""

import sys
import time
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import perturbmap as pm


def word(text: str, height: int, width: int) -> np.ndarray:
    """The word as a binary image."""
    figure = Figure(figsize=(width, height), dpi=1)
    figure.text(0.5, 0.53, text, size=60 * height, family="DejaVu Serif", weight="bold", ha="center", va="center")
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return (np.asarray(canvas.buffer_rgba())[..., 0] < 128).astype(np.int32)


def main(out: Path) -> None:
    rng = np.random.default_rng(0)
    height, width, flipped = 72, 288, 0.25
    truth = word("perturb", height, width)
    seen = np.where(rng.random(truth.shape) < flipped, 1 - truth, truth)

    # A pixel was flipped with probability 0.25, and neighbours tend to be equal.
    log_odds = np.log((1 - flipped) / flipped)
    unary = log_odds * np.stack([seen == 0, seen == 1], axis=-1).reshape(-1, 2)
    f = pm.Potentials(unary, pm.potts(1.0), pm.grid_edges(height, width))
    graph = pm.BinaryGraph()

    start = time.perf_counter()
    best = graph.argmax(f).reshape(height, width)
    q = pm.marginals(graph, f, n_perturbations=100, rng=0).mean[:, 1].reshape(height, width)
    bound = pm.log_partition_bound(graph, f, n_perturbations=100, rng=0)
    seconds = time.perf_counter() - start

    decoded = q > 0.5
    doubt = (q > 0.1) & (q < 0.9)
    wrong = best != truth
    errors = ", ".join(
        f"{name} {np.mean(labels != truth):.1%}"
        for name, labels in (("seen", seen), ("MAP", best), ("marginals", decoded))
    )
    print(f"image                 {height} x {width} pixels, {flipped:.0%} of them flipped")
    print(f"wrong pixels          {errors}")
    print(
        f"in doubt              {doubt.mean():.0%} of the pixels, {np.mean(doubt[wrong]):.0%} of the MAP's mistakes"
    )
    print(f"log-partition bound   {bound.mean[0]:.1f} +- {bound.standard_error[0]:.1f}")
    print(f"score of the MAP      {f.score(best.ravel())[0]:.1f}")
    print(f"time                  {seconds:.2f} s: 201 maximisations, {200 * f.n_sites:,} pinned ones")

    panels = [
        ("what was written", truth, "gray_r"),
        (f"what is seen: {flipped:.0%} of the pixels flipped", seen, "gray_r"),
        (f"best labelling (MAP): {wrong.mean():.1%} wrong", best, "gray_r"),
        ("probability of ink, by 100 perturbations", q, "magma_r"),
    ]
    figure, axes = plt.subplots(4, 1, figsize=(9, 10.4), layout="constrained")
    for ax, (title, image, colours) in zip(axes, panels, strict=True):
        picture = ax.imshow(image, cmap=colours, vmin=0, vmax=1, interpolation="nearest")
        ax.set_title(title, loc="left", fontsize=12)
        ax.set_xticks([])
        ax.set_yticks([])
    figure.colorbar(picture, ax=axes[-1], orientation="horizontal", fraction=0.08, aspect=60, pad=0.02)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)
    print(f"picture               {out}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "denoised.png"))
