"""What `benchmarks.cluster_plan` can measure on this machine, on a store of examples like superpixels."""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed, parallel_config
from threadpoolctl import threadpool_limits

from benchmarks.store import made_store, predictor
from perturbmap import DoubleSGD, Store
from perturbmap.data.store.manifest import MANIFEST, About, read_json
from perturbmap.data.store.shards import Shard, checksum

N_EXAMPLES, N_SHARDS, N_TASKS = 400, 8, 200


def measure() -> dict[str, float]:
    """The measured constants, by the names of the plan."""
    with made_store(N_EXAMPLES, N_SHARDS) as folder:
        assert folder is not None
        found = {
            "example_seconds": example_seconds(folder),
            "open_seconds": open_seconds(folder),
            "driver_bytes_per_site": driver_bytes_per_site(folder),
            "checksum_bytes_per_second": rate(folder, checksum),
            "warm_bytes_per_second": rate(folder, touch),
        }
        dispatch, fixed = dispatch_seconds()
        found |= {"dispatch_seconds": dispatch, "poll_seconds": fixed}
        cold, manifest = cold_bytes_per_second(folder) / 1e9, manifest_seconds(folder) * 1e6
        print(f"this disk: {cold:.2f} GB/s cold, {manifest:.0f} us per manifest; the plan has a shared one's")
    return found


def _median(task: Callable[[], object], repeats: int = 5) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        task()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def example_seconds(folder: Path) -> float:
    """A step of one example, which is what more than sixteen parts leave of a batch; features in the page cache."""
    store = Store(folder)
    problem = predictor(DoubleSGD()).problem(store, store.y)
    w = np.zeros(problem.n_weights)

    def steps() -> None:
        for h in range(100):
            problem.value_and_grad(w, np.array([h]), h)

    with threadpool_limits(1, user_api="blas"):
        steps()
        return _median(steps) / 100


def open_seconds(folder: Path) -> float:
    """A shard that this process has checked: manifests, and what is not mapped."""

    def opening() -> None:
        store = Store(folder, [0])
        predictor(DoubleSGD()).problem(store, store.y)

    return _median(opening)


def manifest_seconds(folder: Path) -> float:
    paths = sorted(folder.glob(f"shard-*/{MANIFEST}"))
    return _median(lambda: [read_json(path, "shard") for path in paths]) / len(paths)


def driver_bytes_per_site(folder: Path) -> float:
    """What `StructuredPredictor.fit` keeps beside the features, at its most."""
    tracemalloc.start()
    store = Store(folder)
    problem = predictor(DoubleSGD()).problem(store, store.y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / problem.data.n_sites


def rate(folder: Path, read: Callable[[Path], object]) -> float:
    """Bytes per second of reading the features of a shard."""
    file = folder / "shard-000000" / "features.npy"
    read(file)
    return file.stat().st_size / _median(lambda: read(file))


def touch(file: Path) -> float:
    """Maps the features afresh and reads a number of every page."""
    rows = Shard.open(file.parent, About.read(file.parents[1])).array("features", mapped=True)
    return float(rows.reshape(-1)[:: 4096 // rows.itemsize].sum())


def cold_bytes_per_second(folder: Path) -> float:
    """The rate after the page cache was asked to forget the files."""
    files = sorted(folder.glob("shard-*/features.npy"))
    for file in files:
        handle = os.open(file, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)
    start = time.perf_counter()
    n_bytes = sum(len(file.read_bytes()) for file in files)
    return n_bytes / (time.perf_counter() - start)


def dispatch_seconds() -> tuple[float, float]:
    """A task that does nothing but take weights and return two of them; and a round of one such task.

    On a Dask cluster of two processes where distributed is installed, else on joblib's own processes.
    """
    w = np.zeros(2000)

    def rounds(n: int) -> None:
        Parallel(n_jobs=2)(delayed(_nothing)(w) for _ in range(n))

    with _backend():
        rounds(4)
        fixed = _median(lambda: rounds(1))
        return (_median(lambda: rounds(N_TASKS)) - fixed) / (N_TASKS - 1), fixed


def _nothing(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return w, w


@contextmanager
def _backend() -> Iterator[None]:
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        yield
        return
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
        parallel_config(backend="dask"),
    ):
        yield
