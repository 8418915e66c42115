"""What all commands share: the options that each has, and the queue that these name."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, get_type_hints

import typer
from attrs import NOTHING, define, fields, has

from buquet.cli.show import note
from buquet.client.queue import Queue, connect
from buquet.store import MemoryStore, Store
from buquet.store.sqlite import SqliteStore

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The store: s3://bucket/prefix or sqlite:///queue.db. Else BUQUET_URL decides.",
        show_default=False,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document, and nothing else, on stdout.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")]

_P = ParamSpec("_P")


@define
class Session:
    """What the common options of one call of `buquet` say."""

    url: str | None = None
    as_json: bool = False
    debug: bool = False

    @contextmanager
    def queue(self, *, is_new: bool = False) -> Iterator[Queue]:
        """Open the queue that is meant; say so if it is made by that, unless it may be new."""
        with connect(self.url) as queue:
            path = getattr(queue.store, "path", None)
            if isinstance(path, Path) and _will_be_made(path) and not is_new:
                note(f"There was no file {path.name!r}: this is a new, empty queue.")
            yield queue

    def export_url(self) -> None:
        """Have `connect()` in the code of the user open the queue that is meant."""
        if self.url is not None:
            os.environ["BUQUET_URL"] = self.url


def url_of(store: Store) -> str:
    """Return the URL of a store."""
    match store:
        case MemoryStore():
            return "memory:"
        case SqliteStore():
            return f"sqlite:///{store.path}"
        case _:
            return f"s3://{getattr(store, 'bucket', '')}/{getattr(store, 'prefix', '')}".rstrip("/")


def _will_be_made(path: Path) -> bool:
    """Return whether using a file makes it; where this user may not look, nothing is made."""
    try:
        path.stat()
    except FileNotFoundError:
        return path.parent.is_dir()
    except OSError:
        return False
    return False


def with_session(function: Callable[Concatenate[Session, _P], None]) -> Callable[..., None]:
    """Make a command of a function: add the common options, pass the session that they make.

    A parameter that is an attrs class stands for its fields: each is an option.
    """
    _, *own = inspect.signature(function).parameters.values()
    hints = get_type_hints(function, include_extras=True)
    groups = {each.name: hints[each.name] for each in own if has(hints[each.name])}

    @wraps(function)
    def run(
        context: typer.Context, url: str | None, as_json: bool, debug: bool, **given: Any
    ) -> None:
        session: Session = context.find_object(Session) or Session()
        session.url = session.url if url is None else url
        session.as_json = session.as_json or as_json
        session.debug = session.debug or debug
        for name, kind in groups.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
        function(session, **given)  # type: ignore[call-arg]  # typer has made what is given

    asked = [
        inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
        *(option for each in own for option in _options(each, hints[each.name])),
        _parameter("url", Url, None),
        _parameter("as_json", Json, False),
        _parameter("debug", Debug, False),
    ]
    run.__signature__ = inspect.Signature(asked)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in asked}
    return run


def _options(given: inspect.Parameter, hint: Any) -> list[inspect.Parameter]:
    if not has(hint):
        return [_parameter(given.name, hint, given.default)]
    hints = get_type_hints(hint, include_extras=True)
    return [_parameter(each.name, hints[each.name], each.default) for each in fields(hint)]


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    if default is NOTHING:
        default = inspect.Parameter.empty
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )
