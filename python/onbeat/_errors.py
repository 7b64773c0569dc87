"""Errors of the command and of this package. The exit codes are those of docs/cli.md."""

from __future__ import annotations


class OnbeatError(RuntimeError):
    """Something failed. `message` is one line with the way out; `exit_code` is that of the command, else 1.

    >>> import onbeat
    >>> try:
    ...     onbeat.model("no-such-trace")
    ... except onbeat.OnbeatError as error:
    ...     print(type(error).__name__, error.exit_code)
    CommandFailed 1
    """

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message, exit_code)
        self.message = message
        self.exit_code = exit_code

    def __str__(self) -> str:
        return self.message


class CommandFailed(OnbeatError):
    """Exit code 1: the command failed, or the requested plan is impossible."""


class UsageError(OnbeatError):
    """Exit code 2: an argument is wrong."""


class NothingFound(OnbeatError):
    """Exit code 3: the result is empty. The trace has no callback, or no execution was found."""


class NotPermitted(OnbeatError):
    """Exit code 4: this kernel or user cannot record or shape."""


class PromiseBroken(OnbeatError):
    """Exit code 5: a promise of a plan was broken, or a requirement is violated."""


class NotKnown(OnbeatError):
    """Exit code 6: the model does not suffice to decide a requirement, or nothing could be compared."""


class Changed(OnbeatError):
    """Exit code 7: something changed between two models."""


class CommandKilled(OnbeatError):
    """A signal ended the command. `exit_code` is minus the signal's number."""


class RecordedCommandFailed(OnbeatError):
    """The recorded command ended with an exit code that is not 0. The trace is complete."""


class BadFile(OnbeatError):
    """A file or an answer of the command is damaged, or of another version."""


class MissingPackage(OnbeatError, ImportError):
    """A Python package is missing that an optional part of onbeat needs. `name` is the package's name."""

    def __init__(self, message: str, exit_code: int = 1, name: str | None = None) -> None:
        super().__init__(message, exit_code)
        self.name = name


BY_EXIT_CODE: dict[int, type[OnbeatError]] = {
    1: CommandFailed, 2: UsageError, 3: NothingFound, 4: NotPermitted, 5: PromiseBroken, 6: NotKnown, 7: Changed,
}


def error_of(message: str, exit_code: int) -> OnbeatError:
    """Returns the error of an exit code."""
    if exit_code < 0:
        return CommandKilled(message, exit_code)
    return BY_EXIT_CODE.get(exit_code, CommandFailed)(message, exit_code)
