"""Timing of ROS 2 systems, from Python.

`onbeat.open` reads a trace, a model or tables. `record` records a system, and `import_trace` imports a session of LTTng. `model`, `merge`, `check`, `diff`, `why` and
`plan` call the `onbeat` command, and return its answers as typed objects. `onbeat.plot` draws. `onbeat.dask`,
`onbeat.ray` and `onbeat.spark` merge models on clusters. A failure raises an OnbeatError.

Tables need pyarrow (`pip install 'onbeat[tables]'`) or polars (`pip install 'onbeat[polars]'`), plots need matplotlib (`pip install 'onbeat[plots]'`).
"""

from __future__ import annotations

import importlib as _importlib
import os as _os
from typing import TYPE_CHECKING as _TYPE_CHECKING

from onbeat._command import OnbeatWarning, StrPath, command, run
from onbeat._errors import (
    BadFile,
    Changed,
    CommandFailed,
    CommandKilled,
    MissingPackage,
    NothingFound,
    NotKnown,
    NotPermitted,
    OnbeatError,
    PromiseBroken,
    RecordedCommandFailed,
    UsageError,
)
from onbeat._record import Recording, record
from onbeat._tables import Tables, Trace, import_trace

if _TYPE_CHECKING:
    from onbeat import results as results
    from onbeat import schema as schema
    from onbeat._model import Model
    from onbeat._questions import check, diff, merge, model, plan, why

__all__ = [
    "BadFile", "Changed", "CommandFailed", "CommandKilled", "MissingPackage", "Model", "NotKnown", "NotPermitted",
    "NothingFound", "OnbeatError", "OnbeatWarning", "PromiseBroken", "RecordedCommandFailed", "Recording", "Tables",
    "Trace", "UsageError", "check", "command", "diff", "import_trace", "merge", "model", "open", "open_model", "open_tables", "open_trace",
    "plan", "record", "run", "why",
]

for _error in (BadFile, Changed, CommandFailed, CommandKilled, MissingPackage, NothingFound, NotKnown, NotPermitted,
               OnbeatError, OnbeatWarning, PromiseBroken, RecordedCommandFailed, UsageError):
    # Tracebacks show the names that programs use.
    _error.__module__ = "onbeat"
del _error

# The classes of a model's parts take most of the time of an import. A program that uses only tables does not wait for
# them: they are imported when they are first used.
_LATER = {"Model": "_model", **dict.fromkeys(("check", "diff", "merge", "model", "plan", "why"), "_questions")}


def __getattr__(name: str) -> object:
    if name in ("results", "schema"):
        return _importlib.import_module(f"onbeat.{name}")
    if name not in _LATER:
        raise AttributeError(f"module 'onbeat' has no attribute {name!r}")
    value: object = getattr(_importlib.import_module(f"onbeat.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, "results", "schema"})


def open_trace(path: StrPath) -> Trace:
    """Opens a trace directory."""
    if not _os.path.isfile(_os.path.join(path, "manifest.json")):
        raise BadFile(f"{_os.fspath(path)} is not a trace: it has no manifest.json. Record one with onbeat.record.")
    return Trace(path)


def open_model(path: StrPath) -> Model:
    """Opens a model file. The file is read when its first part is asked for."""
    if not _os.path.exists(path):
        raise OnbeatError(f"{_os.fspath(path)} does not exist. Make a model with onbeat.model(TRACE).")
    if _os.path.isdir(path):
        raise BadFile(f"{_os.fspath(path)} is a directory, and not a model file. Make a model with onbeat.model(TRACE).")
    return _model_of(path)


def _model_of(path: StrPath) -> Model:
    from onbeat._model import Model

    return Model(path)


def open_tables(path: StrPath) -> Tables:
    """Opens a directory of tables, as `Trace.export` and `onbeat export --to tables` write it."""
    tables = Tables(path)
    if not tables.files("runs"):
        raise BadFile(f"{tables.path} has no tables of onbeat. Write them with onbeat.open(TRACE).export(DIRECTORY).")
    return tables


def open(path: StrPath) -> Trace | Model | Tables:
    """Opens a trace directory, a model file, or a directory of tables: onbeat recognises it by its content.

    `open_trace`, `open_model` and `open_tables` open only one of them, and have its type.

    >>> import onbeat
    >>> onbeat.open("demos/recorded/parking"), onbeat.open("model.json")
    (<Trace demos/recorded/parking>, <Model model.json>)
    """
    if not _os.path.isdir(path):
        if not _os.path.exists(path):
            raise OnbeatError(f"{_os.fspath(path)} does not exist. Name a trace directory, a model file, or a directory"
                              " of tables.")
        return _model_of(path)
    if _os.path.isfile(_os.path.join(path, "manifest.json")):
        return Trace(path)
    if Tables(path).files("runs"):
        return Tables(path)
    raise BadFile(f"{_os.fspath(path)} is neither a trace directory (it has no manifest.json) nor a directory of tables"
                  " (it has no runs/*.parquet).")
