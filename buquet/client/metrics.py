"""Metrics for Prometheus, worked out from what each commit changed.

Whoever's write took effect counts, once: the counters come from the histories of the tasks in it.
"""

from __future__ import annotations

from datetime import timedelta

from prometheus_client import Counter, Gauge, Histogram

from buquet.core.batch import Commit
from buquet.core.index import Backlog
from buquet.core.model import Batch

_TTL_BUCKETS = (1, 10, 60, 300, 900, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400)
_DURATION_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600)

_BY_EVENT = {
    event: Counter(f"buquet_tasks_{name}", text, ["task_type"])
    for event, name, text in (
        ("created", "submitted", "Tasks submitted."),
        ("claimed", "claimed", "Claims: the attempts that began."),
        ("completed", "completed", "Tasks completed."),
        ("failed", "failed", "Tasks failed for good."),
        ("retried", "retried", "Attempts that failed and are made again."),
        ("rescheduled", "rescheduled", "Tasks put off by their handlers."),
        ("released", "released", "Tasks given back by a worker that stopped."),
        ("recovered", "recovered", "Tasks taken back from lost workers."),
        ("expired", "expired", "Tasks that nobody started by their deadline."),
        ("cancelled", "cancelled", "Tasks cancelled."),
        ("replayed", "replayed", "Tasks replayed by an operator."),
    )
}
_CONFLICTS = Counter("buquet_commit_conflicts", "Commits that lost a race.", ["task_type"])
_TTL = Histogram(
    "buquet_task_ttl_seconds",
    "Time from due to deadline, at submit.",
    ["task_type"],
    buckets=_TTL_BUCKETS,
)
_DURATION = Histogram(
    "buquet_task_duration_seconds",
    "Time from claim to end of the attempt that ended the task.",
    ["task_type"],
    buckets=_DURATION_BUCKETS,
)
_REQUESTS = Counter("buquet_store_requests", "Requests sent to the store.", ["operation"])
_NEAR_EXPIRATION = Gauge(
    "buquet_tasks_near_expiration",
    "Unfinished tasks in batches with a deadline within five minutes, at the last sweep.",
    ["task_type"],
)
_READY = Gauge("buquet_tasks_ready", "Tasks due now, at the last sweep.", ["task_type"])


def observe_commit(commit: Commit) -> None:
    """Count what a commit changed."""
    for task, revision in commit.revisions:
        counter = _BY_EVENT.get(revision.event)
        if counter is not None:
            counter.labels(task.task_type).inc()
        if revision.event == "created" and task.expires_at is not None:
            ttl = max(task.expires_at - task.available_at, timedelta(0))
            _TTL.labels(task.task_type).observe(ttl.total_seconds())
        if revision.event in ("completed", "failed") and task.started_at is not None:
            _DURATION.labels(task.task_type).observe(
                (revision.at - task.started_at).total_seconds()
            )


def count_lost_race(batch: Batch) -> None:
    """Count a commit that lost a race."""
    _CONFLICTS.labels(batch.task_type).inc()


def count_request(operation: str) -> None:
    """Count a request sent to the store."""
    _REQUESTS.labels(operation).inc()


def observe_backlog(found: dict[str, Backlog]) -> None:
    """Set the gauges to what a sweep has found."""
    for gauge in (_NEAR_EXPIRATION, _READY):
        gauge.clear()
    for backlog in found.values():
        _NEAR_EXPIRATION.labels(backlog.task_type).set(backlog.near_expiration)
        _READY.labels(backlog.task_type).set(backlog.ready)
