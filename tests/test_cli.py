"""The command line through its entry point, the results that it resumes, and the report in a real browser."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import perturbmap
from perturbmap.datasets import load_ocr
from perturbmap.experiments.ocr import report
from perturbmap.experiments.ocr import report as ocr_report
from perturbmap.experiments.ocr.experiment import Experiment, choice_name, look_name, run_name
from perturbmap.experiments.ocr.plan import METHODS
from perturbmap.experiments.ocr.report import Cell
from perturbmap.experiments.results import Results, machine
from perturbmap.support.progress import Progress

from .browser import BROWSER, NEEDS_BROWSER
from .command import COMMAND, run


def test_help_and_version() -> None:
    """A newcomer finds the command to try; the version is the package's."""
    for arguments in ([], ["--help"], ["-h"]):
        shown = run(*arguments)
        assert "\n    perturbmap reproduce ocr --quick" in shown.stdout + shown.stderr  # on a line of its own
    version = subprocess.run([COMMAND, "--version"], capture_output=True, text=True, check=True)  # it is installed
    assert version.stdout.strip() == f"perturbmap, version {perturbmap.__version__}"
    text = run("reproduce", "ocr", "--help").stdout
    for option in ("--method", "--protocol", "--folds", "--jobs", "--seed", "--quick", "--out"):
        assert option in text


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["reproduce", "cats"], 2, "No such command 'cats'"),
        (["reproduce", "ocr", "--folds", "3-1"], 2, "must be folds from 0 to 9"),
        (["reproduce", "ocr", "--folds", "0,12"], 2, "must be folds from 0 to 9"),
        (["reproduce", "ocr", "--jobs", "0"], 2, "--jobs"),
        (["reproduce", "ocr", "--method", "guess"], 2, "guess"),
        (["reproduce", "ocr", "--quick", "--folds", "1"], 2, "--quick is one fold"),
        (["reproduce", "ocr", "--data", "nowhere.data"], 2, "nowhere.data"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments: list[str], code: int, message: str) -> None:
    """Before any work; no traceback."""
    done = run(*arguments)
    assert done.code == code
    assert message in done.stderr


def test_an_error_is_one_line_and_with_debug_a_traceback(tmp_path: Path) -> None:
    """Exit code 1; nothing of the user's is touched."""
    (tmp_path / "results.json").write_text("{ not JSON")
    done = run("reproduce", "ocr", "--quick", "--out", str(tmp_path))
    assert done.code == 1
    assert re.fullmatch(r"Error: .*results.json is damaged: remove it, or name another folder.*\n", done.stderr)
    with pytest.raises(ValueError, match="is damaged"):  # Python's own traceback
        run("--debug", "reproduce", "ocr", "--quick", "--out", str(tmp_path))
    assert (tmp_path / "results.json").read_text() == "{ not JSON"
    letters = tmp_path / "letter.data"
    letters.write_text("1\ta\t2\n")
    done = run("reproduce", "ocr", "--quick", "--data", str(letters), "--out", str(tmp_path / "out"))
    assert done.code == 1
    assert "is not the letter.data of the OCR data set: line 1" in done.stderr


def letter_data(words: Iterable[int]) -> str:
    """Some of the words, as the data set's own file has them."""
    ocr = load_ocr()
    lines, number = [], 0
    for word in words:
        for d, (pixels, letter) in enumerate(zip(ocr.X[word], ocr.y[word], strict=True)):
            number += 1
            following = -1 if d == len(ocr.y[word]) - 1 else number + 1
            fields = [number, letter, following, word, d + 1, ocr.folds[word], *pixels.astype(int)]
            lines.append("\t".join(map(str, fields)) + "\t\n")
    return "".join(lines)


@pytest.mark.slow
def test_interrupted_it_resumes_without_running_finished_folds_again(tmp_path: Path) -> None:
    """Ctrl-C: exit code 130, a word, and what was finished is kept; then the same command does the rest."""
    out, some = tmp_path / "out", tmp_path / "letter.data"
    some.write_text(letter_data(range(0, 6877, 12)))
    places = ["--data", str(some), "--out", str(out)]
    methods = ("perturb-map", "marginal", "exact-marginal")  # one after another: more are left than end at once
    arguments = ["reproduce", "ocr", "--quick", "--jobs", "1", *places]
    arguments += [word for method in methods for word in ("--method", method)]
    child = subprocess.Popen(
        [str(COMMAND), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    results = out / "results.json"
    deadline = time.monotonic() + 120
    while not (
        results.exists() and run_name("small", "perturb-map", 0) in json.loads(results.read_text())["entries"]
    ):
        assert time.monotonic() < deadline
        assert child.poll() is None
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "the same command goes on" in errors
    assert "Traceback" not in errors
    before = json.loads(results.read_text())["entries"]
    n_before = sum(run_name("small", method, 0) in before for method in methods)
    assert n_before < len(methods)
    done = run(*arguments)
    assert done.code == 0
    assert f"{n_before} of {len(methods)} runs are there already" in done.stderr
    after = json.loads(results.read_text())["entries"]
    assert {k: after[k] for k in before} == before  # seconds and all: it was not run again
    assert all(run_name("small", method, 0) in after for method in methods)
    assert str(out / "report.html") in done.stdout
    other = run(*arguments, "--seed", "1")
    assert other.code == 1
    assert "holds results with another seed" in other.stderr


@pytest.mark.slow
def test_a_terminal_shows_bars_with_the_time_left(tmp_path: Path) -> None:
    """On a terminal of its own; the table comes last, on standard output."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 110, 0, 0))  # rows and columns
    (tmp_path / "letter.data").write_text(letter_data(range(0, 6877, 12)))
    places = ["--data", str(tmp_path / "letter.data"), "--out", str(tmp_path / "out")]
    arguments = ["reproduce", "ocr", "--quick", "--method", "perturb-map", *places]
    child = subprocess.Popen([str(COMMAND), *arguments], stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:  # the other end is closed: Linux says so by an error
        pass
    printed, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    text = seen.decode()
    assert re.search(r"0/1 runs, \d\d:\d\d gone, \S+ left", text)
    assert re.search(r"small perturb&MAP: fold 0 \(\d\d\.\d%\)", text)  # the error so far
    assert re.search(r"perturb&MAP +\d\d\.\d +19\.1 ± 0\.3", printed)
    assert "report.html" in printed


# The experiment and its report, on a tenth of the words.


@pytest.fixture(scope="module")
def small_experiment(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Path]:
    """All methods, two folds, few words: seconds."""
    ocr = load_ocr()
    some = np.random.default_rng(0).permutation(len(ocr.X))[:120]
    ocr = type(ocr)([ocr.X[i] for i in some], [ocr.y[i] for i in some], ocr.folds[some])
    folder = tmp_path_factory.mktemp("experiment")
    results = Results(folder, "ocr", {"seed": 0, "quick": True}, "test")
    experiment = Experiment.make(ocr, seed=0, n_jobs=1, quick=True)
    experiment.run(results, list(METHODS), ["small", "large"], [0, 1], Progress())
    return results, ocr_report.write(results, ocr, folder / "report.html")


@pytest.mark.slow
def test_the_choice_of_l2_is_better_than_its_neighbours(small_experiment: tuple[Results, Path]) -> None:
    """On held-out words; and every run, choice and look is in the file."""
    results, _ = small_experiment
    for protocol in ("small", "large"):
        for method in METHODS:
            choice = results[choice_name(protocol, method)]
            tried = dict(choice["tried"])
            assert tried[choice["l2"]] == min(tried.values())
            assert min(tried) < choice["l2"] < max(tried)
            look = results[look_name(protocol, method)]
            for against in ("seconds", "passes"):
                assert np.all(np.diff([point[against] for point in look["curve"]]) > 0)
            final = results[run_name(protocol, method, 0)]["error"]
            assert look["curve"][-1]["error"] == final
            assert look["marginals"]["EXACT"]["distance"] == 0
            for fold in (0, 1):
                assert 0 < results[run_name(protocol, method, fold)]["error"] < 0.9
    again = Results(results.path.parent, "ocr", {"seed": 0, "quick": True}, "test")
    assert again[run_name("large", "crf", 1)] == results[run_name("large", "crf", 1)]


@pytest.mark.slow
def test_the_report_stands_alone(small_experiment: tuple[Results, Path]) -> None:
    """Nothing is fetched from anywhere; every image is inside."""
    text = small_experiment[1].read_text()
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", text)
    assert "url(" not in text
    assert "<script" not in text


def dom(page: Path, width: int) -> str:
    assert BROWSER is not None
    shown = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--window-size={width},2000",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "HOME": str(page.parent)},
    )
    return shown.stdout


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason=NEEDS_BROWSER)
@pytest.mark.parametrize("width", [1280, 500])
def test_the_report_opens_in_a_browser(small_experiment: tuple[Results, Path], width: int, tmp_path: Path) -> None:
    """Every image is drawn, the table has its cells, and nothing sticks out of a wide or a narrow window."""
    page = tmp_path / "probe.html"
    probe = """<script>addEventListener("load", () => {
      const broken = [...document.images].filter(i => !i.complete || i.naturalWidth === 0).length;
      const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
      const cells = document.querySelectorAll("#results tbody td.main").length;
      document.title = `images ${document.images.length} broken ${broken} overflow ${wide} cells ${cells}`;
    });</script>"""
    page.write_text(small_experiment[1].read_text().replace("</body>", probe + "</body>"))
    title = re.search(r"<title>images (\d+) broken (\d+) overflow (-?\d+) cells (\d+)</title>", dom(page, width))
    assert title is not None
    images, broken, overflow, cells = map(int, title.groups())
    assert images > 30
    assert broken == 0
    assert overflow <= 0
    assert cells == 2 * len(METHODS)


def test_results_say_which_kernels_of_blas_they_were_rounded_with() -> None:
    """Those that threadpoolctl knows of: Accelerate, for one, is not among them."""
    blas = [library for library in threadpool_info() if library["user_api"] == "blas"]
    said = machine()["BLAS"]
    assert all(library["internal_api"] in said and library.get("architecture", "") in said for library in blas)
    assert bool(said) == bool(blas)


def test_results_from_another_version_or_other_data_do_not_mix(tmp_path: Path) -> None:
    """The fingerprint tells; and a folder that cannot be written to is found before the work."""
    Results(tmp_path, "ocr", {"seed": 0}, "one")["entry"] = {"error": 0.1}
    assert Results(tmp_path, "ocr", {"seed": 0}, "one")["entry"] == {"error": 0.1}
    with pytest.raises(ValueError, match="other data or another version"):
        Results(tmp_path, "ocr", {"seed": 0}, "two")
    ocr = load_ocr()
    whole = Experiment.make(ocr, seed=0, n_jobs=1, quick=True).fingerprint
    part = type(ocr)(ocr.X[:-1], ocr.y[:-1], ocr.folds[:-1])
    assert Experiment.make(part, seed=0, n_jobs=1, quick=True).fingerprint != whole
    done = run("reproduce", "ocr", "--quick", "--out", "/sys/kernel")
    assert done.code == 1


def test_trainings_are_compared_fold_by_fold() -> None:
    """Only folds that both have; none, no comparison; a clear difference is named."""
    ours = Cell([0, 1, 2, 3], [18.0, 18.1, 18.2, 18.0], [], 1.0, 1e-3, None)
    exact = Cell([1, 2, 3, 4], [19.1, 19.2, 19.1, 30.0], [], 1.0, 1e-3, None)
    compared = ocr_report._compare_training({"marginal": ours, "exact-marginal": exact})
    assert compared is not None
    assert compared["n"] == 3
    assert compared["difference"] == pytest.approx(-1.0333, abs=1e-3)
    assert compared["verdict"] == "ours"
    other = Cell([7], [19.1], [], 1.0, 1e-3, None)
    assert ocr_report._compare_training({"marginal": ours, "exact-marginal": other}) is None
    assert ocr_report._compare_training({"marginal": ours}) is None


def test_cells_say_how_they_compare_with_the_paper() -> None:
    """Within the paper's spread, better, or worse; nothing for a single fold's spread."""
    assert Cell([0], [19.0, 20.0], [], 1.0, 1e-3, (19.5, 0.4)).verdict == "within"
    assert Cell([0], [18.0, 18.2], [], 1.0, 1e-3, (19.5, 0.4)).verdict == "better"
    assert Cell([0], [20.0], [], 1.0, 1e-3, (19.5, 0.4)).verdict == "worse"
    assert Cell([0], [20.0], [], 1.0, 1e-3, None).verdict == "none"
    assert Cell([0], [20.0], [], 1.0, 1e-3, None).text == "20.0"
    assert Cell([0], [19.0, 21.0], [], 1.0, 1e-3, None).text == "20.0 ± 1.4"


def test_a_missing_extra_is_named_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not after it."""
    monkeypatch.setattr(
        "perturbmap.experiments.report.find_spec", lambda name: None if name == "jinja2" else object()
    )
    with pytest.raises(ModuleNotFoundError, match=r"reports need jinja2: pip install 'perturbmap\[report\]'"):
        report.check_installed()


# The data.


def test_protocols_and_pictures() -> None:
    """Every word is in one half of a split; a picture is its letters, a gap between them."""
    ocr = load_ocr()
    train, test = ocr.split("large", 3)
    assert set(train) | set(test) == set(range(6877))
    assert not set(train) & set(test)
    assert (ocr.folds[test] == 3).all()
    assert [a.tolist() for a in ocr.split("small", 3)] == [test.tolist(), train.tolist()]
    picture = ocr.picture(7)
    n = len(ocr.y[7])
    assert picture.shape == (16, 9 * n - 1)
    for d in range(n):
        np.testing.assert_array_equal(picture[:, 9 * d : 9 * d + 8] == 0, ocr.X[7][d].reshape(16, 8) == 1)
    for wrong in (lambda: ocr.split("medium", 0), lambda: ocr.split("small", 10), lambda: ocr.picture(10**6)):
        with pytest.raises(ValueError, match="must be"):
            wrong()


def test_the_original_file_is_read_too(tmp_path: Path) -> None:
    """Written in its layout, plain and packed; a broken one is named."""
    import gzip

    ocr = load_ocr()
    lines = letter_data(range(30)).splitlines(keepends=True)
    plain, packed = tmp_path / "letter.data", tmp_path / "letter.data.gz"
    plain.write_text("".join(lines))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    for path in (plain, packed):
        read = load_ocr(path)
        assert len(read.X) == 30
        for n in range(30):
            np.testing.assert_array_equal(read.X[n], ocr.X[n])
            np.testing.assert_array_equal(read.y[n], ocr.y[n])
        np.testing.assert_array_equal(read.folds, ocr.folds[:30])
    plain.write_text("".join(lines[:-1]))
    with pytest.raises(ValueError, match="ends inside a word"):
        load_ocr(plain)
    plain.write_text("".join(lines[:3]) + "rubbish\n")
    with pytest.raises(ValueError, match="line 4"):
        load_ocr(plain)
    packed.write_bytes(packed.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"letter\.data"):
        load_ocr(packed)
    with pytest.raises(FileNotFoundError):
        load_ocr(tmp_path / "nowhere")
