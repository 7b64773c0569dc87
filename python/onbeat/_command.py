"""Runs the `onbeat` command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable
from pathlib import Path

StrPath = str | os.PathLike[str]

# The exit code of a command that made a model without a callback.
_EMPTY = 3


class OnbeatError(RuntimeError):
    """An error of the command `onbeat`. Its text is the last line that the command printed."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message, exit_code)
        self.message = message
        self.exit_code = exit_code

    def __str__(self) -> str:
        return self.message


def command() -> str:
    """Returns the path of the command: `$ONBEAT`, else that of this package, else the one on the search path."""
    if named := os.environ.get("ONBEAT"):
        return named
    own = os.path.join(sysconfig.get_path("scripts"), "onbeat")
    found = own if os.access(own, os.X_OK) else shutil.which("onbeat")
    if found is None:
        raise OnbeatError("the command onbeat is not installed: install this package's wheel, or set ONBEAT to its path")
    return found


def run(*words: StrPath, stdin: bytes | None = None, accept: Iterable[int] = (0,)) -> bytes:
    """Runs `onbeat WORDS` and returns its standard output. Raises OnbeatError for an exit code not in `accept`."""
    line = [command(), *map(os.fspath, words)]
    given = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    try:
        done = subprocess.run(line, capture_output=True, check=False, **given)
    except OSError as error:
        raise OnbeatError(f"cannot run {line[0]}: {error.strerror}") from error
    if done.returncode not in accept:
        said = done.stderr.decode(errors="replace").strip()
        ended = f"onbeat {line[1] if line[1:] else ''} ended with {done.returncode}"
        raise OnbeatError(said.splitlines()[-1] if said else ended, done.returncode)
    return done.stdout


def model(traces: StrPath | Iterable[StrPath], output: StrPath = "model.json", *options: str) -> Path:
    """Makes the model of one or more traces with `onbeat model`, and returns its path.

    `options` are those of the command, for example `"--mode", "urban"`.
    """
    many = [traces] if isinstance(traces, (str, os.PathLike)) else traces
    run("model", "-o", _as_file(output), *options, "--", *map(_as_file, many), accept=(0, _EMPTY))
    return Path(output)


def merge(paths: Iterable[StrPath], output: StrPath = "merged.json") -> Path:
    """Merges models in one process, one after the other, and returns the path of the merged model.

    The model is written under another name and then renamed, so a reader never sees half a file.
    """
    run("merge", "-o", _as_file(output), "--list", "-", stdin=as_list(paths), accept=(0, _EMPTY))
    return Path(output)


def merged(paths: Iterable[StrPath], compact: bool) -> bytes:
    """Merges models and returns the JSON of the result. `compact` leaves out white space, for further merges."""
    options = ["--compact"] if compact else []
    return run("merge", "-o", "-", "--list", "-", *options, stdin=as_list(paths), accept=(0, _EMPTY))


def as_list(paths: Iterable[StrPath]) -> bytes:
    """Returns the paths in the form that `onbeat merge --list` reads: one per line."""
    names = [os.fsencode(path) for path in paths]
    for name in names:
        if b"\n" in name or not name:
            raise OnbeatError(f"{os.fsdecode(name)!r} is not the path of a model: it is empty, or has a line break")
    return b"".join(name + b"\n" for name in names)


def _as_file(path: StrPath) -> str:
    """Returns a path that no command takes for an option or for its standard output."""
    text = os.fspath(path)
    return os.path.join(".", text) if text.startswith("-") else text
