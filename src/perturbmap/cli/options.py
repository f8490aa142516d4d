"""What the options of several commands share."""

from __future__ import annotations

import click


def once_each(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """The values of an option that may be repeated, each once, in their order."""
    return tuple(dict.fromkeys(value))
