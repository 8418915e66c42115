"""The settings of a worker, checked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from attrs import frozen

from buquet.errors import ConfigurationError


@frozen(kw_only=True)
class Settings:
    """The settings of a worker."""

    id: str
    threads: int
    lease: timedelta
    poll_min: timedelta
    poll_max: timedelta
    sweep_interval: timedelta | None
    grace: timedelta = timedelta(seconds=30)
    """How long running tasks have to end when the worker stops."""
    max_lost_threads: int = 8
    """How many threads may be stuck before the worker gives up."""
    task_types: tuple[str, ...] | None = None
    """Which of the types that have a handler it serves; None for all."""
    max_tasks: int | None = None
    """After so many tasks it begins no more, and leaves."""
    health_file: Path | None = None
    """A file to touch after each good poll."""
    check: bool = True
    """Whether to try at the start that the store honours conditions."""
    handles_signals: bool = True
    """Whether a run on the main thread stops on SIGTERM and SIGINT. The command line says no."""
    on_ending: Callable[[], None] | None = None
    """Called once when a run begins to end, whatever ends it. It must neither block nor raise."""

    def __attrs_post_init__(self) -> None:
        """Refuse what is out of range.

        Raises:
            ConfigurationError: saying which, and what it may be.
        """
        _check_count("threads", self.threads, 1000)
        if self.max_tasks is not None:
            _check_count("max_tasks", self.max_tasks, 10**9)
        if not timedelta(seconds=1) <= self.lease <= timedelta(days=1):
            raise ConfigurationError(f"lease must be from a second to a day, not {self.lease!r}.")
        if not timedelta(0) <= self.grace <= timedelta(days=1):
            raise ConfigurationError(f"grace must be from 0 to a day, not {self.grace!r}.")
        if not timedelta(0) < self.poll_min <= self.poll_max:
            raise ConfigurationError(
                "poll_min must be above 0 and at most poll_max; "
                f"they are {self.poll_min!r}, {self.poll_max!r}."
            )
        if self.sweep_interval is not None and self.sweep_interval < timedelta(seconds=1):
            raise ConfigurationError(
                f"sweep_interval must be at least a second, or None; not {self.sweep_interval!r}."
            )


def _check_count(name: str, number: int, most: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
        raise ConfigurationError(f"{name} must be from 1 to {most:,}, not {number!r}.")
