"""The diagram of a task's life is what the code does, and what its table says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import product

from attrs import evolve

from buquet import InvalidTransition, Task, TaskStatus
from buquet.core import transitions
from buquet.core.transitions import ALLOWED, Facts
from buquet.testing.clock import START
from tests.core.making import facts, make_task
from tests.docs.reading import ROOT, blocks

Step = tuple[str, str, str]
"""From which status, by which move, to which status."""

DOCUMENT = ROOT / "docs" / "state-machine.md"
ARROW = re.compile(r"^ *(\w+) --> (\w+) : (.+)$", re.MULTILINE)
FIRST_CELL = re.compile(r"^\| `([a-z ]+)` \|", re.MULTILINE)
SECOND = timedelta(seconds=1)

MOVES: dict[str, Callable[[Task, Facts], Task]] = {
    "claim": lambda task, now: transitions.claim(
        task, now, lease_id="l", lease_expires_at=START + timedelta(minutes=2)
    ),
    "complete": lambda task, now: transitions.complete(task, now, output=None),
    "fail": lambda task, now: transitions.fail(task, now, error="e"),
    "retry": lambda task, now: transitions.retry(task, now, error="e"),
    "reschedule": lambda task, now: transitions.reschedule(task, now, delay=SECOND),
    "release": transitions.release,
    "recover": transitions.recover,
    "give in": transitions.give_in,
    "expire": transitions.expire,
    "cancel": transitions.cancel,
    "replay": lambda task, now: transitions.replay(
        task, now, expires_at=START + timedelta(hours=1)
    ),
    "archive": transitions.archive,
}


def drawn() -> set[Step]:
    """The steps in the diagram, but for the first."""
    (diagram,) = blocks(DOCUMENT, "mermaid")
    return {
        (start, move, end)
        for start, end, moves in ARROW.findall(diagram)
        for move in moves.split(", ")
    }


def kinds_of_tasks() -> Iterator[Task]:
    """Tasks in each status, and in all the circumstances that make a difference to a move."""
    deadlines = (None, START + SECOND, START + 3 * SECOND)
    circumstances = product(TaskStatus, deadlines, (0, 3), (0, None), (False, True))
    for status, deadline, retries, reschedules, is_to_be_cancelled in circumstances:
        yield evolve(
            make_task(),
            status=status,
            expires_at=deadline,
            max_retries=retries,
            max_reschedules=reschedules,
            cancel_requested=is_to_be_cancelled and status is TaskStatus.RUNNING,
            attempt=0 if status is TaskStatus.PENDING else 1,
        )


def played() -> set[Step]:
    """The steps that the code takes: every move, from every status."""
    steps = set()
    for task, (name, move) in product(kinds_of_tasks(), MOVES.items()):
        with suppress(InvalidTransition):
            steps.add((str(task.status), name, str(move(task, facts(2)).status)))
    return steps


def test_the_diagram_shows_what_the_code_does_and_nothing_else() -> None:
    assert drawn() == played()


def test_the_diagram_and_the_table_allow_the_same() -> None:
    allowed = {(str(status), move) for move, statuses in ALLOWED.items() for status in statuses}

    assert {(start, move) for start, move, _ in drawn()} == allowed


def test_every_status_and_every_move_is_explained() -> None:
    statuses, _, moves = DOCUMENT.read_text("utf-8").partition("\n## Moves\n")

    assert FIRST_CELL.findall(statuses) == list(TaskStatus)
    assert set(FIRST_CELL.findall(moves)) == ALLOWED.keys() | {"create"}
