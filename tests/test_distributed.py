"""Rounds of local steps: what they depend on, what they reach, and what a lost worker or driver costs."""

import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest

import perturbmap as pm
from perturbmap.datasets import load_ocr
from tests.stored import Mortal, cutter, graphs, make_store
from tests.stored import rounds as in_rounds

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three workers, each a process of its own."""
    distributed = pytest.importorskip("distributed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {"n_workers": 3, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
        with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster) as client:
            client.run(sys.path.insert, 0, str(ROOT))
            yield client


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> pm.Store:
    return make_store(tmp_path_factory.mktemp("stores") / "s", n=80, shards=6)


@pytest.mark.filterwarnings("ignore")  # what Dask and its dependencies warn of is their own
@pytest.mark.slow
def test_a_cluster_gives_the_bits_of_one_process(cluster: Any, store: pm.Store) -> None:
    """Weights, predictions and marginals: list in memory, store, two processes, three workers of Dask."""
    alone = in_rounds(n_jobs=1).fit(store, store.y)
    expected = alone.predict_marginals(list(store)), alone.predict(list(store))
    two = in_rounds(n_jobs=2).fit(store, store.y)
    with joblib.parallel_config(backend="dask"):
        remote = in_rounds(n_jobs=-1).fit(store, store.y)
        found = remote.predict_marginals(store), remote.predict(store)
    np.testing.assert_array_equal(alone.coef_, two.coef_)
    np.testing.assert_array_equal(alone.coef_, remote.coef_)
    for one, other in [*zip(expected, found, strict=True), (expected[0], two.predict_marginals(store))]:
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_a_killed_worker_changes_nothing(cluster: Any, store: pm.Store) -> None:
    """Its part of a round is run again by the others: the fit ends with the same weights."""
    settings = {"sgd": pm.DoubleSGD(n_passes=12, batch_size=8)}
    expected = in_rounds(n_jobs=1, **settings).fit(store, store.y).coef_
    workers = cluster.run(os.getpid)
    killed: list[int] = []
    rounds: list[int] = []

    def kill_one(info: dict[str, Any]) -> None:
        rounds.append(info["iteration"])
        if info["iteration"] == 8:
            killed.append(next(iter(workers.values())))
            # A moment later, so that it dies at work.
            threading.Timer(0.01, os.kill, (killed[0], signal.SIGKILL)).start()

    with joblib.parallel_config(backend="dask"):
        found = in_rounds(n_jobs=-1, **settings).fit(store, store.y, callback=kill_one).coef_
    assert rounds[-1] == 48
    assert not Path(f"/proc/{killed[0]}").exists() or killed[0] not in cluster.run(os.getpid).values()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_a_process_that_dies_is_replaced(store: pm.Store, tmp_path: Path) -> None:
    """Without a cluster too: the round in which it died is run again."""
    expected = in_rounds(n_jobs=1).fit(store, store.y).coef_
    mortal = in_rounds(n_jobs=2).set_params(model=Mortal(str(tmp_path / "died"), os.getpid()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # joblib says that a worker stopped
        found = mortal.fit(store, store.y).coef_
    assert (tmp_path / "died").exists()
    np.testing.assert_array_equal(found, expected)


DRIVER = """
import sys
import perturbmap as pm
from tests.stored import rounds
store = pm.Store(sys.argv[1])
sgd = pm.DoubleSGD(n_passes=12, batch_size=8)
def say(info):
    print(info["iteration"], flush=True)
estimator = rounds(sgd, n_jobs=1).fit(store, store.y, checkpoint=sys.argv[2], callback=say)
estimator.save(sys.argv[3])
"""


@pytest.mark.slow
def test_a_killed_driver_resumes_from_its_last_round(tmp_path: Path, store: pm.Store) -> None:
    """And ends with the weights of one that was not killed."""
    paths = [str(store.path), str(tmp_path / "fit.pm"), str(tmp_path / "model.pm")]
    command = [sys.executable, "-c", DRIVER, *paths]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    while int(process.stdout.readline()) < 15:
        pass
    process.kill()
    process.wait()
    process.stdout.close()
    again = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert int(again.stdout.split()[0]) >= 15  # it went on, and did not begin again
    expected = in_rounds(pm.DoubleSGD(n_passes=12, batch_size=8), n_jobs=1).fit(store, store.y).coef_
    np.testing.assert_array_equal(pm.StructuredPredictor.load(paths[2]).coef_, expected)


def test_what_travels_is_a_path_and_weights(store: pm.Store) -> None:
    """No features, and no labels where they are the store's own."""
    import pickle

    estimator = cutter()
    whole = estimator.problem(store, store.y)
    solver = pm.LocalSGD(pm.DoubleSGD())
    shipped = [len(pickle.dumps(task)) for task in solver.tasks(whole, solver.start(whole))]
    assert max(shipped) < 2000
    listed = estimator.problem(store, [list(part) for part in store.y])
    labels = [len(pickle.dumps(task)) for task in solver.tasks(listed, solver.start(listed))]
    sites = store.dataset.n_sites / len(store.shards)
    assert max(labels) < 2000 + 40 * 2 * sites


def test_labels_that_travel_give_the_same_weights(store: pm.Store) -> None:
    """As those that workers read from the store."""
    one = in_rounds(n_jobs=1).fit(store, store.y)
    other = in_rounds(n_jobs=1).fit(store, [list(part) for part in store.y])
    np.testing.assert_array_equal(one.coef_, other.coef_)


def test_weak_labels_are_learned_from_in_rounds_too(store: pm.Store) -> None:
    """Algorithm 3: the same weights whether one process works or two."""
    partly: list[Any] = [None if n % 3 == 0 else part for n, part in enumerate(store.y)]
    fits = [in_rounds(n_jobs=n_jobs).fit(store, partly) for n_jobs in (1, 2)]
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
    assert fits[0].score(store, store.y) > 0.75


def test_a_store_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    """Although workers keep what they have read from round to round."""
    import shutil

    fits = []
    for seed in (0, 1):
        shutil.rmtree(tmp_path / "s", ignore_errors=True)
        fresh = make_store(tmp_path / "s", n=30, shards=2, seed=seed)
        fits.append(in_rounds(n_jobs=1).fit(fresh, fresh.y).coef_)
        shutil.copytree(tmp_path / "s", tmp_path / str(seed))
    other = pm.Store(tmp_path / "1")
    np.testing.assert_array_equal(fits[1], in_rounds(n_jobs=1).fit(other, other.y).coef_)
    assert not np.array_equal(fits[0], fits[1])


def test_rounds_need_a_store() -> None:
    """And say so."""
    X, y = graphs(5)
    with pytest.raises(ValueError, match="LocalSGD works on the shards of a Store"):
        cutter(solver=pm.LocalSGD()).fit(X, y)
    with pytest.raises(TypeError, match="sgd must be DoubleSGD"):
        cutter(solver=pm.LocalSGD(pm.BCFW())).fit(X, y)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rounds_per_pass must be"):
        cutter(solver=pm.LocalSGD(rounds_per_pass=0)).fit(X, y)


@pytest.mark.slow
def test_rounds_reach_the_error_of_a_single_run(tmp_path: Path) -> None:
    """On handwriting, with as many passes: the difference is within four standard errors."""
    X, y, folds = load_ocr()
    X = [x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True)) for x in X]
    train = np.random.default_rng(0).permutation(np.flatnonzero(folds == 0))
    test = np.flatnonzero(folds == 1)
    classes = sorted({letter for word in y for letter in word.tolist()})
    total = sum(X[i].size * 4 for i in train)
    folder = tmp_path / "words"
    pm.write_store(folder, (X[i] for i in train), (y[i] for i in train), classes=classes, shard_bytes=total // 4 - 1)
    words = pm.Store(folder)
    assert len(words.shards) in (4, 5)
    wrong = []
    sgd = pm.DoubleSGD(n_passes=20, step=pm.PlainStep(1))
    for solver in (sgd, pm.LocalSGD(sgd)):
        reader = pm.StructuredPredictor(l2=1e-4, solver=solver, random_state=0).fit(words, words.y)
        read = reader.predict([X[i] for i in test])
        wrong.append(np.concatenate([a != b for a, b in zip(read, (y[i] for i in test), strict=True)]))
    differ = np.count_nonzero(wrong[0] != wrong[1])
    assert wrong[0].mean() < 0.21
    assert abs(int(wrong[1].sum()) - int(wrong[0].sum())) < 4 * np.sqrt(differ)


@pytest.mark.parametrize("n", [20, 60, 80])
def test_rounds_make_as_many_passes_as_were_asked_for(tmp_path: Path, n: int) -> None:
    """Within a batch a shard, however few the examples are; and as many steps as are asked for at least."""
    few = make_store(tmp_path / "s", n=n)
    problem = cutter().problem(few, few.y)
    for sgd, n_passes in [(pm.DoubleSGD(n_passes=10), 10), (pm.DoubleSGD(1, min_steps=100), 100 * 16 / n)]:
        solver = pm.LocalSGD(sgd)
        tasks, rounds = solver.tasks(problem, solver.start(problem)), solver.n_iter(n)
        seen = sum(int(rounds * task.steps_per_round) * task.size for task in tasks)
        slack = sum(task.size for task in tasks) + n / solver.rounds_per_pass
        assert abs(seen - n_passes * n) <= slack


def test_a_fit_resumes_with_another_number_of_jobs(tmp_path: Path, store: pm.Store) -> None:
    """On another machine, say; but not without rounds, which is another fit."""
    whole = in_rounds(n_jobs=1).fit(store, store.y, checkpoint=tmp_path / "fit.pm")
    np.testing.assert_array_equal(
        in_rounds(n_jobs=2).fit(store, store.y, checkpoint=tmp_path / "fit.pm").coef_, whole.coef_
    )
    with pytest.raises(ValueError, match="other data or parameters"):
        cutter().fit(store, store.y, checkpoint=tmp_path / "fit.pm")


def test_blas_has_one_thread_until_the_last_has_left() -> None:
    """Threads that overlap: the first to leave does not give the others more, nor does the last leave one behind."""
    from threadpoolctl import threadpool_info, threadpool_limits

    from perturbmap.support.blas import one_blas_thread

    def counts() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        if counts() != {2}:
            pytest.skip("this BLAS has one thread")
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert counts() == {1}
        second.__exit__(None, None, None)
        assert counts() == {2}


WEAK = """
import sys
import numpy as np
import perturbmap as pm
store = pm.Store(sys.argv[1])
partly = [None if n == 1 else part for n, part in enumerate(store.y)]
solver = pm.DoubleSGD(n_passes=2, batch_size=3)
settings = {"l2": 0.1, "solver": solver, "n_perturbations": 2, "random_state": 0, "calibration": 2}
weights = pm.StructuredPredictor(n_jobs=1, classes=range(8), **settings).fit(store, partly).coef_
print(weights.tobytes().hex())
"""


def test_rounds_do_not_depend_on_the_threads_of_blas(tmp_path: Path) -> None:
    """With guessed labels and calibration too, which the driver computes."""
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(200, 1500)).astype(np.float32) for _ in range(6)]
    y = [rng.integers(8, size=200) for _ in X]
    pm.write_store(tmp_path / "s", X, y, classes=range(8), shard_bytes=X[0].nbytes * 3)
    command = [sys.executable, "-c", WEAK, str(tmp_path / "s")]
    found = [
        subprocess.run(
            command, capture_output=True, check=True, cwd=ROOT, env={**os.environ, "OPENBLAS_NUM_THREADS": n}
        ).stdout
        for n in ("1", "2")
    ]
    assert found[0] == found[1]
