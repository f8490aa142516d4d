"""``{decision}`13``` links to point 13 of decisions.md, a list in plain Markdown, which has no anchors."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

_PAGE = "decisions"


class _Decision(SphinxRole):
    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        number = self.text.strip()
        up = "../" * self.env.docname.count("/")
        link = nodes.reference("", f"decision {number}", refuri=f"{up}{_PAGE}.html#decision-{number}", internal=True)
        return [link], []


def _number_points(app: Sphinx, doctree: nodes.document) -> None:
    if app.env.docname != _PAGE:
        return
    for points in doctree.findall(nodes.enumerated_list):
        for number, point in enumerate(points.children, start=1):
            point["ids"].append(f"decision-{number}")  # type: ignore[index]  # every point of a list is an Element


def setup(app: Sphinx) -> dict[str, Any]:
    """The role, and the anchors it leads to; check_links.py sees to it that they are there."""
    app.add_role("decision", _Decision())
    app.connect("doctree-read", _number_points)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
