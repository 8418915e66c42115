"""The lease of a worker: until when its claims hold."""

from __future__ import annotations

from datetime import datetime, timedelta

from attrs import define


@define
class Lease:
    """One lease for all claims of a worker. Its heartbeat renews it."""

    span: timedelta
    expires_at: datetime

    def allows_claims(self, now: datetime) -> bool:
        """Return whether enough of it is left for a new claim: half."""
        return self.expires_at - now >= self.span / 2

    def has_lapsed(self, now: datetime) -> bool:
        """Return whether others may take the worker's tasks."""
        return now >= self.expires_at
