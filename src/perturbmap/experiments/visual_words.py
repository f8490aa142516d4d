"""Visual words of an experiment's training images, learned once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from perturbmap.images import ImageFeatures
from perturbmap.images.features import FEATURES_VERSION
from perturbmap.support.progress import Progress


def learned_features(train: Sequence[Path], cache: Path, n_jobs: int, progress: Progress) -> ImageFeatures:
    """The default `ImageFeatures` with words learned from these very files; kept in the cache by their content."""
    digest = hashlib.sha256(json.dumps([FEATURES_VERSION, ImageFeatures().settings()]).encode())
    for path in train:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    cache.mkdir(parents=True, exist_ok=True)
    kept = cache / f"words-{digest.hexdigest()[:20]}.npz"
    if kept.exists():
        try:
            return ImageFeatures.load(kept)
        except ValueError:
            pass  # damaged: learned again
    features = ImageFeatures().fit(train, n_jobs=n_jobs, progress=progress)
    features.save(kept)
    return features
