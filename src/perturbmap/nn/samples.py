"""The module that draws labellings."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from perturbmap.nn.chains.sweep import Key
from perturbmap.nn.layer import RandomLayer, chains_of, solver_of
from perturbmap.nn.tensors import Batch, Ragged
from perturbmap.structures import Structure
from perturbmap.structures.summable import EXACT_SAMPLES, require_sums
from perturbmap.support.checks import check_count


@final
class Samples(RandomLayer):
    """Independent labellings from the Gibbs distribution ``exp f(y) / Z``, without a gradient.

    structure : one that can be summed over, such as `Chain` (default) and `Tree`
    n_samples : labellings in a call, all from the same potentials
    seed : as in `StructuredLoss`; the noise is fresh at each call in training, and the same in evaluation

    >>> import torch
    >>> samples = pm.nn.Samples(pm.Chain(), 4, seed=0)
    >>> samples(torch.zeros(1, 3, 2), 2 * torch.eye(2))[:, 0]  # neighbours like to be equal
    tensor([[0, 0, 0],
            [0, 0, 0],
            [1, 1, 1],
            [1, 1, 1]])
    """

    kind = 2

    def __init__(self, structure: Structure | None = None, n_samples: int = 1, *, seed: int | None = None) -> None:
        super().__init__(structure, seed)
        require_sums(self.structure, "Samples", "perturbmap.sample")
        self.n_samples = check_count("n_samples", n_samples)

    def extra_repr(self) -> str:
        """What ``repr`` shows of the module."""
        return f"{self.structure!r}, n_samples={self.n_samples}"

    def forward(self, unary: Tensor | Ragged, pairwise: Any = None, edges: Any = None, *, mask: Any = None) -> Any:
        """Labels drawn from potentials in the layouts of `perturbmap.nn`, ``(n_samples, n_examples, n_sites)``.

        They are -1 where a tensor is padded. From a list comes a list, of tensors ``(n_samples, n_sites)``.
        """
        return self.answer(unary, pairwise, edges, mask)

    def outline(self, unary: Any, *others: Any) -> Any:
        """One label for each site of each sample."""
        if isinstance(unary, Tensor):
            return unary.new_empty((self.n_samples, *unary.shape[:-1]), dtype=torch.int64)
        return [part.new_empty((self.n_samples, *part.shape[:-1]), dtype=torch.int64) for part in unary]

    def solve(self, unary: Any, pairwise: Any, edges: Any, mask: Any) -> Any:
        """See `forward`, which is this outside of compiled graphs."""
        chains, before = chains_of(self, unary, pairwise, edges, mask), self.n_draws
        if chains is not None:
            labels = chains.samples(Key(self._next_seed(), 0, EXACT_SAMPLES.code), self.n_samples)
            if labels is not None:
                return _draws_first(labels)
            self.n_draws = before
        batch, structure = Batch.pack(unary, pairwise, edges, mask), require_sums(solver_of(self), "Samples", "")
        drawn = structure.sample(batch.f, self.n_samples, rng=self._next_seed())
        rows = torch.from_numpy(drawn.T.astype(np.int64)).to(batch.unary.device)
        return _draws_first(batch.layout.unpack(rows, -1))

    def _next_seed(self) -> int:
        """That of a call: the core numbers the samples of each from zero."""
        first, domain = self.next_draws(self.n_samples)
        return int(np.random.SeedSequence([self.seed, first, domain.code]).generate_state(1, np.uint64)[0])


def _draws_first(labels: Any) -> Any:
    """The last axis in front, of a tensor or of each of a list."""
    if isinstance(labels, Tensor):
        return labels.movedim(-1, 0).contiguous()
    return [part.movedim(-1, 0).contiguous() for part in labels]
