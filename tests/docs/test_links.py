"""No link in the documents is dead, and every document can be reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.reading import DOCUMENTS, ROOT, anchors, links, name_of


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_link_within_the_project_has_a_target(path: Path) -> None:
    dead = []
    for link in links(path):
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        is_inside = target.exists() and target.is_relative_to(ROOT)
        if not is_inside or (anchor and anchor not in anchors(target)):
            dead.append(link)

    assert dead == []


def test_every_document_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        path = waiting.pop()
        if path not in seen and path.suffix == ".md":
            seen.add(path)
            waiting += [(path.parent / link.partition("#")[0]).resolve() for link in links(path)]

    assert set(DOCUMENTS) <= seen
