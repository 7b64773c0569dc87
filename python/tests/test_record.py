"""Recording, the pytest plugin and `ros2 onbeat`, without ROS 2. The end-to-end test `python_api` has the rest."""

import os
import stat
import subprocess
import sys

import pytest
from conftest import ROOT, TRACE

import onbeat

REAL = os.path.abspath(onbeat.command())
# `record` copies the recorded trace and runs the command; other commands are the real one's.
DOUBLE = f"""#!/bin/sh
[ "$1" = record ] || exec '{REAL}' "$@"
shift
while [ $# -gt 0 ]; do
  case $1 in
    -o) output=$2; shift ;;
    --) shift; break ;;
    *) echo "$1" >> "$output.options" ;;
  esac
  shift
done
cp -r '{os.path.join(ROOT, TRACE)}' "$output"
[ $# -gt 0 ] || {{ trap 'exit 0' INT; sleep 60 & wait; }}
"$@" & child=$!
trap 'kill $child' INT
wait $child || {{ code=$?; echo "note: the command ended with status $code." >&2; exit $code; }}
"""


@pytest.fixture
def double(tmp_path, monkeypatch):
    """A command that records nothing."""
    path = tmp_path / "onbeat"
    path.write_text(DOUBLE)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("ONBEAT", str(path))


def test_a_program_without_ros_2_is_not_a_recording(tmp_path):
    with pytest.raises(onbeat.NothingFound, match="no ROS 2 process"):
        with onbeat.record(tmp_path / "t", "true", preload=True) as recording:
            recording.wait(60)


def test_a_failed_command_is_said_with_its_code(tmp_path):
    with onbeat.record(tmp_path / "t", "sh", "-c", "exit 7", preload=True) as recording:
        with pytest.raises(onbeat.RecordedCommandFailed, match="exit code 7") as caught:
            recording.wait(60)
    assert caught.value.exit_code == 7 and os.path.exists(recording.trace.path / "manifest.json")


def test_a_directory_that_is_taken_and_wrong_options(tmp_path):
    with pytest.raises(onbeat.CommandFailed) as caught:
        onbeat.record("demos", "true", preload=True).wait(60)
    assert "demos" in str(caught.value) and "\n" not in str(caught.value)
    for words in (["true"], []):
        with pytest.raises(onbeat.CommandFailed, match="already holds a trace"):
            onbeat.record(TRACE, *words)
    with pytest.raises(onbeat.UsageError, match="Name the command"):
        onbeat.record(tmp_path / "t", preload=True)
    with pytest.raises(onbeat.UsageError):
        onbeat.record(tmp_path / "t", "true", no_such_option=1).wait(60)


def test_the_block_ends_a_command_that_goes_on(tmp_path):
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    script = f"trap 'touch {ended}; exit 0' INT; touch {begun}; while :; do sleep 0.1; done"
    with onbeat.record(tmp_path / "t", "sh", "-c", script, preload=True) as recording:
        while not begun.exists():
            with pytest.raises(TimeoutError, match="has not ended within"):
                recording.wait(0.1)
        with pytest.raises(onbeat.NothingFound):
            recording.stop()
    assert ended.exists()


def test_an_error_in_the_block_comes_first_and_the_recording_ends(tmp_path):
    with pytest.raises(ZeroDivisionError):
        with onbeat.record(tmp_path / "t", "sleep", "60", preload=True) as recording:
            _ = 1 / 0
    assert recording._process.poll() is not None


def test_a_recording_of_everything_begins_with_its_probes(double, tmp_path):
    with onbeat.record(tmp_path / "t", duration_s=2.5, pid=[1, 2], mode="urban") as recording:
        assert recording.trace.runs.num_rows == 1
    options = (tmp_path / "t.options").read_text().split()
    assert options == ["--duration=2500ms", "--mode=urban", "--pid=1", "--pid=2"]


PASSES = """
def test_timing(onbeat):
    trace = onbeat.record("true", preload=True)
    assert trace.executions.num_rows
    onbeat.check({"chains": [{"chain": "664e", "latency": {"p50": "70ms"}}]})
    onbeat.check({"chains": [{"chain": "664e", "latency": {"p99.9": "1s"}}]}, accept_not_known=True)
"""
FAILS = """
import pytest

@pytest.mark.parametrize("limit", ["{max: 10ms}", "{p99.9: 1s}"])
def test_limit(onbeat, limit, tmp_path):
    onbeat.record("true")
    path = tmp_path / "r.yaml"
    path.write_text("chains: [{chain: 664e, latency: " + limit + "}]")
    onbeat.check(path)

def test_command(onbeat):
    onbeat.record("sh", "-c", "exit 3")

def test_endless(onbeat):
    onbeat.record("sleep", "60", timeout_s=0.5)

def test_order(onbeat):
    onbeat.check({})
"""


def test_the_plugin_asserts_requirements(double, pytester):
    pytester.makepyfile(PASSES)
    pytester.runpytest("-p", "onbeat.pytest_plugin").assert_outcomes(passed=1)


def test_the_plugin_fails_a_test_with_the_reason(double, pytester):
    pytester.makepyfile(FAILS)
    result = pytester.runpytest("-p", "onbeat.pytest_plugin")
    result.assert_outcomes(failed=5)
    result.stdout.fnmatch_lines([
        "*chains*latency.max is violated, required at most 10 ms*", "*Model: *model.json",
        "*is not known*", "sh: the recorded command ended with exit code 3*",
        "sleep did not end within 0.5 s*", "*nothing was recorded yet*"])
    assert "Traceback" not in result.stdout.str()


# What ros2cli does with an extension; the class of its own is used where it is installed.
ROS2 = """
import argparse, sys, types
try:
    import ros2cli.command
except ImportError:
    stand_in = types.ModuleType("ros2cli.command")
    stand_in.CommandExtension = type("CommandExtension", (), {})
    sys.modules["ros2cli"], sys.modules["ros2cli.command"] = types.ModuleType("ros2cli"), stand_in
from onbeat.ros2 import OnbeatCommand

parser = argparse.ArgumentParser(prog="ros2")
of = parser.add_subparsers().add_parser("onbeat", description=OnbeatCommand.__doc__)
extension = OnbeatCommand()
extension.add_arguments(of, "ros2 onbeat", argv=sys.argv[1:])
sys.exit(extension.main(parser=parser, args=parser.parse_args()))
"""


def ros2(*words):
    """`ros2 WORDS`, with onbeat's extension only."""
    return subprocess.run([sys.executable, "-c", ROS2, *words], capture_output=True, text=True, check=False)


def test_ros2_onbeat_becomes_the_command(tmp_path, monkeypatch):
    done = ros2("onbeat")
    assert done.returncode == 0 and "record  Record a running ROS 2 system" in done.stdout
    assert "usage: ros2 onbeat" in ros2("onbeat", "-h").stdout
    assert "Usage: onbeat why" in ros2("onbeat", "why", "--help").stdout
    assert ros2("onbeat", "why", TRACE, "--chain=664e", "--over", "20s").returncode == 3
    assert ros2("onbeat", "model", TRACE, "-o", str(tmp_path / "m.json")).returncode == 0
    assert onbeat.open_model(tmp_path / "m.json").runs
    wrong = ros2("onbeat", "wat")
    assert wrong.returncode == 2 and "invalid choice: 'wat'" in wrong.stderr
    monkeypatch.setenv("ONBEAT", str(tmp_path / "echo"))
    assert "Set ONBEAT" in ros2("onbeat", "top").stderr
    (tmp_path / "echo").symlink_to("/bin/echo")
    done = ros2("onbeat", "record", "-o", "x", "--preload", "--", "ros2", "run", "-h", "--", "a")
    assert done.stdout == "record -o x --preload -- ros2 run -h -- a\n"
