"""What the options of several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Decorator(Protocol):
    """Gives a function an option of the command that it becomes."""

    def __call__(self, command: _Command, /) -> _Command: ...


def once_each(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """The values of an option that may be repeated, each once, in their order."""
    return tuple(dict.fromkeys(value))


# Those of the experiments.

seed_option = click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Random seed."
)
jobs_option = click.option("--jobs", type=click.IntRange(min=1), help="Processes to use. One per core by default.")


def method_option(*methods: str, default: str = "All by default.") -> Decorator:
    """``--method``, one of these, which may be repeated."""
    return click.option(
        "--method",
        "methods",
        type=click.Choice(methods),
        multiple=True,
        callback=once_each,
        help=f"A method to run; may be repeated. {default}",
    )


def cache_option(experiment: str, images: str) -> Decorator:
    """``--cache``, the folder for features of an experiment's images, which are called so."""
    return click.option(
        "--cache",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path(f"perturbmap-{experiment}-features"),
        show_default=True,
        help=f"Folder for the {images}s' features, computed once; 3 MB per {images}.",
    )


def out_option(experiment: str) -> Decorator:
    """``--out``, the folder for the results and the report of an experiment."""
    return click.option(
        "--out",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder for results.json and report.html.  "
        f"[default: perturbmap-{experiment}, or perturbmap-{experiment}-quick]",
    )
