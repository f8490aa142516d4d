"""What the modules have in common: a structure, where chains are solved, and noise."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from perturbmap.nn.chains.batch import ChainBatch
from perturbmap.nn.chains.sweep import Key
from perturbmap.nn.compiling import OneOperation
from perturbmap.noise import Domain, Purpose, gumbel_noise, seed_of
from perturbmap.potentials import Floats, Potentials
from perturbmap.structures import Chain, Structure
from perturbmap.structures.transitions import as_transitions
from perturbmap.support.checks import check_count

# Draws that a module may use before it begins again; the core counts them in 32 bits.
_MOST_DRAWS = 2**31


class Layer(OneOperation):
    """A module that takes potentials, which its structure solves.

    ``on_device`` says whether a `Chain` is solved where its tensors are, rather than in the core on the CPU. None: if
    the tensors are on a GPU; True: always; False: never.
    """

    #: Whether chains are solved where their tensors are: None where those are on a GPU, True always, False never.
    on_device: bool | None = None

    def __init__(self, structure: Structure | None) -> None:
        super().__init__()
        self.structure = Chain() if structure is None else structure
        if not isinstance(self.structure, Structure):
            raise TypeError(f"structure must be a Structure, such as Chain(), but is {structure!r}.")


class RandomLayer(Layer):
    """Fresh noise at each call in training; in evaluation the same at each call, so that results can be compared."""

    #: Tells the noise of one kind of module from that of another with the same seed.
    kind: ClassVar[int]

    def __init__(self, structure: Structure | None, seed: int | None) -> None:
        super().__init__(structure)
        self.seed = int(torch.randint(2**62, ()).item()) if seed is None else seed_of(seed, "seed")
        self.n_draws = 0

    def get_extra_state(self) -> dict[str, int]:
        """What ``state_dict`` holds: the seed, and how much of its noise has been used."""
        return {"seed": self.seed, "n_draws": self.n_draws}

    def set_extra_state(self, state: dict[str, int]) -> None:
        """Restores the state that `get_extra_state` gave."""
        self.seed, self.n_draws = state["seed"], state["n_draws"]

    @property
    def noise_state(self) -> tuple[int, bool]:
        """The first draw of the next call, and whether the module is in training."""
        return self.n_draws, self.training

    @noise_state.setter
    def noise_state(self, state: tuple[int, bool]) -> None:
        self.n_draws, self.training = state

    def next_draws(self, n: int) -> tuple[int, Domain]:
        """The first of the n draws of a call, and their domain."""
        if not self.training:
            return 0, Domain(Purpose.LAYER_EVALUATION, self.kind)
        first, self.n_draws = self.n_draws, (self.n_draws + n) % _MOST_DRAWS
        return first, Domain(Purpose.LAYER_TRAINING, self.kind)


class PerturbedLayer(RandomLayer):
    """A module that takes a mean over perturbations of its potentials."""

    def __init__(self, structure: Structure | None, n_perturbations: int, seed: int | None) -> None:
        super().__init__(structure, seed)
        self.n_perturbations = check_count("n_perturbations", n_perturbations)

    def extra_repr(self) -> str:
        """What ``repr`` shows of the module."""
        return f"{self.structure!r}, n_perturbations={self.n_perturbations}"


def chains_of(layer: Layer, unary: Any, pairwise: Any, edges: Any, mask: Any) -> ChainBatch | None:
    """The potentials as chains to be solved where they are; None where they go to the core."""
    if edges is not None or not isinstance(layer.structure, Chain):
        return None
    some = unary if isinstance(unary, Tensor) else unary[0] if len(unary) else None
    is_there = isinstance(some, Tensor) and some.is_cuda if layer.on_device is None else layer.on_device
    allowed = None if layer.structure.allowed is None else as_transitions(layer.structure.allowed).rules
    return ChainBatch.of(unary, pairwise, mask, allowed) if is_there else None


def solver_of(layer: Layer) -> Structure:
    """The structure, with as many threads as torch has."""
    if layer.structure.n_threads is None:
        return layer.structure.with_threads(torch.get_num_threads())
    return layer.structure


def noise_of(layer: PerturbedLayer, f: Potentials, structure: Structure) -> Floats:
    """The noise of a call, for the core."""
    first, domain = layer.next_draws(layer.n_perturbations)
    return gumbel_noise(f, layer.seed, layer.n_perturbations, first, structure.n_threads, domain=domain)


def key_of(layer: PerturbedLayer) -> Key:
    """What the noise of a call is a function of, for those who make it where the tensors are."""
    first, domain = layer.next_draws(layer.n_perturbations)
    return Key(layer.seed, first, domain.code)
