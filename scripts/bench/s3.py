"""The S3 group: on SeaweedFS, behind a wire that makes each request take longer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version

from attrs import frozen

from scripts.bench.figures import Aim, Beside, Figure, at_least, at_most, ratios
from scripts.bench.s3_acts import acts, sweep
from scripts.bench.s3_drain import (
    SUBMITTERS,
    Drain,
    body_of,
    drain,
    raw_drain,
    raw_rate,
    raw_submit,
)
from scripts.bench.s3_idle import MONTH, idle_hour
from scripts.bench.s3_site import (
    Site,
    Spent,
    dollars,
    put_class,
    server_version,
    site,
)
from scripts.bench.s3_start import ROUND_TRIPS, restart, starts_elsewhere, starts_here
from scripts.bench.settings import FAR_AWAY_MS, Settings

SINGLE_TASKS = 1500
SINGLE_THREADS = 32
BATCHED_TASKS = 20_000
BATCHED_THREADS = 8
BATCH = 100
LATE_TASKS = 100_000
STARTS_PER_RUN = 4
MILLION = 1_000_000


def measure(settings: Settings) -> Iterator[Figure]:
    """Measure the group."""
    with site(settings.latency_ms) as place:
        yield _wire_cost(place, settings)
        yield from _single(place, settings)
        yield from _batched(place, settings)
        yield from _starts(place, settings)
        yield from _restarts(place, settings)
        yield from _sweeps(place, settings)
        yield from _acts(place)
    yield _idle()


def _beside_raw(unit: str, runs: Sequence[float], note: str = "") -> Beside:
    return Beside(
        who="boto3",
        version=f"{version('boto3')} on SeaweedFS {server_version()}",
        unit=unit,
        runs=tuple(runs),
        note=note,
    )


def _ours(unit: str, runs: Sequence[float], note: str = "") -> Beside:
    return Beside(who="buquet", version=version("buquet"), unit=unit, runs=tuple(runs), note=note)


def _if_far(settings: Settings, aim: Aim) -> Aim | None:
    return aim if settings.latency_ms >= FAR_AWAY_MS else None


def _ratio(what: str, unit: str, ours: Beside, theirs: Beside, aim: Aim | None) -> Figure:
    return Figure(what=what, unit=unit, runs=ratios(ours, theirs), aim=aim, beside=(ours, theirs))


# --- the wire itself


def _wire_cost(place: Site, settings: Settings) -> Figure:
    """Compare requests through the wire at its shortest with those past it."""
    requests = settings.sized(2000)
    place.wire.delay(0)
    through, past = [], []
    for _ in range(settings.runs):
        through.append(raw_rate(place, place.raw_client(), requests, threads=8))
        near = place.raw_client(past_the_wire=True)
        past.append(raw_rate(place, near, requests, threads=8))
    place.wire.delay(settings.latency_ms / 1000)
    return _ratio(
        "requests through the wire at 0 ms / past it, 8 threads",
        "x",
        _beside_raw("/s", through, "through the wire"),
        _beside_raw("/s", past, "past it"),
        None,
    )


# --- single tasks


@frozen
class Single:
    """A run with single tasks, and its floors."""

    ours: Drain
    raw_submit: Spent
    raw_drain: Spent


def _single(place: Site, settings: Settings) -> Iterator[Figure]:
    tasks = settings.sized(SINGLE_TASKS)
    runs = [_run_single(place, tasks) for _ in range(settings.runs)]
    yield _ratio(
        f"drain of {tasks:,} single tasks, {SINGLE_THREADS} threads / the raw requests",
        "x",
        _ours("tasks/s", [run.ours.rate for run in runs]),
        _beside_raw("tasks/s", [tasks / run.raw_drain.seconds for run in runs], "1 GET, 2 PUT"),
        _if_far(settings, at_least(0.75)),
    )
    yield _ratio(
        f"submit of single tasks, {SUBMITTERS} threads / the raw requests",
        "x",
        _ours("tasks/s", [tasks / run.ours.submit.seconds for run in runs]),
        _beside_raw("tasks/s", [tasks / run.raw_submit.seconds for run in runs], "2 PUT"),
        None,
    )
    yield _cpu("drain", [run.ours.drain for run in runs], [run.raw_drain for run in runs])
    yield _cpu("submit", [run.ours.submit for run in runs], [run.raw_submit for run in runs])
    counted = [run.ours.requests for run in runs]
    yield from _requests_a_task("single tasks", tasks, counted, at_most(4.1), at_most(1.1))


def _run_single(place: Site, tasks: int) -> Single:
    ours = drain(place, tasks, batch_size=1, threads=SINGLE_THREADS)
    body = body_of(place, ours.keys[0])
    return Single(
        ours,
        raw_submit(place, tasks, body),
        raw_drain(place, ours.keys, puts=2, threads=SINGLE_THREADS),
    )


def _cpu(what: str, ours: Sequence[Spent], raw: Sequence[Spent]) -> Figure:
    """Compare the CPU time that each request takes in this process."""
    mine = _ours("ms", [1000 * spent.cpu_per_request for spent in ours])
    theirs = _beside_raw("ms", [1000 * spent.cpu_per_request for spent in raw])
    return Figure(
        what=f"CPU per request above raw, {what} of single tasks",
        unit="%",
        runs=tuple(100 * (ratio - 1) for ratio in ratios(mine, theirs)),
        aim=at_most(15),
        beside=(mine, theirs),
    )


def _requests_a_task(
    what: str, tasks: int, counted: Sequence[Counter[str]], puts: Aim, gets: Aim | None
) -> Iterator[Figure]:
    yield Figure(
        what=f"PUT and LIST a task, submit included, {what}",
        unit="",
        runs=tuple(put_class(requests) / tasks for requests in counted),
        aim=puts,
        note=_told(counted[-1]),
    )
    yield Figure(
        what=f"GET a task, {what}",
        unit="",
        runs=tuple(requests["get"] / tasks for requests in counted),
        aim=gets,
    )


def _told(requests: Counter[str]) -> str:
    """Return the requests by operation, to read."""
    told = [f"{count:,} {operation.upper()}" for operation, count in sorted(requests.items())]
    return ", ".join(told) or "none"


# --- batches


def _batched(place: Site, settings: Settings) -> Iterator[Figure]:
    tasks = settings.sized(BATCHED_TASKS)
    ours: list[Drain] = []
    floors: list[Spent] = []
    for _ in range(settings.runs):
        run = drain(place, tasks, batch_size=BATCH, threads=BATCHED_THREADS)
        puts = max(1, round(run.drain.requests["put"] / len(run.keys)))
        ours.append(run)
        floors.append(raw_drain(place, run.keys, puts=puts, threads=BATCHED_THREADS))
    yield Figure(
        what=f"drain of {tasks:,} tasks in batches of {BATCH}, {BATCHED_THREADS} threads",
        unit="tasks/s",
        runs=tuple(run.rate for run in ours),
        aim=_if_far(settings, at_least(2500)),
        beside=(
            _beside_raw(
                "tasks/s",
                [tasks / floor.seconds for floor in floors],
                "1 GET a batch, and as many PUT as ours",
            ),
        ),
    )
    counted = [run.requests for run in ours]
    yield from _requests_a_task("batches", tasks, counted, at_most(0.07), None)
    yield Figure(
        what="cost of a million tasks in batches, submit included",
        unit="$",
        runs=tuple(MILLION / tasks * dollars(requests) for requests in counted),
        aim=at_most(0.5),
    )


# --- starts


def _starts(place: Site, settings: Settings) -> Iterator[Figure]:
    times = settings.sized(STARTS_PER_RUN) * settings.runs
    elsewhere = starts_elsewhere(place, times)
    yield Figure(
        what="submit's return to start in another process, idle worker, poll_max 1 s",
        unit="s",
        runs=tuple(elsewhere),
        aim=at_most(0.6),
    )
    yield Figure(what="the longest of these", unit="s", runs=(max(elsewhere),), aim=at_most(1.2))
    here = starts_here(place, times)
    trips = _beside_raw(
        "ms", [1000 * start.round_trip for start in here], f"a round trip, of {ROUND_TRIPS}"
    )
    yield Figure(
        what="submit's return to start in the same process, above two round trips",
        unit="ms",
        runs=tuple(1000 * (start.since_return - 2 * start.round_trip) for start in here),
        aim=at_most(60),
        beside=(
            _ours("ms", [1000 * start.since_return for start in here], "from submit's return"),
            _ours("ms", [1000 * start.since_call for start in here], "from submit's call"),
            trips,
        ),
    )


def _restarts(place: Site, settings: Settings) -> Iterator[Figure]:
    restarts = [restart(place) for _ in range(settings.runs)]
    yield Figure(
        what="kill -9 to restart elsewhere, lease 10 s",
        unit="s",
        runs=tuple(each.seconds for each in restarts),
        aim=at_most(12),
    )
    yield Figure(
        what="requests of all from the kill to the restart",
        unit="",
        runs=tuple(each.requests for each in restarts),
        aim=at_most(40),
    )


# --- sweeps, acts, idleness


def _sweeps(place: Site, settings: Settings) -> Iterator[Figure]:
    tasks = settings.sized(LATE_TASKS)
    sweeps = [sweep(place, tasks) for _ in range(settings.runs)]
    yield Figure(
        what=f"PUT and LIST a task, a sweep of {tasks:,} late tasks in batches of {BATCH}",
        unit="",
        runs=tuple(put_class(spent.requests) / tasks for spent in sweeps),
        aim=at_most(0.03),
        beside=(_ours("tasks/s", [tasks / spent.seconds for spent in sweeps], "8 threads"),),
        note=_told(sweeps[-1].requests),
    )


def _acts(place: Site) -> Iterator[Figure]:
    for act in acts(place):
        yield Figure(
            what=f"requests: {act.what}",
            unit="",
            runs=(act.requests.total() / act.tasks,),
            note=_told(act.requests),
        )


def _idle() -> Figure:
    hour = idle_hour()
    return Figure(
        what="an idle worker with everything on, by an hour of a fake clock",
        unit="$ a month",
        runs=(MONTH * dollars(hour),),
        aim=at_most(4),
        note=f"in an hour: {_told(hour)}",
    )
