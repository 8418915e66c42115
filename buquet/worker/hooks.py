"""The hooks of a worker: functions of a user's that are called at its turning points."""

from __future__ import annotations

from attrs import define, field

from buquet.client.hooks import Hook


@define
class Hooks:
    """The hooks of a worker, by occasion."""

    startup: list[Hook] = field(factory=list)
    shutdown: list[Hook] = field(factory=list)
    success: list[Hook] = field(factory=list)
    error: list[Hook] = field(factory=list)
