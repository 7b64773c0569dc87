"""A pytest plugin: the fixture `onbeat` records a program or a launch test, and asserts requirements.

    def test_timing(onbeat):
        onbeat.record("launch_test", "test/pipeline.test.py")
        onbeat.check("requirements.yaml")

pytest finds the plugin where this package is installed. Traces and models stay in the test's `tmp_path`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from onbeat import _questions
from onbeat._command import StrPath
from onbeat._errors import OnbeatError, RecordedCommandFailed
from onbeat._model import Model
from onbeat._record import record
from onbeat._tables import Trace
from onbeat.results import Check


class OnbeatSession:
    """The recordings of one test, and what they must keep."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.traces: list[Trace] = []
        self._model: Model | None = None

    def record(self, *words: StrPath, timeout_s: float = 600, **given: Any) -> Trace:
        """Records a command until it ends, and returns the trace. The test fails if the command fails, or exceeds `timeout_s`.

        Options are those of `onbeat.record`: `preload=True`, `duration_s=30`, `mode="urban"`. Several recordings of
        a test are runs of one model.
        """
        __tracebackhide__ = True
        if not words:
            raise TypeError("record needs a command: onbeat.record('launch_test', 'test/pipeline.test.py')")
        path = self.folder / f"trace-{len(self.traces) + 1}"
        failure = None
        with record(path, *words, **given) as recording:
            try:
                recording.wait(timeout_s)
            except RecordedCommandFailed as error:
                failure = f"{words[0]}: {error}"
            except TimeoutError:
                failure = f"{words[0]} did not end within {timeout_s:g} s. Its trace is in {path}."
                with suppress(OnbeatError):
                    recording.stop()
        if failure is not None:
            pytest.fail(failure, pytrace=False)
        trace = recording.trace
        self.traces.append(trace)
        self._model = None
        return trace

    @property
    def trace(self) -> Trace:
        """The latest trace."""
        if not self.traces:
            raise OnbeatError("nothing was recorded yet. Call onbeat.record first.")
        return self.traces[-1]

    @property
    def model(self) -> Model:
        """The model of all recordings of this test."""
        if self._model is None:
            traces = self.traces or [self.trace]
            self._model = _questions.model(traces, self.folder / "model.json")
        return self._model

    def check(self, requirements: StrPath | Mapping[str, Any], *, accept_not_known: bool = False) -> Check:
        """Fails the test with a line for each requirement that does not hold, and for each that is not known.

        `accept_not_known` accepts those that the recordings are too short to decide.
        """
        __tracebackhide__ = True
        # The command explains what was late only for a single trace.
        trace = self.trace if len(self.traces) == 1 else None
        found = _questions.check(self.model, requirements, trace=trace)
        failed = [one for one in found.findings if one.verdict == "violated"]
        if not accept_not_known:
            failed += [one for one in found.findings if one.verdict == "not_known"]
        if failed:
            lines = [*map(str, failed), f"Model: {self.model.path}"]
            pytest.fail("\n".join(lines), pytrace=False)
        return found


@pytest.fixture
def onbeat(tmp_path: Path) -> OnbeatSession:
    """Records programs and launch tests, and asserts requirements: `onbeat.record(...)`, `onbeat.check(...)`."""
    return OnbeatSession(tmp_path)
