from collections.abc import Callable
from typing import Any

import pytest

from buquet import Queue, TaskStatus

Cli = Callable[..., Any]


@pytest.mark.parametrize("length", [4, 8, 9, 13, 20, 35, 36])
def test_the_first_digits_of_an_id_do(cli: Cli, queue: Queue, length: int) -> None:
    task = queue.submit("a")

    result = cli("status", task.id[:length].upper())

    assert result.stdout.startswith(f"id: {task.id}\n")


def test_digits_that_lead_to_a_batch_of_several_tasks_are_ambiguous(cli: Cli, queue: Queue) -> None:
    tasks = queue.submit_many([("a", n) for n in range(3)])

    result = cli("cancel", tasks[1].id[:8])
    whole = cli("cancel", tasks[1].id)

    assert result.exit_code == 2
    assert "leads to 3 tasks that were submitted together" in result.stderr
    assert (whole.exit_code, queue.get(tasks[0].id).status) == (0, TaskStatus.PENDING)


def test_digits_that_begin_several_ids_are_ambiguous(cli: Cli, queue: Queue) -> None:
    for digits in ("aaaa1", "aaaa2"):
        queue.store.put(f"tasks/{digits}bcd-0000-4000-8000-000000000000.json", b"{}")

    result = cli("status", "aaaa")

    assert result.exit_code == 2
    assert "Give more digits" in result.stderr


def test_three_digits_are_too_few(cli: Cli) -> None:
    assert cli("status", "abc").exit_code == 2
