"""Batches of tensors, padded or ragged, as the rows that the core takes; and the way back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from perturbmap.nn.solved import solved
from perturbmap.potentials import Floats, Layout, Moments, Potentials
from perturbmap.potentials.graphs import check_edges, check_order
from perturbmap.support.checks import as_floats

Ragged = Sequence[Tensor]


class TensorLayout(ABC):
    """Where the sites of each example are; ``counts`` says how many each has."""

    counts: NDArray[np.int64]

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of sites of an example, with its padding."""

    @abstractmethod
    def rows(self, name: str, values: Any, counts: NDArray[np.int64], width: int) -> Tensor:
        """The first so many rows of each example, one after another; of ``width`` rows where they are padded."""

    @abstractmethod
    def unpack(self, rows: Tensor, fill: float) -> Any:
        """Rows, one for each site, in the layout of the potentials; ``fill`` where no site is."""


@final
class Padded(TensorLayout):
    """A tensor ``(n_examples, n_sites, ...)`` and a mask."""

    def __init__(self, unary: Tensor, mask: Any) -> None:
        self.shape = unary.shape[:2]
        if len(unary) == 0:
            raise ValueError("unary must hold at least one example, but is empty.")
        if mask is None:
            self.counts = np.full(self.shape[0], self.shape[1], dtype=np.int64)
            return
        is_site = torch.as_tensor(mask).cpu().numpy()
        if is_site.shape != tuple(self.shape) or is_site.dtype != np.bool_:
            raise ValueError(
                f"mask must be boolean, of shape {tuple(self.shape)}, but has shape {is_site.shape} and dtype "
                f"{is_site.dtype}."
            )
        if (is_site[:, 1:] & ~is_site[:, :-1]).any():
            bad = int(np.flatnonzero((is_site[:, 1:] & ~is_site[:, :-1]).any(axis=1))[0])
            raise ValueError(
                f"mask must be True at the first sites of each example and False after them, but example {bad} has a "
                "gap: move its sites to the front."
            )
        self.counts = is_site.sum(axis=1).astype(np.int64)

    def rows(self, name: str, values: Any, counts: NDArray[np.int64], width: int) -> Tensor:
        if not isinstance(values, (Tensor, np.ndarray)):
            raise TypeError(f"{name} must be a padded tensor, as unary is, but is a {type(values).__name__}.")
        tensor = torch.as_tensor(values)
        if tuple(tensor.shape[:2]) != (len(counts), width):
            raise ValueError(
                f"{name} must have shape ({len(counts)}, {width}, ...), as unary is padded, but has shape "
                f"{tuple(tensor.shape)}."
            )
        if (counts == tensor.shape[1]).all():
            return tensor.flatten(0, 1)
        is_there = torch.arange(tensor.shape[1]) < torch.from_numpy(counts)[:, None]
        return tensor[is_there.to(tensor.device)]

    @property
    def width(self) -> int:
        return int(self.shape[1])

    def unpack(self, rows: Tensor, fill: float) -> Tensor:
        if (self.counts == self.shape[1]).all():
            return rows.reshape(*self.shape, *rows.shape[1:])
        is_there = torch.arange(self.shape[1]) < torch.from_numpy(self.counts)[:, None]
        padded = rows.new_full((*self.shape, *rows.shape[1:]), fill)
        return padded.index_put((is_there.to(rows.device),), rows)


@final
class OneByOne(TensorLayout):
    """A list of tensors ``(n_sites, ...)``, one for each example."""

    def __init__(self, unary: Ragged) -> None:
        for n, part in enumerate(unary):
            if not isinstance(part, Tensor) or part.dim() != 2:
                what = f"shape {tuple(part.shape)}" if isinstance(part, Tensor) else f"type {type(part).__name__}"
                raise ValueError(
                    f"unary[{n}] must be a tensor of shape (n_sites, n_labels), but has {what}. "
                    "Arrays become tensors by torch.from_numpy."
                )
        if len(unary) == 0:
            raise ValueError("unary must hold at least one example, but is empty.")
        if len({part.shape[1] for part in unary}) > 1:
            raise ValueError("unary must have the same number of labels in all examples.")
        self.counts = np.array([len(part) for part in unary], dtype=np.int64)

    def rows(self, name: str, values: Any, counts: NDArray[np.int64], width: int) -> Tensor:
        if isinstance(values, (Tensor, np.ndarray)) or len(values) != len(counts):
            raise ValueError(f"{name} must be a list with one entry for each example, {len(counts)}, as unary is.")
        parts = [torch.as_tensor(part) for part in values]
        for n, (part, count) in enumerate(zip(parts, counts.tolist(), strict=True)):
            if part.dim() == 0 or len(part) != count:
                raise ValueError(f"{name}[{n}] must have {count} rows, but has shape {tuple(part.shape)}.")
        return torch.cat(parts)

    @property
    def width(self) -> int:
        """See `TensorLayout.width`: that of the longest example, since nothing is padded."""
        return int(self.counts.max())

    def unpack(self, rows: Tensor, fill: float) -> list[Tensor]:
        """See `TensorLayout.unpack`; there is nothing to fill."""
        return list(torch.split(rows, self.counts.tolist()))


@final
@dataclass(frozen=True, eq=False)
class Batch:
    """Potentials of some examples: as tensors, through which gradients go, and as the core takes them."""

    layout: TensorLayout
    unary: Tensor
    pairwise: Tensor | None
    f: Potentials

    @classmethod
    def pack(cls, unary: Tensor | Ragged, pairwise: Any, edges: Any, mask: Any) -> Batch:
        """Checks the tensors, and copies them to the CPU where they are not there."""
        layout: TensorLayout
        if isinstance(unary, Tensor):
            if unary.dim() != 3:
                raise ValueError(
                    "unary must have shape (n_examples, n_sites, n_labels), or be a list of tensors, but has shape "
                    f"{tuple(unary.shape)}. A single example is a batch of one: unary[None]."
                )
            layout = Padded(unary, mask)
        elif mask is not None:
            raise ValueError("mask is for padded tensors: a list of tensors says how long each example is.")
        else:
            layout = OneByOne(unary)
        rows = layout.rows("unary", unary, layout.counts, layout.width)
        if not rows.is_floating_point():
            raise ValueError(f"unary must hold floating-point numbers, but its dtype is {rows.dtype}: unary.float().")
        if pairwise is None and edges is not None:
            raise ValueError("edges were given without pairwise: pass the pairwise tables too.")
        if not (isinstance(pairwise, (Tensor, np.ndarray)) and pairwise.ndim == 2):
            for graph in edges if isinstance(edges, (list, tuple)) else [edges]:
                check_order(graph, "pairwise")
        sites = _join(edges, layout.counts, pairwise is not None)
        width = max(0, layout.width - 1) if edges is None else int(sites.edge_counts.max())
        tables = None if pairwise is None else _tables(layout, pairwise, sites.edge_counts, width, rows.shape[1])
        here = _on_cpu([rows] if tables is None else [rows, tables])
        own_tables = None if tables is None else _own_floats("pairwise", here[1])
        f = Potentials.trusted(sites, _own_floats("unary", here[0], may_forbid=True), own_tables)
        return cls(layout, rows, tables, f)

    def through_core(self, values: Floats, dtype: torch.dtype, pullback: Callable[[Floats], Moments]) -> Tensor:
        """Values that the core computed from f, as a tensor whose gradient ``pullback`` gives."""

        def pull(gradient: Tensor) -> tuple[Tensor, Tensor | None]:
            moments = pullback(to_numpy(gradient).astype(np.float64))
            unary, tables, table_moments = self.unary, self.pairwise, moments.pairwise
            pairwise = None
            if tables is not None and table_moments is not None:
                pairwise = _to_tensor(table_moments, tables.device, tables.dtype)
            return _to_tensor(moments.unary, unary.device, unary.dtype), pairwise

        # A copy: the pullback may need the values, and whoever gets the tensor may change it in place.
        own = _to_tensor(values, self.unary.device, dtype)
        return solved(self.unary, self.pairwise, own, pull)

    def site_values(self, name: str, values: Any) -> Tensor:
        """What a user gives in the layout of the potentials, as rows."""
        return self.layout.rows(name, values, self.layout.counts, self.layout.width)


def to_numpy(tensor: Tensor) -> NDArray[Any]:
    """A tensor's numbers; those of a device are copied once, in their own precision."""
    here = _on_cpu([tensor])[0]
    return (here.float() if here.dtype == torch.bfloat16 else here).numpy()


def _on_cpu(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Tensors on the CPU, without a gradient; from a GPU all go at once, to pinned memory, and are awaited once."""
    here = [tensor.detach().to("cpu", non_blocking=tensor.is_cuda) for tensor in tensors]
    for device in {tensor.device for tensor in tensors if tensor.is_cuda}:
        torch.cuda.current_stream(device).synchronize()
    return here


def _to_tensor(array: NDArray[Any], device: torch.device, dtype: torch.dtype) -> Tensor:
    """A copy of an array on a device; nobody waits for its way to a GPU."""
    here = torch.empty(array.shape, dtype=dtype, pin_memory=device.type == "cuda")
    return here.copy_(torch.from_numpy(array)).to(device, non_blocking=True)


def _own_floats(name: str, tensor: Tensor, *, may_forbid: bool = False) -> Floats:
    """As the core takes them, in memory that nobody else writes to: the gradient may be computed from them later."""
    array = to_numpy(tensor)
    floats = as_floats(name, array, may_forbid=may_forbid)
    return floats.copy() if np.may_share_memory(floats, array) else floats


def _join(edges: Any, counts: NDArray[np.int64], is_joined: bool) -> Layout:
    """The sites and edges of the whole batch."""
    if not is_joined:
        return Layout.of_counts(counts).without_edges()
    if edges is None:
        return Layout.of_counts(counts)
    if isinstance(edges, (list, tuple)):
        if len(edges) != len(counts):
            raise ValueError(
                f"edges must be a list with one graph for each example, {len(counts)}, but has {len(edges)} entries. "
                "One graph for all examples is given as an array."
            )
        parts = [
            check_edges(_plain(e), int(c), f"edges[{n}]") for n, (e, c) in enumerate(zip(edges, counts, strict=True))
        ]
    else:
        if (counts != counts[:1]).any():
            raise ValueError(
                "edges is one graph for all examples, but they have different numbers of sites: give a list instead."
            )
        parts = [check_edges(_plain(edges), int(counts[0]), "edges")] * len(counts)
    return Layout.of_counts(counts, parts)


def _plain(edges: Any) -> Any:
    return to_numpy(edges) if isinstance(edges, Tensor) else edges


def _tables(layout: TensorLayout, pairwise: Any, edge_counts: NDArray[np.int64], width: int, n_labels: int) -> Tensor:
    is_shared = isinstance(pairwise, (Tensor, np.ndarray)) and pairwise.ndim == 2
    tables = torch.as_tensor(pairwise) if is_shared else layout.rows("pairwise", pairwise, edge_counts, width)
    if tables.shape[-2:] != (n_labels, n_labels) or tables.dim() != (2 if is_shared else 3):
        raise ValueError(
            f"pairwise must be one table ({n_labels}, {n_labels}) for all edges or one for each edge, but has shape "
            f"{tuple(tables.shape)}."
        )
    return tables
