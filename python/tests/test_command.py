"""Functions that call the command: typed answers, and an error for each documented exit code."""

import os
import pickle
import re
import stat
import subprocess
import sys

import pytest
from conftest import ROOT, TRACE

import onbeat
from onbeat._errors import BY_EXIT_CODE

LIMITS = {"chains": [{"chain": "664e", "latency": {"p50": "70ms"}}]}


def fake(tmp_path, monkeypatch, script):
    """A command that does what a script says."""
    path = tmp_path / "onbeat"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("ONBEAT", str(path))


def test_errors_are_those_of_the_documented_exit_codes():
    with open(os.path.join(ROOT, "docs/cli.md"), encoding="utf-8") as file:
        codes = {int(code) for code in re.findall(r"^\| (\d) \|", file.read(), re.MULTILINE)}
    assert codes == {0, *BY_EXIT_CODE}
    with open(os.path.join(ROOT, "docs/how-to/python.md"), encoding="utf-8") as file:
        listed = re.findall(r"^\| `(\w+)` \| (\d):", file.read(), re.MULTILINE)
    assert {int(code): getattr(onbeat, name) for name, code in listed} == BY_EXIT_CODE


def test_a_program_that_uses_only_tables_does_not_import_the_classes_of_models():
    script = ("import sys, onbeat; onbeat.open(sys.argv[1]); late = {'onbeat.schema', 'onbeat.results'};"
              "assert not late & set(sys.modules), late & set(sys.modules);"
              "assert set(onbeat.__all__) <= set(dir(onbeat)) and 'schema' in dir(onbeat);"
              "assert onbeat.schema.Callback.__name__ == 'Callback' and onbeat.results.Check.__name__ == 'Check';"
              "assert all(hasattr(onbeat, name) for name in onbeat.__all__);"
              "assert not hasattr(onbeat, 'nothing')")
    subprocess.run([sys.executable, "-c", script, TRACE], check=True)


@pytest.mark.parametrize("code", [*BY_EXIT_CODE, 77])
def test_an_exit_code_raises_its_error(code, tmp_path, monkeypatch):
    fake(tmp_path, monkeypatch, f"echo 'onbeat: first'>&2; echo 'onbeat: trace: it went wrong. Do this.' >&2; echo note >&2; exit {code}")
    with pytest.raises(onbeat.OnbeatError) as caught:
        onbeat.run("show")
    assert type(caught.value) is BY_EXIT_CODE.get(code, onbeat.CommandFailed)
    assert (str(caught.value), caught.value.exit_code) == ("trace: it went wrong. Do this.", code)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), copy.args, copy.exit_code) == (type(caught.value), caught.value.args, code)


def test_a_killed_command_and_one_that_is_not_there(tmp_path, monkeypatch):
    fake(tmp_path, monkeypatch, "kill -9 $$")
    with pytest.raises(onbeat.CommandKilled, match="ended with -9"):
        onbeat.run("show")
    monkeypatch.setenv("ONBEAT", str(tmp_path / "nowhere"))
    with pytest.raises(onbeat.OnbeatError, match="cannot run .*nowhere"):
        onbeat.check("model.json", "requirements.yaml")


@pytest.mark.parametrize("answer", ["", "{", "[]", '{"verdict": "fine"}'])
def test_an_answer_that_does_not_fit_is_refused(answer, tmp_path, monkeypatch):
    fake(tmp_path, monkeypatch, f"echo '{answer}'")
    with pytest.raises(onbeat.BadFile, match="the answer of onbeat check"):
        onbeat.check("model.json", {})


def test_real_failures_are_one_line_with_the_way_out():
    with pytest.raises(onbeat.CommandFailed) as caught:
        onbeat.model("nowhere")
    assert "nowhere" in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(onbeat.UsageError):
        onbeat.diff("model.json", "model.json", no_such_option=1)
    with pytest.raises(onbeat.NothingFound):
        onbeat.why(TRACE, chain="664e", over_ns=10**10)
    with pytest.raises(onbeat.CommandFailed, match="chain"):
        onbeat.plan("model.json", chain="nochain")
    assert not os.path.exists("plan-of-nothing.yaml")


def test_checks_have_the_three_verdicts():
    passed = onbeat.check("model.json", LIMITS)
    assert (passed.verdict, passed.require()) == ("passed", passed)
    violated = onbeat.check("model.json", {"chains": [{"chain": "664e", "latency": {"max": "80ms"}}]}, trace=TRACE)
    assert violated.verdict == "violated" and violated.findings[0].late
    with pytest.raises(onbeat.PromiseBroken, match="required at most 80 ms"):
        violated.require()
    unknown = onbeat.check("model.json", {"chains": [{"chain": "664e", "latency": {"p99.9": "1s"}}]})
    assert unknown.verdict == "not_known" and unknown.require(accept_not_known=True) is unknown
    with pytest.raises(onbeat.NotKnown):
        unknown.require()


def test_requirements_are_read_from_a_file_too(tmp_path):
    path = tmp_path / "-r.yaml"
    path.write_text("chains:\n- chain: 664e\n  latency: {p50: 70ms}\n")
    os.chdir(tmp_path)
    assert onbeat.check(onbeat.open_trace(os.path.join(ROOT, TRACE)).model, "-r.yaml").passed == 1


def test_a_difference_is_found_and_raised():
    found = onbeat.diff("model.json", "model.json")
    assert not found.changed and found.require_unchanged() is found
    model = onbeat.open_model("model.json")
    text = model._bytes().replace(b'"/lidars/points_fused"', b'"/lidars/points_joined"')
    other = onbeat.Model(content=text)
    changed = onbeat.diff(model, other)
    assert changed.changed and {one.part for one in changed.structure} >= {"edge"}
    with pytest.raises(onbeat.Changed, match="points_"):
        changed.require_unchanged()


def test_stretches_add_up_and_name_their_causes():
    found = onbeat.why(TRACE, chain="664e", all=True)
    assert len(found.executions) == found.count == 200
    for execution in found.executions:
        assert sum(stretch.ns for stretch in execution.stretches) == execution.latency_ns
    assert any(stretch.by and stretch.by.callback for one in found.executions for stretch in one.stretches)
    assert found.comparison and found.comparison.late == sum(one.late for one in found.executions)
    of = onbeat.why(TRACE, callback="p2d_ndt_localizer_node:subscription(/lidars/points_fused_downsampled)", worst=2)
    assert of.of.callback and len(of.executions) == 2


def test_a_plan_is_a_file_and_typed():
    plan = onbeat.plan("model.json", "bands.yaml", chain="664e", bands=2)
    assert os.fspath(plan) == "bands.yaml" and os.path.getsize(plan)
    assert len(plan.promises.bands) == 2 and sum(band.share for band in plan.promises.bands) == pytest.approx(1)
    assert {server.name for server in plan.servers} >= {"gamma", "delta"}
    assert all(0 <= start < end for server in plan.servers for start, end in server.slots_ms)


def test_warnings_of_the_command_are_warnings(tmp_path, monkeypatch):
    fake(tmp_path, monkeypatch, "echo 'onbeat: warning: 3 events are lost.' >&2; echo model")
    with pytest.warns(onbeat.OnbeatWarning, match="3 events are lost"):
        assert onbeat.run("model") == b"model\n"
