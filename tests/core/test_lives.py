"""Whatever happens to a batch, in whatever order and however much later: the rules that hold."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from attrs import evolve
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from buquet import InvalidTransition, RetryPolicy, TaskStatus
from buquet.core import codec, index, keys, transitions
from buquet.core.batch import Commit
from buquet.core.model import Batch, Task
from buquet.core.transitions import Facts
from buquet.testing.clock import START
from tests.core.making import BATCH_ID, LEASE, make_batch, make_task

SECONDS = st.sampled_from([0, 1, 30, 59, 60, 61, 90, 600, 4000])
SPANS = SECONDS.map(lambda seconds: timedelta(seconds=seconds))
TTLS = st.none() | SECONDS
WHICH = st.integers(0, 2)


class Lives(RuleBasedStateMachine):
    """Three tasks of a batch, in the hands of workers, operators and sweepers."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.batch = make_batch(make_task())
        self.index: set[str] = set()
        self.left: set[str] = set()
        self.changes: dict[str, int] = {}
        self.writes = 0

    @initialize(ttls=st.lists(TTLS, min_size=3, max_size=3), retries=st.integers(0, 2))
    def submit(self, ttls: list[float | None], retries: int) -> None:
        policy = RetryPolicy(initial_seconds=20, max_seconds=600)
        tasks = [
            make_task(n, ttl=ttl, max_retries=retries, retry_policy=policy, max_reschedules=3)
            for n, ttl in enumerate(ttls)
        ]
        self.batch = make_batch(*tasks)
        self.index = set(index.to_add(None, self.batch))
        self.changes = {task.id: 1 for task in tasks}

    # --- what happens

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(alive=st.booleans())
    def settle(self, alive: bool) -> None:
        self.commit(lambda batch, facts: batch, alive=alive)

    @rule(which=WHICH)
    def claim(self, which: int) -> None:
        def move(task: Task, facts: Facts) -> Task:
            if not task.is_available_at(facts.now):
                return task
            facts = evolve(facts, by="w1")
            return transitions.claim(
                task, facts, lease_id=facts.tail, lease_expires_at=facts.now + LEASE
            )

        self.change(which, move)

    @rule(which=WHICH)
    def complete(self, which: int) -> None:
        self.change(which, lambda task, facts: transitions.complete(task, facts, output=1))

    @rule(which=WHICH)
    def fail(self, which: int) -> None:
        self.change(which, lambda task, facts: transitions.fail(task, facts, error="e"))

    @rule(which=WHICH)
    def retry(self, which: int) -> None:
        self.change(which, lambda task, facts: transitions.retry(task, facts, error="e"))

    @rule(which=WHICH, delay=SPANS)
    def reschedule(self, which: int, delay: timedelta) -> None:
        self.change(which, lambda task, facts: transitions.reschedule(task, facts, delay=delay))

    @rule(which=WHICH, delay=SPANS, extend=SPANS)
    def extend(self, which: int, delay: timedelta, extend: timedelta) -> None:
        self.change(
            which,
            lambda task, facts: transitions.reschedule(task, facts, delay=delay, extend=extend),
            may_move_deadline=True,
        )

    @rule(which=WHICH)
    def release(self, which: int) -> None:
        self.change(which, transitions.release, wake=True)

    @rule(which=WHICH)
    def give_in(self, which: int) -> None:
        self.change(which, transitions.give_in)

    @rule(which=WHICH)
    def cancel(self, which: int) -> None:
        self.change(which, transitions.cancel)

    @rule(which=WHICH)
    def mark_expired(self, which: int) -> None:
        self.change(which, transitions.mark_expired)

    @rule(which=WHICH, ttl=TTLS)
    def replay(self, which: int, ttl: float | None) -> None:
        deadline = None if ttl is None else self.now + timedelta(seconds=ttl)
        self.change(
            which,
            lambda task, facts: transitions.replay(task, facts, expires_at=deadline),
            wake=True,
            may_move_deadline=True,
            may_revive=True,
        )

    @rule(which=WHICH)
    def archive(self, which: int) -> None:
        self.change(which, transitions.archive, may_revive=True)

    @rule(seconds=SECONDS)
    def all_run_and_are_parked_when_it_has_been_for_long(self, seconds: float) -> None:
        for which in range(3):
            self.claim(which)
        self.now += timedelta(seconds=seconds)
        self.commit(lambda batch, facts: index.parked(batch, facts.now, facts.tail) or batch)

    # --- how it is written, as the ledger does it

    def change(
        self,
        which: int,
        move: Callable[[Task, Facts], Task],
        *,
        wake: bool = False,
        may_move_deadline: bool = False,
        may_revive: bool = False,
    ) -> None:
        task_id = keys.task_id(BATCH_ID, which)

        def edit(batch: Batch, facts: Facts) -> Batch:
            try:
                return transitions.change_task(
                    batch, task_id, facts, lambda task: move(task, facts), wake=wake
                )
            except InvalidTransition:
                return batch

        self.commit(edit, may_move_deadline=may_move_deadline, may_revive=may_revive)

    def commit(
        self,
        edit: Callable[[Batch, Facts], Batch],
        *,
        alive: bool = True,
        may_move_deadline: bool = False,
        may_revive: bool = False,
    ) -> None:
        self.writes += 1
        facts = Facts(now=self.now, by="x", chance=0.25, tail=f"{self.writes:x}")
        leases = {"w1": self.now + LEASE} if alive else {}
        old = self.batch
        settled = transitions.settle(old, facts, leases)
        self.look_for_what_was_overlooked(settled, leases)
        new = edit(settled, facts)
        if new is old:
            return
        self.compare(old, new, may_move_deadline=may_move_deadline, may_revive=may_revive)
        added, dropped = index.to_add(old, new), index.to_drop(old, new)
        assert not self.left & set(added)
        self.index = (self.index | set(added)) - set(dropped)
        self.left |= set(dropped)
        self.batch = codec.decode_batch(codec.encode_batch(new), keys.batch_key(new.id))
        assert self.batch == new

    def look_for_what_was_overlooked(self, batch: Batch, leases: dict[str, datetime]) -> None:
        for task in batch.unfinished:
            if task.status is TaskStatus.PENDING:
                assert not task.is_expired_at(self.now)
            else:
                assert self.now < index.held_until(task, leases)

    def compare(self, old: Batch, new: Batch, *, may_move_deadline: bool, may_revive: bool) -> None:
        for before, after in zip(old.tasks, new.tasks, strict=True):
            if before.status.is_final and not may_revive:
                assert after == before
            if not may_move_deadline:
                assert after.expires_at == before.expires_at
        for task, _ in Commit.of(old, new).revisions:
            self.changes[task.id] += 1
        if index.ready_key(new) not in (None, index.ready_key(old)):
            assert new.due >= keys.minute_of(self.now)
            assert new.generation > old.generation

    # --- what always holds

    @invariant()
    def the_version_counts_the_changes(self) -> None:
        for task in self.batch.tasks:
            assert task.version == self.changes.get(task.id, 1)
            assert task.history[0].version == 1
            assert task.history[-1].version == task.version
            assert task.history[-1].status == task.status

    @invariant()
    def no_task_waits_beyond_its_deadline(self) -> None:
        for task in self.batch.tasks:
            if task.status is TaskStatus.PENDING and task.expires_at is not None:
                assert task.available_at <= task.expires_at

    @invariant()
    def a_lease_is_held_by_what_runs_and_by_nothing_else(self) -> None:
        for task in self.batch.tasks:
            assert (task.lease_id is not None) == (task.status is TaskStatus.RUNNING)
            assert (task.ended_at is not None) == task.status.is_final

    @invariant()
    def the_index_has_one_ready_entry_as_long_as_work_is_left(self) -> None:
        ready = {key for key in self.index if key.startswith(keys.READY)}
        wanted = index.ready_key(self.batch)

        if self.index:
            assert ready == ({wanted} if wanted else set())
            assert index.entries(self.batch) <= self.index
        assert (wanted is not None) == bool(self.batch.unfinished)

    @invariant()
    def the_entry_is_due_no_later_than_any_task(self) -> None:
        for task in self.batch.tasks:
            if task.status is TaskStatus.PENDING:
                assert self.batch.due <= keys.minute_of(max(task.available_at, self.now))

    @invariant()
    def the_entry_of_what_is_running_is_never_far_ahead(self) -> None:
        if any(task.status is TaskStatus.RUNNING for task in self.batch.tasks):
            assert self.batch.due <= keys.minute_of(self.now + index.PARKED_FOR)

    @invariant()
    def the_entry_shows_a_deadline_no_later_than_any_that_can_pass(self) -> None:
        for task in self.batch.tasks:
            if task.status is TaskStatus.PENDING and task.expires_at is not None:
                assert self.batch.expires is not None
                assert self.batch.expires <= keys.epoch_seconds_up(task.expires_at)

    @invariant()
    def somebody_will_look_at_it_again_in_time(self) -> None:
        deadlines: list[datetime] = [
            task.expires_at
            for task in self.batch.unfinished
            if task.status is TaskStatus.PENDING and task.expires_at is not None
        ]
        look = index.next_settling(self.batch, {})
        if deadlines:
            assert look is not None
            assert look <= min(deadlines)
        assert (index.next_event(self.batch, {}) is None) == (not self.batch.unfinished)


Lives.TestCase.settings = settings(max_examples=120, stateful_step_count=40)
TestLives = Lives.TestCase
