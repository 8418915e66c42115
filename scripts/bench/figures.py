"""What was measured: a figure, its runs, what it is to reach, and what others reach."""

from __future__ import annotations

from statistics import median

from attrs import field, frozen


@frozen
class Aim:
    """What a figure is to reach."""

    bound: float
    is_floor: bool
    """Whether it is to be at least that much; else at most."""

    def is_met_by(self, value: float) -> bool:
        """Tell whether a value reaches it."""
        return value >= self.bound if self.is_floor else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.is_floor else '≤'} {self.bound:g}"


def at_least(bound: float) -> Aim:
    """Return the aim of what should be large."""
    return Aim(bound, is_floor=True)


def at_most(bound: float) -> Aim:
    """Return the aim of what should be small."""
    return Aim(bound, is_floor=False)


def _checked(runs: tuple[float, ...]) -> tuple[float, ...]:
    if not runs:
        raise ValueError("A figure needs a run at least.")
    return runs


@frozen(kw_only=True)
class Beside:
    """What stands beside a figure: what one of those compared reached, ourselves included."""

    who: str
    version: str
    unit: str
    how: str = ""
    """Its settings, where one takes part with several."""
    runs: tuple[float, ...] = field(converter=_checked)
    note: str = ""

    @property
    def name(self) -> str:
        """What it is called in a table."""
        return f"{self.who}, {self.how}" if self.how else self.who

    @property
    def value(self) -> float:
        """The median of the runs."""
        return median(self.runs)


@frozen(kw_only=True)
class Figure:
    """One thing that was measured, several times."""

    what: str
    unit: str
    runs: tuple[float, ...] = field(converter=_checked)
    """In the order in which they were made."""
    aim: Aim | None = None
    beside: tuple[Beside, ...] = ()
    note: str = ""

    @property
    def value(self) -> float:
        """The median of the runs."""
        return median(self.runs)

    @property
    def is_met(self) -> bool | None:
        """Whether the aim is met; None if there is none."""
        return self.aim.is_met_by(self.value) if self.aim else None


def ratios(ours: Beside, theirs: Beside) -> tuple[float, ...]:
    """Return how many times theirs ours is, run by run: each was made just before the other."""
    return tuple(mine / other for mine, other in zip(ours.runs, theirs.runs, strict=True))
