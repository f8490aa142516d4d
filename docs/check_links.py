"""Checks the built site without the network: python docs/check_links.py build/docs/html.

Every internal link must lead to a file, every anchor to an id in it, every image, script and style sheet must be
there, and nothing may be fetched from elsewhere. Links to other sites are only looked at: http(s), with a host.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Tags whose address a browser fetches by itself.
FETCHED = {
    ("img", "src"),
    ("script", "src"),
    ("link", "href"),
    ("source", "src"),
    ("iframe", "src"),
    ("video", "src"),
}


class Page(HTMLParser):
    """The ids of a page, and the addresses it mentions with the line they are on."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[tuple[int, str, bool]] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remembers ids and addresses."""
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.ids.add(value)
            elif name in ("href", "src"):
                self.links.append((self.getpos()[0], value, (tag, name) in FETCHED))


def broken_links(root: Path) -> tuple[int, list[str]]:
    """How many links there are, and what is wrong with which."""
    pages = {path.resolve(): Page(path) for path in sorted(root.rglob("*.html"))}
    complaints: list[str] = []
    n_links = 0
    for path, page in pages.items():
        for line, address, is_fetched in page.links:
            n_links += 1
            wrong = _complaint(pages, path, address, is_fetched)
            if wrong:
                complaints.append(f"{path.relative_to(root.resolve())}:{line}: {address}: {wrong}")
    return n_links, complaints


def _complaint(pages: dict[Path, Page], path: Path, address: str, is_fetched: bool) -> str:
    try:
        parts = urlsplit(address)
    except ValueError as error:
        return str(error)
    if parts.scheme in ("data", "mailto", "javascript"):
        return ""
    if parts.scheme or parts.netloc:
        if is_fetched:
            return "is fetched from another site"
        return "" if parts.scheme in ("http", "https") and "." in parts.netloc else "is no http(s) address"
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.exists():
        return "there is no such file"
    fragment = unquote(parts.fragment)
    if fragment and target in pages and fragment not in pages[target].ids:
        return "there is no such anchor"
    return ""


def main(folder: str) -> int:
    """Prints what is wrong; 1 if anything is."""
    root = Path(folder)
    if not (root / "index.html").exists():
        print(f"{folder} has no index.html: build the site first (make docs).", file=sys.stderr)
        return 1
    n_links, complaints = broken_links(root)
    print("\n".join(complaints), file=sys.stderr, end="\n" if complaints else "")
    print(f"{n_links} links and addresses checked, {len(complaints)} broken.")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "build/docs/html"))
