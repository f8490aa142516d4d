"""Formulas as MathML, which browsers draw by themselves: no script, no fonts, no network.

docutils can translate TeX; Sphinx only has to be told to use it.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

_logger = logging.getLogger(__name__)


def _mathml(node: nodes.Element, as_block: bool) -> str:
    try:
        return tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        _logger.warning("cannot translate the formula %r: %s", node.astext(), error, location=node)
        return ""


def _inline(translator: Any, node: nodes.Element) -> None:
    translator.body.append(f'<span class="math">{_mathml(node, False)}</span>')
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.Element) -> None:
    translator.body.append(f'<div class="math">{_mathml(node, True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the renderer and takes it."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config.html_math_renderer = "mathml"  # type: ignore[attr-defined]  # Config makes its attributes at run time
    return {"parallel_read_safe": True, "parallel_write_safe": True}
