"""``python -m benchmarks.gpu``: the loss of a chain on a GPU, forward and backward, beside peers and beside our core.

Run by hand, where there is a GPU; ``--write docs/benchmarks_gpu.txt`` also writes the table to a file of the docs.
A peer that is not installed is left out. All take turns of ten calls, as in training, so that nobody starts on
another's cache alone; milliseconds are medians of a call, with the device's work awaited after each. Memory is what a
call of each of ours takes at its peak, gradients among it, in units of the unary potentials; the error is that of the
exact gradient against the core's, relative to its largest entry.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.networks import Loss, forward_and_backward, potentials, pytorch_crf, torch_struct
from perturbmap import Chain, ExactLogLikelihood, MarginalLogLikelihood, Objective
from perturbmap.nn import StructuredLoss

SHAPES = ((32, 50, 26), (256, 50, 26), (32, 200, 9), (32, 512, 9), (64, 128, 50), (256, 512, 9))


def ours(objective: Objective, on_device: bool | None = None) -> StructuredLoss:
    loss = StructuredLoss(objective, Chain(), seed=0).eval()
    loss.on_device = on_device
    return loss


def milliseconds(runs: Mapping[str, Callable[[], object]], seconds: float = 0.5) -> dict[str, float]:
    """Medians of runs that take turns of ten, so many as fit into the time, but at least two turns."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(2):
        for run in runs.values():  # compiled, and warm
            run()
    began = time.perf_counter()
    while len(min(times.values(), key=len)) < 20 or time.perf_counter() - began < seconds * len(runs):
        for name, run in runs.items():
            for _ in range(10):
                torch.cuda.synchronize()
                start = time.perf_counter()
                run()
                torch.cuda.synchronize()
                times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(each) for name, each in times.items()}


def memory(run: Callable[[], object], unary: Tensor) -> float:
    """Peak of a call over what was there before it, in units of the unary potentials."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    return (torch.cuda.max_memory_allocated() - before) / unary.nbytes


def relative_error(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> float:
    """The largest difference of two gradients over the largest entry of the second."""
    pairs = zip(one[1:], other[1:], strict=True)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def table() -> Iterator[str]:
    """The lines of the table, one for each shape, after its head."""
    yield f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    peers = [
        name for name, module in (("pytorch-crf", "torchcrf"), ("torch-struct", "torch_struct")) if find_spec(module)
    ]
    names = ["exact", "Gumbel", "exact, core", "Gumbel, core", *peers]
    yield f"{'batch x length x labels':<24}" + "".join(f"{name:>14}" for name in names) + "   memory       error"
    for shape in SHAPES:
        inputs = potentials(shape, "cuda")
        losses: dict[str, Loss] = {
            "exact": ours(ExactLogLikelihood()),
            "Gumbel": ours(MarginalLogLikelihood()),
            "exact, core": ours(ExactLogLikelihood(), False),
            "Gumbel, core": ours(MarginalLogLikelihood(), False),
        }
        if "pytorch-crf" in peers:
            losses["pytorch-crf"] = pytorch_crf(shape[2], "cuda")
        if "torch-struct" in peers:
            losses["torch-struct"] = torch_struct
        runs = {name: partial(forward_and_backward, loss, *inputs) for name, loss in losses.items()}
        ms = milliseconds(runs)
        error = relative_error(runs["exact"](), runs["exact, core"]())
        used = f"{memory(runs['exact'], inputs[0]):.1f}, {memory(runs['Gumbel'], inputs[0]):.1f}"
        numbers = "".join(f"{ms[name]:>14.2f}" for name in names)
        yield f"{' x '.join(map(str, shape)):<24}{numbers}   {used:<10} {error:8.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description="The loss of a chain on a GPU beside peers.")
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
        raise SystemExit("benchmarks.gpu needs a GPU, and torch sees none here.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both peers use what torch has deprecated
        main()
