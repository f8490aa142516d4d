"""A folder of the horse experiment's layout, with made images: brown ellipses on green."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw


def make_folder(folder: Path, parts: Mapping[str, int]) -> None:
    """So many images of each part, with masks and boxes of all."""
    rng = np.random.default_rng(0)
    boxes = {}
    for part, n_images in parts.items():
        (folder / "images" / part).mkdir(parents=True)
        (folder / "masks" / part).mkdir(parents=True)
        for n in range(n_images):
            grass = rng.integers(70, 130, (80, 96, 1)) * np.array([0.5, 1.0, 0.3])
            image = Image.fromarray(grass.astype(np.uint8))
            mask = Image.new("L", image.size)
            box = [int(v) for v in (*rng.uniform(8, 30, 2), *rng.uniform(50, 75, 2))]
            ImageDraw.Draw(image).ellipse(box, fill=(150, 100, 60))
            ImageDraw.Draw(mask).ellipse(box, fill=1)
            image.save(folder / "images" / part / f"{part}{n}.png")
            mask.save(folder / "masks" / part / f"{part}{n}.png")
            boxes[f"{part}{n}"] = [[v + 1 for v in box]]
    (folder / "boxes.json").write_text(json.dumps(boxes))
