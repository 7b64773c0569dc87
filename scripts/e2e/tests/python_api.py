"""The Python package records ROS 2 applications: by its pytest fixture, and as a context manager."""

import glob
import json
import os
import shutil
import subprocess

from compare import expect_all
from harness import CASES, ONBEAT, ROOT, WATCHDOG_S, load
from registry import WAITING_TEST, Mismatch, Skip, need, test

# A launch test of a user: records, and asserts requirements of which one does not hold.
USERS_TEST = """
def test_timing(onbeat):
    trace = onbeat.record(*{command!r}, preload=True, timeout_s=120)
    assert trace.executions.num_rows == sum(callback.exec_ns.count + callback.untimed for callback in onbeat.model.callbacks)
    onbeat.check({{"structure": {{"writers": {{"/nowhere": []}}}}}})

def test_limit(onbeat):
    onbeat.record(*{command!r}[:-1], {other!r}, preload=True, timeout_s=120)
    onbeat.check({{"callbacks": [{{"node": {node!r}, "execution": {{"max": "1us"}}}}]}})
"""
# Attaches to an application that runs, for some seconds, and prints what it saw.
ATTACHES = """
import json, os, signal, subprocess, sys, time
import onbeat
application = subprocess.Popen(sys.argv[2:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               start_new_session=True)
time.sleep(3)
try:
    with onbeat.record(sys.argv[1]) as recording:
        begin = time.monotonic()
        time.sleep(4)
        length = time.monotonic() - begin
    trace = recording.trace
    # Other applications of the machine are in the trace, too.
    starts = [row["start_ns"] for row in trace.executions.to_pylist() if row["callback"].startswith("/twin")]
    print(json.dumps([length, (max(starts) - min(starts)) / 1e9, trace.runs["complete"].to_pylist()]))
except onbeat.NotPermitted as error:
    print("refused", error)
finally:
    os.killpg(application.pid, signal.SIGKILL)
    application.wait()
"""


def python_of_tests():
    """The interpreter that has pytest and pyarrow."""
    done = subprocess.run([os.path.join(ROOT, "dev"), "python-env"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skip(f"pytest and pyarrow cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    return os.path.join(done.stdout.strip(), "bin/python")


def run(harness, *words):
    """Runs the Python of the tests with the package; the finished process."""
    variables = {**os.environ, "ONBEAT": ONBEAT, "PYTHONPATH": os.path.join(ROOT, "python")}
    return subprocess.run([python_of_tests(), *words], capture_output=True, text=True, check=False,
                          cwd=harness.work, env=variables, timeout=WATCHDOG_S)


@test(places=WAITING_TEST)
def python_api_pytest_plugin_fails_a_test_that_exceeds_a_limit(harness):
    """A user's pytest records an application without root; its model is that of the truth, and a limit fails."""
    truth, work = harness.new_file("pytest.truth.json"), harness.file("pytest_work")
    command = [harness.python("kilted"), CASES, "same-name", "--quiet", "--truth", truth]
    path = harness.new_file("test_of_a_user.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(USERS_TEST.format(command=command, node="/twin", other=truth + ".other"))
    done = run(harness, "-m", "pytest", "-p", "onbeat.pytest_plugin", "-q", "--basetemp", work, path)
    said = done.stdout[-3000:]
    need("1 failed, 1 passed" in said, f"{said}{done.stderr[-1000:]}")
    need("execution.max is violated, required at most 1 us" in said, said)
    models = glob.glob(os.path.join(work, "test_timing0/model.json"))
    need(len(models) == 1, f"models: {models}")
    expect_all(harness, harness.truth(truth), load(models[0]))


@test(places=WAITING_TEST)
def python_api_records_a_running_program_while_its_block_runs(harness):
    """`with onbeat.record(...)` attaches to what runs, and records the time of its block."""
    truth, trace = harness.new_file("attach.truth.json"), harness.file("attach.trace")
    shutil.rmtree(trace, ignore_errors=True)
    command = [harness.python("kilted"), CASES, "same-name", "--quiet", "--truth", truth]
    if os.geteuid() != 0:
        raise Skip("recording a process that already runs needs root")
    done = run(harness, "-c", ATTACHES, trace, *command)
    if done.stdout.startswith("refused"):
        raise Skip(done.stdout.strip())
    if done.returncode:
        raise Mismatch(done.stderr[-2000:])
    length, seen, complete = json.loads(done.stdout)
    need(complete == [True], "the recording did not end properly")
    # Timers of 100 ms at most; the recorder attached before the block.
    need(length - 1 < seen < length + 2, f"the block took {length:.2f} s, the executions span {seen:.2f} s")
