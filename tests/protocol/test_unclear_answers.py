"""A write whose answer is lost, or is a refusal of what had got through, is settled by looking."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from buquet import BuquetError, ConfigurationError, StoreUnclear, SubmitUnclear
from buquet.errors import StoreAccessDenied, StoreNotFound, StoreUnavailable
from buquet.store import Conflict
from buquet.testing import FaultyStore
from tests.helpers import World
from tests.protocol.test_crash import SCENES, Scene

UNCLEAR = StoreUnclear("The connection broke.")


class Echo(FaultyStore):
    """A store whose transport sends one write twice: it answers 412 to what it has just stored."""

    echo_at = 0

    def put(
        self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str | Conflict:
        answer = super().put(key, body, if_match=if_match, if_absent=if_absent)
        return Conflict() if len(self.calls) == self.echo_at else answer


def play(
    scene: Scene, fault: Callable[[FaultyStore], None], store_type: type[FaultyStore]
) -> World:
    tasks = scene.prepare(scene.world, scene.world.queue(seed=3))
    store = store_type(scene.world.store)
    fault(store)
    scene.act(scene.world, scene.world.queue(store, seed=4), tasks)
    return scene.world


def decisions(act: str) -> list[int]:
    """The numbers of the calls in an act that put a batch."""
    scene = SCENES[act]()
    tasks = scene.prepare(scene.world, scene.world.queue(seed=3))
    store = FaultyStore(scene.world.store)
    scene.act(scene.world, scene.world.queue(store, seed=4), tasks)
    return [n for n, call in enumerate(store.calls, 1) if call.op == "put" and "tasks/" in call.key]


def outcome(world: World) -> list[tuple[str, str, int]]:
    return sorted(
        (task.task_type, str(task.status), task.attempt)
        for batch in world.batches()
        for task in batch.tasks
    )


def set_echo(store: FaultyStore, n: int) -> None:
    assert isinstance(store, Echo)
    store.echo_at = n


FAULTS: dict[str, tuple[type[FaultyStore], Callable[[FaultyStore, int], None]]] = {
    "stored, answer lost": (FaultyStore, lambda store, n: store.fail_after(n, UNCLEAR)),
    "not stored, answer lost": (FaultyStore, lambda store, n: store.fail_before(n, UNCLEAR)),
    "stored, answered 412": (Echo, set_echo),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("act", [act for act in SCENES if act != "heartbeat"])
def test_an_unclear_answer_changes_nothing_about_how_an_act_ends(act: str, fault: str) -> None:
    store_type, plant = FAULTS[fault]
    expected = outcome(play(SCENES[act](), lambda store: None, FaultyStore))

    for n in decisions(act):
        world = play(SCENES[act](), lambda store, n=n: plant(store, n), store_type)  # type: ignore[misc]

        assert outcome(world) == expected
        assert world.missing_entries() == set()


def test_a_handler_runs_once_though_the_answer_to_its_claim_was_lost() -> None:
    world = World()
    task = world.queue().submit("ok", 1)
    store = FaultyStore(world.store)
    worker = world.worker(world.queue(store))
    claim = 4  # heartbeat, poll, read, claim
    store.fail_after(claim, UNCLEAR)

    worker.drain()

    assert store.calls[claim - 1].op == "put"
    assert world.runs == [task.id]
    assert world.statuses()[task.id] == "completed"


def test_claims_of_a_write_that_nobody_could_ask_about_are_not_kept_from_everybody() -> None:
    world = World()
    task = world.queue().submit("ok", 1)
    store = FaultyStore(world.store)
    worker = world.worker(world.queue(store))
    store.fail_after(4, UNCLEAR)
    store.fail_before(5, StoreUnavailable("No route."))

    worker.drain()
    assert world.statuses()[task.id] == "running"
    world.clock.advance(seconds=6)
    worker.drain()

    assert world.statuses()[task.id] == "completed"
    assert world.runs == [task.id]


def test_a_submit_that_nobody_can_ask_about_says_so_and_carries_the_id() -> None:
    world = World()
    store = FaultyStore(world.store)
    store.fail_after(2, UNCLEAR)
    store.fail_before(3, StoreUnavailable("No route."))

    with pytest.raises(SubmitUnclear) as caught:
        world.queue(store).submit("ok", 1)

    (task_id,) = caught.value.task_ids
    assert task_id in str(caught.value)
    assert world.queue().get(task_id).status == "pending"


@pytest.mark.parametrize(
    "answer",
    [
        StoreNotFound("There is no bucket 'b'."),  # what a proxy says whose server is gone
        StoreAccessDenied("No."),
        ConfigurationError("It is in another region."),
    ],
    ids=lambda answer: type(answer).__name__,
)
def test_whatever_the_look_after_it_is_answered_an_unclear_submit_is_no_failed_one(
    answer: BuquetError,
) -> None:
    world = World()
    store = FaultyStore(world.store)
    store.fail_after(2, UNCLEAR)
    store.fail_before(3, answer)

    with pytest.raises(SubmitUnclear) as caught:
        world.queue(store).submit("ok", 1)

    assert str(answer) in str(caught.value)
    assert world.queue().get(caught.value.task_ids[0]).status == "pending"


def test_a_submit_that_stays_unclear_tells_why() -> None:
    world = World()
    store = FaultyStore(world.store)
    for call in (2, 5, 8, 11, 14):  # entry, batch and look, again and again
        store.fail_before(call, StoreUnclear("The disk makes odd noises."))

    with pytest.raises(SubmitUnclear, match="odd noises"):
        world.queue(store).submit("ok", 1)


@pytest.mark.parametrize("error", [FileNotFoundError, SystemExit, asyncio.CancelledError])
def test_an_observer_that_raises_does_not_make_the_write_look_failed(
    error: type[BaseException],
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    queue = world.queue()

    def fail(*_: object) -> None:
        raise error("the folder of the metrics is gone")

    queue.ledger.observers.append(fail)

    task = queue.submit("ok", 1)

    assert world.statuses() == {task.id: "pending"}
    assert "the folder of the metrics is gone" in caplog.text


def test_a_submit_that_was_refused_leaves_no_task_behind() -> None:
    world = World()
    store = FaultyStore(world.store)
    store.fail_before(2, StoreUnavailable("Slow down."))

    with pytest.raises(StoreUnavailable):
        world.queue(store).submit("ok", 1)
    world.worker().drain()

    assert world.batches() == []
    assert world.runs == []
    world.clock.advance(hours=2)
    world.sweeper().sweep_once()
    assert world.ready() == []
