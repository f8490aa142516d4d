"""How many strokes a mask takes, for a simulated annotator of the horses, and how long each answer takes.

``HORSES=folder make bench ONLY=annotate`` names the folder of ``perturbmap prepare-voc``. Photos of its part "small"
are those that were accepted, with their masks; photos of "test", each with its own session, are annotated. Features
and segmenters are kept in ``build/annotate``: the first run takes some minutes more.

``python -m benchmarks.annotate`` writes the figure of docs/annotate.md, and prints what it shows; with ``--validate``
the photos are those of "small" that were not learned from, by which the weights were chosen. ``--perfect`` has a
segmenter that makes no mistake, in place of those that learn: what learning could save at the most.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image

from benchmarks.harness import Benchmark, Line, MissingError
from benchmarks.simulated_annotator import Session, annotate
from perturbmap.annotate import Answer, Mark, Photo, answer, prepare
from perturbmap.annotate.photo import WORKING_SIDE
from perturbmap.data import Example
from perturbmap.images import (
    DescribedImage,
    ImageFeatures,
    Masks,
    Segmenter,
    TrainingSet,
    labels_from_mask,
    read_image,
    read_mask,
    segment,
    segmentation_predictor,
)
from perturbmap.images.reading import reduce_image
from perturbmap.images.superpixels import stretch

ACCEPTED = (0, 10, 50)
GOOD, MOST_STROKES = 0.9, 20
N_PHOTOS = 60  # of the test set, evenly spaced
KEPT = Path("build") / "annotate"
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "annotate.png"


def horses() -> Path:
    """The folder of the horses."""
    if "HORSES" not in os.environ:
        raise MissingError("HORSES=folder must name the horses (perturbmap prepare-voc)")
    return Path(os.environ["HORSES"])


def pairs(folder: Path, part: str) -> dict[Path, Path]:
    """Photos of a part that have a mask, with it."""
    photos = sorted((folder / "images" / part).iterdir())
    return {path: mask for path in photos if (mask := folder / "masks" / part / f"{path.stem}.png").is_file()}


def in_order(folder: Path) -> list[Path]:
    """The photos of "small" in the order in which they are accepted."""
    paths = list(pairs(folder, "small"))
    return [paths[n] for n in np.random.default_rng(0).permutation(len(paths))]


def segmenter_after(folder: Path, n_accepted: int) -> Segmenter | None:
    """What `perturbmap annotate` learns from so many masks; None from none.

    As there, without calibration. Visual words are those of all photos of "small".
    """
    if n_accepted == 0:
        return None
    file = KEPT / f"segmenter-{n_accepted}.pm"
    if not file.is_file():
        masks = Masks(pairs(folder, "small"))
        features = ImageFeatures(max_side=400)
        examples = TrainingSet.load(features, list(masks), masks, {}, cache=KEPT / "features", progress=False)
        chosen = [examples.paths.index(path) for path in in_order(folder)[:n_accepted]]
        predictor = segmentation_predictor().set_params(calibration=None)
        Segmenter(features, predictor).learn(examples.take(chosen), progress=False).save(file)
    return Segmenter.load(file)


class Perfect:
    """Stands for a segmenter that knows the label of most pixels of each of its superpixels, and is sure of it."""

    def __init__(self, masks: dict[Path, Path]) -> None:
        self._masks = masks
        self.features = self.predictor = self
        self.classes_ = np.array([0, 1])

    def fingerprint(self) -> str:
        """See `ImageFeatures.fingerprint`."""
        return "perfect"

    def describe(self, path: Path) -> DescribedImage:
        """The superpixels of `ImageFeatures`, of which the features are the probabilities."""
        image = reduce_image(read_image(path), WORKING_SIDE)
        regions = segment(image)
        truth = stretch(read_mask(self._masks[path]), image.shape[:2])
        label = labels_from_mask(regions, truth)
        q = np.where((label == 1)[:, None], [[0.01, 0.99]], [[0.99, 0.01]])
        return DescribedImage(Example(q, regions.edges), regions)

    def predict_marginals(self, X: list[Example]) -> list[np.ndarray]:
        """See `StructuredPredictor.predict_marginals`."""
        return [x.features for x in X]


def perfect_sessions(chosen: dict[Path, Path]) -> list[Session]:
    """A session for each photo with a perfect segmenter."""
    segmenter = cast(Segmenter, Perfect(chosen))
    return [
        annotate(partial(ask, prepare(path), segmenter), read_mask(mask), GOOD, MOST_STROKES)
        for path, mask in chosen.items()
    ]


def ask(photo: Photo, segmenter: Segmenter | None, marks: list[Mark]) -> tuple[Answer, float]:
    """The answer, and its CPU seconds."""
    begin = time.process_time()
    found = answer(photo, marks, segmenter)
    assert found is not None
    return found, time.process_time() - begin


def sessions(chosen: dict[Path, Path], segmenters: list[Segmenter | None]) -> list[list[Session]]:
    """A session for each photo with each segmenter."""
    made: list[list[Session]] = [[] for _ in segmenters]
    for path, mask in chosen.items():
        photo, truth = prepare(path, cache=KEPT / "features"), read_mask(mask)
        for segmenter, found in zip(segmenters, made, strict=True):
            if segmenter is not None:
                photo.learned(segmenter)
            found.append(annotate(partial(ask, photo, segmenter), truth, GOOD, MOST_STROKES))
    return made


def n_strokes(found: list[Session], good: float = GOOD) -> np.ndarray:
    """The strokes that each photo took."""
    return np.array([session.n_strokes(good, MOST_STROKES) for session in found])


def test_photos(folder: Path) -> dict[Path, Path]:
    """Some photos of the test set, evenly spaced."""
    everything = list(pairs(folder, "test").items())
    return dict(everything[n] for n in np.linspace(0, len(everything) - 1, N_PHOTOS).astype(int))


def strokes() -> Iterator[Line]:
    """After 10 and 50 accepted photos, beside colours alone."""
    folder = horses()
    found = sessions(test_photos(folder), [segmenter_after(folder, n) for n in ACCEPTED])
    alone = n_strokes(found[0]).mean()
    for n_accepted, theirs, bar in zip(ACCEPTED[1:], found[1:], (1.0, 0.5), strict=True):
        mean = n_strokes(theirs).mean()
        what = f"annotate: strokes to 90 %, {N_PHOTOS} horses, after {n_accepted} accepted, {mean:.1f}"
        yield Line(what, f"colours alone, {alone:.1f}", mean / alone, bar, at_least=False)


def seconds(megapixels: float, bar: float) -> Iterator[Line]:
    """The median answer for a photo of this size, a horse stretched to it, after each stroke of a session."""
    folder = horses()
    path, mask = next(iter(test_photos(folder).items()))
    image, truth = Image.open(path), Image.fromarray(read_mask(mask))
    scale = (1e6 * megapixels / (image.width * image.height)) ** 0.5
    size = round(image.width * scale), round(image.height * scale)
    segmenter = segmenter_after(folder, 50)
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "photo.png"
        image.resize(size, Image.Resampling.BICUBIC).save(file, compress_level=1)
        photo = prepare(file)
        for name, known in (("colours alone", None), ("learned", segmenter)):
            if known is not None:
                photo.learned(known)
            large = np.asarray(truth.resize(size, Image.Resampling.NEAREST))
            session = annotate(partial(ask, photo, known), large, 2.0, 8)
            cpu = np.median(session.cpu[1:])
            what = f"annotate: seconds of an answer, {megapixels:g} megapixels, {name}; CPU {cpu:.3f}"
            yield Line(what, "the bar, in seconds", float(np.median(session.wall[1:])), bar, at_least=False)


BENCHMARKS = [
    Benchmark("annotate: strokes", strokes),
    Benchmark("annotate: seconds, 0.2 megapixels", partial(seconds, 0.2, 0.15)),
    Benchmark("annotate: seconds, 12 megapixels", partial(seconds, 12, 1.0)),
]


def draw(found: dict[int, list[Session]]) -> None:
    """Strokes against accepted photos, and overlap against strokes."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for good, colour in ((0.9, "tab:blue"), (0.85, "tab:orange"), (0.8, "0.4")):
        means = np.array([n_strokes(some, good).mean() for some in found.values()])
        errors = [n_strokes(some, good).std(ddof=1) / len(some) ** 0.5 for some in found.values()]
        left.errorbar(range(len(found)), means, errors, color=colour, marker="o", capsize=3, label=f"to {good:.0%}")
    left.set_xticks(range(len(found)), [str(n) for n in found])
    left.set(xlabel="accepted photos", ylabel="strokes for each photo, mean", ylim=(0, None))
    for (n_accepted, some), colour in zip(found.items(), ("0.4", "tab:orange", "tab:blue"), strict=True):
        overlaps = [[s.overlaps[min(n, len(s.overlaps) - 1)] for s in some] for n in range(MOST_STROKES + 1)]
        name = "colours alone" if n_accepted == 0 else f"after {n_accepted} accepted photos"
        right.plot(np.mean(overlaps, axis=1), color=colour, label=name)
    right.set(xlabel="strokes", ylabel="overlap with the true mask, mean", ylim=(0, 1))
    for axis in (left, right):
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(PICTURE, dpi=110)


def table(found: Mapping[Any, list[Session]]) -> None:
    """Prints what the page says."""
    print(
        "| accepted | strokes to 80 % | to 85 % | to 90 % | median | not in 20 | overlap at once | doubted, wrong |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for n_accepted, some in found.items():
        means = [f"{n_strokes(some, good).mean():.1f}" for good in (0.8, 0.85, 0.9)]
        missed = np.mean([session.overlaps[-1] < GOOD for session in some])
        start = np.mean([session.overlaps[0] for session in some])
        marked = [s for s in some if len(s.wall) > 1] or some
        doubted, wrong = (
            np.mean([np.mean(getattr(s, name)[-len(s.wall) + 1 :]) for s in marked]) for name in _SHARES
        )
        cells = [str(n_accepted), *means, f"{np.median(n_strokes(some)):.0f}", f"{missed:.0%}", f"{start:.0%}"]
        print(f"| {' | '.join([*cells, f'{doubted:.1%}, {wrong:.1%}'])} |")
    both = [(s.wall, s.cpu) for some in found.values() for s in some]
    wall, cpu = (np.median(np.concatenate(values)) for values in zip(*both, strict=True))
    print(f"median answer: {1e3 * wall:.0f} ms, {1e3 * cpu:.0f} ms of CPU")


_SHARES = ("doubted", "wrong")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.annotate", description=__doc__)
    parser.add_argument("--validate", action="store_true", help='photos of "small" that were not learned from')
    parser.add_argument("--photos", type=int, default=N_PHOTOS, help="so many of them, with --validate")
    parser.add_argument("--perfect", action="store_true", help="a segmenter that makes no mistake, and no other")
    options = parser.parse_args()
    folder = horses()
    chosen = test_photos(folder)
    if options.validate:
        masks = pairs(folder, "small")
        chosen = {path: masks[path] for path in in_order(folder)[max(ACCEPTED) :][: options.photos]}
    if options.perfect:
        table({"perfect": perfect_sessions(chosen)})
        return
    made = sessions(chosen, [segmenter_after(folder, n) for n in ACCEPTED])
    found = dict(zip(ACCEPTED, made, strict=True))
    table(found)
    if not options.validate:
        draw(found)


if __name__ == "__main__":
    main()
