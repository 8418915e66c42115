"""Imports the worker that `app.tasks:worker` names."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from buquet.errors import BuquetError, ConfigurationError
from buquet.worker import Worker

EXAMPLE = "app.tasks:worker"


def require_current_folder() -> None:
    """Refuse to start in a folder that has been removed: modules are looked for there.

    Raises:
        ConfigurationError: if it has been.
    """
    try:
        Path.cwd()
    except OSError as error:
        raise ConfigurationError(
            f"The current folder can't be used: {error.strerror}. Start buquet in one that exists."
        ) from error


def load_worker(target: str) -> Worker:
    """Import the worker that a text names. The current folder is searched for its module.

    Raises:
        ConfigurationError: if it can't be imported; says what is missing.
    """
    module_name, _, name = target.partition(":")
    if not name or not all(module_name.split(".")):
        raise ConfigurationError(
            f"{target!r} does not name a worker. Write the module, a colon and the variable, "
            f"as in {EXAMPLE}."
        )
    if os.getcwd() not in sys.path:  # noqa: PTH109 -- compared with text
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    module = _import(module_name)
    try:
        found = _follow(module, name)
    except AttributeError as error:
        raise ConfigurationError(
            f"Module {module_name!r} has no {name!r}.{_suggestion(module, module_name)}"
        ) from error
    if not isinstance(found, Worker):
        raise ConfigurationError(
            f"{target!r} is of type {type(found).__name__}, not a Worker."
            f"{_suggestion(module, module_name)}"
        )
    return found


def _import(module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except BuquetError:
        raise
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{module_name}.".startswith(f"{missing}."):
            raise ConfigurationError(
                f"There is no module {missing!r} in this folder, and none is installed. "
                "Start buquet in the folder that holds it, or set PYTHONPATH."
            ) from error
        raise ConfigurationError(
            f"Importing {module_name!r} failed with {type(error).__name__}: {error}"
            f"{_place(error)}. Fix that first; --debug shows the traceback."
        ) from error


def _place(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return ""  # its text says where
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f" ({last.filename}:{last.lineno})"


def _follow(module: Any, name: str) -> Any:
    found = module
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _suggestion(module: Any, module_name: str) -> str:
    workers = [name for name, value in vars(module).items() if isinstance(value, Worker)]
    if not workers:
        return " There is no Worker in that module."
    return " There is " + " and ".join(f"{module_name}:{name}" for name in workers) + "."
