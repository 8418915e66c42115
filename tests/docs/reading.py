"""The project's documents, and the code, links and headings in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCUMENTS = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if path.is_relative_to(ROOT / "docs") or path.name in ("README.md", "CHANGELOG.md")
)

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_SHOWN = re.compile(r"# -> (.*)$", re.MULTILINE)


def name_of(path: Path) -> str:
    """The name of a document in test reports."""
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path, language: str) -> list[str]:
    """The fenced blocks of a language in a document, in order."""
    return [body for kind, body in _FENCED.findall(path.read_text("utf-8")) if kind == language]


def languages(path: Path) -> set[str]:
    """The languages of the fenced blocks in a document; "" for those that name none."""
    return {kind for kind, _ in _FENCED.findall(path.read_text("utf-8"))}


def shown(code: str) -> list[str]:
    """The lines that the code says it prints: `print(x)  # -> line`."""
    return _SHOWN.findall(code)


def prose(path: Path) -> str:
    """A document without its fenced blocks."""
    return _FENCED.sub("", path.read_text("utf-8"))


def links(path: Path) -> list[str]:
    """The targets of a document's links within the project."""
    return [each for each in _LINK.findall(prose(path)) if "://" not in each]


def anchors(path: Path) -> set[str]:
    """The anchors of a document: what a link can have after its `#`."""
    plain = (re.sub(r"[^\w\- ]", "", each.lower()) for each in _HEADING.findall(prose(path)))
    return {each.strip().replace(" ", "-") for each in plain}
