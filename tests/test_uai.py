"""The UAI format: what is read is what the definition says, zeros and evidence included, or a clear error."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perturbmap import (
    COUNTED,
    EXACT,
    PINNED,
    BinaryGraph,
    BruteForce,
    Chain,
    Graph,
    SummableStructure,
    Tree,
    log_partition_bound,
    marginals,
    sample,
    uai,
)
from perturbmap.uai import Factor, FactorGraph, PairwiseModel

from .factor_graphs import Listed, random_binary_graph, random_forest

SEEDS = st.integers(0, 2**32 - 1)

#: The example of the format's definition.
PUBLISHED = """MARKOV
3
2 2 3
2
2 0 1
2 1 2

4
 0.436 0.564
 0.128 0.872

6
 0.210 0.333 0.457
 0.811 0.000 0.189
"""


def written(folder: Path, text: str, name: str = "model.uai") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("uai")


# Models.


def test_the_published_example(tmp_path: Path) -> None:
    """Its rows sum to one, so that Z = 2 and the marginals can be worked out by hand; a zero and three labels."""
    model = uai.read(written(tmp_path, PUBLISHED))
    structure = model.structure()
    assert structure == Chain()
    log_z, moments = Chain().log_partition(model.potentials, model.given)
    assert log_z[0] == pytest.approx(math.log(2), abs=1e-12)
    q = model.marginals(moments.unary)
    p1 = (0.436 + 0.128) / 2
    np.testing.assert_allclose(q[0], [0.5, 0.5])
    np.testing.assert_allclose(q[1], [p1, 1 - p1])
    np.testing.assert_allclose(q[2], [p1 * 0.210 + (1 - p1) * 0.811, p1 * 0.333, p1 * 0.457 + (1 - p1) * 0.189])
    assert model.labels(structure.argmax(model.potentials, model.given)).tolist() == [1, 1, 0]
    assert model.graph.log_score([1, 1, 0]) == pytest.approx(math.log(0.872 * 0.811))
    assert model.graph.log_score([1, 1, 1]) == -math.inf


def test_a_bayesian_network_is_its_conditional_tables(tmp_path: Path) -> None:
    """Without evidence Z = 1; with evidence it is the evidence's probability."""
    text = "BAYES 3 2 2 3  3  1 0  2 0 1  2 1 2  2 .436 .564  4 .128 .872 .92 .08  6 .21 .333 .457 .811 0 .189"
    path = written(tmp_path, text)
    evidence = written(tmp_path, "1 2 1", "model.evid")
    for beside, expected in ((None, 1.0), (evidence, (0.436 * 0.128 + 0.564 * 0.92) * 0.333)):
        model = uai.read(path, beside)
        structure = model.structure()
        assert isinstance(structure, SummableStructure)
        assert structure.log_partition(model.potentials)[0][0] == pytest.approx(math.log(expected), abs=1e-12)


@given(seed=SEEDS)
def test_forests_agree_with_enumeration(seed: int, folder: Path) -> None:
    """Z, the best product and the marginals, after a way through a file; Z = 0 is an error that says so."""
    graph, evidence = random_forest(np.random.default_rng(seed))
    path = folder / "forest.uai"
    uai.write_factors(path, graph)
    pairs = " ".join(f"{v} {label}" for v, label in evidence.items())
    observed = written(folder, f"{len(evidence)} {pairs}", "forest.evid")
    expected = Listed.of(graph, evidence)
    if expected.partition == 0:
        with pytest.raises(ValueError, match=r"forest\.uai.* \(Z = 0\)"):
            uai.read(path, observed)
        return
    model = uai.read(path, observed)
    f, structure = model.potentials, model.structure()
    assert isinstance(structure, (Chain, Tree))
    for known in (model.given, None):  # which changes noise, never the model
        log_z, moments = structure.log_partition(f, known)
        assert log_z[0] == pytest.approx(math.log(expected.partition), abs=1e-9)
        for q, p in zip(model.marginals(moments.unary), expected.marginals, strict=True):
            np.testing.assert_allclose(q, p, atol=1e-9)
            np.testing.assert_array_equal(q[p == 0], 0)
        labels, score = structure.maximise(f, known)
        assert score[0] == pytest.approx(math.log(expected.best), abs=1e-9)
        assert model.graph.log_score(model.labels(labels)) == pytest.approx(math.log(expected.best), abs=1e-9)


@given(seed=SEEDS)
def test_attractive_graphs_agree_with_enumeration(seed: int, folder: Path) -> None:
    """The best product, all pins and impossible labels, where some variables' labels had to be exchanged."""
    graph = random_binary_graph(np.random.default_rng(seed))
    path = folder / "cycle.uai"
    uai.write_factors(path, graph)
    model, expected = uai.read(path), Listed.of(graph, {})
    f, structure = model.potentials, model.structure()
    assert structure == BinaryGraph()
    labels, score = structure.maximise(f)
    assert score[0] == pytest.approx(math.log(expected.best), abs=1e-9)
    assert model.graph.log_score(model.labels(labels)) == pytest.approx(math.log(expected.best), abs=1e-9)
    np.testing.assert_allclose(structure.pinned(f).values, BruteForce().pinned(f).values, rtol=1e-12, atol=1e-9)
    log_z, moments = BruteForce().log_partition(f)
    assert log_z[0] == pytest.approx(math.log(expected.partition), abs=1e-9)
    for q, p in zip(model.marginals(moments.unary), expected.marginals, strict=True):
        np.testing.assert_allclose(q, p, atol=1e-9)


def test_the_bound_is_above_the_log_partition(rng: np.random.Generator) -> None:
    """In the mean, so within four standard errors of 400 perturbations, on graphs with zeros and exchanged labels."""
    for _ in range(10):
        graph = random_binary_graph(rng)
        model = PairwiseModel.of(graph)
        bound = log_partition_bound(model.structure(), model.potentials, n_perturbations=400, rng=0)
        assert bound.mean[0] > math.log(Listed.of(graph, {}).partition) - 4 * bound.standard_error[0]


@given(seed=SEEDS)
def test_what_has_probability_zero_is_never_seen(seed: int) -> None:
    """Not in perturbed maximisers, and as an exact 0 in every kind of marginals."""
    graph, evidence = random_forest(np.random.default_rng(seed))
    expected = Listed.of(graph, evidence)
    if expected.partition == 0:
        return
    model = PairwiseModel.of(graph, evidence)
    f, structure = model.potentials, model.structure()
    for y in sample(structure, f, 20, rng=seed):
        assert model.graph.log_score(model.labels(y)) > -math.inf
    for method in (PINNED, COUNTED, EXACT):
        q = model.marginals(marginals(structure, f, method=method, n_perturbations=5, rng=seed).mean)
        for p, exact in zip(q, expected.marginals, strict=True):
            np.testing.assert_array_equal(p[exact == 0], 0)
            assert p.sum() == pytest.approx(1)


def test_zeros_beside_the_largest_range_of_a_double() -> None:
    """Factors of 1e-300 are rare, not impossible: a zero loses against all of them, and costs no digits."""
    tiny, n = 1e-300, 60
    table = np.array([[0.0, tiny, tiny], [tiny, 0.0, tiny], [tiny, tiny, 0.0]])
    # Neighbours differ: 3 * 2^(n - 1) labellings, all of the same weight.
    chain = PairwiseModel.of(FactorGraph([3] * n, [Factor((v, v + 1), table) for v in range(n - 1)]))
    log_z = math.log(3) + (n - 1) * (math.log(2) + math.log(tiny))
    value, moments = Chain().log_partition(chain.potentials)
    assert value[0] == pytest.approx(log_z, rel=1e-14)
    np.testing.assert_allclose(moments.unary, 1 / 3, atol=1e-12)
    ring = [Factor((v, (v + 1) % n), np.array([[tiny, 0.0], [0.0, 1.0]])) for v in range(n)]
    model = PairwiseModel.of(FactorGraph([2] * n, [*ring, Factor((0,), np.array([1.0, 0.5]))]))
    assert model.structure() == BinaryGraph()
    values = BinaryGraph().pinned(model.potentials).values
    np.testing.assert_allclose(values, np.tile([n * math.log(tiny), math.log(0.5)], (n, 1)), rtol=1e-12, atol=1e-9)


def test_zeros_cost_a_long_chain_no_digits(rng: np.random.Generator) -> None:
    """2,000 variables against a sum with -inf itself."""
    n, k = 2000, 4
    tables = np.where(rng.random((n - 1, k, k)) < 0.4, 0.0, np.exp(rng.normal(0, 2, (n - 1, k, k))))
    tables[:, np.arange(k), np.arange(k)] = 1.0  # so that something is possible
    model = PairwiseModel.of(FactorGraph([k] * n, [Factor((v, v + 1), tables[v]) for v in range(n - 1)]))
    with np.errstate(divide="ignore"):
        logs = np.log(tables)
    message = np.zeros(k)
    for table in logs:
        message = np.logaddexp.reduce(message[:, None] + table, axis=0)
    expected = np.logaddexp.reduce(message)
    assert Chain().log_partition(model.potentials)[0][0] == pytest.approx(expected, abs=1e-9)


# Which structure fits.


def equal(weight: float, k: int = 2) -> np.ndarray:
    return np.exp(weight * np.eye(k))


def test_the_structure_is_that_of_what_is_not_known() -> None:
    """A cycle of three labels is a `Graph`, until one of its variables is observed, or zeros leave two labels."""
    ring = [Factor((v, (v + 1) % 4), equal(1.0, 3)) for v in range(4)]
    graph = FactorGraph([3] * 4, ring)
    assert PairwiseModel.of(graph).structure() == Graph()
    model = PairwiseModel.of(graph, {1: 2})
    assert model.potentials.edges.tolist() == [[0, 3], [2, 3]]
    assert model.structure() == Tree()
    two = [Factor((v,), np.array([1.0, 0.0, 1.0])) for v in range(4)]
    assert PairwiseModel.of(FactorGraph([3] * 4, [*ring, *two])).structure() == BinaryGraph()
    chain = FactorGraph([3] * 4, ring[:3])
    assert PairwiseModel.of(chain).structure() == Chain()
    # A third label elsewhere stands in the way too.
    mixed = [Factor((v, (v + 1) % 3), equal(1.0)) for v in range(3)]
    assert PairwiseModel.of(FactorGraph([2, 2, 2, 5], mixed)).structure() == Graph()


def test_frustrated_graphs_are_solved_and_bounded(rng: np.random.Generator) -> None:
    """The labelling found scores no more than the best, the bound no less; zeros of factors are kept away from."""
    n_best = 0
    for _ in range(30):
        model = PairwiseModel.of(random_binary_graph(rng, frustrated=True))
        assert model.structure() == Graph()
        best = BruteForce().maximise(model.potentials, model.given)[1][0]
        labels, values, bounds = Graph(effort=20).maximise_with_bound(model.potentials, model.given)
        assert values[0] <= best + 1e-9 * abs(best) <= bounds[0] + 2e-9 * abs(best)
        assert np.isfinite(model.graph.log_score(model.labels(labels)))
        n_best += np.isclose(values[0], best, rtol=1e-9)
    assert n_best >= 28


def test_factors_over_three_variables_need_evidence() -> None:
    """The error names the factor; observed or implied by a zero, one variable less will do."""
    table = np.arange(1.0, 9).reshape(2, 2, 2)
    graph = FactorGraph([2, 2, 2], [Factor((1,), np.ones(2)), Factor((0, 1, 2), table)])
    with pytest.raises(ValueError, match=r"factor 1 .* joins more than two variables that are not known: 0, 1, 2"):
        PairwiseModel.of(graph)
    assert PairwiseModel.of(graph, {1: 0}).structure() == Tree()
    implied = FactorGraph([2, 2, 2], [Factor((1,), np.array([0.0, 1.0])), Factor((0, 1, 2), table)])
    np.testing.assert_allclose(np.exp(PairwiseModel.of(implied).potentials.tables[0]), table[:, 1])


def test_two_factors_may_exclude_what_neither_does() -> None:
    """Factors over the same variables are one table: its empty row excludes a label, and its empty rows all."""
    first, second = np.array([[0.0, 1.0], [1.0, 1.0]]), np.array([[1.0, 0.0], [1.0, 1.0]])
    graph = FactorGraph([2, 2], [Factor((0, 1), first), Factor((1, 0), second.T)])
    model = PairwiseModel.of(graph)
    assert model.given.tolist() == [0, -1]
    assert model.labels([0, 1]).tolist() == [1, 1]
    with pytest.raises(ValueError, match=r"\(Z = 0\): zeros of factors leave no label"):
        PairwiseModel.of(FactorGraph([2, 2], [*graph.factors, Factor((0,), np.array([1.0, 0.0]))]))
    with pytest.raises(ValueError, match=r"\(Z = 0\): some factor is zero"):
        PairwiseModel.of(graph, {0: 0, 1: 1})


@pytest.mark.parametrize(
    ("evidence", "message"),
    [({7: 0}, "variables 0..2, but observes variable 7"), ({2: 3}, "variable 2, which has the labels 0..2")],
)
def test_evidence_must_fit_the_model(evidence: dict[int, int], message: str, tmp_path: Path) -> None:
    """From Python, and from a file, which is named."""
    model = written(tmp_path, PUBLISHED)
    with pytest.raises(ValueError, match=re.escape(message)):
        PairwiseModel.of(uai.read_factors(model), evidence)
    ((v, label),) = evidence.items()
    with pytest.raises(ValueError, match=r"model\.evid.*" + re.escape(message)):
        uai.read(model, written(tmp_path, f"1 {v} {label}", "model.evid"))


def test_factor_graphs_made_in_python_are_checked() -> None:
    """Scopes, shapes and values."""
    for cards, factors, message in (
        ([], [], "at least one variable"),
        ([2, 0], [], "that of variable 1 is 0"),
        ([2, 2], [Factor((0, 2), np.ones((2, 2)))], "scope of factor 0 must be different variables 0..1"),
        ([2, 2], [Factor((1, 1), np.ones((2, 2)))], "scope of factor 0"),
        ([2, 3], [Factor((0, 1), np.ones((3, 2)))], r"\(2, 3\), but has shape \(3, 2\)"),
        ([2], [Factor((0,), np.array([1.0, -1.0]))], "finite and not negative"),
        ([2], [Factor((0,), np.array([1.0, np.nan]))], "finite and not negative"),
    ):
        with pytest.raises(ValueError, match=message):
            FactorGraph(cards, factors)


def test_answers_of_the_wrong_shape_are_refused() -> None:
    """Labels and marginals to be translated are those of all sites."""
    model = PairwiseModel.of(FactorGraph([2, 3], []))
    with pytest.raises(ValueError, match="y must have one label for each site"):
        model.labels([0])
    with pytest.raises(ValueError, match=r"q must have shape \(2, 3\)"):
        model.marginals(np.ones((2, 2)))


# Evidence.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 0 1 2 0", {0: 1, 2: 0}),
        ("1\n2 0 1 2 0\n", {0: 1, 2: 0}),
        ("1 5 3", {5: 3}),
        ("1\n1 5 3", {5: 3}),
        ("0", {}),
        ("1 0", {}),
        ("2\n0 1\n3 0", {0: 1, 3: 0}),
        ("2 0 1 3 0", {0: 1, 3: 0}),
    ],
)
def test_both_layouts_of_evidence(text: str, expected: dict[int, int], tmp_path: Path) -> None:
    """With and without the number of samples, in any lines."""
    assert uai.read_evidence(written(tmp_path, text)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2\n1 3 0\n1 4 1\n", "holds 2 samples of evidence"),
        ("2 1 3 0 1 4 1", "holds 2 samples of evidence"),
        ("2\n0\n1 3 0\n", "holds 2 samples of evidence"),
        ("3\n0\n0\n1 3 0", "holds 3 samples of evidence"),
        ("", "is empty"),
        ("1 2", "declares 2 observed variables, which take 4 words"),
        ("2 0 1", "declares 2 observed variables"),
        ("3 0 1 2", "expected 1, the number of samples"),
        ("2 0 1 0 1", "line 1, word 4: expected another variable, because 0 has been observed before"),
        ("1 0 x", "line 1, word 3: expected a label, counted from 0, but found 'x'"),
        ("1 -1 0", "word 2: expected a variable"),
        ("1.0 1 0", "word 1: expected a number of observed variables"),
        ("9" * 5000, "word 1: expected a number of observed variables"),
        ("2 " + "9" * 12 + " 1 1", "expected 1, the number of samples"),
    ],
)
def test_evidence_that_cannot_be_used_is_refused(text: str, message: str, tmp_path: Path) -> None:
    """Several samples, wrong counts, words that are no numbers: each by name."""
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        uai.read_evidence(path)
    assert str(path) in str(caught.value)


# Files that are no models.

HEAD = "MARKOV 2 2 2 1 2 0 1 "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("  \n \n", "is empty"),
        ("P cnf 3 2", "line 1, word 1: expected MARKOV or BAYES"),
        ("MARKOV", "is truncated: after 1 words there should be the number of variables"),
        ("MARKOV 0 0", "expected the number of variables, at least 1, but found '0'"),
        ("MARKOV two", "expected the number of variables"),
        ("MARKOV 1_0 2", "expected the number of variables"),
        ("MARKOV 1000000000000 2 2", "declares the labels of 1000000000000 variables"),
        ("MARKOV " + "9" * 30, "expected the number of variables"),
        ("MARKOV 1\n0 0", "line 2, word 3: expected a number of labels from 1 to 65535"),
        ("MARKOV 1 70000 0", "expected a number of labels from 1 to 65535, but found '70000'"),
        ("MARKOV 1 2", "there should be the number of factors"),
        ("MARKOV 1 2 400000000000 1 0 2 1 1", "declares 400000000000 factors"),
        ("MARKOV 2 2 2 1 3 0 1 1 8 1 1", "expected the number of variables of factor 0, at most 2"),
        ("MARKOV 2 2 2 1 2 0 2 4 1 1 1 1", "expected a variable of factor 0, from 0 to 1, but found '2'"),
        ("MARKOV 2 2 2 1 2 0 -1 4 1 1 1 1", "expected a variable of factor 0"),
        ("MARKOV 2 2 2 1 2 1 1 4 1 1 1 1", "word 8: expected variables of factor 0 that differ"),
        (HEAD + "3 1 1 1", "expected 4, the size of the table of factor 0, but found '3'"),
        (HEAD + "4 1 1 1", "there should be the table of factor 0: 1 words more"),
        (HEAD + "4 1 1 1 1 1", "expected the end of the file, 1 words earlier"),
        (HEAD + "4 1 1\n1 x", "line 2, word 13: expected a factor"),
        (HEAD + "4 1 1 1 -0.5", "expected a factor: a finite number that is not negative"),
        (HEAD + "4 1 nan 1 1", "word 11: expected a factor"),
        (HEAD + "4 1 inf 1 1", "word 11: expected a factor"),
        (HEAD + "4 1 1e999 1 1", "word 11: expected a factor"),
        (HEAD + "4 1 1e-999 1 1", "nor too small for a double, but found '1e-999'"),
        (HEAD + "4 1 1_0 1 1", "word 11: expected a factor"),
        (HEAD + "4 1 0x1 1 1", "word 11: expected a factor"),
        ("MARKOV 300 " + "65535 " * 300 + "0", "labels in all; the limit is 4e+06"),
        (
            "MARKOV 100000 65535 " + "2 " * 99999 + "0",
            "GiB when all variables are given the 65535 labels",
        ),
    ],
)
def test_files_that_are_no_models_are_refused(text: str, message: str, tmp_path: Path) -> None:
    """The error names the file, the line and the word, what was expected and what was found."""
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        uai.read(path)
    assert str(path) in str(caught.value)


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """Bytes, a folder; a missing file is a missing file."""
    path = tmp_path / "model.uai"
    for data in (b"MARKOV\x00", bytes(range(256)), "MARKOV 1 2 ½".encode()):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"model\.uai is not a text file in the UAI format"):
            uai.read(path)
    with pytest.raises(ValueError, match="cannot be read: Is a directory"):
        uai.read(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        uai.read(tmp_path / "nowhere")


def test_white_space_means_nothing(tmp_path: Path) -> None:
    """All in one line, a word a line, tabs, line ends and a mark of other systems."""
    expected = Chain().log_partition(uai.read(written(tmp_path, PUBLISHED)).potentials)[0]
    words = PUBLISHED.split()
    for text in (" ".join(words), "\n".join(words), "\t".join(words), "\r\n".join(words), "\ufeff" + PUBLISHED):
        model = uai.read(written(tmp_path, text))
        np.testing.assert_array_equal(Chain().log_partition(model.potentials)[0], expected)


@given(seed=SEEDS)
def test_damaged_files_give_a_clear_error_or_a_model(seed: int, folder: Path) -> None:
    """Words exchanged, dropped, repeated and spoilt, bytes flipped, ends cut off: never another kind of error."""
    rng = np.random.default_rng(seed)
    odd = ["-1", "0", "1", "3", "99999999999", "nan", "1e400", "", "x", "MARKOV", "1e-330", "2.5", "_", "\x00", "é"]
    graph, evidence = random_forest(rng)
    model, observed = folder / "damaged.uai", folder / "damaged.evid"
    uai.write_factors(model, graph)
    pairs = " ".join(f"{v} {label}" for v, label in evidence.items())
    whole = {model: model.read_text(), observed: f"{len(evidence)} {pairs}"}
    for _ in range(10):
        for path, text in whole.items():
            path.write_text(text)
        path = model if rng.random() < 0.7 else observed
        words = whole[path].split()
        for _ in range(rng.integers(1, 4)):
            at, kind = int(rng.integers(len(words) + 1)), int(rng.integers(4))
            words[at : at + (kind != 0)] = [odd[int(rng.integers(len(odd)))]] if kind < 3 else []
            if not words:
                words = [""]
        data = bytearray(" ".join(words).encode())
        if data and rng.random() < 0.3:
            data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(data[: int(rng.integers(len(data) + 1))]) if rng.random() < 0.2 else bytes(data))
        try:
            read = uai.read(model, observed)
            read.structure()
        except ValueError as error:
            assert "damaged" in str(error)  # noqa: PT017 - or it is read
        else:
            assert np.isfinite(read.potentials.unary).all()


# Results.


def test_results_have_the_layouts_of_the_competition(tmp_path: Path) -> None:
    """PR is a logarithm to base 10; MAR and MPE are one line after the name of the task."""
    uai.write_log_partition(tmp_path / "PR", math.log(1000))
    task, value = (tmp_path / "PR").read_text().splitlines()
    assert task == "PR"
    assert float(value) == pytest.approx(3, abs=1e-14)
    uai.write_marginals(tmp_path / "MAR", [np.array([0.1, 0.9]), np.array([0.2, 0.2, 0.6])])
    assert (tmp_path / "MAR").read_text() == "MAR\n2 2 0.1 0.9 3 0.2 0.2 0.6\n"
    uai.write_labels(tmp_path / "MPE", np.array([0, 1, 0], dtype=np.int32))
    assert (tmp_path / "MPE").read_text() == "MPE\n3 0 1 0\n"


@given(seed=SEEDS)
def test_a_written_model_is_read_to_the_last_bit(seed: int, folder: Path) -> None:
    """Scopes without the variables of a single label, and every number."""
    graph, _ = random_forest(np.random.default_rng(seed))
    uai.write_factors(folder / "bits.uai", graph)
    again = uai.read_factors(folder / "bits.uai")
    assert list(again.cardinalities) == list(graph.cardinalities)
    for (scope, table), (scope_again, table_again) in zip(graph.factors, again.factors, strict=True):
        assert scope_again == tuple(v for v in scope if graph.cardinalities[v] > 1)
        np.testing.assert_array_equal(table_again.ravel(), table.ravel())
