"""Functions that ask the `onbeat` command, and return its answer as typed objects."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onbeat._command import EMPTY, OnbeatWarning, StrPath, as_list, as_path, options, run, run_json
from onbeat._decode import decode
from onbeat._model import Model, as_file
from onbeat.results import Check, Diff, Plan, Why

# Exit codes of `check` and `diff` that are answers.
_CHECKED = (0, 5, 6)
_COMPARED = (0, 6, 7)


def model(traces: StrPath | Iterable[StrPath], output: StrPath = "model.json", *words: str, **given: object) -> Model:
    """Makes the model of one or more traces with `onbeat model`, in the file `output`.

    Options are those of the command, as words (`"--mode", "urban"`) or by name (`mode="urban"`).

    >>> import onbeat
    >>> model = onbeat.model("demos/recorded/parking", "urban.json", mode="urban")
    >>> model.runs[0].mode, len(model.callbacks)
    ('urban', 9)
    """
    many = [traces] if isinstance(traces, (str, os.PathLike)) else traces
    run("model", "-o", as_path(output), *words, *options(**given), "--", *map(as_path, many), accept=(0, EMPTY))
    return Model(output)


def merge(models: Iterable[StrPath], output: StrPath = "merged.json") -> Model:
    """Merges models in one process, one after the other, into the file `output`.

    The file is written under another name and then renamed, so a reader never sees half a file.

    >>> import onbeat
    >>> onbeat.merge(["model.json"], "all.json")
    <Model all.json>
    """
    run("merge", "-o", as_path(output), "--list", "-", stdin=as_list(models), accept=(0, EMPTY))
    return Model(output)


def check(model: StrPath | Model, requirements: StrPath | Mapping[str, Any], *, trace: StrPath | None = None) -> Check:
    """Checks a model against requirements: a file, or its content as dictionaries and lists.

    With `trace`, the findings say what made executions late, and why items were lost. `Check.require` raises an
    error if a requirement does not hold. docs/requirements-format.md lists all requirements.

    >>> import onbeat
    >>> found = onbeat.check("model.json", {"chains": [{"chain": "664e", "latency": {"p50": "70ms", "max": "10ms"}}]})
    >>> [(finding.limit, finding.verdict) for finding in found.findings]
    [('at most 70 ms', 'passed'), ('at most 10 ms', 'violated')]
    >>> found.violated
    1
    """
    with as_file(model) as path, _requirements(requirements) as limits:
        words = options(trace=trace)
        value = run_json("check", "--json", *words, "--", as_path(path), as_path(limits), accept=_CHECKED)
    return decode(Check, value, "the answer of onbeat check")


@contextmanager
def _requirements(given: StrPath | Mapping[str, Any]) -> Iterator[str]:
    """Gives the path of requirements. Content is written to a file for the time of the block."""
    if isinstance(given, (str, os.PathLike)):
        yield os.fspath(given)
        return
    with tempfile.TemporaryDirectory(prefix="onbeat-") as folder:
        path = os.path.join(folder, "requirements.yaml")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(given, file)
        yield path


def diff(a: StrPath | Model, b: StrPath | Model, **given: object) -> Diff:
    """Compares two models: changes in structure and in times.

    Options are those of `onbeat diff`, by name: `min_effect="2%"`, `min_us=50`, `mode="urban"`, `trace="after"`.
    `Diff.require_unchanged` raises an error if something changed.

    >>> import onbeat
    >>> found = onbeat.diff("model.json", "model.json", min_effect="2%")
    >>> found.changed, found.compared > 20
    (False, True)
    """
    with as_file(a) as one, as_file(b) as other:
        words = options(**given)
        value = run_json("diff", "--json", *words, "--", as_path(one), as_path(other), accept=_COMPARED)
    return decode(Diff, value, "the answer of onbeat diff")


def why(
    trace: StrPath,
    *,
    chain: str | None = None,
    callback: str | None = None,
    from_: str | None = None,
    to: str | None = None,
    worst: int | None = None,
    over_ns: int | None = None,
    at: str | None = None,
    all: bool = False,
) -> Why:
    """Cuts the latency of executions into stretches with their causes, and compares late executions with the others.

    Without `chain`, `callback`, or `from_` and `to`: the chain with the longest latency. `worst` (5) is the number of
    executions to explain. `over_ns` chooses those that took longer, and is the limit above which executions are
    late. `at` chooses those at a time (`"12.5s"`, `"14:03:07"` UTC), `all` chooses all. An answer has at most 10,000
    executions; `Why.left_out` is the number of others.

    >>> import onbeat
    >>> found = onbeat.why("demos/recorded/parking", chain="664e", worst=1)
    >>> worst = found.executions[0]
    >>> f"{worst.latency_ns / 1e6:.1f} ms in {len(worst.stretches)} stretches, {found.comparison.late} are late"
    '88.0 ms in 75 stretches, 10 are late'
    >>> sum(stretch.ns for stretch in worst.stretches) == worst.latency_ns
    True
    """
    over = None if over_ns is None else f"{over_ns / 1000:.3f}us"
    words = options(chain=chain, callback=callback, from_=from_, to=to, worst=worst, over=over, at=at, all=all)
    value = run_json("why", "--json", *words, "--", as_path(trace))
    found = decode(Why, value, "the answer of onbeat why")
    if found.left_out:
        kept = len(found.executions)
        warnings.warn(f"{found.left_out} of {found.left_out + kept} chosen executions are left out, because one answer"
                      f" has at most {kept}. The table `stretches` of the trace has all executions of chains.",
                      OnbeatWarning, stacklevel=2)
    return found


def plan(model: StrPath | Model, output: StrPath = "plan.yaml", **given: object) -> Plan:
    """Plans reservations and latency bands for a chain, and writes the plan to the file `output`.

    Options are those of `onbeat plan`, by name: `chain="664e"`, `bands="auto"`, `miss="1e-3"`, `cpu=[1, "/fusion=2"]`.
    An impossible plan raises CommandFailed, whose message has the figures and the way out.

    >>> import onbeat
    >>> plan = onbeat.plan("model.json", chain="664e", bands=1)
    >>> plan.cycle_ms, len(plan.promises.bands)
    (100.0, 1)
    """
    with as_file(model) as path:
        value = run_json("plan", "--json", "-o", as_path(output), *options(**given), "--", as_path(path))
    made = decode(Plan, value, "the answer of onbeat plan")
    object.__setattr__(made, "path", Path(output))
    return made
