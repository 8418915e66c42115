"""What is to happen in a run: who is there, what they do, and what goes wrong. A seed makes one."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import cattrs
from attrs import asdict, evolve, frozen

CALM_AT = 150.0
"""Seconds after which nothing goes wrong any more, in most plans."""

LONG_CALL = 9.0
"""The longest that a call takes which is answered."""

LATEST_EFFECT = 40.0
"""Seconds after the sender has given up, at the most, at which a request still takes effect."""

AWAY = ("refused", "cut", "late")
LIFELESS = ("die_before", "die_after")
SPANS = {
    "slow": (0.3, LONG_CALL),
    "refused": (0.0, 5.0),
    "cut": (0.0, 5.0),
    "late": (0.0, LATEST_EFFECT),
    "doubled": (0.0, 1.0),
    "die_before": (0.0, 0.0),
    "die_after": (0.0, 0.0),
    "pause_before": (1.0, 90.0),
    "pause_after": (1.0, 90.0),
}
LONG_PAUSES = (250.0, 400.0, 4000.0)
"""Beyond a heartbeat, beyond a commit's time limit, and beyond the age of a stray entry."""


@frozen
class Fate:
    """What becomes of one call to the store."""

    process: str
    call: int
    """Which of the process's calls, from 1."""
    kind: str
    """One of `SPANS`: slow; refused, with no effect; cut off behind the effect; late, when the
    sender has given up; doubled, with the second answer; or the process dies or is paused."""
    seconds: float = 0.0


@frozen
class Act:
    """What a producer or an operator does at a time."""

    at: float
    what: str
    """`submit`, `submit_many`, `cancel`, `cancel_many`, `replay`, `mark_expired`, `archive`, `list`
    or `sweep`."""
    scripts: tuple[tuple[tuple[str, float], ...], ...] = ()
    """For each task to be submitted: how its attempts end, and after how many seconds."""
    ttl: float | None = None
    delay: float | None = None
    retries: int = 3
    which: int = 0
    """Which of the tasks known by then, or the first of those."""


@frozen
class Actor:
    """A process of the run."""

    name: str
    kind: str
    """`producer`, `operator`, `worker` or `sweeper`."""
    begins: float = 0.0
    stops: float | None = None
    """When it is told to stop; None if never."""
    offset: float = 0.0
    drift: float = 0.0
    threads: int = 1
    lease: float = 10.0
    poll: float = 5.0
    acts: tuple[Act, ...] = ()


@frozen
class Plan:
    """A run, whole."""

    seed: int
    actors: tuple[Actor, ...]
    fates: tuple[Fate, ...] = ()
    calm_at: float = CALM_AT

    def to_json(self) -> str:
        """Write it down, to be kept as a test."""
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read it again."""
        return cattrs.structure(json.loads(text), Plan)

    def smaller(self) -> Iterator[Plan]:
        """Give plans in which less happens, the larger cuts first."""
        for cut in _cuts(self.actors):
            yield evolve(self, actors=cut)
        for cut in _cuts(self.fates):
            yield evolve(self, fates=cut)
        for index, actor in enumerate(self.actors):
            for less in _less(actor):
                yield evolve(self, actors=(*self.actors[:index], less, *self.actors[index + 1 :]))


def make(seed: int) -> Plan:
    """Draw the plan of a seed."""
    chance = random.Random(seed)
    rare = {4: _old_words, 8: _drifting, 12: _listings}
    corners = {0: _deadlines, 1: _lapses, 3: _strays, 5: _held, 7: _long_work}
    special = rare.get(seed % 16) or corners.get(seed % 8)
    if special is not None:
        return special(seed, chance)
    actors = [_producer(chance, f"producer-{n}") for n in range(chance.choice([1, 1, 2]))]
    actors += [_worker(chance, f"worker-{n}") for n in range(chance.choice([1, 2, 2, 3]))]
    if chance.random() < 0.4:
        actors.append(_sweeper(chance))
    if chance.random() < 0.6:
        actors.append(_operator(chance))
    trouble = chance.choice([0.0, 0.02, 0.05, 0.1])
    fates = [fate for actor in actors for fate in _fates(chance, actor, trouble)]
    return Plan(seed, tuple(actors), tuple(fates))


def _strays(seed: int, chance: random.Random) -> Plan:
    """Draw a plan in which entries that a dead worker left are tidied while others move to them."""
    far, near = (("far", 0.0),), (("ok", chance.choice([0.5, 2.0])),)
    submit = Act(1.0, "submit", scripts=(far, near), retries=0)
    later = 3700.0
    sweeps = tuple(Act(later + chance.uniform(0, 2), "sweep") for _ in range(2))
    actors = (
        Actor("producer", "producer", acts=(submit,), **_clock(chance)),
        Actor("worker-0", "worker", threads=2, poll=1.0, **_clock(chance)),
        Actor("operator", "operator", acts=sweeps, **_clock(chance)),
        Actor("worker-1", "worker", begins=later + chance.uniform(0, 2), poll=20.0),
    )
    slow = (
        Fate(name, call, "slow", round(chance.uniform(0.1, 3), 3))
        for name in ("operator", "worker-1")
        for call in range(1, 13)
        if chance.random() < 0.5
    )
    death = Fate("worker-0", chance.randint(9, 16), "die_after")
    return Plan(seed, actors, (death, *slow), calm_at=later + 60)


def _lapses(seed: int, chance: random.Random) -> Plan:
    """Draw a plan in which workers often lose their lease while their handlers run on."""
    scripts = tuple(
        ((chance.choice(["ok", "retry"]), chance.choice([5.0, 15.0])),)
        for _ in range(chance.choice([1, 1, 3]))
    )
    workers = tuple(
        Actor(f"worker-{n}", "worker", threads=chance.choice([2, 3]), lease=3.0, poll=5.0)
        for n in range(chance.choice([1, 2]))
    )
    producer = Actor("producer", "producer", acts=(Act(5.0, "submit", scripts=scripts, retries=6),))
    fates = tuple(
        Fate(worker.name, call, kind, round(chance.uniform(2, LONG_CALL), 3))
        for worker in workers
        for call in range(5, 120)
        for kind in (chance.choice(["slow", "slow", "pause_before", "pause_after", "refused"]),)
        if chance.random() < 0.08
    )
    return Plan(seed, (producer, *workers), fates)


def _deadlines(seed: int, chance: random.Random) -> Plan:
    """Draw a plan in which fresh workers begin tasks one by one as their deadline comes."""
    times = tuple(round(5 + 20 * n + chance.random(), 3) for n in range(5))
    scripts = 20 * ((("ok", 0.01),),)
    acts = tuple(Act(time, "submit", scripts=scripts, ttl=2.0) for time in times)
    workers = tuple(
        Actor(
            f"worker-{n}",
            "worker",
            begins=round(time + chance.uniform(1.2, 1.8), 3),
            stops=time + 15,
            poll=1.0,
            **_clock(chance),
        )
        for n, time in enumerate(times)
    )
    return Plan(seed, (Actor("producer", "producer", acts=acts), *workers))


def _held(seed: int, chance: random.Random) -> Plan:
    """Draw a plan in which somebody is stopped for over an hour in the midst of a change."""
    submit = Act(1.0, "submit", scripts=((("fail", 0.1),),), retries=0)
    replay = Act(20.0, "replay")
    held = chance.choice(["producer", "operator"])
    actors = (
        Actor("producer", "producer", acts=(submit,), **_clock(chance)),
        Actor("operator", "operator", acts=(replay,), **_clock(chance)),
        Actor("worker", "worker", poll=20.0, lease=30.0, **_clock(chance)),
        Actor("sweeper", "sweeper", poll=20.0, **_clock(chance)),
    )
    fate = Fate(held, chance.randint(2, 5), "pause_before", chance.choice([250.0, 400.0, 4500.0]))
    return Plan(seed, actors, (fate,))


def _old_words(seed: int, chance: random.Random) -> Plan:
    """Draw a plan in which what a worker says of itself often arrives late, behind newer words."""
    scripts = tuple((("ok", chance.choice([60.0, 90.0])),) for _ in range(2))
    submit = Act(1.0, "submit", scripts=scripts)
    worker = Actor("worker-0", "worker", threads=2, lease=12.0, poll=20.0, **_clock(chance))
    actors = (
        Actor("producer", "producer", acts=(submit,)),
        worker,
        Actor("sweeper", "sweeper", poll=2.0, **_clock(chance)),
    )
    fates = tuple(
        Fate(worker.name, call, "late", round(chance.uniform(0, LATEST_EFFECT), 3))
        for call in range(8, 120)
        if chance.random() < 0.15
    )
    return Plan(seed, actors, fates)


def _drifting(seed: int, chance: random.Random) -> Plan:
    """Draw a plan in which a clock that goes slow has drifted for long when deadlines come."""
    times = tuple(round(900 * n + chance.uniform(600, 800), 3) for n in range(3))
    scripts = 40 * ((("ok", 0.1),),)
    actors = (
        Actor(
            "producer",
            "producer",
            acts=tuple(Act(time, "submit", scripts=scripts, ttl=4.0) for time in times),
        ),
        Actor("worker-0", "worker", threads=1, lease=60.0, poll=2.0, drift=-5e-4),
    )
    return Plan(seed, actors, calm_at=times[-1] + 60)


def _listings(seed: int, chance: random.Random) -> Plan:
    """Draw a plan in which some look at what has ended while others end it, slowly."""
    submit = Act(1.0, "submit", scripts=4 * ((("fail", 0.1),),), delay=chance.choice([None, 90.0]))
    acts = tuple(
        Act(round(5 + 10 * n + chance.random(), 3), chance.choice(["cancel", "replay"]), which=n)
        for n in range(6)
    )
    looks = tuple(Act(round(chance.uniform(3, 75), 3), "list") for _ in range(40))
    actors = (
        Actor("producer", "producer", acts=(submit,), **_clock(chance)),
        Actor("operator-0", "operator", acts=acts, **_clock(chance)),
        Actor(
            "operator-1",
            "operator",
            acts=tuple(sorted(looks, key=lambda act: act.at)),
            **_clock(chance),
        ),
        Actor("worker", "worker", poll=5.0, lease=30.0, **_clock(chance)),
    )
    fates = tuple(
        Fate(name, call, kind, round(chance.uniform(*SPANS[kind]), 3))
        for name in ("operator-0", "worker")
        for call in range(2, 60)
        for kind in (chance.choice(["slow", "slow", "cut", "late"]),)
        if chance.random() < 0.3
    )
    return Plan(seed, actors, fates)


def _long_work(seed: int, chance: random.Random) -> Plan:
    """Draw a plan in which tasks run so long that their batch is parked, and workers die of it."""
    scripts = tuple(
        ((chance.choice(["ok", "ok", "retry", "give in"]), chance.choice([0.1, 400.0, 900.0])),)
        for _ in range(chance.choice([1, 2, 4]))
    )
    submit = Act(2.0, "submit", scripts=scripts, ttl=chance.choice([None, 60.0, 700.0]))
    cancel = Act(round(chance.uniform(100, 1200), 1), "cancel", which=chance.randrange(4))
    workers = tuple(
        Actor(
            f"worker-{n}",
            "worker",
            begins=round(chance.uniform(0, 400) * n, 1),
            stops=chance.choice([None, None, round(chance.uniform(300, 1200), 1)]),
            threads=chance.choice([2, 4]),
            lease=60.0,
            poll=20.0,
            **_clock(chance),
        )
        for n in range(chance.choice([1, 2, 3]))
    )
    actors = (
        Actor("producer", "producer", acts=(submit,), **_clock(chance)),
        Actor("operator", "operator", acts=(cancel,), **_clock(chance)),
        *workers,
    )
    fates = tuple(
        Fate(worker.name, call, kind, round(chance.uniform(*SPANS[kind]), 3))
        for worker in workers
        for call in range(5, 150)
        for kind in (chance.choice(["slow", "cut", "late", "doubled", "pause_before", *LIFELESS]),)
        if chance.random() < (0.01 if kind in LIFELESS else 0.05)
    )
    return Plan(seed, actors, fates, calm_at=1500.0)


def _clock(chance: random.Random) -> dict[str, float]:
    return {
        "offset": chance.choice([0.0, 0.0, 0.3, -0.3, 3600.0, -3600.0]),
        "drift": chance.choice([0.0, 0.0, 1e-4, -1e-4, 5e-4, -5e-4]),
    }


def _producer(chance: random.Random, name: str) -> Actor:
    acts = sorted((_submit(chance) for _ in range(chance.randint(1, 5))), key=lambda act: act.at)
    return Actor(name, "producer", acts=tuple(acts), **_clock(chance))


def _submit(chance: random.Random) -> Act:
    count = chance.choice([1, 1, 1, 3, 8])
    what = chance.choice(["submit", "submit_many"]) if count > 1 else "submit"
    ttl = chance.choice([None, None, 0.0, 3.0, 20.0, 60.0])
    return Act(
        at=round(chance.uniform(0, 90), 2),
        what=what,
        scripts=tuple(_script(chance) for _ in range(count)),
        ttl=ttl,
        delay=chance.choice([None, None, None, 5.0, 70.0]) if ttl != 0 else None,
        retries=chance.choice([0, 1, 3, 6]),
    )


def _script(chance: random.Random) -> tuple[tuple[str, float], ...]:
    endings = ["ok", "ok", "ok", "ok", "retry", "fail", "reschedule", "extend", "give in"]
    if chance.random() < 0.1:
        endings.append("die")
    count = chance.choice([1, 1, 1, 2, 3])
    return tuple(
        (chance.choice(endings), chance.choice([0.0, 0.0, 0.1, 2.0, 15.0])) for _ in range(count)
    )


def _worker(chance: random.Random, name: str) -> Actor:
    return Actor(
        name,
        "worker",
        begins=round(chance.choice([0.0, chance.uniform(0, 60)]), 2),
        stops=chance.choice([None, None, None, round(chance.uniform(20, 140), 2)]),
        threads=chance.choice([1, 2, 3]),
        lease=chance.choice([3.0, 10.0, 30.0]),
        poll=chance.choice([1.0, 5.0, 20.0]),
        **_clock(chance),
    )


def _sweeper(chance: random.Random) -> Actor:
    return Actor("sweeper", "sweeper", poll=chance.choice([5.0, 20.0]), **_clock(chance))


def _operator(chance: random.Random) -> Actor:
    acts = [
        Act(
            at=round(chance.uniform(1, 140), 2),
            what=chance.choice(
                ["cancel", "cancel_many", "replay", "replay", "mark_expired", "archive", "list"]
            ),
            which=chance.randrange(20),
            ttl=chance.choice([None, 30.0]),
        )
        for _ in range(chance.randint(1, 6))
    ]
    acts.sort(key=lambda act: act.at)
    return Actor("operator", "operator", acts=tuple(acts), **_clock(chance))


def _fates(chance: random.Random, actor: Actor, trouble: float) -> Iterator[Fate]:
    """Draw what goes wrong for an actor: more often for those who make few calls, and in a row."""
    kinds = list(SPANS)
    usual = trouble if actor.kind in ("worker", "sweeper") else 3 * trouble
    often = usual
    for call in range(1, 120):
        if chance.random() >= often:
            often, kinds = usual, list(SPANS)
            continue
        often = max(usual, 0.4)
        kind = chance.choice(kinds)
        if kind in LIFELESS and chance.random() < 0.5:
            continue
        seconds = chance.uniform(*SPANS[kind])
        if kind.startswith("pause") and chance.random() < 0.3:
            seconds = chance.choice(LONG_PAUSES)
        yield Fate(actor.name, call, kind, round(seconds, 3))
        if kind in LIFELESS:
            return
        kinds = list(AWAY)


def _cuts(items: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Leave out halves, quarters, … and single ones."""
    size = len(items)
    while size >= 1:
        size = (size + 1) // 2
        for begin in range(0, len(items), size):
            yield items[:begin] + items[begin + size :]
        if size == 1:
            return


def _less(actor: Actor) -> Iterator[Actor]:
    for acts in _cuts(actor.acts):
        yield evolve(actor, acts=acts)
    for index, act in enumerate(actor.acts):
        for scripts in _cuts(act.scripts):
            if scripts:
                less = evolve(act, scripts=scripts)
                yield evolve(actor, acts=(*actor.acts[:index], less, *actor.acts[index + 1 :]))
    plain = Actor(actor.name, actor.kind)
    for field in ("offset", "drift", "stops", "threads", "begins"):
        if getattr(actor, field) != getattr(plain, field):
            yield evolve(actor, **{field: getattr(plain, field)})
