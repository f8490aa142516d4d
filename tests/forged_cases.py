"""Files spoilt in many ways, then read under a limit of memory: ``python -m tests.forged_cases FOLDER [TIMES]``.

Each line that it prints is a JSON list: a kind of file, how many of its files were refused and how many were read,
and what went wrong, "seed: error".
"""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import perturbmap as pm
from fuzz import mutations
from perturbmap import uai
from tests.stored import cutter, make_sparse_store, make_store, sentences, tagger
from tests.test_estimator import words

#: Beyond what the process has after its imports. The largest file here has some kilobytes.
MEMORY = 400 * 2**20
#: Puts a spoilt file in the place of a whole one.
Spoil = Callable[[np.random.Generator], object]
#: Reads the file that has been spoilt, and uses what comes of it.
Use = Callable[[], object]

X, Y = words(10)


def small_predictor(**parameters: Any) -> pm.StructuredPredictor:
    solver = pm.DoubleSGD(n_passes=2)
    return pm.StructuredPredictor(**{"l2": 0.01, "solver": solver, "random_state": 0, **parameters})


def svm() -> pm.StructuredPredictor:
    return small_predictor(objective=pm.StructuredHinge(), solver=pm.BCFW(n_passes=2, tolerance=0.9))


def model(path: Path) -> Use:
    """A model with a calibration, and with the state from which partial_fit goes on."""
    loss = pm.MarginalLogLikelihood(pm.WeightedHamming([1, 2, 1.5]))
    decoding = pm.Decoding.LOSS_AWARE
    small_predictor(objective=loss, calibration=2, decoding=decoding, n_perturbations=3).fit(X, Y).save(path)

    def use() -> None:
        loaded = pm.StructuredPredictor.load(path)
        loaded.set_params(n_perturbations=3, n_jobs=None)  # any number is right, and may take for ever
        try:
            loaded.predict(X)
            loaded.partial_fit(X, Y)
        except (TypeError, ValueError):  # a part that is not set right says so, as one that was made by hand
            pass

    return use


def sparse_model(path: Path) -> Use:
    """A model of which most weights are zero, with the state from which partial_fit goes on."""
    examples, labels = sentences(8)
    tagger().fit(examples, labels).save(path)

    def use() -> None:
        loaded = pm.StructuredPredictor.load(path).set_params(n_perturbations=3, n_jobs=None)
        try:
            loaded.predict(examples)
            loaded.partial_fit(examples, labels)
        except (TypeError, ValueError):
            pass

    return use


def checkpoint(path: Path, estimator: pm.StructuredPredictor, **options: Any) -> Use:
    """A checkpoint of a fit, which is taken up."""
    estimator.fit(X, Y, checkpoint=path, **options)
    return lambda: estimator.fit(X, Y, checkpoint=path, **options)


def store(path: Path) -> Use:
    """A store, of which every byte is read, and that is learned from."""
    make_store(path, n=12, shards=2)

    def use() -> None:
        found = pm.Store(path)
        found.verify()
        cutter(solver=pm.DoubleSGD(n_passes=1)).fit(found, found.y).predict(found)
        _ = [found[0], found.y[0], repr(found)]

    return use


def sparse_store(path: Path) -> Use:
    """A store of sparse features, by whose columns weights are found."""
    make_sparse_store(path)

    def use() -> None:
        found = pm.Store(path)
        tagger().fit(found, found.y).predict(found)
        found.verify()
        _ = [found[0], found.y[0], repr(found)]

    return use


def factors(path: Path) -> Use:
    """A model of the UAI competitions, with a structure that fits."""
    tables = "4 2 1 1 2 4 2 1 1 2 2 1 3 6 1 1 1 2 2 2"
    path.write_text(f"MARKOV\n4\n2 2 2 3\n4\n2 0 1\n2 1 2\n1 0\n2 2 3\n{tables}")
    return lambda: uai.read(path).structure()


def evidence(path: Path) -> Use:
    """Evidence for a model of two variables."""
    path.write_text("1 0 1")
    graph = path.with_name("model.uai")
    graph.write_text("MARKOV 2 2 2 1 2 0 1 4 2 1 1 2")
    return lambda: uai.read(graph, path)


def image_features(folder: Path) -> Any:
    """A picture, and features that are learned from it."""
    from PIL import Image

    from perturbmap.images import ImageFeatures

    pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "picture.png")
    settings: dict[str, Any] = {"n_position_words": 2, "n_colour_words": 3, "n_sift_words": 4, "n_samples": 200}
    return ImageFeatures(8, **settings).fit([folder / "picture.png"], progress=False)


def cache(folder: Path) -> tuple[Path, Use]:
    """An entry of a feature cache, which is computed again where it is not right."""
    from perturbmap.data import Dataset
    from perturbmap.images import FeatureCache

    made, picture = FeatureCache(folder / "cache", image_features(folder)), folder / "picture.png"
    made.load([picture], progress=False)

    def use() -> None:
        (found,) = made.load([picture], progress=False).values()
        Dataset.from_examples([found.example])
        assert found.superpixels.map.max() + 1 == len(found.superpixels) == len(found.example.features)

    return made.entry(picture), use


def vocabulary(path: Path) -> Use:
    """The words of some descriptors, by k-means."""
    from perturbmap.images import Vocabulary

    Vocabulary(np.eye(3)).save(path)
    return lambda: len(Vocabulary.load(path))


def features(path: Path) -> Use:
    """Settings and vocabularies of image features."""
    from perturbmap.images import ImageFeatures

    image_features(path.parent).save(path)
    return lambda: ImageFeatures.load(path).n_features


def spoil_file(path: Path, mutate: Callable[[np.random.Generator, bytes], bytes]) -> Spoil:
    whole = path.read_bytes()
    return lambda rng: path.write_bytes(mutate(rng, whole))


def spoil_folder(path: Path, mutate: Callable[[np.random.Generator, Path], None]) -> Spoil:
    whole = path.with_name("whole")
    shutil.copytree(path, whole)

    def spoil(rng: np.random.Generator) -> None:
        shutil.rmtree(path)
        shutil.copytree(whole, path)
        mutate(rng, path)

    return spoil


def run(kind: str, path: Path, spoil: Spoil, use: Use, n_cases: int) -> None:
    """Spoils, reads, counts, and prints a line."""
    n_refused = n_read = 0
    wrong = []
    for seed in range(n_cases):
        spoil(np.random.default_rng([seed, len(kind)]))
        try:
            use()
            n_read += 1
        except ValueError as error:
            n_refused += 1
            if str(path) not in str(error):
                wrong.append(f"{seed}: does not name the file: {error}")
        except Exception as error:
            wrong.append(f"{seed}: {type(error).__name__}: {error}"[:300])
    print(json.dumps([kind, n_refused, n_read, wrong]), flush=True)


def limit_memory() -> None:
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main(folder: Path, times: int = 1) -> None:
    """All kinds of files, each spoilt in as many ways as take a second or two, or so many times as many."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    archives: dict[str, tuple[Callable[[Path], Use], int]] = {
        "model": (model, 100),
        "sparse model": (sparse_model, 100),
        "checkpoint": (lambda path: checkpoint(path, small_predictor(), validation=(X, Y)), 80),
        "checkpoint of folds": (lambda path: checkpoint(path, small_predictor(calibration=2, n_perturbations=2)), 20),
        "checkpoint of an SVM": (lambda path: checkpoint(path, svm()), 100),
        "checkpoint of L-BFGS": (lambda path: checkpoint(path, small_predictor(solver=pm.LBFGS(0.1))), 80),
        "vocabulary": (vocabulary, 40),
        "image features": (features, 40),
    }
    texts = {"UAI model": (factors, 300), "UAI evidence": (evidence, 200)}
    jobs: list[tuple[str, Path, Spoil, Use, int]] = []
    for kinds, mutate in ((archives, mutations.mutate_archive), (texts, mutations.mutate_text)):
        for kind, (make, n_cases) in kinds.items():
            (folder / kind).mkdir()
            path = folder / kind / "file"
            use = make(path)
            named = path.parent if kind == "UAI evidence" else path
            jobs.append((kind, named, spoil_file(path, mutate), use, n_cases))
    for kind, make in {"store": store, "sparse store": sparse_store}.items():
        (folder / kind).mkdir()
        use = make(folder / kind / "s")
        jobs.append((kind, folder / kind, spoil_folder(folder / kind / "s", mutations.mutate_store), use, 150))
    (folder / "cache").mkdir()
    entry, use = cache(folder / "cache")
    jobs.append(("cache", folder, spoil_folder(entry, mutations.mutate_cache), use, 40))
    limit_memory()
    for kind, named, spoil, use, n_cases in jobs:
        run(kind, named, spoil, use, n_cases * times)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
