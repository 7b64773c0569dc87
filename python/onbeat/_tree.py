"""Merging as a tree of tasks, for the engines.

A task merges up to `fan_in` parts. A part is a path, a URL or the bytes of a model that was merged already. The result
of a task depends only on its parts, and a task has no other effect. An engine may therefore run a task again, or twice
at once.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from onbeat._command import StrPath, merged
from onbeat._errors import OnbeatError
from onbeat._files import write_whole

FAN_IN = 64
T = TypeVar("T")
Result = bytes | OnbeatError


def groups(things: Sequence[T], fan_in: int) -> list[list[T]]:
    """Divides things, in order, into as few groups of at most `fan_in` as possible. The sizes are nearly equal."""
    count = -(-len(things) // fan_in)
    ends = [len(things) * i // count for i in range(count + 1)]
    return [list(things[a:b]) for a, b in zip(ends, ends[1:])]


def first_parts(paths: Iterable[StrPath], fan_in: int) -> list[list[str]]:
    """Returns the groups of models for the first tasks. Makes paths absolute, since workers may run elsewhere."""
    if fan_in < 2:
        raise ValueError(f"fan_in is {fan_in}: a task merges two models or more")
    names = [os.fspath(path) for path in paths]
    if not names:
        raise OnbeatError("there is no model to merge. Name at least one.")
    return groups([name if "://" in name else os.path.abspath(name) for name in names], fan_in)


def task(*parts: str | Result, last: bool) -> Result:
    """Merges parts and returns the bytes of the result: the whole model for the `last` task.

    If the parts cannot be merged, the error is the result, because the engine must not try again.
    """
    given: list[str | bytes] = []
    for part in parts:
        if isinstance(part, OnbeatError):
            return part
        given.append(part)
    with tempfile.TemporaryDirectory(prefix="onbeat-") as scratch:
        try:
            return merged([_as_path(part, number, scratch) for number, part in enumerate(given)], compact=not last)
        except OnbeatError as error:
            # Killed by a signal: another attempt may end well.
            if error.exit_code < 0:
                raise
            return error


def _as_path(part: str | bytes, number: int, scratch: str) -> str:
    """Returns the path of a part. Writes a part that is not a local file into the folder `scratch`."""
    if isinstance(part, str) and "://" not in part:
        return part
    path = os.path.join(scratch, f"{number}.json")
    with open(path, "wb") as file:
        file.write(part if isinstance(part, bytes) else _fetch(part))
    return path


def _fetch(url: str) -> bytes:
    import fsspec

    with fsspec.open(url, "rb") as file:
        return bytes(file.read())


def write(result: Result, output: StrPath) -> Path:
    """Writes the model under another name and renames it. Raises the error if a task returned one."""
    if isinstance(result, OnbeatError):
        raise result
    return write_whole(output, result)
