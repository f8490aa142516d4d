"""Structured outputs for PyTorch: losses, marginals, best labellings and samples of tensors (``perturbmap[torch]``).

A network gives potentials, the scores of labels and of pairs of labels, as tensors; the compiled core solves them and
gives the gradient, and torch goes on from there. Potentials come in one of two layouts, and so do labels and results:

- *padded*: ``unary`` of shape ``(n_examples, n_sites, n_labels)``; if examples are shorter than the tensor, a boolean
  ``mask`` ``(n_examples, n_sites)`` is True at the sites that are there, the first so many of each;
- *ragged*: a list of tensors ``(n_sites, n_labels)``, one for each example.

``unary`` holds the score of each label at each site. ``pairwise`` holds those of the pairs of labels that edges join:
one table ``(n_labels, n_labels)`` for all edges; or one for each edge, padded as
``(n_examples, n_edges, n_labels, n_labels)`` or ragged as a list. If ``edges`` is left out, consecutive sites are
joined; one array ``(n_edges, 2)`` is the graph of every example; a list has one for each.

Any floating dtype and any device will do: potentials are copied to the CPU once, where the core works in double
precision, and the gradient is copied back once. A `Chain` on a GPU is solved there, in single precision unless the
tensors have double, by the same formulas: see ``on_device`` of the modules.

The compiled core and torch do not fight for the cores of the CPU: the former has threads only while it is called,
when torch waits for it, and takes as many as ``torch.get_num_threads()`` then, unless ``structure.n_threads`` says
otherwise. So it has one thread inside a worker of a ``DataLoader``, as torch has. Results do not depend on it.
"""

from importlib import import_module

try:
    import_module("torch")
except ImportError as error:
    raise ImportError(f'perturbmap.nn needs PyTorch ({error}): pip install "perturbmap[torch]".') from error

from perturbmap.nn.decoder import ViterbiDecoder
from perturbmap.nn.layers import BestLabelling, Marginals, StructuredLoss
from perturbmap.nn.samples import Samples

__all__ = ["BestLabelling", "Marginals", "Samples", "StructuredLoss", "ViterbiDecoder"]
