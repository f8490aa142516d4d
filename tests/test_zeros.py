"""Files leave out zeros: the same bits come back, and nothing is believed of what a forged file says of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perturbmap as pm
from fuzz.mutations import about_of, archive_about, archive_array, archive_members, archive_of, npy
from perturbmap.support import archive
from perturbmap.support.zeros import leave_out_zeros, put_back_zeros
from tests.stored import sentences, tagger

X, Y = sentences(12)


def mostly_zero(shape: Any, dtype: Any = np.float64, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.uniform(size=shape) < 0.2, rng.normal(size=shape), 0.0).astype(dtype)


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(2000,), (4, 1001), (3, 7, 99)])
def test_every_bit_comes_back(shape: Any, dtype: Any, tmp_path: Path) -> None:
    """Negative zeros and numbers next to nothing too."""
    array = mostly_zero(shape, dtype)
    array.reshape(-1)[[0, 5, -1]] = [-0.0, np.finfo(dtype).smallest_subnormal, -0.0]
    kept, shapes = leave_out_zeros({"a": array, "of another": np.ones(3)})
    assert shapes == {"a": list(shape)}
    assert sum(part.nbytes for part in kept.values()) < 0.4 * array.nbytes
    archive.write(tmp_path / "f", "thing", {}, {"a": array, "b": array[..., ::-1], "c": np.asfortranarray(array)})
    _, read = archive.read(tmp_path / "f", "thing", [], ["a", "b", "c"])
    for name, written in (("a", array), ("b", array[..., ::-1]), ("c", array)):
        assert same_bits(read[name], np.ascontiguousarray(written))
    assert sorted(read) == ["a", "b", "c"]


def test_arrays_that_are_not_mostly_zero_stay_as_they_are() -> None:
    full: dict[str, np.ndarray] = {
        "full": np.ones(3000),
        "half": np.arange(4000) % 2.0,
        "few": np.zeros(100),
        "integers": np.zeros(3000, dtype=np.int32),
    }
    kept, shapes = leave_out_zeros(full)
    assert shapes == {}
    assert kept.keys() == full.keys()
    assert all(kept[name] is array for name, array in full.items())
    assert same_bits(put_back_zeros(*leave_out_zeros({"nothing": np.zeros(5000)}))["nothing"], np.zeros(5000))


def test_the_file_of_a_tagger_has_no_zeros_and_gives_every_bit_back(tmp_path: Path) -> None:
    """Weights, and the state from which partial_fit goes on; the same fit makes the same file."""
    est = tagger().fit(X, Y)
    est.save(tmp_path / "a.pm")
    n_there, n = np.count_nonzero(est.coef_), len(est.coef_)
    assert 4 * n_there < n
    assert (tmp_path / "a.pm").stat().st_size < 7 * (8 * n_there + n // 8) + 10_000 < 8 * n
    loaded = pm.StructuredPredictor.load(tmp_path / "a.pm")
    assert same_bits(loaded.coef_, est.coef_)
    loaded.save(tmp_path / "b.pm")
    assert (tmp_path / "a.pm").read_bytes() == (tmp_path / "b.pm").read_bytes()
    assert same_bits(loaded.partial_fit(X, Y).coef_, est.partial_fit(X, Y).coef_)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("model") / "model.pm"
    tagger().fit(X, Y).save(path)
    return path.read_bytes()


def claiming(**shapes: Any) -> Any:
    return lambda d: archive_about(d, {**about_of(d), "without_zeros": {**about_of(d)["without_zeros"], **shapes}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (claiming(coef=[10**12]), "it has no 1000000000000 bits for its 'coef'"),
        (claiming(coef=[10**30, 10**30]), "bits for its 'coef'"),
        (claiming(coef=[-1]), "the shape of its 'coef' is [-1]"),
        (claiming(coef=[True, 2010]), "the shape of its 'coef' is [True, 2010]"),
        (claiming(coef="x"), "the shape of its 'coef' is 'x'"),
        (claiming(coef=[1] * 100 + [2010]), "damaged"),
        (claiming(other=[3]), "KeyError: 'other'"),
        (claiming(label_prior=[2, 2]), "label_prior.is_there"),
        (lambda d: archive_about(d, {**about_of(d), "without_zeros": [1]}), "its arrays without zeros are [1]"),
        (lambda d: archive_about(d, {**about_of(d), "without_zeros": {}}), "which are not as many"),
        (lambda d: archive_array(d, "coef", npy(np.ones(3))), "other numbers of its 'coef' than the bits say"),
        (lambda d: archive_array(d, "coef", npy(np.array(["x"] * 3))), "other numbers of its 'coef'"),
        (lambda d: archive_array(d, "coef.is_there", npy(np.zeros(3, np.uint8))), "bits for its 'coef'"),
        (lambda d: archive_array(d, "coef.is_there", npy(np.zeros(252, np.int8))), "bits for its 'coef'"),
        (
            lambda d: archive_of({k: v for k, v in archive_members(d).items() if k != "coef.is_there.npy"}),
            "coef.is_there",
        ),
    ],
)
def test_forged_bits_are_refused(change: Any, message: str, model: bytes, tmp_path: Path) -> None:
    """No memory is taken for numbers of which the file has no bits; the error names the file."""
    path = tmp_path / "forged.pm"
    path.write_bytes(change(model))
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        pm.StructuredPredictor.load(path)
    assert str(path) in str(caught.value)
