"""The best labelling of chains in plain torch operations, for networks that are exported."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor, nn


@final
class ViterbiDecoder(nn.Module):
    """The best labelling of chains with one table, which ``torch.export`` and ONNX can export along with a network.

    It needs nothing of this library where it runs: the loop over sites is part of the exported graph, and batch and
    length may differ from call to call. Ties go to the smallest label, from the first site on, as in `Chain`. Where
    nothing is exported, `BestLabelling` is faster.

    Reference.  Viterbi, Error bounds for convolutional codes, IEEE Trans. Information Theory 1967.

    >>> import torch
    >>> unary = torch.tensor([[[0.0, 1.0], [0.5, 0.0], [0.0, 0.2]]])
    >>> pm.nn.ViterbiDecoder()(unary, torch.eye(2), torch.tensor([3]))
    tensor([[1, 1, 1]])
    """

    def forward(self, unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Tensor:
        """The best labels, ``(n_examples, n_sites)``; -1 where the tensor is padded.

        unary : (n_examples, n_sites, n_labels)
        pairwise : (n_labels, n_labels), the table of all edges
        lengths : (n_examples,), integers, how many sites each example has
        """

        def backwards(
            messages: tuple[Tensor, Tensor], site: tuple[Tensor, Tensor]
        ) -> tuple[tuple[Tensor, ...], Tensor]:
            scores = site[0] + messages[0]
            best, label_after = (scores[:, None, :] + pairwise).max(2)
            best = best - best.amax(1, keepdim=True)
            return (torch.where(site[1][:, None], best, torch.zeros_like(best)), scores), label_after

        def forwards(label: Tensor, label_after: Tensor) -> tuple[Tensor, Tensor]:
            return label_after.gather(1, label[:, None])[:, 0], label.clone()

        unary, pairwise = unary.detach(), pairwise.detach()  # labels have no gradient
        is_site = torch.arange(unary.shape[1], device=unary.device)[:, None] < lengths
        zero = unary.new_zeros((unary.shape[0], unary.shape[2]))
        sites = unary.transpose(0, 1).flip(0), is_site.flip(0)
        (_, scores), labels_after = _scan(backwards, (zero, zero.clone()), sites)
        _, labels = _scan(forwards, scores.argmax(1), labels_after.flip(0).roll(-1, 0))
        best_labels: Tensor = labels.masked_fill(~is_site, -1).transpose(0, 1)
        return best_labels


def _scan(step: Any, carry: Any, sites: Any) -> tuple[Any, Tensor]:
    """The last carry of ``carry, out = step(carry, site)`` over the first axis of the sites, and what came out."""
    if torch.compiler.is_exporting():
        from torch._higher_order_ops import scan  # a loop in the exported graph; torch has no public name for it yet

        result: tuple[Any, Tensor] = scan(step, carry, sites)
        return result
    outs = []
    for site in zip(*sites, strict=True) if isinstance(sites, tuple) else sites:
        carry, out = step(carry, site)
        outs.append(out)
    return carry, torch.stack(outs)
