"""The decoder in plain torch operations: the core's labels, and networks that are exported with it."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import perturbmap as pm
from perturbmap import nn

pytestmark = pytest.mark.filterwarnings("ignore")  # exporters have warnings of their own


class Tagger(torch.nn.Module):
    """A network with a chain on top."""

    def __init__(self) -> None:
        super().__init__()
        self.network = torch.nn.Linear(6, 4)
        self.pairs = torch.nn.Parameter(torch.randn(4, 4))
        self.decode = nn.ViterbiDecoder()

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        labels: Tensor = self.decode(self.network(x), self.pairs, lengths)
        return labels

    def core(self, x: Tensor, lengths: Tensor) -> Tensor:
        mask = torch.arange(x.shape[1]) < lengths[:, None]
        labels: Tensor = nn.BestLabelling(pm.Chain())(self.network(x), self.pairs, mask=mask)
        return labels


@pytest.fixture
def tagger() -> Tagger:
    torch.manual_seed(0)
    return Tagger().eval()


def batches() -> list[tuple[Tensor, Tensor]]:
    """Batches of other sizes and lengths than that of the export, the first."""
    lengths = [[5, 3, 1], [9, 2, 9, 4, 7], [2, 1]]
    return [(torch.randn(len(n), max(n), 6), torch.tensor(n)) for n in lengths]


def dynamic() -> Any:
    n, length = torch.export.Dim("n"), torch.export.Dim("length")
    return {0: n, 1: length}, {0: n}


@pytest.mark.parametrize("length", [1, 2, 12])
def test_the_labels_are_the_cores_ties_and_padding_included(length: int, rng: np.random.Generator) -> None:
    """Potentials are small integers, so that many labellings are best."""
    unary = torch.tensor(rng.integers(0, 3, (40, length, 3)), dtype=torch.float32)
    table = torch.tensor(rng.integers(0, 2, (3, 3)), dtype=torch.float32)
    lengths = torch.tensor(rng.integers(1, length + 1, 40))
    mask = torch.arange(length) < lengths[:, None]
    expected = nn.BestLabelling(pm.Chain())(unary, table, mask=mask)
    assert torch.equal(nn.ViterbiDecoder()(unary, table, lengths), expected)


def test_an_exported_network_decodes_batches_of_any_size(tagger: Tagger) -> None:
    """By torch.export, written and read again: no operation of ours is in it."""
    first, *others = batches()
    file = io.BytesIO()
    torch.export.save(torch.export.export(tagger, first, dynamic_shapes=dynamic()), file)
    file.seek(0)
    program = torch.export.load(file).module()
    for x, lengths in [first, *others]:
        assert torch.equal(program(x, lengths), tagger.core(x, lengths))


@pytest.mark.slow
def test_an_onnx_file_decodes_batches_of_any_size(tagger: Tagger, tmp_path: Path) -> None:
    """By ONNX Runtime, which has neither torch nor us."""
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    first, *others = batches()
    file = tmp_path / "tagger.onnx"
    torch.onnx.export(tagger, first, file, dynamic_shapes=dynamic(), dynamo=True, verbose=False)
    session = runtime.InferenceSession(str(file))
    names = [each.name for each in session.get_inputs()]
    for batch in [first, *others]:
        (labels,) = session.run(None, dict(zip(names, (t.numpy() for t in batch), strict=True)))
        np.testing.assert_array_equal(labels, tagger.core(*batch).numpy())
