"""What is shown of the figures: tables to read, or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import asdict
from rich import box
from rich.console import Console
from rich.table import Table

from scripts.bench.figures import Beside, Figure

WIDTH = 80

Measured = Mapping[str, Sequence[Figure]]
"""The figures of each group."""


def as_json(machine: Mapping[str, str], measured: Measured) -> dict[str, Any]:
    """Return everything as JSON values."""
    figures = [figure for group in measured.values() for figure in group]
    return {
        "machine": dict(machine),
        "peers": peers(figures),
        "groups": {
            name: [_figure_as_json(figure) for figure in group] for name, group in measured.items()
        },
    }


def _figure_as_json(figure: Figure) -> dict[str, Any]:
    beside = [asdict(each) | {"value": each.value} for each in figure.beside]
    found = asdict(figure, recurse=False) | {"value": figure.value, "is_met": figure.is_met}
    return found | {"aim": str(figure.aim) if figure.aim else None, "beside": beside}


def peers(figures: Iterable[Figure]) -> dict[str, str]:
    """Return the versions of all that figures are compared with."""
    return {
        each.who: each.version
        for figure in figures
        for each in figure.beside
        if each.who != "buquet"
    }


def console(*, stderr: bool = False) -> Console:
    """Return where to write; a pipe gets lines as long as a common terminal's."""
    found = Console(stderr=stderr, highlight=False)
    if not found.is_terminal:
        found.width = WIDTH
    return found


def show(console: Console, machine: Mapping[str, str], measured: Measured) -> None:
    """Print the tables, and what they were measured on."""
    for name, figures in measured.items():
        console.print(_table(name, figures))
    told = dict(machine) | peers(figure for group in measured.values() for figure in group)
    console.print("Measured with " + ", ".join(f"{name} {told[name]}" for name in told) + ".")


def _table(group: str, figures: Sequence[Figure]) -> Table:
    table = Table(title=group, title_justify="left", box=box.SIMPLE_HEAD, expand=True)
    table.add_column("", ratio=1)
    table.add_column("median", justify="right", no_wrap=True)
    table.add_column("least to most", justify="right", no_wrap=True)
    table.add_column("aim", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for figure in figures:
        _add_figure(table, figure)
    return table


def _add_figure(table: Table, figure: Figure) -> None:
    met = {True: "met", False: "missed", None: ""}[figure.is_met]
    aim = str(figure.aim) if figure.aim else ""
    table.add_row(figure.what, worth(figure), _spread(figure), aim, met, style="bold")
    for each in figure.beside:
        table.add_row(f"  {each.name}", worth(each), _spread(each), style="dim")
        if each.note:
            table.add_row(f"    {each.note}", style="dim")
    if figure.note:
        table.add_row(f"  {figure.note}", style="dim")


def worth(measured: Figure | Beside) -> str:
    """Return the value with its unit."""
    return f"{number(measured.value)} {measured.unit}"


def _spread(measured: Figure | Beside) -> str:
    return f"{number(min(measured.runs))} to {number(max(measured.runs))}"


def number(value: float) -> str:
    """Return three digits of a number, or all those before its point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
