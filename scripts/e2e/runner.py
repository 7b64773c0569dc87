"""Runs chosen tests side by side, retries those that fail, and prints what came out."""

import os
import select
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, field

import foreign
import pace
from harness import Harness
from registry import PLACES, Mismatch, Skip, Test
from supervise import Supervisor, Worker, end_descendants, reap

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from stamp import Stamp  # noqa: E402  pylint: disable=wrong-import-position

# A machine that others use too can spoil any single run: the timing of a test has to come out in
# one of so many attempts. What went wrong before is printed all the same.
ATTEMPTS = 4
# An attempt that takes longer hangs.
LIMIT_S = 300
# From this attempt on, an attempt waits up to so many seconds for a slow machine to recover.
PATIENT_FROM = 3
PATIENCE_S = 60
# So many tests are named in the line of the slowest.
SLOWEST = 8


def stamp_of(name, inputs):
    """The stamp of a test that passed with these inputs."""
    return Stamp(f"e2e {name}", inputs)


def attempt(test, work, domain):
    """Runs a test once, in the process that this is called in; what came out of it."""
    try:
        harness = Harness(work, domain)
    except Skip as reason:
        return {"skipped": str(reason)}
    try:
        test.run(harness)
    except Skip as reason:
        return {"skipped": str(reason)}
    except (Mismatch, subprocess.SubprocessError) as wrong:
        return {"wrong": str(wrong), "figures": harness.figures}
    except Exception:  # pylint: disable=broad-except
        return {"wrong": traceback.format_exc(), "figures": harness.figures}
    return {"figures": harness.figures}


@dataclass
class Attempt:
    """An attempt that runs."""

    test: Test
    number: int
    places: int
    worker: Worker
    begin: float = field(default_factory=time.monotonic)


@dataclass
class Summary:
    """The results of the tests."""

    passed: list = field(default_factory=list)
    failed: list = field(default_factory=list)
    skipped: list = field(default_factory=list)
    # Name and seconds, all attempts together.
    seconds: dict = field(default_factory=dict)

    def lines(self, elapsed_s):
        """The last lines of a run; the very last one is for programs too."""
        slowest = sorted(self.seconds.items(), key=lambda item: -item[1])[:SLOWEST]
        found = [f"e2e: {elapsed_s:.0f} s, {sum(self.seconds.values()):.0f} s if one at a time;"
                 f" slowest: {', '.join(f'{name} {seconds:.0f} s' for name, seconds in slowest)}"]
        if self.failed:
            found.append(f"e2e: failed: {', '.join(self.failed)}")
        return [*found, f"{len(self.passed)} passed, {len(self.failed)} failed,"
                f" {len(self.skipped)} skipped"]


class Interrupted(Exception):
    """SIGINT or SIGTERM has come."""


class Runner:
    """Runs tests, as many side by side as there are places."""

    def __init__(self, work, places=PLACES, with_foreign=False, within_s=None, inputs=None):
        self.work, self.places = work, places
        # After so many seconds no other test begins; None: there is no limit.
        self.within_s = within_s
        # A digest of the tests' inputs, with which stamps of passed tests are written; None: none are.
        self.inputs = inputs
        self.supervisor = Supervisor()
        self.running, self.started = [], 0
        self.summary = Summary()
        self.foreign = None
        if with_foreign:
            self.foreign = self.supervisor.start(lambda: foreign.run(Harness(work, 0)))

    def run(self, tests):
        """Runs all of them: the large ones first, so that small ones fill the places beside them; those that want
        the machine for themselves last."""
        begin = time.monotonic()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.interrupt)
        todo = [(t, 1) for t in sorted(tests, key=lambda t: (t.places >= PLACES, -t.places))]
        try:
            while todo or self.running:
                if self.within_s is not None and time.monotonic() - begin > self.within_s:
                    todo = self.without_unbegun(todo)
                while fitting := next((t for t in todo if self.fits(*t)), None):
                    todo.remove(fitting)
                    self.start(*fitting)
                for done in self.wait():
                    again = self.finish(done)
                    if again:
                        todo.append(again)
        finally:
            for running in self.running:
                running.worker.stop()
            if self.foreign:
                self.foreign.stop()
            end_descendants()
        for line in self.summary.lines(time.monotonic() - begin):
            print(line, flush=True)
        return not self.summary.failed

    def without_unbegun(self, todo):
        """Skips the tests that have not begun; returns those that are to be tried again."""
        for test, number in todo:
            if number == 1:
                self.summary.skipped.append(test.name)
                print(f"SKIPPED  {test.name}: no time was left (--within {self.within_s:.0f})", flush=True)
        return [(test, number) for test, number in todo if number > 1]

    @staticmethod
    def interrupt(number, _):
        """Ends the run."""
        raise Interrupted(signal.Signals(number).name)

    def needs(self, test, number):
        """How many places an attempt takes: a failed test is tried again alone."""
        return self.places if number > 1 else min(test.places, self.places)

    def fits(self, test, number):
        """Whether there are places for an attempt, and no test of its group runs."""
        used = sum(a.places for a in self.running)
        return (used + self.needs(test, number) <= self.places
                and not (test.group and any(a.test.group == test.group for a in self.running)))

    def start(self, test, number):
        """Starts an attempt."""
        self.started += 1
        domain = os.getpid() + self.started

        def work():
            if number >= PATIENT_FROM:
                pace.wait_until_usual(PATIENCE_S)
            return attempt(test, self.work, domain)

        worker = self.supervisor.start(work)
        self.running.append(Attempt(test, number, self.needs(test, number), worker))

    def wait(self):
        """Attempts that have ended."""
        by_worker = {a.worker: a for a in self.running}
        done = [by_worker[w] for w in select.select(by_worker, [], [], 1)[0] if w.read()]
        reap()
        for running in self.running:
            patience_s = PATIENCE_S if running.number >= PATIENT_FROM else 0
            if time.monotonic() - running.begin > LIMIT_S + patience_s:
                running.worker.stop()
        self.running = [a for a in self.running if a not in done]
        return done

    def finish(self, done):
        """Notes and prints what came out; (test, number) if it has to be tried again."""
        name, result, seconds = done.test.name, done.worker.results(), time.monotonic() - done.begin
        self.summary.seconds[name] = self.summary.seconds.get(name, 0) + seconds
        wrong, cpu_s = result.get("wrong"), result.pop("cpu_s", 0)
        if not result:
            # Its guard may be gone, too.
            end_descendants(keep={a.worker.guard for a in self.running})
            wrong = f"ended without a result after {seconds:.0f} s (limit {LIMIT_S} s)"
        elif result.get("left") and not wrong:
            wrong = "left processes behind: " + "; ".join(result["left"])
        figures = result.get("figures", [])
        if "skipped" in result:
            self.summary.skipped.append(name)
            print(f"SKIPPED  {name}: {result['skipped']}", flush=True)
        elif not wrong:
            self.summary.passed.append(name)
            if self.inputs and done.number == 1:
                stamp_of(name, self.inputs).write()
            print(f"ok       {name} ({', '.join([f'{seconds:.0f} s', f'{cpu_s:.1f} s of CPU', *figures])})", flush=True)
        else:
            last = done.number == ATTEMPTS
            text = "\n    ".join([*wrong.splitlines(), *figures])
            print(f"{'FAILED ' if last else 'AGAIN  '}  {name}, attempt {done.number} of {ATTEMPTS}"
                  f" ({seconds:.0f} s): {text}", flush=True)
            if not last:
                return done.test, done.number + 1
            self.summary.failed.append(name)
        return None
