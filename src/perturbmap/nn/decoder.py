"""The best labelling of chains in plain torch operations, for networks that are exported."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn


@final
class ViterbiDecoder(nn.Module):
    """`BestLabelling` of chains with one table, which ``torch.export`` and ONNX can take along with a network.

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
        """The best labels, ``(n_examples, n_sites)``, -1 beyond an example's length.

        unary : (n_examples, n_sites, n_labels)
        pairwise : (n_labels, n_labels), the table of all edges
        lengths : (n_examples,), integers, how many sites each example has
        """
        from torch._higher_order_ops import scan  # still without a public name; in torch since 2.6

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
        zero = torch.zeros_like(unary[:, 0])
        sites = unary.transpose(0, 1).flip(0), is_site.flip(0)
        (_, scores), labels_after = scan(backwards, (zero, zero.clone()), sites)
        _, labels = scan(forwards, scores.argmax(1), labels_after.flip(0).roll(-1, 0))
        best_labels: Tensor = labels.masked_fill(~is_site, -1).transpose(0, 1)
        return best_labels
