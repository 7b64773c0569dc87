"""Recording, as a context manager."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

from onbeat._command import EMPTY, StrPath, as_path, cannot_run, command, options, pass_on_warnings, said_or_ended
from onbeat._errors import CommandFailed, OnbeatError, RecordedCommandFailed, UsageError, error_of
from onbeat._tables import Trace

# Attaching all probes takes seconds on a busy machine.
_READY_WITHIN_S = 60.0
_POLL_S = 0.02
_COMMAND_ENDED = "note: the command ended with status "


class Recording:
    """A running recording. Use it as a context manager: it ends with its block.

    A recording of a command ends with the command, or with its block, which then asks the command to end (SIGINT).
    """

    def __init__(self, line: list[str], path: Path, has_command: bool) -> None:
        self.path = path
        self._line = line
        self._stderr = tempfile.TemporaryFile()
        self._has_command = has_command
        self._exit_code: int | None = None
        try:
            # A group of its own: Ctrl-C must not reach the recorder and the command twice.
            self._process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stderr=self._stderr, start_new_session=True)
        except OSError as error:
            self._stderr.close()
            raise cannot_run(line[0], error) from error

    def __repr__(self) -> str:
        return f"<Recording {self.path}, {'running' if self._process.poll() is None else 'ended'}>"

    @property
    def trace(self) -> Trace:
        """The trace. It is complete when the recording has ended."""
        return Trace(self.path)

    def wait(self, timeout_s: float | None = None) -> Trace:
        """Waits until the recording ends by itself: after its command, or its duration. Returns the trace.

        A TimeoutError means that it goes on. A command that failed raises RecordedCommandFailed.
        """
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the recording {self.path} has not ended within {timeout_s} s") from None
        return self._ended(is_asked=False)

    def stop(self, timeout_s: float = 60) -> Trace:
        """Ends the recording properly, and returns the trace.

        The recorder asks its command to end. If recorder or command still run after `timeout_s`, they are killed.
        """
        is_asked = self._process.poll() is None
        if is_asked:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise OnbeatError(f"the recording {self.path} did not end within {timeout_s} s, and was killed. onbeat.open"
                              " reads its data up to the last two seconds.") from None
        return self._ended(is_asked)

    def kill(self) -> None:
        """Kills the recorder, and its command. The trace lacks at most the last two seconds."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._stderr.close()

    def _said(self) -> bytes:
        if self._stderr.closed:
            return b""
        self._stderr.seek(0)
        return self._stderr.read()

    def _ended(self, is_asked: bool) -> Trace:
        """Raises the error with which the recorder ended, or returns the trace."""
        if self._exit_code is not None:
            return self.trace
        exit_code = self._exit_code = self._process.returncode
        said = self._said()
        self._stderr.close()
        if _COMMAND_ENDED.encode() in said:
            # A command that was asked to end may say so by its exit code.
            if not is_asked:
                raise RecordedCommandFailed(f"the recorded command ended with exit code {exit_code}. Its trace is in"
                                            f" {self.path}.", exit_code)
        elif exit_code == EMPTY:
            raise error_of(f"no ROS 2 process was seen while {self.path} was recorded. Check that one is running.", EMPTY)
        elif exit_code != 0:
            raise error_of(said_or_ended(said, self._line, exit_code), exit_code)
        pass_on_warnings(said)
        return self.trace

    def _await_probes(self) -> None:
        """Waits until the recorder has attached its probes, because it misses calls before that."""
        deadline = time.monotonic() + _READY_WITHIN_S
        while not self._is_probing():
            if self._process.poll() is not None:
                self._ended(is_asked=False)
                raise OnbeatError(f"the recording {self.path} ended before it began.")
            if time.monotonic() > deadline:
                self.kill()
                raise OnbeatError(f"onbeat record did not begin within {_READY_WITHIN_S:.0f} s.")
            time.sleep(_POLL_S)

    def _is_probing(self) -> bool:
        try:
            manifest = json.loads((self.path / "manifest.json").read_bytes())
        except (OSError, ValueError):
            return False
        return bool(manifest.get("probes"))

    def __enter__(self) -> Recording:
        if not self._has_command:
            self._await_probes()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self._exit_code is not None or self._stderr.closed:
            return
        try:
            self.stop()
        except OnbeatError:
            # The error in the block comes first.
            if kind is None:
                raise


def record(
    output: StrPath = "trace",
    *words: StrPath,
    preload: bool = False,
    duration_s: float | None = None,
    mode: str | None = None,
    **given: object,
) -> Recording:
    """Starts a recording into the directory `output`: of everything that runs, or of the command `words`.

    `preload` records a command without any privilege, through a library that is loaded into it. Other recordings
    need root, or NotPermitted is raised. `duration_s` ends the recording after this time. Other options of `onbeat
    record` are arguments of the same name: `pid=[4711]`, `all_threads=True`, `keep=10`.

        with onbeat.record("trace", duration_s=60) as recording:      # as root: everything that runs
            ...                                                       # probes are in place here
        recording.trace.chain_executions

        with onbeat.record("trace", "ros2", "launch", "my_robot", "all.launch.py", preload=True) as recording:
            recording.wait()                                          # until the command ends

    The directory must not exist, or be empty.
    """
    path = Path(output)
    if preload and not words:
        raise UsageError("preload=True records a command. Name the command after the directory.", 2)
    if (path / "manifest.json").exists():
        # Recordings of everything have begun when there is a manifest.
        raise CommandFailed(f"{path} already holds a trace. Choose another directory, or remove this one.")
    duration = None if duration_s is None else f"{round(duration_s * 1000)}ms"
    line = [command(), "record", "-o", as_path(path), *options(preload=preload, duration=duration, mode=mode, **given)]
    if words:
        line += ["--", *(os.fspath(word) for word in words)]
    return Recording(line, path, bool(words))

