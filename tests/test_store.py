"""Stores: what is read is what was written, learning from one is learning, and damage is named."""

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest

import perturbmap as pm
from perturbmap.data.store.manifest import FORMAT_VERSION, MANIFEST, STORE
from perturbmap.data.store.mapped import N_MAPPED
from tests.stored import cutter, graphs, make_store, rounds


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_store_holds_what_was_written(tmp_path: Path, dtype: str) -> None:
    """Features in the precision of the store, all else as it was, example by example."""
    X, y = graphs(25, dtype=np.float64)
    names = [[None if k and n == 3 else "ab"[k] for k in part] for n, part in enumerate(y)]
    assert (
        pm.write_store(tmp_path / "s", iter(X), iter(names), classes=["a", "b"], dtype=dtype, shard_bytes=500) == 25
    )
    store = pm.Store(tmp_path / "s")
    assert len(store) == 25
    assert len(store.shards) > 3
    store.verify()
    for n, (x, read) in enumerate(zip(X, store, strict=True)):
        np.testing.assert_array_equal(read.features, x.features.astype(dtype))
        assert read.features.dtype == ("float32" if dtype == "float16" else dtype)
        for name in ("edges", "edge_features", "sizes"):
            np.testing.assert_array_equal(getattr(read, name), getattr(x, name))
        assert store.y[n] == names[n]
    assert store[-1].features.shape == X[-1].features.shape
    assert len(store[2:5]) == 3
    assert len(store.y) == 25


def test_matchings_and_words_are_stored_too(tmp_path: Path, rng: np.random.Generator) -> None:
    """Label features come back; a bare feature matrix is a chain."""
    matches = [pm.Example(rng.normal(size=(3, 4)), label_features=rng.normal(size=(5, 2))) for _ in range(9)]
    pm.write_store(tmp_path / "matches", matches, dtype="float64", shard_bytes=200)
    again = pm.Store(tmp_path / "matches")
    for x, read in zip(matches, again, strict=True):
        np.testing.assert_array_equal(read.label_features, x.label_features)
    with pytest.raises(ValueError, match="written without labels"):
        _ = again.y
    y = [rng.permutation(5)[:3] for _ in matches]
    settings = {"solver": pm.DoubleSGD(n_passes=2), "random_state": 0, "classes": range(5)}
    fits = [
        pm.StructuredPredictor(pm.MatchingModel(), pm.Matching(), **settings).fit(X, y)  # type: ignore[arg-type]
        for X in (again, list(again))
    ]
    assert np.isfinite(fits[0].coef_).all()
    for one, other in zip(fits[1].predict_marginals(matches), fits[1].predict_marginals(again), strict=True):
        np.testing.assert_array_equal(one, other)
    words = [rng.normal(size=(n, 4)) for n in (3, 1, 5)]
    pm.write_store(tmp_path / "words", words)
    assert pm.Store(tmp_path / "words")[2].edges.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]


@pytest.mark.parametrize("decoding", list(pm.Decoding))
def test_predictions_have_the_same_bits_from_a_list_a_store_and_two_processes(
    tmp_path: Path, decoding: pm.Decoding
) -> None:
    """And so have marginals, also given some labels, and losses."""
    store = make_store(tmp_path / "s")
    X, y = list(store), [np.array(part) for part in store.y]
    estimator = cutter(decoding=decoding).fit(X, y)
    given = [np.where(np.arange(len(part)) == 0, part, -1) for part in y]
    expected = estimator.predict(X), estimator.predict_marginals(X), estimator.predict_marginals(X, given)
    for n_jobs in (None, 1, 2):
        estimator.set_params(n_jobs=n_jobs)
        found = (
            estimator.predict(store),
            estimator.predict_marginals(store),
            estimator.predict_marginals(store, given),
        )
        for one, other in zip(expected, found, strict=True):
            assert len(one) == len(other) == len(store)
            assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
        np.testing.assert_array_equal(estimator.losses(store, store.y), estimator.losses(X, y))


def test_a_fit_of_a_store_of_one_shard_is_that_of_a_list(tmp_path: Path) -> None:
    """In all bits: the order of examples and their noise are the same."""
    store = make_store(tmp_path / "s", shards=1)
    assert len(store.shards) == 1
    np.testing.assert_array_equal(cutter().fit(store, store.y).coef_, cutter().fit(list(store), list(store.y)).coef_)


def test_a_pass_visits_every_example_once_and_shard_after_shard(tmp_path: Path) -> None:
    """In another order each time, so that no shard is mapped twice in a pass."""
    from perturbmap.solvers.passes import Passes

    store = make_store(tmp_path / "s")
    estimator = cutter()
    problem = estimator.problem(store, store.y)
    passes = Passes(problem)
    orders = [passes.order(number) for number in range(3)]
    shards = problem.data.shards
    assert shards is not None
    for order in orders:
        assert sorted(order.tolist()) == list(range(len(store)))
        assert np.count_nonzero(np.diff(shards[order])) == len(store.shards) - 1
    assert not np.array_equal(orders[0], orders[1])
    assert not np.array_equal(
        np.unique(shards[orders[0]], return_index=True)[1], np.unique(shards[orders[1]], return_index=True)[1]
    )


def test_everything_that_learns_takes_a_store(tmp_path: Path) -> None:
    """Partly labelled and unlabelled examples, calibration, partial_fit, validation, the SVM."""
    store = make_store(tmp_path / "s", n=40)
    partly: list[Any] = [
        None if n % 4 == 0 else [None, *part[1:]] if n % 4 == 1 else part for n, part in enumerate(store.y)
    ]
    for made in (cutter, rounds):
        estimator = made(calibration=2).fit(store, partly, validation=(store, store.y))
        assert estimator.score(store, store.y) > 0.75
    estimator = cutter().partial_fit(store, store.y, classes=[0, 1])
    assert estimator.partial_fit(store, store.y).score(store, store.y) > 0.75
    svm = cutter(solver=pm.BCFW(n_passes=60, tolerance=0.5)).set_params(
        objective=pm.StructuredHinge(pm.BalancedHamming())
    )
    assert svm.fit(store, store.y).score(store, store.y) > 0.75


def test_a_store_is_appended_to(tmp_path: Path) -> None:
    """By whole shards; who opened it before still sees what there was, and an estimator file fits both."""
    before = make_store(tmp_path / "s", n=20)
    X, y = graphs(10, seed=1)
    assert pm.write_store(tmp_path / "s", X, y, append=True) == 10
    after = pm.Store(tmp_path / "s")
    assert (len(before), len(after)) == (20, 30)
    np.testing.assert_array_equal(after[20].features, X[0].features)
    estimator = cutter().fit(before, before.y)
    estimator.save(tmp_path / "e.pm")
    assert len(pm.StructuredPredictor.load(tmp_path / "e.pm").predict(after)) == 30


WRITER = """
import sys
import perturbmap as pm
from tests.stored import graphs
X, y = graphs(400, seed=2)
print("ready", flush=True)
pm.write_store(sys.argv[1], X, y, classes=[0, 1], shard_bytes=4000)
print("done", flush=True)
"""


@pytest.mark.slow
def test_a_writer_killed_at_any_moment_leaves_every_finished_shard(tmp_path: Path) -> None:
    """Eight times: what is there opens, is the beginning of what was written, and can be added to."""
    X, _ = graphs(400, seed=2)
    rng = np.random.default_rng(0)
    for attempt in range(8):
        folder = tmp_path / f"s{attempt}"
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0, 0.4))
        process.kill()
        process.wait()
        process.stdout.close()
        if not (folder / STORE).exists():  # killed before the first word
            continue
        n_shards = len(list(folder.glob("shard-*")))
        if n_shards == 0:
            with pytest.raises(ValueError, match="no finished shard"):
                pm.Store(folder)
        else:
            store = pm.Store(folder)
            store.verify()
            assert len(store.shards) == n_shards
            for x, read in zip(X, store, strict=False):
                np.testing.assert_array_equal(x.features, read.features)
        pm.write_store(folder, X[:3], append=True, classes=[0, 1])
        assert len(pm.Store(folder).shards) == n_shards + 1
        assert not list(folder.glob(".*"))  # what the killed writer left was cleared away


def _damage(path: Path, position: int) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ 1]))


@pytest.mark.parametrize("name", ["features", "labels", "edges", "site_offsets", "edge_features", "sizes"])
def test_a_flipped_byte_is_found_and_the_shard_named(tmp_path: Path, name: str) -> None:
    """Before anything is computed from it; without that shard the store is as good as new."""
    make_store(tmp_path / "s")
    _damage(tmp_path / "s" / "shard-000002" / f"{name}.npy", 200)
    store = pm.Store(tmp_path / "s")
    with pytest.raises(ValueError, match=rf"shard-000002/{name}\.npy is damaged: its checksum"):
        cutter().fit(store, store.y)
    with pytest.raises(ValueError, match=rf"shard-000002/{name}\.npy is damaged: its checksum"):
        store.verify()
    rest = pm.Store(tmp_path / "s", shards=[n for n in store.shards if n != 2])
    assert cutter().fit(rest, rest.y).score(rest, rest.y) > 0.5


def test_other_damage_is_named_when_the_store_is_opened(tmp_path: Path) -> None:
    """A shard cut short, files that are missing, manifests that are none, another version, another folder."""
    make_store(tmp_path / "whole")

    def damaged(change: Any) -> Path:
        folder = tmp_path / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "whole", folder)
        change(folder)
        return folder

    def cut(folder: Path) -> None:
        os.truncate(folder / "shard-000001" / "features.npy", 300)

    def version(folder: Path) -> None:
        about = json.loads((folder / STORE).read_text())
        (folder / STORE).write_text(json.dumps({**about, "format_version": FORMAT_VERSION + 1}))

    for change, message in [
        (cut, r"shard-000001/features\.npy is damaged: it has 300 bytes"),
        (lambda f: (f / "shard-000001" / "edges.npy").unlink(), r"edges\.npy is damaged: it is missing"),
        (
            lambda f: (f / "shard-000000" / MANIFEST).unlink(),
            r"shard-000000 is not a shard: it has no manifest\.json",
        ),
        (lambda f: (f / "shard-000000" / MANIFEST).write_text("{"), r"manifest\.json is damaged"),
        (lambda f: (f / "shard-000000" / MANIFEST).write_text("[1]"), r"manifest\.json is damaged"),
        (
            lambda f: (f / "shard-000000" / MANIFEST).write_text(json.dumps({"format_version": FORMAT_VERSION})),
            r"manifest\.json is damaged",
        ),
        (lambda f: shutil.rmtree(f / "shard-000001"), "lacks shard-000001, although it has later shards"),
        (version, f"has format version {FORMAT_VERSION + 1}, this perturbmap reads {FORMAT_VERSION}"),
        (lambda f: (f / STORE).unlink(), r"damaged is not a store: it has no store\.json"),
        (lambda f: (f / STORE).write_bytes(b"\xff\x00"), r"store\.json is damaged"),
    ]:
        with pytest.raises(ValueError, match=message):
            pm.Store(damaged(change))
    with pytest.raises(ValueError, match="is not a store"):
        pm.Store(tmp_path / "nowhere")


def test_a_full_disk_ends_in_an_error_and_keeps_what_was_finished(small_disk: Path) -> None:
    """Nothing half-written stays, and room that is made can be used."""
    X, y = graphs(2000, seed=3)
    with pytest.raises(OSError, match=rf"No space left on device: '{small_disk}/s'"):
        pm.write_store(small_disk / "s", X, y, classes=[0, 1], shard_bytes=50_000)
    store = pm.Store(small_disk / "s")
    store.verify()
    assert 3 < len(store.shards) < 30
    assert not list((small_disk / "s").glob(".*"))
    shutil.rmtree(small_disk / "s" / f"shard-{store.shards[-1]:06d}")
    assert pm.write_store(small_disk / "s", X[:5], y[:5], append=True) == 5


def test_a_read_only_folder_is_read_and_not_written(small_disk: Path) -> None:
    """Learning and predicting need to write nothing there."""
    store = make_store(small_disk / "s", n=20, shards=2)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    store = pm.Store(small_disk / "s")
    assert len(rounds(n_jobs=1).fit(store, store.y).predict(store)) == 20
    X, y = graphs(3)
    with pytest.raises(OSError, match=rf"Read-only file system: '{small_disk}/s'"):
        pm.write_store(small_disk / "s", X, y, append=True)


def test_a_store_travels_as_its_path(tmp_path: Path) -> None:
    """Pickled, it is a few bytes; scikit-learn's tools take it as X."""
    import pickle

    from sklearn.model_selection import GridSearchCV

    store = make_store(tmp_path / "s")
    _ = store.dataset
    for one in (store, pm.Store(tmp_path / "s", shards=[1])):
        packed = pickle.dumps(one)
        assert len(packed) < 1000
        again = pickle.loads(packed)
        np.testing.assert_array_equal(again[0].features, one[0].features)
        np.testing.assert_array_equal(again.dataset.layout.streams, one.dataset.layout.streams)
    search = GridSearchCV(cutter(), {"l2": [0.1, 1.0]}, cv=2).fit(store, store.y)
    assert search.best_score_ > 0.6


def test_few_shards_are_mapped_at_a_time(tmp_path: Path) -> None:
    """However many there are: mapped pages count as memory."""
    store = make_store(tmp_path / "s", n=120, shards=20)
    assert len(store.shards) > 10
    cutter().fit(store, store.y)
    assert len(store.dataset.features.matrix.maps._kept) <= N_MAPPED


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's list of maps")
def test_whoever_has_answered_for_a_shard_closes_its_map(tmp_path: Path) -> None:
    """Joblib takes pages that stay mapped for a leak, and replaces the worker by one that knows nothing."""
    store, estimator = make_store(tmp_path / "s", n=40, shards=8), cutter().fit(*graphs(40))
    with joblib.parallel_config(backend="threading"):
        estimator.set_params(n_jobs=2).predict_marginals(store)
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


MEMORY = """
import resource, sys
import numpy as np
import perturbmap as pm
from tests.stored import graphs
X, y = graphs(20)
pm.StructuredPredictor(pm.GraphModel(), pm.BinaryGraph(), l2=0.1, solver=pm.DoubleSGD(n_passes=1)).fit(X, y)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
store = pm.Store(sys.argv[1])
estimator = pm.StructuredPredictor(pm.GraphModel(), pm.BinaryGraph(), l2=0.1, solver=pm.DoubleSGD(n_passes=1))
estimator.fit(store, store.y).predict(store)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_memory_is_bounded_by_shards_not_by_the_store(tmp_path: Path) -> None:
    """A store of 200 MB in shards of 8 MB is learned from, and predicted, with less than 80 MB."""
    rng = np.random.default_rng(0)
    block = rng.normal(size=(100, 2000)).astype(np.float32)
    edges = pm.grid_edges(10, 10)
    X = (pm.Example(np.roll(block, n, axis=0), edges) for n in range(250))
    y = ((np.roll(block, n, axis=0)[:, 0] > 0).astype(int) for n in range(250))
    pm.write_store(tmp_path / "s", X, y, classes=[0, 1], shard_bytes=8 * 2**20)
    command = [sys.executable, "-c", MEMORY, str(tmp_path / "s")]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    assert sum(file.stat().st_size for file in (tmp_path / "s").rglob("*.npy")) > 200e6
    assert int(run.stdout) < 80 * 1024  # kilobytes


def test_bad_input_to_a_store_is_refused_by_name(tmp_path: Path) -> None:
    """And what was written before it stays."""
    X, y = graphs(6)
    make_store(tmp_path / "s", n=10)
    with pytest.raises(FileExistsError, match="append=True"):
        pm.write_store(tmp_path / "s", X, y, classes=[0, 1])
    cases: list[tuple[dict[str, Any], str]] = [
        ({"labels": y}, "classes must name all values of labels"),
        ({"labels": y, "classes": [0]}, "which is not among the classes"),
        ({"labels": y[:5], "classes": [0, 1]}, "labels must have one entry for each example, but end after 5"),
        ({"labels": [*y, y[0]], "classes": [0, 1]}, "one entry for each example, 6, but have more"),
        ({"labels": [np.ones((len(y[0]), 2)) / 2, *y[1:]], "classes": [0, 1]}, "not soft ones"),
        ({"examples": []}, "at least one example"),
        ({"examples": [np.full((2, 3), 1e6)], "dtype": "float16"}, "too large for float16"),
        ({"examples": [np.full((2, 3), np.nan)]}, "must be finite"),
        ({"dtype": "int8"}, 'dtype must be "float16", "float32" or "float64"'),
        ({"shard_bytes": 0}, "shard_bytes must be"),
        ({"labels": y, "classes": [(0,), (1,)]}, "classes must be numbers, texts or booleans"),
    ]
    for arguments, message in cases:
        shutil.rmtree(tmp_path / "bad", ignore_errors=True)
        with pytest.raises(ValueError, match=message):
            pm.write_store(tmp_path / "bad", **{"examples": X, **arguments})
    with pytest.raises(ValueError, match="must have the numbers of features of the store"):
        pm.write_store(tmp_path / "s", [np.ones((3, 2))], append=True)
    with pytest.raises(ValueError, match="dtype must be that of the store, float32, but is float64"):
        pm.write_store(tmp_path / "s", X, y, append=True, dtype="float64")
    with pytest.raises(ValueError, match="classes must be those of the store"):
        pm.write_store(tmp_path / "s", X, y, classes=[1, 2], append=True)
    with pytest.raises(ValueError, match="shards must be numbers from 0"):
        pm.Store(tmp_path / "s", shards=[99])
    assert len(pm.Store(tmp_path / "s")) == 10
    store = pm.Store(tmp_path / "s")
    with pytest.raises(ValueError, match="X has 6 features, but the fit had 2"):
        pm.StructuredPredictor(solver=pm.DoubleSGD(n_passes=1)).fit([np.ones((3, 2))], [[0, 1, 0]]).predict(store)


def test_signals_reach_a_fit_from_a_store(tmp_path: Path) -> None:
    """Ctrl-C ends it with the weights so far."""
    store = make_store(tmp_path / "s", n=20)

    def interrupt(info: dict[str, Any]) -> None:
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    with pytest.warns(pm.FitInterruptedWarning):
        estimator = rounds(n_jobs=1).fit(store, store.y, callback=interrupt)
    assert len(estimator.predict(store)) == 20


def test_labels_of_other_examples_are_not_taken_for_those_of_the_store(tmp_path: Path) -> None:
    """Labels of other shards, in another order of classes, among more classes, or of another store."""
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(6, 3)) for _ in range(40)]
    y = [rng.integers(2, size=6) for _ in X]
    pm.write_store(tmp_path / "s", X, y, classes=[0, 1], shard_bytes=6 * 3 * 4 * 10)
    first, second = pm.Store(tmp_path / "s", shards=[0, 1]), pm.Store(tmp_path / "s", shards=[2, 3])

    def weights(y: Any, **parameters: Any) -> np.ndarray:
        settings = {"solver": pm.LocalSGD(pm.DoubleSGD(n_passes=2)), "random_state": 0, **parameters}
        return pm.StructuredPredictor(**settings).fit(first, y).coef_

    np.testing.assert_array_equal(weights(second.y), weights(list(second.y)))
    for classes in ([1, 0], [0, 1, 2]):
        np.testing.assert_array_equal(weights(first.y, classes=classes), weights(list(first.y), classes=classes))
    lengths = [5, 7] * 10
    others = [rng.normal(size=(n, 3)) for n in lengths]
    pm.write_store(tmp_path / "other", others, [rng.integers(2, size=n) for n in lengths], classes=[0, 1])
    with pytest.raises(ValueError, match=r"y\[0\] must have one label for each site, 6, but has 5"):
        weights(pm.Store(tmp_path / "other").y)


def test_a_store_is_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was opened by a relative path, too: workers need not be where the driver is."""
    make_store(tmp_path / "s", n=20)
    monkeypatch.chdir(tmp_path)
    store = pm.Store("s")
    assert store.path == tmp_path / "s"
    monkeypatch.chdir("/")
    assert len(rounds(n_jobs=1).fit(store, store.y).predict(store)) == 20


@pytest.mark.parametrize("file", [STORE, f"shard-000001/{MANIFEST}"])
def test_a_changed_digit_of_a_manifest_is_found(tmp_path: Path, file: str) -> None:
    """A wrong number of sites there would have edges point outside of the sites."""
    make_store(tmp_path / "s")
    text = (tmp_path / "s" / file).read_bytes()
    digits = [n for n in range(len(text)) if text[n : n + 1].isdigit()]
    for n in digits:
        changed = bytearray(text)
        changed[n] ^= 1
        with contextlib.suppress(ValueError):
            if json.loads(changed) == json.loads(text):  # the last digit of a float may change nothing
                continue
        (tmp_path / "s" / file).write_bytes(changed)
        with pytest.raises(ValueError, match=r"json (is damaged|has format version)"):
            pm.Store(tmp_path / "s")


def test_a_store_without_a_shard_is_written_anew(tmp_path: Path) -> None:
    """A first shard that was refused, or a writer that was killed in it, leaves nothing in the way."""
    X, y = graphs(6)
    with pytest.raises(ValueError, match="which is not among the classes"):
        pm.write_store(tmp_path / "s", X, y, classes=[1, 2])
    assert not (tmp_path / "s").exists()
    make_store(tmp_path / "s", n=6, shards=1)
    shutil.rmtree(tmp_path / "s" / "shard-000000")
    with pytest.raises(ValueError, match=r"no finished shard.*Write it again"):
        pm.Store(tmp_path / "s")
    assert pm.write_store(tmp_path / "s", X, [["ab"[k] for k in part] for part in y], classes="ab") == 6
    assert pm.Store(tmp_path / "s").classes == ["a", "b"]


def test_classes_that_stand_for_no_label_are_refused(tmp_path: Path) -> None:
    """-1 means that a label is not known: written as one, half of the labels would be lost without a word."""
    X, y = graphs(6)
    with pytest.raises(ValueError, match="classes must not hold -1"):
        pm.write_store(tmp_path / "s", X, [2 * part - 1 for part in y], classes=[-1, 1])
    with pytest.raises(ValueError, match="classes must not repeat"):
        pm.write_store(tmp_path / "s", X, y, classes=[0, 1, 1])


def test_edge_features_have_one_type_in_all_shards(tmp_path: Path) -> None:
    """A worker sees one shard: in float32 where all together are float64, it would find other bits."""
    X, y = graphs(6)
    make_store(tmp_path / "s", n=6)
    single = [pm.Example(x.features, x.edges, np.float32(x.edge_features), sizes=x.sizes) for x in X]
    with pytest.raises(ValueError, match="edge features of its type"):
        pm.write_store(tmp_path / "s", single, y, append=True)


KILLED = """
import os, signal, sys
import perturbmap as pm
from tests.stored import graphs

def deadly(call, is_rename):
    def wrapped(*args, **keywords):
        global n_calls
        n_calls += 1
        if n_calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = call(*args, **keywords)
        if is_rename:
            with open(f"{folder}.finished", "a") as file:
                file.write("x")
        return answer
    return wrapped

X, y = graphs(12, seed=2)
number, is_done = 0, False
while not is_done:
    number, n_calls = number + 1, 0
    folder = f"{sys.argv[1]}/{number}"
    process = os.fork()
    if process == 0:
        for name in ("mkdir", "open", "fsync", "link", "unlink", "replace", "rename"):
            setattr(os, name, deadly(getattr(os, name), name == "rename"))
        pm.write_store(folder, X, y, classes=[0, 1], shard_bytes=1500)
        os._exit(0)
    is_done = os.WIFEXITED(os.waitpid(process, 0)[1])
print(number - 1)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_writer_killed_before_any_call_of_the_system_leaves_every_finished_shard(tmp_path: Path) -> None:
    """Before each of them once; what was renamed is there, and the store can be written or added to."""
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    n_moments = int(run.stdout)
    X, y = graphs(12, seed=2)
    found = []
    for number in range(1, n_moments + 1):
        folder, finished = tmp_path / str(number), tmp_path / f"{number}.finished"
        n_shards = len(finished.read_text()) if finished.exists() else 0
        found.append(n_shards)
        if n_shards:
            store = pm.Store(folder)
            store.verify()
            assert len(store.shards) == n_shards
            for x, read in zip(X, store, strict=False):
                np.testing.assert_array_equal(x.features, read.features)
            assert all(np.array_equal(a, b) for a, b in zip(store.y, y, strict=False))
        pm.write_store(folder, X[:3], y[:3], classes=[0, 1], append=n_shards > 0)
        assert len(pm.Store(folder).shards) == n_shards + 1
        assert not list(folder.glob(".*"))
    assert found == sorted(found)
    assert set(found) == set(range(max(found) + 1))
    assert max(found) >= 3


def test_no_room_at_any_moment_leaves_every_finished_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that says so when data are to be on it: each time another call fails; no small disk is needed."""
    X, y = graphs(12, seed=2)
    sync, failures, n_calls = os.fsync, 0, 0

    def full(handle: int) -> None:
        nonlocal n_calls
        n_calls += 1
        if n_calls == failures:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    while True:
        failures, n_calls = failures + 1, 0
        folder = tmp_path / str(failures)
        try:
            pm.write_store(folder, X, y, classes=[0, 1], shard_bytes=1500)
            break
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        n_shards = len(list(folder.glob("shard-*")))
        assert not list(folder.glob(".*"))
        pm.write_store(folder, X[:3], y[:3], classes=[0, 1], append=n_shards > 0)
        store = pm.Store(folder)
        store.verify()
        assert len(store.shards) == n_shards + 1
    assert failures > 20


def test_potentials_of_a_part_of_a_store_keep_their_streams(tmp_path: Path) -> None:
    """So that marginals made of them by hand are those that the estimator predicts."""
    store = make_store(tmp_path / "s")
    est = pm.StructuredPredictor(pm.GraphModel(), pm.BinaryGraph(), l2=0.1, random_state=0, n_perturbations=5)
    est.set_params(solver=pm.DoubleSGD(n_passes=1)).fit(store, store.y)
    some = pm.Store(tmp_path / "s", shards=[1, 2])
    by_hand = pm.marginals(pm.BinaryGraph(), est.potentials(some), n_perturbations=5, rng=est.seed_).mean
    np.testing.assert_array_equal(by_hand, np.concatenate(est.predict_marginals(some)))
