#!/usr/bin/env python3
"""End-to-end tests of the shaper: a message type that it was not built for, on real ROS 2.

usage: scripts/e2e_shaper.py [ONBEAT_BINARY] [--all] [PART OF A NAME ...]

Builds a message package (scripts/shaper) with the generators of the environments of ./dev ros-env,
publishes on a topic that a remapping rule moves away, and compares what arrives under the topic's own
name with what was sent, byte for byte.
"""

import glob
import json
import os
import queue
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# No step of a test takes that long.
WATCHDOG_S = 40
ATTEMPTS = 3
CYCLE_NS = 100_000_000
SLOT = {"start_ns": 60_000_000, "end_ns": 75_000_000}
LATE, DROPPED, REPLACED, PASSED, FAILED, READY, STOPPED = (1 << i for i in range(7))
RECORD = struct.Struct("=QqqqqqqHHIII")
FIELDS = ("sequence", "source", "arrival", "start", "end", "slot_start", "cycle", "output", "slot",
          "flags", "bytes", "lost")


# Waits that take long, once.
LEFT_OUT = ["jazzy_owner_dies"]


class Mismatch(Exception):
    """The shaper did something else."""


class Skip(Exception):
    """The test cannot be done here; says why."""


def need(fact, what):
    """Fails the test."""
    if not fact:
        raise Mismatch(what)


class Lines:
    """A program and the lines that it prints."""

    def __init__(self, words, **options):
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, **options)
        self.lines = queue.Queue()
        # Second words: hashes of the bytes as they came.
        self.raw = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())

    def next(self, timeout=WATCHDOG_S):
        """The first word of the next line; None if there is none."""
        try:
            first, *rest = self.lines.get(timeout=timeout).split()
            self.raw += rest
            return first
        except queue.Empty:
            return None

    def some(self, count, timeout=WATCHDOG_S):
        """So many lines, or those that come until the time is over."""
        end, found = time.monotonic() + timeout, []
        while len(found) < count and time.monotonic() < end:
            line = self.next(max(0.01, end - time.monotonic()))
            if line is not None:
                found.append(line)
        return found

    def say(self):
        """A line to its standard input."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def stop(self):
        """Ends it."""
        self.process.kill()
        self.process.wait()


class Stand:
    """One test: the programs of a distribution in a domain of their own."""

    def __init__(self, onbeat, distro, work, domain):
        self.onbeat, self.work, self.distro = onbeat, work, distro
        done = subprocess.run([os.path.join(ROOT, "dev"), "ros-env", distro], check=True,
                              stdout=subprocess.PIPE, text=True)
        self.env = done.stdout.strip()
        self.built = os.path.join(work, "blob-" + distro)
        if not os.path.exists(os.path.join(self.built, "blob")):
            subprocess.run([os.path.join(ROOT, "scripts/shaper/build.sh"), self.env, self.built],
                           check=True)
        folders = [self.env + "/lib", self.built + "/lib",
                   *glob.glob(self.env + "/lib/python3*/site-packages/ros_*.libs")]
        self.variables = dict(os.environ, LD_LIBRARY_PATH=":".join(folders),
                              ROS_DOMAIN_ID=str(domain))
        self.children, self.reports, self.reader = [], [], None

    def shaper(self, table=None, **config):
        """Starts the shaper of /out, held on /held."""
        read, write = os.pipe()
        table = table or {"cycle_ns": CYCLE_NS, "origin_ns": time.monotonic_ns(),
                          "outputs": [{"slots": [SLOT]}]}
        self.table = table
        output = {"held_topic": "/held", "topic": "/out", **config.pop("output", {})}
        path = os.path.join(self.work, "shaper.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"rcl": self.env + "/lib/librcl.so", "outputs": [output], "table": table,
                       "report_fd": write, **config}, file)
        process = subprocess.Popen([self.onbeat, "shaper", path], env=self.variables,
                                   pass_fds=[write])
        os.close(write)
        os.set_blocking(read, False)
        self.reader, self.reports = read, []
        self.children.append(process)
        return process

    def records(self):
        """What the shaper has reported so far about items."""
        while True:
            try:
                data = os.read(self.reader, 64 * RECORD.size)
            except BlockingIOError:
                break
            if not data:
                break
            self.reports += [dict(zip(FIELDS, RECORD.unpack_from(data, at)))
                             for at in range(0, len(data), RECORD.size)]
        return [r for r in self.reports if not r["flags"] & READY]

    def ready(self):
        """Waits for the shaper's endpoints."""
        end = time.monotonic() + WATCHDOG_S
        while time.monotonic() < end:
            self.records()
            if any(r["flags"] & READY for r in self.reports):
                return
            time.sleep(0.02)
        raise Mismatch("the shaper did not find the held topic")

    def publisher(self, qos, count, period_ms):
        """Publishes /out, which is moved to /held, once it is told to."""
        program = Lines([self.built + "/blob", "pub", "/out", qos, str(count), str(period_ms),
                         "--ros-args", "-r", "blob_pub:/out:=/held"], env=self.variables)
        self.children.append(program.process)
        return program

    def subscriber(self, qos, topic="/out"):
        """Receives /out, or what goes into the shaper."""
        program = Lines([self.built + "/blob", "sub", topic, qos, str(WATCHDOG_S)],
                        env=self.variables)
        self.children.append(program.process)
        return program

    def connected(self, qos, count, period_ms, **config):
        """Publisher, shaper and subscriber that know each other; the publisher has begun."""
        process = self.shaper(**config)
        publisher = self.publisher(qos, count, period_ms)
        subscriber = self.subscriber(qos)
        self.ready()
        need(subscriber.next() == "matched", "the subscriber found no publisher of /out")
        time.sleep(0.5)  # the other sides may know of it a moment later
        publisher.say()
        return process, publisher, subscriber

    def close(self):
        """Ends everything."""
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
        if self.reader is not None:
            os.close(self.reader)


TESTS = []


def test(function):
    """Registers a test."""
    TESTS.append((function.__name__, function))
    return function


def in_slots(stand, records):
    """Everything left in a slot, never before one."""
    origin, cycle = stand.table["origin_ns"], stand.table["cycle_ns"]
    starts = {s["start_ns"] % cycle for s in stand.table["outputs"][0]["slots"]}
    for record in records:
        if record["flags"] & (DROPPED | PASSED | STOPPED):
            continue
        need((record["slot_start"] - origin) % cycle in starts, f"no such slot: {record}")
        need(record["arrival"] <= record["start"] >= record["slot_start"],
             f"left before its slot: {record}")
        need(not record["flags"] & FAILED, f"not published: {record}")


def volatile_variant(qos, label):
    """Every byte through the shaper, in slots."""
    def run(stand):
        count = 40
        witness = stand.subscriber(qos, "/held")
        process, publisher, subscriber = stand.connected(qos, count, 25)
        sent = publisher.some(count)
        # Best effort may lose some on the way.
        got = subscriber.some(count, WATCHDOG_S if qos[0] == "r" else 5)
        if qos[0] == "r":
            need(got == sent, f"{len(sent)} sent, {len(got)} received, first difference at "
                 f"{next((i for i, (a, b) in enumerate(zip(sent, got)) if a != b), 'the end')}")
            witness.some(count + 1)
            need(len(witness.raw) == count and subscriber.raw == witness.raw,
                 "the bytes are not those that went into the shaper")
        else:
            rest = iter(sent)
            need(len(got) >= count // 2 and all(item in rest for item in got),
                 f"{len(got)} of {count} received, or other bytes")
        records = stand.records()
        need(len(records) >= len(got), f"{len(records)} reports of {len(got)} items")
        in_slots(stand, records)
        process.terminate()
        need(process.wait(WATCHDOG_S) == 0, f"exit code {process.returncode}")

    run.__doc__ = f"a type nobody compiled for, {label}: byte for byte, in slots"
    TESTS.append((label.replace(" ", "_"), run))


volatile_variant("rv", "reliable")
volatile_variant("bv", "best effort")


@test
def transient_local(stand):
    """A latched topic: late joiners on both sides of the shaper get what was published before."""
    publisher = stand.publisher("rt", 10, 0)
    publisher.say()
    sent = publisher.some(10)
    stand.shaper()
    stand.ready()
    end = time.monotonic() + WATCHDOG_S
    while len(stand.records()) < 10 and time.monotonic() < end:
        time.sleep(0.05)
    subscriber = stand.subscriber("rt")
    got = [line for line in subscriber.some(11) if line != "matched"]
    need(got == sent, f"{len(sent)} sent, {len(got)} received")


@test
def several_slots(stand):
    """Two bands: what misses the first slot of its execution leaves in the second."""
    slots = [{"start_ns": 40_000_000, "end_ns": 45_000_000},
             {"start_ns": 80_000_000, "end_ns": 85_000_000}]
    table = {"cycle_ns": CYCLE_NS, "origin_ns": time.monotonic_ns(), "outputs": [{"slots": slots}]}
    _, publisher, subscriber = stand.connected("rv", 30, 30, table=table)
    need(subscriber.some(30) == publisher.some(30), "not what was sent")
    records = stand.records()
    in_slots(stand, records)
    need({r["slot"] for r in records} == {0, 1}, "not both slots were used")
    for record in records:
        first = [s for s in slots if record["arrival"] < table["origin_ns"]
                 + record["cycle"] * CYCLE_NS + s["end_ns"]]
        need(bool(record["flags"] & LATE) >= (not first), f"late and not said: {record}")


@test
def overshoot_drop(stand):
    """What misses its slots is discarded and reported; all else arrives."""
    process, publisher, subscriber = stand.connected("rv", 40, 27, overshoot="drop")
    sent = publisher.some(40)
    time.sleep(0.5)
    process.terminate()
    process.wait(WATCHDOG_S)
    records = stand.records()
    kept = [s for s, r in zip(sent, records) if not r["flags"] & DROPPED]
    need(len(records) == 40 and 0 < len(kept) < 40, f"{len(kept)} of {len(records)} kept")
    need(all(r["flags"] & LATE for r in records if r["flags"] & DROPPED), "dropped in time")
    need(subscriber.some(len(kept)) == kept, "not what was kept")
    need(subscriber.next(0.5) is None, "more than was kept")


@test
def overshoot_stop(stand):
    """The first item that is late ends shaping: it and all after it pass at once."""
    _, publisher, subscriber = stand.connected("rv", 40, 27, overshoot="stop")
    need(subscriber.some(40) == publisher.some(40), "not what was sent")
    marks = [r["flags"] & (STOPPED | PASSED) for r in stand.records()]
    at = marks.index(STOPPED)
    need(not any(marks[:at]) and all(m == PASSED for m in marks[at + 1:]), f"{marks}")


@test
def throttler(stand):
    """At most one item per cycle, and it is the newest."""
    process, publisher, subscriber = stand.connected("rv", 100, 10, output={"kind": "throttle"})
    sent = publisher.some(100)
    time.sleep(0.3)
    process.terminate()
    process.wait(WATCHDOG_S)
    records = stand.records()
    in_slots(stand, records)
    need([r["sequence"] for r in records] == list(range(100)), "not every item was reported")
    through = [r for r in records if not r["flags"] & (DROPPED | PASSED)]
    need(5 <= len(through) <= 14, f"{len(through)} of 100 items in about a second")
    cycles = [r["cycle"] for r in through]
    need(len(set(cycles)) == len(cycles), f"two in one cycle: {cycles}")
    # Whatever was replaced had arrived before what left.
    for record in records:
        if record["flags"] & REPLACED:
            later = next((t for t in through if t["sequence"] > record["sequence"]), None)
            need(later is None or record["arrival"] <= later["arrival"], f"newer one lost: {record}")
    kept = [s for s, r in zip(sent, records) if not r["flags"] & DROPPED]
    need(subscriber.some(len(kept)) == kept, "not what was let through")


@test
def ends_with_what_it_holds(stand):
    """SIGTERM between slots: what is held leaves at once."""
    table = {"cycle_ns": 60_000_000_000, "origin_ns": time.monotonic_ns() + 30_000_000_000,
             "outputs": [{"slots": [{"start_ns": 1, "end_ns": 2_000_000}]}]}
    process, publisher, subscriber = stand.connected("rv", 5, 1, table=table)
    sent = publisher.some(5)
    need(subscriber.next(1) is None, "left before its slot")
    process.terminate()
    need(process.wait(WATCHDOG_S) == 0, f"exit code {process.returncode}")
    need(subscriber.some(5) == sent, "what was held is lost")


@test
def owner_dies(stand):
    """Nobody reads the reports any more: all passes at once, and the shaper ends after the application."""
    process, publisher, subscriber = stand.connected("rv", 60, 50)
    need(len(subscriber.some(5)) == 5, "nothing arrived")
    os.close(stand.reader)
    stand.reader = None
    sent = publisher.some(60)
    need(subscriber.some(55) == sent[5:], "not what was sent")
    need(process.poll() is None, "it ended while there was a publisher")
    publisher.stop()
    need(process.wait(WATCHDOG_S) == 0, f"exit code {process.returncode}")


@test
def says_what_is_wrong(stand):
    """Errors in one line: no library, no table."""
    for rcl, more, said in (("/no/librcl.so", {}, "/no/librcl.so"),
                            (stand.env + "/lib/librcl.so", {"table": None}, "page_fd or table")):
        path = os.path.join(stand.work, "wrong.json")
        config = {"rcl": rcl, "outputs": [{"held_topic": "/a", "topic": "/b"}],
                  "table": {"cycle_ns": 1, "origin_ns": 0,
                            "outputs": [{"slots": [{"start_ns": 0, "end_ns": 1}]}]}, **more}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        done = subprocess.run([stand.onbeat, "shaper", path], env=stand.variables, check=False,
                              capture_output=True, text=True, timeout=WATCHDOG_S)
        need(done.returncode == 1 and said in done.stderr and done.stderr.count("\n") == 1,
             f"{done.returncode}: {done.stderr}")


def main():
    """Runs the tests on both distributions."""
    words = sys.argv[1:]
    default = os.environ.get("ONBEAT", os.path.join(ROOT, "target/release/onbeat"))
    onbeat = os.path.abspath(words.pop(0)) if words and os.path.isfile(words[0]) else default
    failed = skipped = 0
    chosen = [(f"{distro}_{name}", distro, run) for distro in ("kilted", "jazzy")
              for name, run in TESTS]
    everything = "--all" in words
    words = [w for w in words if w != "--all"]
    if not words and not everything:
        for left_out in LEFT_OUT:
            print(f"LEFT OUT shaper {left_out}: the same on the other distribution is run (--all runs it)")
        chosen = [c for c in chosen if c[0] not in LEFT_OUT]
    chosen = [c for c in chosen if not words or any(w in c[0] for w in words)]
    with tempfile.TemporaryDirectory(prefix="onbeat-shaper-") as work:
        for i, (name, distro, run) in enumerate(chosen):
            begin = time.monotonic()
            for attempt in range(1, ATTEMPTS + 1):
                stand = None
                try:
                    if not shutil.which("gcc") or not shutil.which("g++"):
                        raise Skip("gcc and g++ are needed to build a message package")
                    stand = Stand(onbeat, distro, work, 100 + (3 * i + attempt) % 100)
                    run(stand)
                    print(f"ok       shaper {name} ({time.monotonic() - begin:.0f} s)", flush=True)
                    break
                except Skip as reason:
                    skipped += 1
                    print(f"SKIPPED  shaper {name}: {reason}", flush=True)
                    break
                except (Mismatch, subprocess.SubprocessError) as wrong:
                    last = attempt == ATTEMPTS
                    failed += last
                    print(f"{'FAILED ' if last else 'AGAIN  '}  shaper {name}, attempt {attempt}:"
                          f"\n    {wrong}", flush=True)
                finally:
                    if stand:
                        stand.close()
    print(f"shaper: {len(chosen) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
