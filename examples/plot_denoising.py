"""Denoising an image, with doubt
==============================

A graph cut finds the best labelling of a noisy image, and says nothing of how sure it is. Perturbing the potentials
and cutting again gives every pixel a probability.
"""

import time
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import perturbmap as pm

# %%
# The image is a word, of which a quarter of the pixels are flipped.
rng = np.random.default_rng(0)
height, width, flipped = 72, 288, 0.25
drawing = Figure(figsize=(width, height), dpi=1)
drawing.text(0.5, 0.53, "perturb", size=60 * height, family="DejaVu Serif", weight="bold", ha="center", va="center")
canvas: Any = FigureCanvasAgg(drawing)
canvas.draw()
truth = (np.asarray(canvas.buffer_rgba())[..., 0] < 128).astype(int)
seen = np.where(rng.random(truth.shape) < flipped, 1 - truth, truth)

# %%
# A pixel is what it seems to be with log-odds log(0.75 / 0.25), and neighbours like to be equal.
unary = np.log((1 - flipped) / flipped) * np.stack([seen == 0, seen == 1], axis=-1).reshape(-1, 2)
f = pm.Potentials(unary, pm.potts(1.0), pm.grid_edges(height, width))
start = time.perf_counter()
best = pm.BinaryGraph().argmax(f).reshape(height, width)
q = pm.marginals(pm.BinaryGraph(), f, n_perturbations=50, rng=0).mean[:, 1].reshape(height, width)
seconds = time.perf_counter() - start
print(f"51 cuts of {f.n_sites:,} pixels and {50 * f.n_sites:,} more with one pixel pinned took {seconds:.1f} s.")

# %%
# What to notice: the best labelling looks as sure of its mistakes as of the rest. The probabilities do not: less
# than a third of the pixels is in doubt, and nearly all mistakes are among them.
wrong, doubt = best != truth, (q > 0.1) & (q < 0.9)
print(f"wrong pixels: {np.mean(seen != truth):.1%} seen, {wrong.mean():.1%} in the best labelling")
print(f"in doubt, 0.1 < P(ink) < 0.9: {doubt.mean():.0%} of the pixels, {doubt[wrong].mean():.0%} of the mistakes")
for low, high in ((0.0, 0.1), (0.1, 0.5), (0.5, 0.9), (0.9, 1.0)):
    inside = (q >= low) & (q <= high)
    print(f"P(ink) {low} to {high}: {inside.mean():4.0%} of the pixels, {truth[inside].mean():4.0%} of them ink")

panels = [
    ("what was written", truth, "gray_r"),
    (f"what is seen: {flipped:.0%} of the pixels flipped", seen, "gray_r"),
    (f"the best labelling: {wrong.mean():.1%} wrong", best, "gray_r"),
    ("probability of ink", q, "magma_r"),
]
figure, axes = plt.subplots(2, 2, figsize=(10, 3.3), layout="constrained")
for ax, (title, image, colours) in zip(axes.flat, panels, strict=True):
    picture = ax.imshow(image, cmap=colours, vmin=0, vmax=1, interpolation="nearest")
    ax.set_title(title, loc="left", fontsize=10)
    ax.set(xticks=[], yticks=[])
figure.colorbar(picture, ax=axes[1], fraction=0.02, aspect=15, pad=0.01)
plt.show()
