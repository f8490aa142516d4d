"""Random instances of every structure."""

from __future__ import annotations

import warnings
from pathlib import Path

from fuzz.against_each_other import cut_up, drawn, each_other
from fuzz.against_enumeration import (
    any_arrays,
    any_magnitude,
    as_the_definition,
    powers_of_two,
    sums_of_any_graph,
)
from fuzz.family import Case, Family
from fuzz.instances import Generator
from fuzz.mutations import choose

CHECKS = (as_the_definition, any_magnitude, powers_of_two, any_arrays, sums_of_any_graph, cut_up, drawn, each_other)


def start(folder: Path) -> Case:
    warnings.simplefilter("error")

    def case(rng: Generator) -> None:
        choose(rng, CHECKS)(rng)

    return case


FAMILY = Family("instances", start)
