"""The store as a process sees it: through a network in which a plan says what becomes of a call."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from attrs import define, field

from buquet.clock import StoreClock
from buquet.errors import StoreUnavailable, StoreUnclear
from buquet.store import Change, Conflict, Listed, Stored
from buquet.store.base import COMMIT_TIME_LIMIT, PAGE, commit_in_steps
from buquet.store.s3 import NO_KEY, Drops
from buquet.testing import Crash
from tests.simulation.engine import START, Fiber, Process, SimClock, current, sleep_until
from tests.simulation.plan import Fate
from tests.simulation.witness import Witness, report

GIVES_UP_AFTER = 10.0
"""Seconds after which a sender waits no longer."""

T = TypeVar("T")


@define
class Call:
    """A request under way."""

    act: Callable[[], Any]
    is_conditional: bool
    answer: Any = None

    def take_effect(self) -> None:
        self.answer = self.act()


@define(eq=False)
class SimStore:
    """A store behind a network; its time is known from its answers, as on S3."""

    process: Process
    server: Witness
    seed: int
    fates: Mapping[int, Fate]
    trace: Callable[[Process, str, str, str], None]
    calls: int = 0
    gets: int = 0
    lists: int = 0
    has_had_trouble: bool = False
    """Whether a fate has met any of its calls, also one of before the calm."""
    _changes: dict[Fiber, Change] = field(factory=dict)
    """The commits under way, by the thread that makes them."""
    last_look: Any = None
    """What the last read gave, or the error that it ended with."""
    clock: SimClock = field(init=False)
    _store_clock: StoreClock = field(init=False)
    _drops: Drops = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.clock = SimClock(self.process)
        self._store_clock = StoreClock(self.clock)
        self._drops = Drops(self.delete, self.clock)

    def get(self, key: str, *, unless: str | None = None) -> Stored | None:
        self.gets += key != NO_KEY
        try:
            self.last_look = self._call("get", key, partial(self.server.get, key, unless=unless))
        except StoreUnavailable as error:
            self.last_look = error
            raise
        return self.last_look

    def put(
        self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str | Conflict:
        change = self._changes.get(current())
        begun = change.begun if change is not None and change.key == key else None
        if self._is_late(begun):
            report(f"index: {key} was sent after its writer's time was up")

        def act() -> str | Conflict:
            self.server.is_late = self._is_late(begun)
            return self.server.put(key, body, if_match=if_match, if_absent=if_absent)

        return self._call("put", key, act, is_conditional=bool(if_match or if_absent))

    def commit(self, change: Change) -> str | Conflict:
        self._changes[current()] = change
        try:
            answer = commit_in_steps(self, change, self._drops.add)
        finally:
            del self._changes[current()]
        self._drops.flush_if_due()
        return answer

    def _is_late(self, begun: float | None) -> bool:
        return begun is not None and self.clock.monotonic() - begun > COMMIT_TIME_LIMIT

    def delete(self, keys: Iterable[str]) -> None:
        keys = list(keys)
        if keys:
            self._call("delete", ", ".join(keys), partial(self._delete, keys))

    def _delete(self, keys: list[str]) -> None:
        self.server.caller = self.process.name
        self.server.delete(keys)

    def list(self, prefix: str, *, after: str = "", limit: int = PAGE) -> list[Listed]:
        self._drops.flush_if_due()
        self.lists += 1
        return self._call(
            "list", prefix, partial(self.server.list, prefix, after=after, limit=limit)
        )

    def now(self) -> datetime:
        while not self._store_clock.has_answer:
            self.get(NO_KEY)
        return self._store_clock.now()

    def latest(self) -> datetime:
        self.now()
        return self._store_clock.latest()

    def flush(self) -> None:
        self._drops.flush()

    def close(self) -> None:
        self.flush()

    # --- the network

    def _call(self, op: str, key: str, act: Callable[[], T], *, is_conditional: bool = False) -> T:
        if self.process.is_dead:
            raise Crash
        self.calls += 1
        fate = self.fates.get(self.calls)
        self.has_had_trouble |= fate is not None
        there, back = self._latency()
        kind = fate.kind if fate else ""
        self.trace(self.process, op, key, f"{fate.kind} {fate.seconds:g} s" if fate else "")
        call = Call(act, is_conditional)
        if fate is None:
            return self._answered(call, there, back)
        if kind == "die_before":
            self.process.die()
            raise Crash
        if kind == "pause_before":
            self.process.pause(fate.seconds)
            sleep_until(self.process.engine.time)
        if kind in ("refused", "cut", "late"):
            return self._failed(call, fate, there)
        if kind == "slow":
            there += fate.seconds
        answer = self._answered(call, there, back, fate)
        if kind == "doubled":
            answer = self._answered(call, fate.seconds, back)
        return answer

    def _answered(self, call: Call, there: float, back: float, fate: Fate | None = None) -> Any:
        engine = self.process.engine
        sent = self.clock.monotonic()
        engine.at(engine.time + there, call.take_effect)
        if fate is not None and fate.kind == "die_after":
            sleep_until(engine.time + there)
            self.process.die()
            raise Crash
        if fate is not None and fate.kind == "pause_after":
            self.process.pause(fate.seconds)
        date = engine.time + there
        sleep_until(date + back)
        shown = START + timedelta(seconds=int(date))  # in whole seconds, as HTTP has it
        self._store_clock.observe(shown, sent, self.clock.monotonic())
        return call.answer

    def _failed(self, call: Call, fate: Fate, there: float) -> Any:
        engine = self.process.engine
        if fate.kind == "late":
            engine.at(engine.time + GIVES_UP_AFTER + fate.seconds, call.take_effect)
            sleep_until(engine.time + GIVES_UP_AFTER)
        else:
            if fate.kind == "cut":
                engine.at(engine.time + there, call.take_effect)
            sleep_until(engine.time + there + fate.seconds)
        is_clear = fate.kind == "refused" and int(fate.seconds * 1000) % 2
        if call.is_conditional and not is_clear:
            raise StoreUnclear(f"the write was {fate.kind}")
        raise StoreUnavailable(f"the request was {fate.kind}")

    def _latency(self) -> tuple[float, float]:
        draw = zlib.crc32(f"{self.seed}/{self.process.name}/{self.calls}".encode())
        return 0.002 + (draw & 0xFFFF) / 0xFFFF * 0.04, 0.002 + (draw >> 16) / 0xFFFF * 0.04
