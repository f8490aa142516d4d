"""The functions of `perturbmap.nn.chains.plain` as Triton kernels, for tensors on a GPU; needs Triton."""

from perturbmap.nn.chains.kernels.pointwise import look, perturbed, toward
from perturbmap.nn.chains.kernels.sampling import sample
from perturbmap.nn.chains.kernels.sweeps import MOST_LABELS, flow, messages

__all__ = ["MOST_LABELS", "flow", "look", "messages", "perturbed", "sample", "toward"]
