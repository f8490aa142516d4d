"""``perturbmap infer`` through its real entry point."""

from __future__ import annotations

import math
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from perturbmap import BruteForce, grid_edges, uai
from perturbmap.uai import Factor, FactorGraph, PairwiseModel

from .command import COMMAND, run
from .factor_graphs import Listed, random_binary_graph
from .test_uai import PUBLISHED


@pytest.fixture
def published(tmp_path: Path) -> Path:
    path = tmp_path / "three.uai"
    path.write_text(PUBLISHED)
    return path


def grid(path: Path, height: int, width: int) -> Path:
    """An attractive grid of two labels."""
    rng = np.random.default_rng(0)
    factors = [Factor((v,), np.exp(rng.normal(size=2))) for v in range(height * width)]
    pairs = grid_edges(height, width).tolist()
    factors += [Factor((i, j), np.exp(rng.gamma(1.0) * np.eye(2))) for i, j in pairs]
    uai.write_factors(path, FactorGraph([2] * (height * width), factors))
    return path


def test_a_chain_is_solved_exactly(published: Path, tmp_path: Path) -> None:
    """What was read, the structure, bound, exact value, best labelling and marginals are shown, and written."""
    out = tmp_path / "new" / "out"
    done = run("infer", str(published), "--out", str(out))
    assert done.code == 0, done.stderr
    assert "3 variables with 2 to 3 labels, 2 factors (2 over 2 variables)" in done.stdout
    assert "Structure:   Chain: each variable depends on the next" in done.stdout
    assert "Exact:       log Z  = 0.693147   (log10: 0.301030)" in done.stdout
    assert "log of the product of factors -0.346453   (log10: -0.150463)" in done.stdout
    assert "       2      0   0.6415*  0.0939   0.2646\n" in done.stdout
    task, value = (out / "three.uai.PR").read_text().splitlines()
    assert task == "PR"
    assert float(value) == pytest.approx(math.log10(2))
    assert (out / "three.uai.MPE").read_text() == "MPE\n3 1 1 0\n"
    marginals = [float(x) for x in (out / "three.uai.MAR").read_text().split()[1:]]
    np.testing.assert_allclose(marginals, [3, 2, 0.5, 0.5, 2, 0.282, 0.718, 3, 0.641518, 0.093906, 0.264576])
    before = (out / "three.uai.PR").stat().st_mtime_ns
    again = run("infer", str(published), "--out", str(out))
    assert again.code == 2
    assert "three.uai.PR exists" in again.stderr
    assert (out / "three.uai.PR").stat().st_mtime_ns == before
    assert run("infer", str(published), "--out", str(out), "--overwrite").code == 0


def test_evidence_is_used(published: Path, tmp_path: Path) -> None:
    """In both layouts; what is observed has probability one, and zeros may settle more."""
    evidence = tmp_path / "three.evid"
    for text in ("1 2 1", "1\n1 2 1"):
        evidence.write_text(text)
        done = run("infer", str(published), "--evidence", str(evidence))
        assert done.code == 0, done.stderr
        assert "1 variable observed" in done.stdout
        assert "zeros of factors leave one label to 1 more variable" in done.stdout
        assert "1 variable not known" in done.stdout
        assert "       1      0   1.0000*  0.0000\n" in done.stdout
        assert "       2      1   0.0000   1.0000*  0.0000\n" in done.stdout


def test_a_small_graph_is_exact(tmp_path: Path) -> None:
    """With labels exchanged, and cycles: its tables stay small."""
    graph = random_binary_graph(np.random.default_rng(3))
    uai.write_factors(tmp_path / "graph.uai", graph)
    done = run("infer", str(tmp_path / "graph.uai"), "--max-seconds", "0", "--out", str(tmp_path))
    assert done.code == 0, done.stderr
    assert "Structure:   BinaryGraph: two labels" in done.stdout
    assert "exchanged" in done.stdout
    value = float((tmp_path / "graph.uai.PR").read_text().split()[1])
    assert value == pytest.approx(math.log10(Listed.of(graph, {}).partition))


@pytest.mark.slow
def test_a_large_graph_is_estimated(tmp_path: Path) -> None:
    """In an interval, which is said, as is how the marginals were got."""
    path = grid(tmp_path / "grid.uai", 18, 18)
    arguments = ["infer", str(path), "--max-seconds", "600", "--perturbations", "50", "--out"]
    done = run(*arguments, str(tmp_path / "a"))
    assert done.code == 0, done.stderr
    assert "by particles\n             from " in done.stdout
    assert "Marginals, by particles, standard errors up to 0." in done.stdout


def test_a_graph_is_bounded(tmp_path: Path) -> None:
    """Without time for more; the bound is the value written, the seed decides it."""
    path = grid(tmp_path / "graph.uai", 20, 20)
    arguments = ["infer", str(path), "--perturbations", "50", "--max-seconds", "0", "--out"]
    done = run(*arguments, str(tmp_path / "a"))
    assert done.code == 0, done.stderr
    assert "Structure:   BinaryGraph: two labels" in done.stdout
    assert "Exact" not in done.stdout
    assert "Estimate:    none; not one group" in done.stdout
    value = float((tmp_path / "a" / "graph.uai.PR").read_text().split()[1])
    shown = next(line for line in done.stdout.splitlines() if line.startswith("Bound:"))
    mean, error = (float(x.strip("()")) for x in shown.split("log10:")[1].split(",")[0].split("±"))
    assert value == pytest.approx(mean, abs=1e-6)
    assert error > 0
    run(*arguments, str(tmp_path / "b"))
    run(*arguments, str(tmp_path / "c"), "--seed", "1")
    a, b, c = ((tmp_path / name / "graph.uai.MAR").read_text() for name in "abc")
    assert a == b != c


def test_many_variables_and_labels_are_abridged_on_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty lines and eight labels; all of them in the file."""
    path = tmp_path / "wide.uai"
    factors = [Factor((v,), np.arange(1.0, 31.0)) for v in range(500)]
    uai.write_factors(path, FactorGraph([30] * 500, factors))
    monkeypatch.chdir(tmp_path)
    done = run("infer", "wide.uai", "--out", "out")  # lines are as long as the paths they name
    assert len(done.stdout.splitlines()) < 40
    assert max(map(len, done.stdout.splitlines())) < 250
    assert "(480 more)" in done.stdout
    assert len((tmp_path / "out" / "wide.uai.MAR").read_text().split()) == 2 + 500 * 31
    assert "written by --out DIR" in run("infer", str(path)).stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MARKOV 1 2 1 1 0 2 1 x", "line 1, word 9: expected a factor"),
        ("MARKOV 1 2 1 1 0 2 0 0", "no labelling has a positive probability (Z = 0)"),
        ("", "is empty"),
    ],
)
def test_bad_models_are_one_line_and_exit_code_1(text: str, message: str, tmp_path: Path) -> None:
    """No traceback, and nothing written."""
    path = tmp_path / "bad.uai"
    path.write_text(text)
    done = run("infer", str(path), "--out", str(tmp_path / "out"))
    assert done.code == 1
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("sign", "certain"), [(1.0, True), (-1.0, False)])
def test_cycles_of_many_labels_are_solved_and_say_how_well(sign: float, certain: bool, tmp_path: Path) -> None:
    """The best labelling is the maximum, proved where the bound is tight; log Z is exact, by elimination."""
    path, rng = tmp_path / "grid.uai", np.random.default_rng(3)
    edges = [tuple(edge) for edge in grid_edges(3, 3).tolist()]
    graph = FactorGraph(
        [3] * 9,
        [Factor((v,), np.exp(rng.normal(size=3))) for v in range(9)]
        + [Factor(edge, np.exp(sign * 2 * np.eye(3))) for edge in [*edges, (0, 4), (4, 8), (2, 4)]],
    )
    uai.write_factors(path, graph)
    done = run("infer", str(path), "--out", str(tmp_path / "out"))
    assert done.code == 0, done.stderr
    f = PairwiseModel.of(graph).potentials
    assert "Graph: 15 pairs with cycles, 3 labels, approximate" in done.stdout
    assert f"{BruteForce().maximise(f)[1][0]:.6f}" in done.stdout
    assert ("the maximum" in done.stdout) == certain
    assert f"Exact:       log Z  = {BruteForce().log_partition(f)[0][0]:.6f}" in done.stdout


def test_wrong_usage_is_exit_code_2(published: Path, tmp_path: Path) -> None:
    """A missing file, a folder, too few perturbations."""
    for arguments in (
        [str(tmp_path / "nowhere.uai")],
        [str(tmp_path)],
        [str(published), "--evidence", str(tmp_path / "nowhere")],
        [str(published), "--perturbations", "1"],
    ):
        done = run("infer", *arguments)
        assert done.code == 2
        assert "Traceback" not in done.stderr
    assert "perturbmap infer model.uai" in run("--help").stdout


@pytest.mark.slow
def test_interrupted_it_says_so(tmp_path: Path) -> None:
    """Ctrl-C: exit code 130, no traceback, no results."""
    path = grid(tmp_path / "grid.uai", 60, 60)
    child = subprocess.Popen(
        [str(COMMAND), "infer", str(path), "--perturbations", "100000", "--out", str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    assert child.stderr is not None
    assert "100000 perturbations of 3600 variables ..." in child.stderr.readline()
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130
    assert errors == "Interrupted; no results were written.\n"
    assert list((tmp_path / "out").iterdir()) == []
