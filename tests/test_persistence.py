"""Files and interruptions: what is saved is whole, what is killed goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perturbmap import (
    BinaryGraph,
    Chain,
    Decoding,
    DoubleSGD,
    Example,
    FromSolver,
    GraphModel,
    LinearModel,
    MarginalLogLikelihood,
    Matching,
    MatchingModel,
    Moments,
    PlainStep,
    Potentials,
    StructuredPredictor,
    WeightedHamming,
    ZeroOne,
)
from perturbmap.data import Dataset
from perturbmap.potentials import Floats
from perturbmap.solvers import Problem
from perturbmap.support import archive

from .test_estimator import predictor, words


@pytest.mark.parametrize("name", ["chain", "graph", "matching"])
def test_a_saved_estimator_is_the_same_in_another_process(name: str, tmp_path: Path) -> None:
    """Parameters, classes, weights and predictions survive; nothing is pickled."""
    rng = np.random.default_rng(0)
    X: list[Any]
    if name == "chain":
        X, y = words(20)
        est = predictor(
            calibration=2, decoding=Decoding.MARGINAL, objective=MarginalLogLikelihood(WeightedHamming([1, 2, 1.5]))
        )
    elif name == "graph":
        X, y = [Example(rng.normal(size=(5, 2))) for _ in range(6)], [rng.integers(0, 2, 5) for _ in range(6)]
        est = predictor(model=GraphModel(), structure=BinaryGraph(n_threads=1))
    else:
        X = [Example(rng.normal(size=(3, 2)), label_features=rng.normal(size=(3, 2))) for _ in range(6)]
        y = [rng.permutation(3) for _ in range(6)]
        est = predictor(model=MatchingModel(), structure=Matching())
    est.fit(X, y)
    path = tmp_path / "model.pm"
    est.save(path)
    assert b"pickle" not in path.read_bytes()
    loaded = StructuredPredictor.load(path)
    for a, b in zip(loaded.predict_marginals(X), est.predict_marginals(X), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(loaded.coef_, est.coef_)
    assert repr(loaded.get_params()["objective"]) == repr(est.get_params()["objective"])
    for a, b in zip(loaded.predict(X), est.predict(X), strict=True):
        np.testing.assert_array_equal(a, b)
    code = f"from perturbmap import StructuredPredictor as S; print(S.load({str(path)!r}).coef_.sum())"
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert float(printed) == pytest.approx(float(est.coef_.sum()))


def test_a_damaged_truncated_or_foreign_file_is_named(tmp_path: Path) -> None:
    """Every byte that is cut off, and every kind of other file, gives a ValueError with the path."""
    est = predictor().fit(*words(10))
    path = tmp_path / "model.pm"
    est.save(path)
    whole = path.read_bytes()
    broken = tmp_path / "broken.pm"
    contents = [whole[:cut] for cut in range(0, len(whole) - 1, max(1, len(whole) // 40))]
    contents += [b"", b"hello", b"PK\x03\x04 not a zip"]
    for content in contents:
        broken.write_bytes(content)
        with pytest.raises(ValueError, match=re.escape(str(broken))):
            StructuredPredictor.load(broken)
    for place in range(0, len(whole), 97):  # a byte that no reader needs, such as one of a time stamp, does no harm
        flipped = bytearray(whole)
        flipped[place] ^= 0xFF
        broken.write_bytes(bytes(flipped))
        try:
            found = StructuredPredictor.load(broken)
        except ValueError as error:
            assert str(broken) in str(error)  # noqa: PT017
        else:
            np.testing.assert_array_equal(found.coef_, est.coef_)
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(ValueError, match="not a perturbmap file"):
        StructuredPredictor.load(tmp_path / "other.npz")
    with pytest.raises(FileNotFoundError):
        StructuredPredictor.load(tmp_path / "nothing.pm")


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are moved into place whole; a write that fails leaves no trace."""
    est = predictor().fit(*words(10))
    path = tmp_path / "model.pm"
    est.save(path)
    before = path.read_bytes()

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(archive, "write_array", fail)
    with pytest.raises(OSError, match=r"model\.pm cannot be written: No space left"):
        est.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.pm"]


def test_what_cannot_be_saved_says_so(tmp_path: Path) -> None:
    """A user's own solver is a function; a tuple is not a JSON label."""
    X, y = words(10)
    est = predictor().fit(X, y)
    est.structure = FromSolver(lambda unary: unary.argmax(axis=1))
    with pytest.raises(ValueError, match="cannot be saved without pickle"):
        est.save(tmp_path / "model.pm")
    est = predictor().fit(X, [[(v,) for v in entry] for entry in y])
    with pytest.raises(ValueError, match="classes must be numbers, texts or booleans"):
        est.save(tmp_path / "model.pm")


# Interruptions.

SCRIPT = """
import sys, numpy as np
from tests.test_estimator import predictor, words
from perturbmap import DoubleSGD, PlainStep
X, y = words(80)
labels = [*y[:50], *[None] * 30]
est = predictor(solver=DoubleSGD(n_passes=12, step=PlainStep(0.3), batch_size=2))
est.fit(X, labels, checkpoint=sys.argv[1], checkpoint_seconds=0.0)
np.save(sys.argv[2], est.coef_)
"""


@pytest.mark.slow
def test_a_fit_killed_at_any_moment_resumes_to_the_same_bits(tmp_path: Path) -> None:
    """SIGKILL again and again, in both phases of Algorithm 3; the end is that of the undisturbed run."""
    root = Path(__file__).parents[1]

    def start(checkpoint: Path, out: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", textwrap.dedent(SCRIPT), str(checkpoint), str(out)], cwd=root)

    undisturbed = tmp_path / "undisturbed.npy"
    assert start(tmp_path / "a.pm", undisturbed).wait() == 0
    checkpoint, out, kills = tmp_path / "b.pm", tmp_path / "killed.npy", 0
    for delay in np.random.default_rng(0).uniform(0.0, 0.1, 4):
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else None
        process = start(checkpoint, out)
        while process.poll() is None and (not checkpoint.exists() or checkpoint.stat().st_mtime_ns == before):
            time.sleep(0.001)
        time.sleep(delay)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    if not out.exists():
        assert start(checkpoint, out).wait() == 0
    assert kills >= 2
    np.testing.assert_array_equal(np.load(out), np.load(undisturbed))


def test_a_checkpoint_of_another_fit_is_refused(tmp_path: Path) -> None:
    """Other data or parameters: an error, not a surprise."""
    X, y = words(20)
    path = tmp_path / "checkpoint.pm"
    first = predictor().fit(X, y, checkpoint=path)
    again = predictor().fit(X, y, checkpoint=path)  # finished: nothing left to do
    np.testing.assert_array_equal(first.coef_, again.coef_)
    with pytest.raises(ValueError, match="belongs to a fit with other data or parameters"):
        predictor().fit(X, y, checkpoint=path, validation=(X, y))
    with pytest.raises(ValueError, match="belongs to a fit with other data or parameters"):
        predictor(l2=0.1).fit(X, y, checkpoint=path)
    with pytest.raises(ValueError, match="belongs to a fit with other data or parameters"):
        predictor().fit([2 * x for x in X], y, checkpoint=path)


def test_threads_do_not_make_another_fit_and_parameters_of_a_users_part_do(tmp_path: Path) -> None:
    """What changes the speed alone is not looked at; a user's own parts are, and functions by their code."""
    X, y = words(20)
    path = tmp_path / "checkpoint.pm"
    first = predictor(structure=Chain(1)).fit(X, y, checkpoint=path)
    idle: dict[str, Any] = {"n_jobs": 2, "decoding": Decoding.MARGINAL, "n_perturbations": 7, "task_loss": ZeroOne()}
    again = predictor(structure=Chain(2), **idle).fit(X, y, checkpoint=path)
    np.testing.assert_array_equal(first.coef_, again.coef_)

    def solver(shift: float) -> Any:
        return lambda unary: (unary + shift).argmax(axis=1)

    separate = [Example(x, edges=[]) for x in X]
    other = tmp_path / "other.pm"
    settings: dict[str, Any] = {"solver": DoubleSGD(n_passes=1), "random_state": 0}
    for shift, is_refused in ((0.0, False), (0.0, False), (1.0, True)):
        est = StructuredPredictor(MatchingLike(), FromSolver(solver(shift)), **settings)
        if is_refused:
            with pytest.raises(ValueError, match="belongs to a fit with other data or parameters"):
                est.fit(separate, y, checkpoint=other)
        else:
            est.fit(separate, y, checkpoint=other)


class MatchingLike(LinearModel):
    """Unary scores alone, as a user would write it."""

    def shapes(self, data: Dataset, n_labels: int) -> dict[str, tuple[int, ...]]:
        return {"features": (data.n_features, n_labels)}

    def potentials(self, w: Floats, batch: Dataset, n_labels: int) -> Potentials:
        return Potentials.on(batch.layout, batch.features @ self.unpack(w, batch, n_labels)["features"])

    def pullback(self, batch: Dataset, n_labels: int, moments: Moments) -> Floats:
        return batch.features.pullback(moments.unary).ravel()


def test_calibration_is_kept_in_a_checkpoint(tmp_path: Path) -> None:
    """A fit that is killed in its third fold does not learn the first two again, and ends as if it had not been."""
    X, y = words(40)
    path = tmp_path / "checkpoint.pm"
    undisturbed = predictor(calibration=4).fit(X, y)
    solved: list[int] = []
    run = DoubleSGD.run

    def counted(self: DoubleSGD, problem: Problem, *rest: Any) -> Any:
        solved.append(problem.domain.number)
        if len(solved) == 3:
            raise MemoryError("killed")
        return run(self, problem, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DoubleSGD, "run", counted)
        with pytest.raises(MemoryError):
            predictor(calibration=4).fit(X, y, checkpoint=path)
        again = predictor(calibration=4).fit(X, y, checkpoint=path)
    assert solved == [2, 3, 4, 4, 5, 0]  # folds have the numbers from 2 on, and the fit itself 0
    np.testing.assert_array_equal(again.coef_, undisturbed.coef_)
    assert again.calibration_ is not None
    assert undisturbed.calibration_ is not None
    np.testing.assert_array_equal(again.calibration_.to_array(), undisturbed.calibration_.to_array())


def test_a_fit_that_stopped_early_stays_stopped(tmp_path: Path) -> None:
    """Its checkpoint does not go on learning."""
    X, y = words(40)
    rng = np.random.default_rng(0)
    noise = [rng.choice(list("abc"), len(v)) for v in y]
    runs = [
        predictor(solver=DoubleSGD(n_passes=60, step=PlainStep(0.3))).fit(
            X, y, validation=(X, noise), patience=2, checkpoint=tmp_path / "checkpoint.pm"
        )
        for _ in range(3)
    ]
    assert len({run.n_iter_ for run in runs}) == 1
    np.testing.assert_array_equal(runs[0].coef_, runs[2].coef_)


def test_ctrl_c_leaves_a_usable_estimator() -> None:
    """A warning says so; the weights so far predict."""
    X, y = words(60)
    est = predictor(solver=DoubleSGD(n_passes=1e6, step=PlainStep(0.3)))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.warns(UserWarning, match=r"interrupted at step \d+; the estimator has the weights so far"):
        est.fit(X, y)
    assert est.n_iter_ > 0
    assert est.score(X, y) > 0.7
