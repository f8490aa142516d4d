"""Made scenes, some with masks and some with boxes: what a `Segmenter` learns from them, and where it doubts.

Notice the third column: of legs and head, which are thin and near to other things, it is less sure than of the trunk.
"""

import sys
import tempfile
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from scipy.ndimage import gaussian_filter

from perturbmap.images import Segmenter, read_image
from perturbmap.images.results import overlay


def scene(rng: np.random.Generator, height: int = 180, width: int = 240) -> tuple[np.ndarray, np.ndarray]:
    """A brown animal on a meadow before a hill, with a bush somewhere; and where the animal is."""
    y, x = np.mgrid[:height, :width]

    def grain(scale: float) -> np.ndarray:
        noise = gaussian_filter(rng.normal(size=(height, width)), scale)
        return np.asarray(noise[..., None] / noise.std())

    horizon = height * rng.uniform(0.3, 0.45) + 8 * np.sin(x / 31 + rng.uniform(0, 6))
    sky, meadow = np.array([0.68, 0.8, 0.93]), np.array([0.38, 0.55, 0.25])
    picture = np.where((y < horizon)[..., None], sky + 0.02 * grain(12), meadow + 0.05 * grain(1.5))

    def blob(cx: float, cy: float, rx: float, ry: float, turn: float = 0.0) -> np.ndarray:
        dx, dy = x - cx, y - cy
        u, v = dx * np.cos(turn) + dy * np.sin(turn), dy * np.cos(turn) - dx * np.sin(turn)
        return np.asarray((u / rx) ** 2 + (v / ry) ** 2 < 1)

    size, side = rng.uniform(24, 40), rng.choice([-1, 1])
    cx, cy = rng.uniform(0.3, 0.7) * width, rng.uniform(0.55, 0.68) * height
    animal = blob(cx, cy, size, 0.52 * size)
    animal |= blob(cx + side * 0.95 * size, cy - 0.5 * size, 0.48 * size, 0.2 * size, -side * 0.9)  # neck
    animal |= blob(cx + side * 1.3 * size, cy - 0.8 * size, 0.3 * size, 0.15 * size, side * 0.5)  # head
    for leg in (-0.75, -0.5, 0.5, 0.75):
        animal |= blob(cx + leg * size, cy + 0.75 * size, 0.11 * size, 0.55 * size)
    coat = np.array([0.42, 0.27, 0.16]) * rng.uniform(0.7, 1.5)
    picture = np.where(animal[..., None], coat + 0.03 * grain(3), picture)
    bush = blob(rng.uniform(0, width), rng.uniform(0.5, 0.9) * height, rng.uniform(15, 30), rng.uniform(10, 18))
    picture = np.where(bush[..., None], np.array([0.3, 0.33, 0.16]) + 0.07 * grain(2), picture)
    return (255 * picture.clip(0, 1)).astype(np.uint8), animal & ~bush


def main(out: Path) -> None:
    rng = np.random.default_rng(0)
    n_masks, n_boxes, n_shown = 12, 12, 3
    images, masks, boxes, truth = [], {}, {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for n in range(n_masks + n_boxes + n_shown):
            picture, animal = scene(rng)
            path = Path(folder) / f"{n}.png"
            Image.fromarray(picture).save(path)
            images.append(path)
            truth[path] = animal
            if n < n_masks:
                masks[path] = path.with_name(f"{n}_mask.png")
                Image.fromarray(animal.astype(np.uint8)).save(masks[path])
            elif n < n_masks + n_boxes:
                rows, columns = np.flatnonzero(animal.any(axis=1)), np.flatnonzero(animal.any(axis=0))
                boxes[path] = [[columns[0] + 1, rows[0] + 1, columns[-1] + 1, rows[-1] + 1]]
        segmenter = Segmenter().fit(images[:-n_shown], masks, boxes, n_jobs=-1, progress=False)
        figure, axes = plt.subplots(n_shown, 3, figsize=(9, 6.9), layout="constrained")
        for row, path in zip(axes, images[-n_shown:], strict=True):
            found = segmenter.predict(path)
            print(f"{path.stem}: {(found.mask == truth[path]).mean():.1%} of the pixels right")
            row[0].imshow(read_image(path))
            row[1].imshow(overlay(read_image(path), found))
            row[2].imshow(found.probability, cmap="magma", vmin=0, vmax=1)
        for axis, title in zip(axes[0], ("a new image", "what is cut out", "its probability"), strict=True):
            axis.set_title(title)
        for axis in axes.flat:
            axis.set_axis_off()
        figure.savefig(out, dpi=80)
    print(f"see {out}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "scenes.png"))
