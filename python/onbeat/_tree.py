"""Merging as a tree of tasks: what a task does, and what an engine is given to do.

A task merges up to `fan_in` parts. A part is a path, a URL or the bytes of a model that was merged already. A task
has no effect but its result, which depends on its parts alone: an engine may run it again, or twice at once.
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
    """As few groups of at most `fan_in` as there can be, of sizes as equal as possible, in order."""
    count = -(-len(things) // fan_in)
    ends = [len(things) * i // count for i in range(count + 1)]
    return [list(things[a:b]) for a, b in zip(ends, ends[1:])]


def first_parts(paths: Iterable[StrPath], fan_in: int) -> list[list[str]]:
    """Groups of models for the first tasks; paths are made absolute, since workers may run elsewhere."""
    if fan_in < 2:
        raise ValueError(f"fan_in is {fan_in}: a task merges two models or more")
    names = [os.fspath(path) for path in paths]
    if not names:
        raise OnbeatError("there is no model to merge. Name at least one.")
    return groups([name if "://" in name else os.path.abspath(name) for name in names], fan_in)


def task(*parts: str | Result, last: bool) -> Result:
    """Merges parts; the bytes of the model, or of a part of it unless it is the `last` task. What cannot be merged is a result too: trying again would not help."""
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
    """The path of a part; what is no local file is put beside the task's others."""
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
    """Writes the model under another name, then renames it; raises what a task could not do."""
    if isinstance(result, OnbeatError):
        raise result
    return write_whole(output, result)
