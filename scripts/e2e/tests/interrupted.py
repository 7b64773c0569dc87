"""The harness itself: a run that is interrupted leaves no recorder and no application behind."""

import os
import signal
import subprocess
import sys
import time

from harness import ONBEAT, ROOT
from registry import WAITING_TEST, Mismatch, need, register, test
from supervise import command, descendants

RUNNER = os.path.join(ROOT, "scripts/e2e")
# Programs that a careless test would leave: in a session of its own, orphaned, deaf to SIGTERM.
STUBBORN = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if os.fork():
    os._exit(0)
os.setsid()
open(sys.argv[1], 'w').write('there')
time.sleep(600)
"""
# More than processes have to end by themselves, also on a slow machine.
ENDED_S = 120


@test(hidden=True)
def interrupted_run_lasts_until_it_is_killed(harness):
    """A test that would run for minutes: a recorder, its application, and an orphan."""
    ready = harness.file("orphan")
    subprocess.run([sys.executable, "-c", STUBBORN, ready], check=True)
    subprocess.Popen([*harness.privileged(), ONBEAT, "record", "-o",
                      harness.file("interrupted.trace"), "--",
                      *harness.syn_command("kilted", harness.file("t.json"), "--duration", "300")],
                     stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 180
    while not (os.path.exists(ready)
               and os.path.exists(harness.file("interrupted.trace/manifest.json"))):
        need(time.monotonic() < deadline, "the recorder did not begin within 180 s")
        time.sleep(0.1)
    time.sleep(3)
    with open(harness.file("ready"), "w", encoding="utf-8"):
        pass
    time.sleep(600)


def started(pid):
    """Returns the running descendants of a process: {pid: command line}."""
    found = {p: command(p) for p in descendants(pid)}
    return {p: text for p, text in found.items() if text}


def start_interrupted_run(harness):
    """Starts a run of interrupted_run_lasts_until_it_is_killed; its process, and what it started, once all is there."""
    harness.privileged()
    work = harness.file(f"interrupted-{os.getpid()}")
    runner = subprocess.Popen([sys.executable, RUNNER, "--keep", work, "interrupted_run_lasts_until_it_is_killed"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 240
    while not os.path.exists(os.path.join(work, "ready")):
        if runner.poll() is not None or time.monotonic() > deadline:
            runner.kill()
            raise Mismatch(f"the run did not begin: {runner.communicate()[0]}")
        time.sleep(0.2)
    return runner, started(runner.pid)


def interrupted_variant(name, interrupt):
    """Makes a test of one way to end a run early."""
    def run(harness):
        runner, before = start_interrupted_run(harness)
        for part in ("record", "demos/syn/syn.py", "orphan"):
            need(any(part in text for text in before.values()),
                 f"the run started nothing like '{part}': {before}")
        interrupt(runner)
        deadline = time.monotonic() + ENDED_S
        while True:
            left = {p: text for p, text in before.items() if command(p) == text}
            if not left:
                break
            if time.monotonic() > deadline:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
                raise Mismatch(f"still there after {ENDED_S} s: {left}")
            time.sleep(0.2)
        harness.figures.append(f"{len(before)} processes ended")
        runner.communicate(timeout=ENDED_S)

    register(run, name="interrupted_by_" + name, places=WAITING_TEST,
             description=f"A run that is ended by {name} leaves no process behind")


def kill_guard(runner):
    """Kills the guard of the test that runs."""
    guards = [p for p in descendants(runner.pid) if os.getsid(p) == p and command(p)
              and "interrupted_run_lasts_until_it_is_killed" in command(p)]
    need(guards, "the run has no guard")
    os.kill(guards[0], signal.SIGKILL)
    time.sleep(1)
    runner.send_signal(signal.SIGTERM)


interrupted_variant("ctrl_c", lambda runner: runner.send_signal(signal.SIGINT))
interrupted_variant("sigterm", lambda runner: runner.send_signal(signal.SIGTERM))
interrupted_variant("sigkill", lambda runner: runner.kill())
interrupted_variant("sigkill_of_the_guard", kill_guard)
