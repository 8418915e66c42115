"""What the threads of a worker work on, and what comes of it: plain values."""

from __future__ import annotations

from datetime import datetime

from attrs import define, frozen

from buquet.core.keys import Entry
from buquet.core.model import Progress, Task
from buquet.core.transitions import Move
from buquet.ledger.ledger import Loaded


@define(eq=False)
class Claim:
    """A claimed task: it waits for a thread, or has one."""

    task: Task
    claimed_at: float
    """In local monotonic seconds."""
    cancel_requested: bool = False
    lease_lost: bool = False
    is_alone: bool = False
    """No other task begins beside it."""
    progress: Progress | None = None
    """What its handler reported last."""


@frozen
class Outcome:
    """How an attempt ended: the move that its task is to make."""

    claim: Claim
    move: Move
    wake: bool = False
    """Whether pollers must read the batch at once."""
    is_refused: bool = False
    """Whether it replaces a result that the store refused."""


@frozen
class Candidate:
    """A batch that has something to do, as far as its entry says."""

    entry: Entry
    modified: datetime
    loaded: Loaded | None = None
    """The batch, if it has been read already."""
    is_contended: bool = False
    """Another live worker has claims in it: it comes after all others."""
    is_late: bool = False
    """Its deadline has passed: no limit holds it back from being expired."""
    is_careful: bool = False
    """Its tasks are claimed only for threads that are free: before that a read is wasted."""

    @property
    def surplus(self) -> int:
        """How many tasks it promises for threads beside the one that reads it."""
        if self.loaded is not None:
            return len(self.loaded.batch.unfinished) - 1
        return self.entry.count - 1


@frozen
class CallHooks:
    """Hooks of the user's are to be called."""


Job = Claim | Candidate | CallHooks
"""What a thread takes from the dispatcher."""
