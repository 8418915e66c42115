"""Which handler runs which task type, and how long its tasks take."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any

from attrs import define, field, frozen

from buquet.client.hooks import require_plain
from buquet.core import durations
from buquet.core.keys import check_task_type
from buquet.errors import ConfigurationError, InvalidOptions
from buquet.worker.limits import Limit

AHEAD_SECONDS = 0.2
"""A worker claims ahead what its threads do in this time: what waits dies with it, if it dies."""

LATENCY_SECONDS = 0.05
"""For about so long a thread waits for the store: with less work than that at hand, more batches
are read meanwhile."""

AHEAD_PER_THREAD = 32
"""… but not more than this for each thread."""

TIMEOUT_SECONDS = 300.0
"""How long an attempt may run, unless its handler or its task says otherwise."""

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@frozen
class Handler:
    """A function that runs the tasks of one type."""

    task_type: str
    function: Callable[..., Any]
    wants_context: bool
    timeout_seconds: float

    def __call__(self, input: Any, context: Any) -> Any:
        """Run the function."""
        return self.function(input, context) if self.wants_context else self.function(input)


@define
class Registry:
    """The handlers of a worker."""

    handlers: dict[str, Handler] = field(factory=dict)
    limits: dict[str, Limit] = field(factory=dict)
    _means: dict[str, float] = field(factory=dict, init=False)

    def add(
        self,
        task_type: str,
        function: Callable[..., Any],
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        limit: Limit | None = None,
    ) -> None:
        """Register a handler.

        Raises:
            InvalidOptions: if it is no task type, or the timeout is out of range.
            ConfigurationError: if the type has a handler already, or the function takes neither
                `(input)` nor `(input, context)`, or is no plain function.
        """
        check_task_type(task_type)
        require_plain(function)
        if task_type in self.handlers:
            raise ConfigurationError(
                f"Task type {task_type!r} has a handler already: "
                f"{_name(self.handlers[task_type].function)}. Give this one another name."
            )
        if durations.seconds(timeout_seconds, what="timeout_seconds") <= timedelta(0):
            raise InvalidOptions(f"timeout_seconds must be above 0, not {timeout_seconds!r}.")
        self.handlers[task_type] = Handler(
            task_type, function, _wants_context(function), timeout_seconds
        )
        if limit is not None:
            self.limits[task_type] = limit

    def only(self, task_types: Collection[str]) -> Registry:
        """Return a registry of some of the handlers.

        Raises:
            ConfigurationError: if there is none for one of the types.
        """
        for task_type in task_types:
            if task_type not in self.handlers:
                known = ", ".join(sorted(self.handlers))
                raise ConfigurationError(
                    f"There is no handler for task type {task_type!r}. There are: {known}."
                )
        return Registry(
            {name: each for name, each in self.handlers.items() if name in task_types}, self.limits
        )

    def may_begin(self, task_type: str) -> bool:
        """Return whether there is a handler for a type, and no limit is reached."""
        limit = self.limits.get(task_type)
        return task_type in self.handlers and (limit is None or limit.opens_in() == 0)

    def opens_in(self) -> float:
        """Return in how many seconds the first limit that is reached opens again."""
        waits = (limit.opens_in() for limit in tuple(self.limits.values()))
        return min((wait for wait in waits if wait > 0), default=math.inf)

    def note_duration(self, task_type: str, seconds: float) -> None:
        """Learn how long an attempt took; recent ones weigh more."""
        mean = self._means.get(task_type, seconds)
        self._means[task_type] = mean + 0.2 * (seconds - mean)

    def ahead(self, task_type: str, threads: int, seconds: float = AHEAD_SECONDS) -> int:
        """Return how many tasks of a type may be claimed before there is a thread for them.

        That is, how many the threads do in so many seconds.
        """
        mean = self._means.get(task_type)
        if mean is None:
            return 0
        return threads * int(min(seconds / max(mean, 1e-6), AHEAD_PER_THREAD))


def _wants_context(function: Callable[..., Any]) -> bool:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False  # a builtin without a signature: it gets the input, as most want
    required = [each for each in parameters if _is_required(each)]
    positional = [each for each in parameters if each.kind in _POSITIONAL]
    takes_any = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters)
    keyword_only = [each for each in required if each.kind not in _POSITIONAL]
    if keyword_only or len(required) > 2 or not (positional or takes_any):
        raise ConfigurationError(
            f"{_name(function)} can't be a handler: one takes (input) or (input, context)."
        )
    return len(required) == 2 or any(each.name == "context" for each in positional[1:2])


def _is_required(parameter: inspect.Parameter) -> bool:
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and parameter.kind not in variadic


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
