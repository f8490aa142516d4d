"""Sparse features in a store: what is read is what was written, and learning has the bits of a list."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import perturbmap as pm
from fuzz import mutations
from perturbmap.data import Dataset
from perturbmap.data.store.mapped import N_MAPPED
from perturbmap.data.store.mapped_sparse import MappedSparseMatrix, MappedSparseRows
from perturbmap.solvers.everything import Everything
from perturbmap.solvers.pieces import Piece
from tests.test_sparse import N_FEATURES, N_LABELS, sentences

SOLVERS = [
    pm.LBFGS(1e-6),
    pm.DoubleSGD(5, 4),
    pm.DoubleSGD(5, 4, pm.PlainStep()),
]


def stored(folder: Path, X: list[Any], y: list[Any] | None = None, shards: int = 4, **options: Any) -> pm.Store:
    """These examples in about so many shards, every bit of them."""
    total = sum(x.nnz * 12 for x in X)
    settings = {"dtype": "float64", "shard_bytes": total // shards, **options}
    pm.write_store(folder, X, y, classes=None if y is None else list(range(N_LABELS)), **settings)
    return pm.Store(folder)


def rows_of(store: pm.Store) -> MappedSparseRows:
    features = store.dataset.features
    assert isinstance(features, MappedSparseRows)
    return features


def learner(**parameters: Any) -> pm.StructuredPredictor:
    return pm.StructuredPredictor(**{"l2": 0.01, "random_state": 0, "n_perturbations": 4, **parameters})


def equal(one: Any, other: Any) -> bool:
    """Whether two sparse matrices have the same entries, zeros among them, in the same order."""
    arrays = ("indptr", "indices", "data")
    return one.shape == other.shape and all(np.array_equal(getattr(one, a), getattr(other, a)) for a in arrays)


# What is written.


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("binary", [False, True])
def test_a_store_holds_the_sparse_features_that_were_written(tmp_path: Path, dtype: Any, binary: bool) -> None:
    """In the precision of the store; values that are all 1 take no room."""
    X, y = sentences(25, binary=binary)
    store = stored(tmp_path / "s", X, y, dtype=dtype)
    assert len(store.shards) >= 3
    store.verify()
    for x, read in zip(X, store, strict=True):
        assert equal(read.features, x.astype(dtype))
        assert read.features.dtype == ("float32" if binary else dtype)
    values = [np.load(tmp_path / "s" / f"shard-{n:06d}" / "feature_values.npy") for n in store.shards]
    assert [len(part) == 0 for part in values] == [binary] * len(values)


def test_zeros_repeated_columns_and_empty_rows_are_kept(tmp_path: Path) -> None:
    """As the kernels take them: what is there counts for min_count, whatever its value."""
    odd = sp.csr_array(
        (np.array([0.0, 2.0, 3.0, -1.0]), np.array([4, 1, 1, 0]), np.array([0, 3, 3, 4])), shape=(3, 9)
    )
    empty = sp.csr_array((2, 9))
    store = stored(tmp_path / "s", [odd, empty, sp.csr_array((0, 9)), odd], shards=2)
    for x, read in zip([odd, empty, sp.csr_array((0, 9)), odd], store, strict=True):
        assert equal(read.features, x)
    np.testing.assert_array_equal(rows_of(store).present() @ np.ones(9), [3, 0, 1, 0, 0, 3, 0, 1])


def test_other_parts_of_examples_are_stored_beside_sparse_features(tmp_path: Path, rng: np.random.Generator) -> None:
    X = [
        pm.Example(
            sp.random_array((6, 40), density=0.1, format="csr", rng=rng),
            pm.grid_edges(2, 3),
            rng.uniform(size=(7, 2)),
            sizes=rng.uniform(1, 2, 6),
        )
        for _ in range(12)
    ]
    y = [rng.integers(2, size=6) for _ in X]
    pm.write_store(tmp_path / "s", X, y, classes=[0, 1], dtype="float64", shard_bytes=10_000)
    store = pm.Store(tmp_path / "s")
    for x, read in zip(X, store, strict=True):
        assert equal(read.features, x.features)
        for name in ("edges", "edge_features", "sizes"):
            np.testing.assert_array_equal(getattr(read, name), getattr(x, name))
    cutter = learner(model=pm.GraphModel(), structure=pm.BinaryGraph(), solver=pm.DoubleSGD(3, 4))
    np.testing.assert_array_equal(cutter.fit(store, store.y).coef_, cutter.fit(X, y).coef_)


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    X, _ = sentences(4)
    full = [x.toarray() for x in X]
    for mixed, is_so in (([*X, full[0]], "example 4 are dense"), ([*full, X[0]], "example 4 are sparse")):
        with pytest.raises(ValueError, match=f"sparse in all examples of a store or in none, but those of {is_so}"):
            pm.write_store(tmp_path / "s", mixed)
    with pytest.raises(ValueError, match='dtype must be "float32" or "float64" where features are sparse'):
        pm.write_store(tmp_path / "s", X, dtype="float16")
    with pytest.raises(ValueError, match="too large for float32"):
        pm.write_store(tmp_path / "s", [1e60 * x for x in X])
    assert not (tmp_path / "s").exists()
    pm.write_store(tmp_path / "s", X)
    with pytest.raises(ValueError, match=r"'is_sparse': True.*examples 0 to 3 have .*'is_sparse': False"):
        pm.write_store(tmp_path / "s", full, append=True)
    with pytest.raises(ValueError, match=f"'n_features': {N_FEATURES}.*'n_features': 5"):
        pm.write_store(tmp_path / "s", [sp.csr_array((3, 5))], append=True)
    assert pm.write_store(tmp_path / "s", X, append=True) == 4


# Products.


def test_products_have_the_bits_of_memory(tmp_path: Path, rng: np.random.Generator) -> None:
    """Whatever shards and parts there are; one shard has no values, since all of its are 1."""
    X = [*sentences(20, binary=True)[0], *sentences(40)[0]]
    store = stored(tmp_path / "s", X, shards=5)
    kept, rows = rows_of(store), Dataset.from_examples(X).features
    w, v = rng.normal(size=(N_FEATURES, 3)), rng.normal(size=(store.dataset.n_sites, 3))
    for some in (np.arange(60), np.array([3, 50, 4, 5, 21, 20]), np.array([7])):
        one, other = kept.take(some), rows.take(some)
        np.testing.assert_array_equal(one @ w, other @ w)
        np.testing.assert_array_equal(one @ w[:, 0], other @ w[:, 0])
        values = v[: len(other @ w)]
        np.testing.assert_array_equal(one.pullback(values), other.pullback(values))
        np.testing.assert_array_equal(one.present().pullback(values), other.present().pullback(values))  # type: ignore[attr-defined]
        (small, columns), (as_small, as_columns) = one.compact(), other.compact()  # type: ignore[attr-defined]
        np.testing.assert_array_equal(columns, as_columns)
        np.testing.assert_array_equal(small.matrix.indices, as_small.matrix.indices)
        np.testing.assert_array_equal(small @ w[columns], as_small @ w[columns])


def test_many_rows_are_multiplied_part_by_part(tmp_path: Path, rng: np.random.Generator) -> None:
    X = [sp.random_array((n, 30), density=0.1, format="csr", rng=rng) for n in (5000, 1, 0, 9000, 4000, 100, 4096)]
    kept, rows = rows_of(stored(tmp_path / "s", X, shards=2)), Dataset.from_examples(X).features
    w, v = rng.normal(size=(30, 2)), rng.normal(size=(sum(x.shape[0] for x in X), 2))
    np.testing.assert_array_equal(kept @ w, rows @ w)
    np.testing.assert_array_equal(kept.pullback(v), rows.pullback(v))


def test_what_is_asked_of_all_rows_stands_in_the_manifests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for binary in (False, True):
        X, _ = sentences(30, binary=binary)
        store, rows = stored(tmp_path / str(binary), X), Dataset.from_examples(X).features
        other = stored(tmp_path / f"{binary} others", sentences(30, seed=1, binary=binary)[0])
        monkeypatch.setattr(MappedSparseRows, "loaded", None)
        for name in ("mean_squared_norm", "mean_absolute_sum", "minimum"):
            assert getattr(rows_of(store), name)() == pytest.approx(getattr(rows, name)(), rel=1e-12)
        again = pm.Store(tmp_path / str(binary))
        assert rows_of(again).fingerprint() == rows_of(store).fingerprint() != rows_of(other).fingerprint()
        monkeypatch.undo()


def test_rows_travel_to_other_processes(tmp_path: Path) -> None:
    rows = rows_of(stored(tmp_path / "s", sentences(10)[0]))
    ones = np.ones(N_FEATURES)
    for some in (rows, rows.present()):
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(some)) @ ones, some @ ones)


# Learning.


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.filterwarnings("ignore:the fit ended")
def test_a_fit_of_a_sparse_store_of_one_shard_is_that_of_a_list(tmp_path: Path, solver: Any) -> None:
    """In all bits, whichever weights are learned."""
    X, y = sentences(40)
    store = stored(tmp_path / "s", X, y, shards=1)
    for least in (0, 1, 2):
        est = learner(model=pm.SequenceModel(min_count=least), objective=pm.ExactLogLikelihood(), solver=solver)
        np.testing.assert_array_equal(est.fit(store, store.y).coef_, est.fit(X, y).coef_)


@pytest.mark.parametrize("solver", [pm.LBFGS(1e-3), pm.LocalSGD(pm.DoubleSGD(3, 8))])
@pytest.mark.filterwarnings("ignore:the fit ended")
def test_jobs_change_no_bit_of_a_fit_or_a_prediction_on_a_sparse_store(tmp_path: Path, solver: Any) -> None:
    X, y = sentences(40)
    store = stored(tmp_path / "s", X, y)
    labels: list[Any] = [*y[:20], *[None if n % 2 else [None, *part[1:]] for n, part in enumerate(y[20:])]]
    for known in (store.y, labels):
        fits = [learner(solver=solver, n_jobs=n_jobs).fit(store, known) for n_jobs in (None, 2)]
        np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
        for one, other in zip(fits[0].predict_marginals(X), fits[1].predict_marginals(store), strict=True):
            np.testing.assert_array_equal(one, other)
        assert all(map(np.array_equal, fits[0].predict(X), fits[1].predict(store)))
    assert fits[0].score(store, store.y) > 0.8


@pytest.mark.filterwarnings("ignore:the fit ended")
def test_everything_that_learns_takes_a_sparse_store(tmp_path: Path) -> None:
    """The SVM, calibration, validation, partial_fit, a checkpoint."""
    X, y = sentences(60)
    store = stored(tmp_path / "s", X, y)
    svm = learner(objective=pm.StructuredHinge(), solver=pm.BCFW(0.2)).fit(store, store.y)
    assert svm.score(store, store.y) > 0.9
    est = learner(solver=pm.DoubleSGD(5, 4), calibration=2)
    est.fit(store, store.y, validation=(store, store.y), checkpoint=tmp_path / "fit.pm")
    assert est.score(X, y) > 0.9
    parts = learner(solver=pm.DoubleSGD(batch_size=4)).partial_fit(store, store.y, classes=range(N_LABELS))
    assert parts.partial_fit(store, store.y).score(store, store.y) > 0.9


def test_the_weights_that_are_learned_are_those_of_a_list(tmp_path: Path) -> None:
    """Counts are added up over all shards; and a shard alone has the whole problem's."""
    X, y = sentences(60)
    store = stored(tmp_path / "s", X, y)
    est = learner(model=pm.SequenceModel(min_count=2))
    learned = est.problem(store, store.y).learned
    assert learned is not None
    np.testing.assert_array_equal(learned, est.problem(X, y).learned)


# What stays on disk.


def peak(work: Any) -> int:
    """Bytes that some work has in memory at most, beyond what was there before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_features_stay_on_disk(tmp_path: Path, rng: np.random.Generator) -> None:
    """A pass over all examples, with gradients or counts, has a small part of them in memory at a time."""
    n, n_sites, n_columns = 1000, 100, 500
    X = [sp.random_array((n_sites, n_columns), density=0.1, format="csr", rng=rng)] * n
    y = [rng.integers(2, size=n_sites) for _ in range(n)]
    n_bytes = sum(x.nnz for x in X) * 12
    pm.write_store(tmp_path / "s", X, y, classes=[0, 1], dtype="float64", shard_bytes=n_bytes // 8)
    store = pm.Store(tmp_path / "s")
    problem = learner(structure=pm.Chain(2), objective=pm.ExactLogLikelihood()).problem(store, store.y)
    assert peak(lambda: problem.learned) < n_bytes / 6
    everything = Everything(problem)
    w = np.zeros(problem.n_weights)[everything.at]
    with everything:
        assert peak(lambda: everything.value_and_grad(w)) < n_bytes / 2
    assert peak(lambda: store.dataset.features @ np.ones((n_columns, 1))) < n_bytes / 6
    assert len(store.dataset.features.matrix.maps._kept) <= N_MAPPED


def test_a_step_looks_at_the_rows_of_its_examples_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = sentences(60)
    store = stored(tmp_path / "s", X, y, shards=2)
    problem = learner(model=pm.SequenceModel(min_count=0)).problem(store, store.y)
    seen: list[int] = []
    block = MappedSparseMatrix.block

    def counted(self: Any, first: int, last: int) -> Any:
        seen.append(last - first)
        return block(self, first, last)

    monkeypatch.setattr(MappedSparseMatrix, "block", counted)
    some = np.array([50, 3, 4, 17])
    Piece.of(problem, some).value_and_grad(np.zeros(Piece.of(problem, some).problem.n_weights))
    assert sum(seen) == 2 * sum(len(y[n]) for n in some)
    assert len(seen) == 2 * 3  # examples that lie together are read together


# Damage.


def forge(shard: Path, name: str, values: Any) -> None:
    mutations.forge_stored_array(shard, name, mutations.npy(values), shape=list(values.shape))


@pytest.mark.parametrize("name", ["feature_starts", "feature_indices", "feature_values"])
def test_a_flipped_byte_of_sparse_features_is_found(tmp_path: Path, name: str) -> None:
    X, y = sentences(30)
    store = stored(tmp_path / "s", X, y)
    file = tmp_path / "s" / "shard-000001" / f"{name}.npy"
    content = bytearray(file.read_bytes())
    content[140] ^= 1
    file.write_bytes(content)
    store = pm.Store(tmp_path / "s")
    for use in (store.verify, lambda: learner().fit(store, store.y), lambda: list(store)):
        with pytest.raises(ValueError, match=rf"shard-000001/{name}\.npy is damaged: its checksum"):
            use()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "feature_indices",
            lambda a: np.where(np.arange(a.size) == 5, N_FEATURES, a),
            "columns must be from 0 to 199",
        ),
        ("feature_indices", lambda a: a - 8, "columns must be from 0 to 199"),
        ("feature_indices", lambda a: np.full_like(a, 2**31 - 1), "columns must be from 0 to 199"),
        ("feature_starts", lambda a: a[::-1], "it must rise from 0 to"),
        ("feature_starts", lambda a: np.where(a == a[1], 2**62, a), "it must rise from 0 to"),
        ("feature_starts", lambda a: a + 1, "it must rise from 0 to"),
        ("feature_starts", lambda a: a * 2, "it must rise from 0 to"),
        ("feature_values", lambda a: a * np.nan, "not finite"),
    ],
)
def test_forged_sparse_features_are_refused_by_name(tmp_path: Path, name: str, change: Any, message: str) -> None:
    """No entry points outside of the matrix, whatever checksums say, also where the file was right before."""
    X, y = sentences(30)
    store = stored(tmp_path / "s", X, y)
    store.verify()
    shard = tmp_path / "s" / "shard-000001"
    whole = np.load(shard / f"{name}.npy")
    forge(shard, name, change(whole).astype(whole.dtype))
    forged = pm.Store(tmp_path / "s")
    for use in (forged.verify, lambda: learner().fit(forged, forged.y), lambda: list(forged)):
        with pytest.raises(ValueError, match=message) as caught:
            use()
        assert f"{shard / name}.npy is damaged" in str(caught.value)


def test_starts_are_held_to_the_entries_that_there_are(tmp_path: Path) -> None:
    """Starts that were right for more entries are looked at again."""
    X, y = sentences(30, binary=True)
    stored(tmp_path / "s", X, y).verify()
    shard = tmp_path / "s" / "shard-000001"
    forge(shard, "feature_indices", np.load(shard / "feature_indices.npy")[:-1])
    with pytest.raises(ValueError, match=r"feature_starts\.npy is damaged: it must rise from 0 to"):
        pm.Store(tmp_path / "s").verify()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_sparse": False}, "it has the arrays"),
        ({"is_sparse": 1}, "is_sparse is 1"),
        ({"dtype": "float16"}, "its types are 'float16'"),
        ({"n_features": 2**31}, "it has 2147483648 columns, more than sparse features can have"),
        ({"n_features": None}, "numbers of features do not go together"),
    ],
)
def test_a_forged_description_of_sparse_features_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    stored(tmp_path / "s", *sentences(30))
    path = tmp_path / "s" / "store.json"
    path.write_bytes(mutations.with_checksum({**json.loads(path.read_bytes()), **changes}))
    with pytest.raises(ValueError, match=message):
        pm.Store(tmp_path / "s")


def test_values_are_as_many_as_columns_or_none(tmp_path: Path) -> None:
    stored(tmp_path / "s", *sentences(30))
    shard = tmp_path / "s" / "shard-000001"
    forge(shard, "feature_values", np.load(shard / "feature_values.npy")[:-1])
    with pytest.raises(ValueError, match=r"feature_values is .* of shape"):
        pm.Store(tmp_path / "s")


def test_fewer_columns_than_there_are_is_refused(tmp_path: Path) -> None:
    """A store.json that was forged: the columns of the shards point at nothing."""
    stored(tmp_path / "s", *sentences(30)).verify()
    path = tmp_path / "s" / "store.json"
    path.write_bytes(mutations.with_checksum({**json.loads(path.read_bytes()), "n_features": 3}))
    store = pm.Store(tmp_path / "s")
    with pytest.raises(ValueError, match=r"feature_indices\.npy is damaged: its columns must be from 0 to 2"):
        learner().fit(store, store.y)
