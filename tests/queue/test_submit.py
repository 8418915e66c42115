"""G1: what `submit` acknowledges is stored, and what it does not is told apart."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from buquet import (
    InvalidOptions,
    InvalidPayload,
    PayloadTooLarge,
    RetryPolicy,
    StoreAccessDenied,
    StoreUnavailable,
    StoreUnclear,
    SubmitManyError,
    SubmitUnclear,
    TaskNotFound,
    TaskStatus,
)
from buquet.client.bulk import SUBMITTERS
from buquet.core.keys import BATCHES
from buquet.store import Conflict, Store, Stored
from buquet.testing import FaultyStore
from tests.helpers import World


class Breaking(FaultyStore):
    """A store in which the writes of batches fail from the `good`-th on."""

    def __init__(self, store: Store, *, good: int, error: Exception | None = None) -> None:
        super().__init__(store)
        self._good = good
        self._error = error or StoreUnavailable("503 Slow Down")
        self._writes = itertools.count(1)
        self._turn = threading.Lock()
        self._is_broken = False

    def put(
        self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str | Conflict:
        if key.startswith(BATCHES):
            with self._turn:
                self._is_broken = next(self._writes) > self._good
                if self._is_broken:
                    raise self._error
        return self.store.put(key, body, if_match=if_match, if_absent=if_absent)


class Held(FaultyStore):
    """A store that takes batches only after something has happened."""

    def __init__(self, store: Store, happened: threading.Event) -> None:
        super().__init__(store)
        self._happened = happened

    def put(self, key: str, body: bytes, **conditions: Any) -> str | Conflict:
        if key.startswith(BATCHES):
            assert self._happened.wait(20)
        return self.store.put(key, body, **conditions)


class Vanishing(Breaking):
    """One that takes the batches all the same, and then can't be asked."""

    def put(self, key: str, body: bytes, **conditions: Any) -> str | Conflict:
        try:
            return super().put(key, body, **conditions)
        except StoreUnavailable:
            self.store.put(key, body)
            raise

    def get(self, key: str, *, unless: str | None = None) -> Stored | None:
        if key.startswith(BATCHES):
            raise StoreUnavailable("503 Slow Down")
        return self.store.get(key, unless=unless)


def pairs(count: int, task_type: str = "ok") -> Iterator[tuple[str, Any]]:
    return ((task_type, number) for number in range(count))


@pytest.fixture
def world() -> World:
    return World()


# --- one


def test_a_task_that_was_submitted_is_in_the_store_as_it_was_given_back(world: World) -> None:
    queue = world.queue()
    policy = RetryPolicy(initial_seconds=3)

    task = queue.submit(
        "email",
        {"to": "ada", "n": [1, 2.5, None]},
        ttl_seconds=60,
        delay=timedelta(seconds=10),
        timeout_seconds=5,
        max_retries=1,
        retry_policy=policy,
        priority=7,
        max_reschedules=2,
    )

    assert world.queue(seed=2).get(task.id) == task
    assert (task.status, task.input) == (TaskStatus.PENDING, {"to": "ada", "n": [1, 2.5, None]})
    assert task.available_at == world.clock.now() + timedelta(seconds=10)
    assert task.expires_at == world.clock.now() + timedelta(seconds=70)
    assert (task.timeout_seconds, task.max_retries, task.retry_policy) == (5, 1, policy)
    assert (task.priority, task.max_reschedules) == (7, 2)
    assert task.history[0].by == "process-1"
    assert world.missing_entries() == set()


def test_a_lone_task_has_the_id_of_its_batch(world: World) -> None:
    task = world.queue().submit("ok")

    assert task.id == task.batch_id
    assert [batch.id for batch in world.batches()] == [task.id]


REFUSED: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception]]] = [
    (("ok", {1, 2}), {}, InvalidPayload),
    (("ok", "x" * 300_000), {}, PayloadTooLarge),
    (("not a type", 1), {}, InvalidOptions),
    ((5, 1), {}, InvalidOptions),
    (("ok", 1), {"ttl_seconds": -5}, InvalidOptions),
    (("ok", 1), {"ttl_seconds": 10**400}, InvalidOptions),
    (("ok", 1), {"expires_in": 60}, TypeError),
]


@pytest.mark.parametrize(("arguments", "options", "error"), REFUSED)
def test_what_is_refused_leaves_the_store_unchanged(
    world: World, arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        world.queue().submit(*arguments, **options)
    with pytest.raises(error):
        world.queue().submit_many([("ok", 1), arguments], **options)

    assert world.store.list("") == []


@pytest.mark.parametrize("is_done", [True, False])
def test_a_submit_whose_answer_was_lost_carries_the_id_under_which_to_look(
    world: World, is_done: bool
) -> None:
    store = FaultyStore(world.store)
    (store.fail_after if is_done else store.fail_before)(2, StoreUnclear("connection lost"))
    store.fail_before(3, StoreUnavailable("still down"))

    with pytest.raises(SubmitUnclear) as unclear:
        world.queue(store).submit("ok", 1)

    [task_id] = unclear.value.task_ids
    assert task_id in str(unclear.value)
    if is_done:
        assert world.queue().get(task_id).status is TaskStatus.PENDING
    else:
        with pytest.raises(TaskNotFound):
            world.queue().get(task_id)


def test_a_lost_answer_is_settled_by_looking(world: World) -> None:
    for is_done in (True, False):
        store = FaultyStore(world.store)
        (store.fail_after if is_done else store.fail_before)(2, StoreUnclear("connection lost"))

        task = world.queue(store, seed=int(is_done)).submit("ok", 1)

        assert world.queue().get(task.id) == task
    assert len(world.batches()) == 2


# --- many


def test_many_tasks_come_back_in_the_order_given_and_share_batches(world: World) -> None:
    tasks = world.queue().submit_many(pairs(250), batch_size=100, ttl_seconds=60)

    assert [task.input for task in tasks] == list(range(250))
    assert len({task.id for task in tasks}) == 250
    assert sorted(len(batch.tasks) for batch in world.batches()) == [50, 100, 100]
    assert {task.expires_at for task in tasks} == {world.clock.now() + timedelta(seconds=60)}
    assert world.missing_entries() == set()


def test_mixed_types_go_into_batches_of_their_own_and_come_back_in_order(world: World) -> None:
    given = [(("ok", "email", "slow")[n % 3], n) for n in range(50)]

    tasks = world.queue().submit_many(given, batch_size=7)

    assert [(task.task_type, task.input) for task in tasks] == given
    for batch in world.batches():
        assert {task.task_type for task in batch.tasks} == {batch.task_type}
        assert len(batch.tasks) <= 7


def test_inputs_above_the_size_of_a_batch_are_split(world: World) -> None:
    tasks = world.queue().submit_many([("ok", "x" * 100_000) for _ in range(5)])

    assert [len(batch.tasks) for batch in world.batches()].count(2) == 2
    assert len(world.batches()) == 3
    assert len(tasks) == 5


def test_no_tasks_are_no_work(world: World) -> None:
    assert world.queue().submit_many([]) == []
    assert list(world.queue().submit_stream([])) == []
    assert world.store.list("") == []


def test_a_batch_holds_no_more_than_ids_can_number(world: World) -> None:
    with pytest.raises(InvalidOptions, match="batch_size"):
        world.queue().submit_many(pairs(1), batch_size=65_537)


def test_when_a_store_fails_in_the_middle_the_error_says_what_is_stored(world: World) -> None:
    store = Breaking(world.store, good=3)

    with pytest.raises(SubmitManyError) as broken:
        world.queue(store).submit_many(pairs(100), batch_size=10)

    stored = broken.value.stored
    assert isinstance(broken.value.__cause__, StoreUnavailable)
    assert (len(stored), broken.value.unclear, broken.value.total) == (30, (), 100)
    assert "Of 100 tasks, 30 are stored: 503" in str(broken.value)
    assert {task.id for task in stored} == set(world.statuses())
    assert [task.input for task in stored] == sorted(task.input for task in stored)


def test_what_is_stored_is_told_in_the_order_given_whatever_the_types(world: World) -> None:
    given = [("rare", 0), *((("ok", n)) for n in range(1, 200)), ("rare", 200)]
    store = Breaking(world.store, good=15)

    with pytest.raises(SubmitManyError) as broken:
        world.queue(store).submit_many(given, batch_size=10)

    inputs = [task.input for task in broken.value.stored]
    assert inputs == sorted(inputs)
    assert {task.id for task in broken.value.stored} == set(world.statuses())
    assert broken.value.total == 201


def test_a_rare_type_that_is_stored_last_comes_first_if_it_was_given_first(world: World) -> None:
    given = [("rare", 0), *((("ok", n)) for n in range(1, 200))]

    tasks = world.queue().submit_many(given, batch_size=10)

    assert [task.input for task in tasks] == list(range(200))


def test_what_may_or_may_not_be_stored_is_told_apart(world: World) -> None:
    store = Vanishing(world.store, good=2, error=StoreUnclear("connection lost"))

    with pytest.raises(SubmitManyError) as broken:
        world.queue(store).submit_many(pairs(50), batch_size=10)

    assert len(broken.value.stored) == 20
    known = {task.id for task in broken.value.stored} | set(broken.value.unclear)
    assert known == set(world.statuses())
    assert "may or may not be" in str(broken.value)


def test_a_refusal_of_the_store_is_the_cause(world: World) -> None:
    store = Breaking(world.store, good=0, error=StoreAccessDenied("403"))

    with pytest.raises(SubmitManyError) as broken:
        world.queue(store).submit_many(pairs(3))

    assert isinstance(broken.value.__cause__, StoreAccessDenied)
    assert broken.value.stored == ()
    assert world.batches() == []


@pytest.fixture
def room_for(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], threading.Event]:
    """Have the system start so many threads for `submit_many`; tell when one more was wanted."""
    start = threading.Thread.start
    is_full = threading.Event()

    def allow(number: int) -> threading.Event:
        left = iter(range(number))

        def start_if_there_is_room(thread: threading.Thread) -> None:
            if "buquet-submit" in thread.name and next(left, None) is None:
                is_full.set()
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_if_there_is_room)
        return is_full

    return allow


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_where_no_thread_can_be_started_the_error_says_what_is_stored(
    world: World, room_for: Callable[[int], threading.Event], threads: int
) -> None:
    held = Held(world.store, room_for(threads))

    with pytest.raises(SubmitManyError) as broken:
        world.queue(held).submit_many(pairs(100), batch_size=10)

    stored = broken.value.stored
    assert isinstance(broken.value.__cause__, RuntimeError)
    assert (len(stored), broken.value.total) == (threads and 10 * (threads + 1), 100)
    assert {task.id for task in stored} == set(world.statuses())
    assert not [each for each in threading.enumerate() if "buquet-submit" in each.name]


def test_where_no_thread_can_be_started_a_stream_tells_what_it_has_not_given_out(
    world: World, room_for: Callable[[int], threading.Event]
) -> None:
    held = Held(world.store, room_for(1))

    with pytest.raises(SubmitManyError) as broken:
        list(world.queue(held).submit_stream(pairs(100), batch_size=10))

    assert (len(broken.value.stored), broken.value.total) == (20, 20)
    assert {task.id for task in broken.value.stored} == set(world.statuses())


def test_a_source_that_breaks_off_before_all_are_checked_stores_nothing(world: World) -> None:
    def source() -> Iterator[tuple[str, Any]]:
        yield from pairs(500)
        raise OSError("the file ends here")

    with pytest.raises(OSError, match="ends here"):
        world.queue().submit_many(source(), batch_size=10)

    assert world.store.list("") == []


# --- a stream


def test_a_stream_of_a_hundred_thousand_is_held_a_few_batches_at_a_time(world: World) -> None:
    total, size, pulled, given, ahead = 100_000, 500, 0, 0, 0

    def source() -> Iterator[tuple[str, Any]]:
        nonlocal pulled
        for number in range(total):
            pulled = number + 1
            yield "ok", number

    for task in world.queue().submit_stream(source(), batch_size=size):
        assert task.input == given
        given += 1
        ahead = max(ahead, pulled - given)

    assert given == total
    assert ahead <= (2 * SUBMITTERS + 1) * size
    assert len(world.store.list(BATCHES)) == total // size


def test_a_stream_pulls_nothing_before_it_is_iterated_over(world: World) -> None:
    pulled: list[int] = []
    source = (("ok", pulled.append(n)) for n in range(10))  # type: ignore[func-returns-value]

    stream = world.queue().submit_stream(source)

    assert pulled == []
    assert world.store.list("") == []
    assert len(list(stream)) == 10


def test_a_stream_refuses_wrong_options_at_once(world: World) -> None:
    with pytest.raises(TypeError, match="expires_in"):
        world.queue().submit_stream(pairs(1), expires_in=5)  # type: ignore[call-arg]
    with pytest.raises(InvalidOptions, match="ttl"):
        world.queue().submit_stream(pairs(1), ttl_seconds=-1)
    with pytest.raises(InvalidOptions, match="batch_size"):
        world.queue().submit_stream(pairs(1), batch_size=0)


def test_a_task_of_a_stream_is_stored_when_it_is_given_out(world: World) -> None:
    queue = world.queue()

    for task in queue.submit_stream(pairs(40), batch_size=5):
        assert queue.get(task.id) == task


def test_tasks_before_one_that_is_refused_are_stored_and_given_out(world: World) -> None:
    source = itertools.chain(pairs(25), [("ok", {1})], pairs(25))
    given = []

    with pytest.raises(InvalidPayload, match=r"tasks\[25\]"):
        given.extend(task.input for task in world.queue().submit_stream(source, batch_size=10))

    assert given == list(range(25))
    assert len(world.statuses()) == 25


def test_a_source_that_breaks_off_ends_a_stream_after_what_came_before(world: World) -> None:
    def source() -> Iterator[tuple[str, Any]]:
        yield from pairs(12)
        raise OSError("the line is dead")

    given = []
    with pytest.raises(OSError, match="line is dead"):
        given.extend(task.input for task in world.queue().submit_stream(source(), batch_size=5))

    assert given == list(range(12))


def test_a_stream_whose_store_fails_has_given_out_or_tells_of_all_that_is_stored(
    world: World,
) -> None:
    store = Breaking(world.store, good=30)
    given = []

    with pytest.raises(SubmitManyError) as broken:
        given.extend(world.queue(store).submit_stream(pairs(1000), batch_size=10))

    assert len(given) + len(broken.value.stored) == 300
    assert {task.id for task in (*given, *broken.value.stored)} == set(world.statuses())


def test_a_stream_that_is_given_up_leaves_no_thread_behind(world: World) -> None:
    stream = world.queue().submit_stream(pairs(1000), batch_size=10)
    first = next(stream)
    stream.close()  # type: ignore[attr-defined]

    assert first.input == 0
    assert not [each for each in threading.enumerate() if "buquet-submit" in each.name]
    assert world.missing_entries() == set()
