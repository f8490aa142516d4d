"""Files that somebody has forged, with checksums that are right: always a ValueError that names them, never more."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perturbmap as pm
from fuzz import mutations
from fuzz.mutations import (
    DEEP,
    about_of,
    archive_about,
    archive_array,
    archive_members,
    archive_of,
    npy,
    npy_claiming,
)
from perturbmap import uai
from perturbmap.support import archive
from tests.forged_cases import X, Y, cache, small_predictor, svm
from tests.stored import cutter, make_store

Change = Callable[[bytes], bytes]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A model with a calibration, and with a state from which partial_fit goes on."""
    path = tmp_path_factory.mktemp("model") / "model.pm"
    small_predictor(calibration=2, n_perturbations=3).fit(X, Y).save(path)
    return path.read_bytes()


def about(**changes: Any) -> Change:
    """Other values in the JSON text."""
    return lambda data: archive_about(data, {**about_of(data), **changes})


def parameter(name: str, value: Any) -> Change:
    """Another value of a parameter of the estimator."""
    return lambda data: about(parameters={**about_of(data)["parameters"], name: value})(data)


def array(name: str, values: Any) -> Change:
    """Another array of this name."""
    return lambda data: archive_array(data, name, npy(np.asarray(values)))


PART: dict[str, Any] = {"class": "DoubleSGD", "own": False}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        # Claims.
        (lambda d: archive_array(d, "coef", npy_claiming("<f8", (10**12,))), "claims 8000000000000 bytes"),
        (lambda d: archive_array(d, "coef", npy_claiming("<f8", (2**32, 2**32, 2**32))), "claims over 2**63 bytes"),
        (lambda d: archive_array(d, "coef", npy_claiming("<U400000000", (1,))), "claims 1600000000 bytes"),
        (
            lambda d: archive_array(d, "coef", npy_claiming("|O", (1,), b"cos\nsystem\n.")),
            "does not begin as an array",
        ),
        (lambda d: archive_of(archive_members(d), is_packed=True), "it is packed"),
        (lambda d: mutations.claim_in_directory(d, 2**32 - 2), "claims more than"),
        (lambda d: archive_of([*archive_members(d).items()] * 2), "two arrays of one name"),
        (lambda d: archive_of({**archive_members(d), "x.py": b""}), "it holds 'x.py'"),
        # The text.
        (about(history=DEEP), "nested too deeply"),
        (lambda d: archive_array(d, "about", npy(np.array(10**12))), "is damaged"),
        (lambda d: archive_array(d, "about", npy(np.frombuffer(b"\xff\xfe{", np.uint8))), "no JSON text"),
        (lambda d: archive_about(d, [1, 2]), "is no perturbmap estimator"),
        (about(format_version=[9] * 10**5), "has format version [9, 9"),
        # Parameters.
        (about(parameters=3), "its parameters are 3"),
        (parameter("colour", 3), "unknown parameter 'colour'"),
        (parameter("l2", "x"), "l2 must be a number above 0"),
        (parameter("l2", float("nan")), "l2 must be a number above 0"),
        (parameter("solver", {**PART}), "has a DoubleSGD without parameters"),
        (parameter("solver", {**PART, "params": {"speed": 1}}), "has a DoubleSGD that cannot be made"),
        (parameter("solver", {**PART, "class": "Solver", "params": {}}), "has a Solver that cannot be made"),
        (parameter("solver", {"class": "Hamming", "params": {}}), "solver must be of type Solver"),
        (parameter("solver", {"class": ["x"], "params": {}}), "names the unknown class ['x']"),
        (parameter("solver", {"class": "StructuredPredictor", "params": {}}), "names the unknown class"),
        (
            parameter("solver", {"class": "Mine", "own": True, "params": {}}),
            "pass its class, load(path, parts=[Mine])",
        ),
        (parameter("decoding", {"class": "Decoding", "value": "x"}), "'x', which is no Decoding"),
        (parameter("classes", {"range": [0, 10**18, 1]}), "classes must be at most"),
        (parameter("classes", {"range": [0, 1]}), "has a range of [0, 1]"),
        (parameter("classes", {"tuple": 3}), "has a tuple of 3"),
        (parameter("classes", {"dict": [[[], 1]]}), "has a dict that is none"),
        (parameter("classes", {"array": ["a"], "dtype": "|O"}), "an array of the type '|O'"),
        (parameter("random_state", -1), "random_state must be an integer"),
        # What was learned.
        (array("coef", [np.nan] * 30), "coef must be finite"),
        (array("coef", np.zeros(20)), "20 weights, which are not as many"),
        (array("coef", ["a"] * 30), "coef must be numbers"),
        (about(shapes={"features": [10**12, 10**12]}), "which are not as many"),
        (about(shapes={"features": [-1, 30]}), "but is -1"),
        (about(shapes=[]), "the shapes of its weights are []"),
        (about(classes=["a", "b", "b"]), "classes must not repeat"),
        (about(classes=["a", "b", -1]), "classes must not hold -1"),
        (about(classes=["a", "b", {}]), "classes must be numbers, texts or booleans"),
        (about(classes=["a", "b"]), "label_prior must be numbers of shape (2, 2)"),
        (array("label_prior", np.full((2, 3), -1.0)), "label_prior must not be negative"),
        (array("calibration", [1.0, 0.0]), "calibration must be numbers of shape (4,)"),
        (array("calibration", [0.0, 0.0, 0.0, 0.0]), "the scale of its calibration must be above zero"),
        (about(seed=2**64), "the seed must be an integer"),
        (about(n_features_in=True), "n_features_in must be"),
        (about(iteration=-1), "iteration must be"),
        (about(history=[3]), "the history must be a list of reports"),
        (about(history=[{"phase": 1}]), "iteration of the history"),
    ],
)
def test_a_forged_model_is_refused_by_name(change: Change, message: str, model: bytes, tmp_path: Path) -> None:
    """Before memory is taken for what it claims, and before anything is made of it."""
    path = tmp_path / "forged.pm"
    path.write_bytes(change(model))
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        pm.StructuredPredictor.load(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "change",
    [
        array("state_u", np.zeros(3)),
        array("state_lag", np.full(30, np.inf)),
        array("state_memory", np.full((2, 30), np.nan)),
        array("state_memory", ["x"]),
        array("state_seen", np.zeros(2)),
        lambda d: archive_of({k: v for k, v in archive_members(d).items() if k != "state_u.npy"}),
    ],
)
def test_a_forged_state_is_refused_when_it_is_used(change: Change, model: bytes, tmp_path: Path) -> None:
    """The model predicts; partial_fit, which goes on from the state, says that it cannot."""
    (tmp_path / "forged.pm").write_bytes(change(model))
    loaded = pm.StructuredPredictor.load(tmp_path / "forged.pm")
    loaded.predict(X)
    with pytest.raises(ValueError, match=r"the state of DoubleSGD cannot be restored|must be"):
        loaded.partial_fit(X, Y)


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    """The error comes while there is something to be done about it, and leaves the file that was there."""
    path = tmp_path / "model.pm"
    estimator = small_predictor().fit(X, Y)
    estimator.save(path)
    whole = path.read_bytes()
    estimator.set_params(l2=-1.0)
    with pytest.raises(ValueError, match="l2 must be a number above 0"):
        estimator.save(path)
    estimator.set_params(l2=0.1).coef_ = estimator.coef_ * np.nan
    with pytest.raises(ValueError, match="coef_ must be finite"):
        estimator.save(path)
    with pytest.raises(ValueError, match="without pickle"):
        archive.write(path, "estimator", {}, {"a": np.array([object()])})
    assert path.read_bytes() == whole
    assert [file.name for file in tmp_path.iterdir()] == ["model.pm"]


# Checkpoints.


@pytest.mark.parametrize(
    ("make", "change", "message"),
    [
        (small_predictor, about(finished=3), "its finished stages are 3"),
        (small_predictor, about(finished=["labelled"] * 2), "its stages are"),
        (small_predictor, about(finished=["labelled", "x"]), "it lacks finished_1"),
        (small_predictor, about(stage="nowhere"), "its stage is none of this fit"),
        (small_predictor, about(seed=None), "the seed must be an integer"),
        (small_predictor, about(iteration="x"), "iteration must be"),
        (small_predictor, about(history=[{}]), "phase of the history must be"),
        (small_predictor, about(best_loss="x"), "least validation loss is 'x'"),
        (small_predictor, about(n_looks_since_best=-1), "n_looks_since_best must be"),
        (small_predictor, array("finished_0", np.zeros(5)), "finished must be numbers of shape (30,)"),
        (small_predictor, array("finished_0", np.full(30, np.nan)), "finished must be finite"),
        (small_predictor, array("best", np.zeros(5)), "best must be numbers of shape (30,)"),
        (small_predictor, array("state_u", np.zeros(5)), "weights must be 30 numbers"),
        (svm, array("state_labels", np.full(40, 3)), "labels must be"),
        (svm, array("state_counts", np.full(10, 2**62)), "counts must be"),
        (svm, array("state_queue", np.array([10])), "queue must be"),
        (svm, array("state_alpha", np.full(10, np.nan)), "alpha must be"),
        (svm, array("state_scalars", [0.0, 99.0, 0.0, 0.0, 0.0]), "99.0 of"),
        (svm, array("state_gaps", np.zeros(3)), "gaps must be"),
        (svm, array("state_a_alpha", np.zeros(3)), "a_alpha must be"),
        (lambda: small_predictor(solver=pm.LBFGS(0.1)), array("state_n_draws", 0), "n_draws must be an integer"),
        (
            lambda: small_predictor(solver=pm.LBFGS(0.1)),
            array("state_before", np.zeros(3)),
            "before the last doubling",
        ),
    ],
)
def test_a_forged_checkpoint_is_refused_by_name(
    make: Callable[[], pm.StructuredPredictor], change: Change, message: str, tmp_path: Path
) -> None:
    """Kernels index by the labellings of an SVM; the error says what to do."""
    path = tmp_path / "fit.pm"
    validation = None if make is svm else (X, Y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perturbmap.solvers.base.warnings.warn", lambda *args, **options: None)
        make().fit(X, Y, checkpoint=path, validation=validation)
        path.write_bytes(change(path.read_bytes()))
        with pytest.raises(ValueError, match=re.escape(message)) as caught:
            make().fit(X, Y, checkpoint=path, validation=validation)
    assert f"the checkpoint {path} is damaged" in str(caught.value)
    assert "remove it, and the fit begins anew" in str(caught.value)


# Stores.


@pytest.mark.parametrize(
    ("name", "forge", "message"),
    [
        ("edges", lambda a: np.where(np.arange(a.size).reshape(a.shape) == 3, 10**9, a), "two different sites"),
        ("edges", lambda a: a - 1, "two different sites"),
        ("edges", lambda a: a[:, :1].repeat(2, axis=1), "two different sites"),
        ("edges", lambda a: np.roll(a, 40, axis=0), "two different sites of their example"),
        ("site_offsets", lambda a: a[::-1], "it must rise from 0 to"),
        ("site_offsets", lambda a: np.where(a == a[1], 2**62, a), "it must rise from 0 to"),
        ("site_offsets", lambda a: a + 1, "it must rise from 0 to"),
        ("edge_offsets", lambda a: a * 2, "it must rise from 0 to"),
        ("labels", lambda a: a + 1, "its labels must be from -1 to 1"),
        ("labels", lambda a: a - 2, "its labels must be from -1 to 1"),
        ("sizes", lambda a: -a, "its sizes must not be negative"),
        ("sizes", lambda a: a / 0, "not finite"),
        ("features", lambda a: a * np.nan, "not finite"),
        ("edge_features", lambda a: a / 0, "not finite"),
    ],
)
def test_a_forged_array_of_a_store_is_refused_by_name(
    name: str, forge: Callable[[Any], Any], message: str, tmp_path: Path
) -> None:
    """No edge, offset or label points outside of its example, and no number is infinite, whatever checksums say."""
    store = make_store(tmp_path / "s", n=12, shards=2)
    cutter().fit(store, store.y)
    shard = tmp_path / "s" / "shard-000001"
    whole = np.load(shard / f"{name}.npy")
    with np.errstate(all="ignore"):
        mutations.forge_stored_array(shard, name, npy(forge(whole).astype(whole.dtype)))
    forged = pm.Store(tmp_path / "s")
    for use in (forged.verify, lambda: cutter().fit(forged, forged.y)):
        with pytest.raises(ValueError, match=message) as caught:
            use()
        assert f"{shard / name}.npy is damaged" in str(caught.value)
        assert "Write shard-000001 again, or open the store without it" in str(caught.value)


def test_an_array_is_held_to_the_others_that_it_goes_with(tmp_path: Path) -> None:
    """Edges that were right for other offsets are looked at again."""
    store = make_store(tmp_path / "s", n=12, shards=1)
    store.verify()
    shard = tmp_path / "s" / "shard-000000"
    offsets = np.load(shard / "edge_offsets.npy")
    offsets[1:-1] = offsets[-1]
    mutations.forge_stored_array(shard, "edge_offsets", npy(offsets))
    with pytest.raises(ValueError, match=r"edges\.npy is damaged: its edges must join"):
        pm.Store(tmp_path / "s").verify()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_number_that_is_not_finite_is_found_in_every_type(dtype: Any, tmp_path: Path) -> None:
    """Also the last of many."""
    pm.write_store(tmp_path / "s", [np.ones((3, 250_000))], dtype=dtype)
    pm.Store(tmp_path / "s").verify()
    shard = tmp_path / "s" / "shard-000000"
    for value in (np.nan, np.inf, -np.inf):
        features = np.load(shard / "features.npy")
        features[-1, -1] = value
        mutations.forge_stored_array(shard, "features", npy(features))
        with pytest.raises(ValueError, match=r"features\.npy is damaged: it holds numbers that are not finite"):
            pm.Store(tmp_path / "s").verify()


def manifest(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda contents: {**contents, **changes}


def entry(name: str, **changes: Any) -> Callable[[dict[str, Any]], Any]:
    """Another entry for an array, or none."""

    def change(contents: dict[str, Any]) -> Any:
        files = contents["files"]
        return {**contents, "files": {**files, name: {**files.get(name, {}), **changes}}}

    return change


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("store.json", manifest(n_features="6"), "where a number of things should be"),
        ("store.json", manifest(n_features=10**30), "where a number of things should be"),
        ("store.json", manifest(n_features=7), "of shape ["),
        ("store.json", manifest(n_edge_features=None), "numbers of features do not go together"),
        ("store.json", manifest(dtype="object"), "its types are 'object'"),
        ("store.json", manifest(classes=[0, 0]), "classes must not repeat"),
        ("store.json", manifest(classes=5), "its classes are 5"),
        ("store.json", manifest(classes=DEEP), "nested too deeply"),
        ("store.json", lambda contents: {"format_version": contents["format_version"]}, "KeyError: 'dtype'"),
        ("shard-000001/manifest.json", manifest(n_examples=10**12), "shape"),
        ("shard-000001/manifest.json", manifest(n_examples=2**62 - 1), "which no shard has"),
        ("shard-000001/manifest.json", manifest(n_sites=10**12), "shape"),
        ("shard-000001/manifest.json", manifest(n_sites=-1), "where a number of things should be"),
        ("shard-000001/manifest.json", manifest(files=[]), "its files are []"),
        ("shard-000001/manifest.json", entry("../../x", bytes=0), "it has the arrays"),
        ("shard-000001/manifest.json", entry("features", shape=[10**12, 6]), "shape"),
        ("shard-000001/manifest.json", entry("features", dtype="|O"), "features is '|O'"),
        ("shard-000001/manifest.json", entry("features", bytes=None), "where a number of things should be"),
        ("shard-000001/manifest.json", entry("features", bytes=10), "features has 10 bytes"),
        ("shard-000001/manifest.json", entry("features", squares="x"), "squares of 'x'"),
        ("shard-000001/manifest.json", manifest(files=DEEP), "nested too deeply"),
    ],
)
def test_a_forged_manifest_is_refused_by_name(file: str, change: Any, message: str, tmp_path: Path) -> None:
    """When the store is opened; its own checksum is right."""
    make_store(tmp_path / "s", n=12, shards=2)
    path = tmp_path / "s" / file
    path.write_bytes(mutations.with_checksum(change(json.loads(path.read_bytes()))))
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        pm.Store(tmp_path / "s")
    assert re.search(rf"{path.parent}\S*\.json is damaged", str(caught.value))


# The cache of image features.


def test_a_forged_entry_of_a_cache_is_computed_again(tmp_path: Path) -> None:
    """Regions and edges that are not there, numbers that are none, and claims: none is believed."""
    pytest.importorskip("skimage")
    folder, use = cache(tmp_path)
    whole = {path: path.read_bytes() for path in folder.iterdir()}
    regions, edges = (np.load(folder / f"{name}.npy") for name in ("map", "edges"))
    features = np.load(folder / "features.npy")
    forgeries = [
        ("map", npy(regions.astype(np.int64) + 2**40)),
        ("map", npy(np.zeros_like(regions))),
        ("map", npy_claiming("|u1", (10**12,))),
        ("edges", npy(edges + np.int32(1000))),
        ("edges", npy(edges[:, ::-1])),
        ("features", npy(features * np.float32(np.nan))),
        ("features", npy(features.astype(np.float64))),
        ("edge_features", npy_claiming("<f4", (2**40, 100))),
    ]
    for name, content in forgeries:
        mutations.forge_cached_array(folder, name, content)
        use()
        assert {path: path.read_bytes() for path in folder.iterdir()} == whole
    texts: list[Any] = [{"format_version": 1, "checksums": DEEP}, [], {"format_version": 1, "checksums": {}}]
    for text in texts:
        (folder / "checksums.json").write_bytes(mutations.json_bytes(text))
        use()
        assert {path: path.read_bytes() for path in folder.iterdir()} == whole


# Models of the UAI competitions.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"MARKOV 1000 {'65535 ' * 1000} 1 1000 {' '.join(map(str, range(1000)))} 9 1", "takes at least 65535 words"),
        (f"MARKOV 1000 {'2 ' * 1000} 1 1000 {' '.join(map(str, range(1000)))} 9 1", "takes at least 4 words"),
        (f"MARKOV 2 2 2 1 100000 {'0 ' * 100000} 4 1 1 1 1", "at most 2"),
        (f"MARKOV 100000 {'1 ' * 100000} 1 100000 {'7 ' * 100000} 1 1", "that differ from each other"),
        ("MARKOV 1000000000000 2", "declares the labels of 1000000000000 variables"),
    ],
)
def test_a_uai_model_that_claims_much_is_refused_by_name(text: str, message: str, tmp_path: Path) -> None:
    """At once, in a few lines, without a table of its size, and without its number, which has thousands of digits."""
    path = tmp_path / "model.uai"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        uai.read(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 400


# Everything, at random.


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux, for its limit of memory")
def test_no_spoilt_file_does_more_than_raise_a_value_error(tmp_path: Path) -> None:
    """A thousand of them, of all kinds, in a process that has 400 MB for files of a few kilobytes."""
    pytest.importorskip("skimage")
    command = [sys.executable, "-m", "tests.forged_cases", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert run.returncode == 0, run.stderr[-2000:]
    found = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(found) == 13
    assert {kind: wrong for kind, _, _, wrong in found if wrong} == {}
    assert all(n_refused >= 10 for kind, n_refused, _, _ in found if kind != "cache")  # which is computed again
    assert all(n_read >= 1 for _, _, n_read, _ in found)
