"""Runs the `onbeat` command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import warnings
from collections.abc import Iterable
from typing import Any

from onbeat._decode import parse
from onbeat._errors import OnbeatError, error_of

StrPath = str | os.PathLike[str]

# Exit code of a result that is there, but empty.
EMPTY = 3


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
    """Runs `onbeat WORDS` and returns its standard output. Raises an OnbeatError for an exit code not in `accept`.

    >>> import onbeat
    >>> onbeat.run("--version").decode().split()[0]
    'onbeat'
    """
    line = [command(), *(os.fspath(word) for word in words)]
    try:
        if stdin is None:
            done = subprocess.run(line, capture_output=True, check=False, stdin=subprocess.DEVNULL)
        else:
            done = subprocess.run(line, capture_output=True, check=False, input=stdin)
    except OSError as error:
        raise cannot_run(line[0], error) from error
    if done.returncode not in accept:
        raise error_of(said_or_ended(done.stderr, line, done.returncode), done.returncode)
    pass_on_warnings(done.stderr)
    return done.stdout


def run_json(*words: StrPath, accept: Iterable[int] = (0,)) -> Any:
    """Runs `onbeat WORDS`, which prints JSON, and returns the value."""
    return parse(run(*words, accept=accept), f"the answer of onbeat {os.fspath(words[0])}")


class OnbeatWarning(UserWarning):
    """A warning of the command, for example about lost events."""


def pass_on_warnings(stderr: bytes) -> None:
    """Passes the warnings of the command on to Python's."""
    for line in stderr.decode(errors="replace").splitlines():
        if line.startswith("onbeat: warning: "):
            warnings.warn(line.removeprefix("onbeat: warning: "), OnbeatWarning, stacklevel=4)


def cannot_run(program: str, error: OSError) -> OnbeatError:
    """Returns the error of a command that does not start."""
    return OnbeatError(f"cannot run {program}: {error.strerror}. Set ONBEAT to the path of the command onbeat.")


def said_or_ended(stderr: bytes, line: list[str], exit_code: int) -> str:
    """Returns the line with which the command failed, without its name; else how it ended."""
    lines = stderr.decode(errors="replace").strip().splitlines()
    errors = [one for one in lines if one.startswith(("onbeat: ", "error: "))]
    if not lines:
        return f"onbeat {line[1] if line[1:] else ''} ended with {exit_code}"
    return (errors or lines)[-1].removeprefix("onbeat: ")


def as_list(paths: Iterable[StrPath]) -> bytes:
    """Returns the paths in the form that `onbeat merge --list` reads: one per line."""
    names = [os.fsencode(path) for path in paths]
    for name in names:
        if b"\n" in name or not name:
            raise OnbeatError(f"{os.fsdecode(name)!r} is not the path of a model: it is empty, or has a line break")
    return b"".join(name + b"\n" for name in names)


def merged(paths: Iterable[StrPath], compact: bool) -> bytes:
    """Merges models and returns the JSON of the result. `compact` leaves out white space, for further merges."""
    options = ["--compact"] if compact else []
    return run("merge", "-o", "-", "--list", "-", *options, stdin=as_list(paths), accept=(0, EMPTY))


def as_path(path: StrPath) -> str:
    """Returns a path that no command takes for an option or for its standard output."""
    text = os.fspath(path)
    return os.path.join(".", text) if text.startswith("-") else text


def options(**given: object) -> list[str]:
    """Returns options of the command for keyword arguments. None and False are left out, a list repeats the option.

    >>> options(min_effect="2%", absolute=True, mode=None, cpu=[1, 2])
    ['--min-effect=2%', '--absolute', '--cpu=1', '--cpu=2']
    """
    words: list[str] = []
    for name, value in given.items():
        option = "--" + name.rstrip("_").replace("_", "-")
        if value is True:
            words.append(option)
        elif isinstance(value, (list, tuple)):
            words += [f"{option}={one}" for one in value]
        elif value is not None and value is not False:
            words.append(f"{option}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
    return words
