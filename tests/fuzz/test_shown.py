"""Whatever is in a bucket: it is shown, or said to be damaged, and moves no cursor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buquet import Queue, connect
from tests.core.making import BATCH_ID
from tests.fuzz.documents import BATCH_KEY, BATCHES, WORKER, WORKER_KEY, damaged
from tests.fuzz.effort import examples
from tests.fuzz.test_command_line import NOT_OURS, run

LOOKS = {
    "status": ["status", BATCH_ID],
    "status of another": ["status", BATCH_ID[:-1] + "1"],
    "history": ["history", BATCH_ID],
    "list": ["list"],
    "failed": ["list", "--status", "failed"],
    "stats": ["stats"],
    "workers": ["workers"],
    "sweep": ["sweep", "--full"],
    "cancel": ["cancel", BATCH_ID],
    "replay": ["replay", BATCH_ID, "--ttl", "5m"],
    "cancel all": ["cancel", "--type", "email"],
}
WAYS = st.sampled_from(["pipe", "json", "terminal"])
ON_TERMINAL = {"FORCE_COLOR": "1", "COLUMNS": "120", "TERM": "dumb"}


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    url = f"sqlite:///{tmp_path_factory.mktemp('shown') / 'queue.db'}"
    with pytest.MonkeyPatch.context() as patch, connect(url) as queue:
        patch.setenv("BUQUET_URL", url)
        yield queue


def look(queue: Queue, what: str, way: str) -> Any:
    """Have a command look, and check what holds of all."""
    args = LOOKS[what] + (["--json"] if way == "json" else [])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ON_TERMINAL.items() if way == "terminal" else ():
            patch.setenv(name, value)
        result = run(args)
    assert NOT_OURS not in result.stderr
    assert result.exit_code in (0, 1, 2, 3, 4)
    if way == "json" and result.stdout:
        json.loads(result.stdout)
    for line in (result.stdout + result.stderr).splitlines():
        assert all(part.isprintable() for part in line.split("\t"))


@given(body=damaged(*BATCHES), what=st.sampled_from(sorted(LOOKS)), way=WAYS)
@examples(250)
def test_whatever_a_batch_has_become_it_is_shown_or_damaged(
    queue: Queue, body: bytes, what: str, way: str
) -> None:
    queue.store.put(BATCH_KEY, body)
    queue.store.put(WORKER_KEY, WORKER)

    look(queue, what, way)


@given(
    body=damaged(WORKER),
    what=st.sampled_from(["workers", "status of another", "stats", "sweep"]),
    way=WAYS,
)
@examples(200)
def test_whatever_a_workers_record_has_become_it_is_shown_or_passed_over(
    queue: Queue, body: bytes, what: str, way: str
) -> None:
    queue.store.put(BATCH_KEY, BATCHES[0])
    queue.store.put(WORKER_KEY, body)

    look(queue, what, way)
