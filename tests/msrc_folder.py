"""A folder of the MSRC experiment's layout, with made photos: cows and flowers on grass, under a sky."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

CLASSES = {1: "grass", 2: "cow", 3: "horse", 4: "sky", 5: "flower"}
_COLOURS = {2: (120, 80, 50), 3: (60, 60, 60), 5: (230, 60, 150)}


def make_folder(folder: Path, parts: Mapping[str, int]) -> None:
    """So many photos of each part; the first of each has a horse, and a seam of void is around every thing."""
    rng = np.random.default_rng(0)
    for kind in ("images", "labels"):
        (folder / kind).mkdir(parents=True)
    names: dict[str, list[str]] = {}
    for part, n_photos in parts.items():
        for n in range(n_photos):
            horizon = int(rng.integers(15, 30))
            pixels = rng.integers(70, 130, (80, 96, 1)) * np.array([0.5, 1.0, 0.3])
            pixels[:horizon] = rng.integers(180, 220, (horizon, 96, 1)) * np.array([0.6, 0.8, 1.0])
            labels = np.full((80, 96), 1, dtype=np.uint8)
            labels[:horizon] = 4
            photo, mask = Image.fromarray(pixels.astype(np.uint8)), Image.fromarray(labels)
            thing = 3 if n == 0 else 2 if n % 2 else 5
            x, y = (int(v) for v in (rng.uniform(5, 40), rng.uniform(horizon, 45)))
            box = (x, y, x + 45, y + 30)
            ImageDraw.Draw(photo).ellipse(box, fill=_COLOURS[thing])
            ImageDraw.Draw(mask).ellipse(box, fill=thing, outline=0, width=2)
            name = f"{part}_{n}"
            photo.save(folder / "images" / f"{name}.png")
            mask.save(folder / "labels" / f"{name}.png")
            names.setdefault(part, []).append(name)
    (folder / "split.json").write_text(json.dumps({"classes": {str(k): v for k, v in CLASSES.items()}, **names}))
