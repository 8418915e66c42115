"""What a user wants to be called at the turning points of a worker and its tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from attrs import define, field

logger = logging.getLogger(__name__)

Hook = Callable[..., Any]


@define
class Hooks:
    """The hooks of a worker, by occasion."""

    startup: list[Hook] = field(factory=list)
    shutdown: list[Hook] = field(factory=list)
    success: list[Hook] = field(factory=list)
    error: list[Hook] = field(factory=list)


def call_all(hooks: Iterable[Hook], *arguments: Any) -> None:
    """Call hooks one after another; one that fails is logged and keeps none from its turn."""
    for hook in hooks:
        try:
            hook(*arguments)
        except (Exception, SystemExit):  # which would end one of our threads, and nothing else
            logger.exception("The hook %s failed.", getattr(hook, "__qualname__", hook))
