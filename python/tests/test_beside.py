"""scripts/beside asks onbeat the question that it asks other analyses: the answer is the session's own timing."""

import importlib
import os
import re
import textwrap

import pytest
from conftest import ROOT

CYCLES = 50


@pytest.mark.parametrize("frames", ["pandas", "polars"])
def test_the_answer_has_the_durations_and_latencies_that_the_session_was_written_with(frames, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(os.path.join(ROOT, "scripts/beside"))
    written = importlib.import_module("session").write(str(tmp_path / "session/ust"), CYCLES)
    assert written == 23 + 10 * CYCLES
    durations, latencies = importlib.import_module(f"with_onbeat_and_{frames}").answer(str(tmp_path / "session"))
    loads = [n * 7919 % 1000 * 100 for n in range(CYCLES)]
    assert sorted(sorted(one) for one in durations) == sorted([
        sorted(110_000 + load for load in loads), sorted(80_000 + 2 * load for load in loads)])
    assert sorted(latencies) == sorted(350_000 + 3 * load for load in loads)


@pytest.mark.parametrize("name", ["onbeat_and_pandas", "caret", "tracetools_analysis"])
def test_the_page_shows_the_code_that_is_measured(name):
    with open(os.path.join(ROOT, f"scripts/beside/with_{name}.py"), encoding="utf-8") as file:
        body = re.search(r'chain\."""\n(.*?)^    return ', file.read(), re.DOTALL | re.MULTILINE)[1]
    body = textwrap.dedent(body).replace('session + ".imported"', '"imported"')
    shown = re.sub(r"\bsession\b", '"session"', body)
    with open(os.path.join(ROOT, "docs/how-to/python.md"), encoding="utf-8") as file:
        page = file.read()
    assert f"```\n{shown}```" in page.replace("```python\n", "```\n")
    counts = re.search(r"^\| statements of Python .*$", page, re.MULTILINE)[0].split("|")[2:]
    column = ["onbeat_and_polars", "onbeat_and_pandas", "tracetools_analysis", "caret"].index(name)
    assert int(counts[column]) == len(shown.splitlines())
