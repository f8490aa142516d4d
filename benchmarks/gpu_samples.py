"""``python -m benchmarks.gpu_samples``: exact samples of chains on a GPU, beside our core and beside torch-struct.

Run by hand, where there is a GPU; ``--write docs/benchmarks_gpu_samples.txt`` also writes the table to a file of the
docs. A peer that is not installed is left out. Milliseconds are measured as in `benchmarks.gpu`.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.gpu import SHAPES, milliseconds
from benchmarks.networks import potentials
from perturbmap import Chain
from perturbmap.nn import Samples

N_SAMPLES = (1, 16, 100)
#: torch-struct draws ten samples at once, by a forward and a backward pass, and takes long: it is asked for few.
MOST_OF_PEER = 16


def ours(n_samples: int, on_device: bool | None = None) -> Samples:
    layer = Samples(Chain(), n_samples, seed=0).eval()
    layer.on_device = on_device
    return layer


def torch_struct(n_samples: int, unary: Tensor, table: Tensor) -> Tensor:
    """Samples of torch-struct, as indicators of the pairs of each edge."""
    from torch_struct import LinearChainCRF

    edges = table.T + unary[:, 1:, :, None]  # (n_examples, n_edges, label, label before)
    first = torch.nn.functional.pad(unary[:, :1], (0, 0, 0, edges.shape[1] - 1))
    sample: Tensor = LinearChainCRF(edges + first[:, :, None, :]).sample((n_samples,))
    return sample


def table() -> Iterator[str]:
    """The lines of the table, one for each shape and number of samples, after its head."""
    yield f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    names = ["here", "core", *(["torch-struct"] if find_spec("torch_struct") else [])]
    yield f"{'batch x length x labels':<24}{'samples':>8}" + "".join(f"{name:>14}" for name in names)
    for shape in SHAPES:
        unary, _, pairs = (tensor.detach() for tensor in potentials(shape, "cuda"))
        for n in N_SAMPLES:
            runs: dict[str, Callable[[], object]] = {
                "here": partial(ours(n), unary, pairs),
                "core": partial(ours(n, False), unary, pairs),
            }
            if "torch-struct" in names and n <= MOST_OF_PEER:
                runs["torch-struct"] = partial(torch_struct, n, unary, pairs)
            ms = milliseconds(runs, seconds=0.2)
            numbers = "".join(f"{ms[name]:>14.2f}" if name in ms else f"{'-':>14}" for name in names)
            yield f"{' x '.join(map(str, shape)):<24}{n:>8}{numbers}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Exact samples of chains on a GPU beside a peer.")
    parser.add_argument("--write", type=Path, help="a file that the table is written to as well")
    path: Path | None = parser.parse_args().write
    lines = []
    for line in table():
        print(line, flush=True)
        lines.append(line)
    if path is not None:
        path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.gpu_samples needs a GPU, and torch sees none here.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the peer uses what torch has deprecated
        main()
