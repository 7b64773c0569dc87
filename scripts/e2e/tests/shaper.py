"""The shaper: a message type that it was not built for, on real ROS 2.

A message package (e2e/blob) is built with the generators of an environment. A program publishes on a
topic that a remapping rule moves away, and what arrives under the topic's own name is compared with
what was sent, byte for byte.
"""

import glob
import json
import os
import queue
import struct
import subprocess
import threading
import time

from harness import ONBEAT
from registry import WAITING_TEST, Mismatch, need, register

# No step of a test takes that long.
WATCHDOG_S = 120
CYCLE_NS = 100_000_000
SLOT = {"start_ns": 60_000_000, "end_ns": 75_000_000}
LATE, DROPPED, REPLACED, PASSED, FAILED, READY, STOPPED, BY_ARRIVAL = (1 << i for i in range(8))
RECORD = struct.Struct("=QqqqqqqqHHIII")
FIELDS = ("sequence", "source", "arrival", "start", "end", "slot_start", "cycle", "born", "output", "slot",
          "flags", "bytes", "lost")


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

    def say(self, text=""):
        """A line to its standard input."""
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def stop(self):
        """Ends it."""
        self.process.kill()
        self.process.wait()


class Bench:
    """The shaper between programs of a distribution."""

    def __init__(self, harness, distro):
        self.harness = harness
        self.env, self.built = harness.env(distro), harness.blob(distro)
        folders = [self.env + "/lib", self.built + "/lib",
                   *glob.glob(self.env + "/lib/python3*/site-packages/ros_*.libs")]
        self.variables = dict(os.environ, LD_LIBRARY_PATH=":".join(folders))
        self.children, self.reports, self.reader = [], [], None

    def shaper(self, table=None, **config):
        """Starts the shaper of /out, which waits on /held for its slot."""
        read, write = os.pipe()
        table = table or {"cycle_ns": CYCLE_NS, "origin_ns": time.monotonic_ns(),
                          "outputs": [{"slots": [SLOT]}]}
        self.table = table
        output = {"held_topic": "/held", "topic": "/out", **config.pop("output", {})}
        path = self.harness.file(f"shaper-{os.getpid()}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"rcl": self.env + "/lib/librcl.so", "outputs": [output], "table": table,
                       "report_fd": write, **config}, file)
        process = subprocess.Popen([ONBEAT, "shaper", path], env=self.variables,
                                   pass_fds=[write])
        os.close(write)
        os.set_blocking(read, False)
        self.reader, self.reports = read, []
        self.children.append(process)
        return process

    def records(self):
        """Returns the shaper's reports about items so far."""
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
        raise Mismatch("the shaper did not find the topic that is held back")

    def publisher(self, qos, count, period_ms):
        """Publishes /out, which is moved to /held, after say()."""
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

    def connected(self, qos, count, period_ms, takers=1, **config):
        """Publisher, shaper and subscriber that know each other; the publisher has begun once it knows
        of so many takers of the topic that is held back."""
        process = self.shaper(**config)
        publisher = self.publisher(qos, count, period_ms)
        subscriber = self.subscriber(qos)
        self.ready()
        need(subscriber.next() == "matched", "the subscriber found no publisher of /out")
        time.sleep(1.5)  # the shaper may know of it a moment later
        publisher.say(takers)
        return process, publisher, subscriber

    def close(self):
        """Ends everything."""
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
        if self.reader is not None:
            os.close(self.reader)


# Waits that take long, once.
LEFT_OUT = ["shaper_passes_all_items_at_once_without_its_owner_jazzy"]


def test(function, label=None):
    """Registers a test on both distributions."""
    def on(distro):
        def run(harness):
            bench = Bench(harness, distro)
            try:
                function(bench)
            finally:
                bench.close()
        return run

    for distro in ("kilted", "jazzy"):
        name = f"{label or function.__name__}_{distro}"
        register(on(distro), name=name, description=function.__doc__, places=WAITING_TEST,
                 left_out="the same on Kilted is run" if name in LEFT_OUT else None)
    return function


def in_slots(bench, records):
    """Everything left in a slot, never before one."""
    origin, cycle = bench.table["origin_ns"], bench.table["cycle_ns"]
    starts = {s["start_ns"] % cycle for s in bench.table["outputs"][0]["slots"]}
    for record in records:
        if record["flags"] & (DROPPED | PASSED | STOPPED):
            continue
        need((record["slot_start"] - origin) % cycle in starts, f"no such slot: {record}")
        need(record["arrival"] <= record["start"] >= record["slot_start"],
             f"left before its slot: {record}")
        need(not record["flags"] & FAILED, f"not published: {record}")


def volatile_variant(qos, label):
    """Every byte through the shaper, in slots."""
    def run(bench):
        count = 40
        witness = bench.subscriber(qos, "/held")
        process, publisher, subscriber = bench.connected(qos, count, 25, takers=2)
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
        records = bench.records()
        need(len(records) >= len(got), f"{len(records)} reports of {len(got)} items")
        in_slots(bench, records)
        process.terminate()
        need(process.wait(WATCHDOG_S) == 0, f"exit code {process.returncode}")

    run.__doc__ = f"a type nobody compiled for, {label}: byte for byte, in slots"
    test(run, "shaper_" + label.replace(" ", "_"))


volatile_variant("rv", "reliable")
volatile_variant("bv", "best effort")


@test
def shaper_passes_latched_messages_to_subscribers_that_join_afterwards(bench):
    """Nodes that join a latched topic later, on either side of the shaper, get earlier messages."""
    publisher = bench.publisher("rt", 10, 0)
    publisher.say()
    sent = publisher.some(10)
    bench.shaper()
    bench.ready()
    end = time.monotonic() + WATCHDOG_S
    while len(bench.records()) < 10 and time.monotonic() < end:
        time.sleep(0.05)
    subscriber = bench.subscriber("rt")
    got = [line for line in subscriber.some(11) if line != "matched"]
    need(got == sent, f"{len(sent)} sent, {len(got)} received")


@test
def shaper_sends_an_item_that_misses_the_first_slot_in_the_second_slot(bench):
    """With two bands, an item that misses its first slot leaves in the second."""
    slots = [{"start_ns": 40_000_000, "end_ns": 45_000_000},
             {"start_ns": 80_000_000, "end_ns": 85_000_000}]
    table = {"cycle_ns": CYCLE_NS, "origin_ns": time.monotonic_ns(), "outputs": [{"slots": slots}]}
    _, publisher, subscriber = bench.connected("rv", 30, 30, table=table)
    need(subscriber.some(30) == publisher.some(30), "not what was sent")
    records = bench.records()
    in_slots(bench, records)
    need({r["slot"] for r in records} == {0, 1}, "not both slots were used")
    for record in records:
        first = [s for s in slots if record["arrival"] < table["origin_ns"]
                 + record["cycle"] * CYCLE_NS + s["end_ns"]]
        need(bool(record["flags"] & LATE) >= (not first), f"late and not said: {record}")


@test
def shaper_discards_and_reports_overrun_items_with_overshoot_drop(bench):
    """Items that miss their slots are discarded and reported. All other items arrive."""
    process, publisher, subscriber = bench.connected("rv", 40, 27, overshoot="drop")
    sent = publisher.some(40)
    time.sleep(0.5)
    process.terminate()
    process.wait(WATCHDOG_S)
    records = bench.records()
    kept = [s for s, r in zip(sent, records) if not r["flags"] & DROPPED]
    need(len(records) == 40 and 0 < len(kept) < 40, f"{len(kept)} of {len(records)} kept")
    need(all(r["flags"] & LATE for r in records if r["flags"] & DROPPED), "dropped in time")
    need(subscriber.some(len(kept)) == kept, "not what was kept")
    need(subscriber.next(0.5) is None, "more than was kept")


@test
def shaper_passes_all_items_from_the_first_overrun_with_overshoot_stop(bench):
    """The first late item ends shaping: this item and all later ones pass at once."""
    _, publisher, subscriber = bench.connected("rv", 40, 27, overshoot="stop")
    need(subscriber.some(40) == publisher.some(40), "not what was sent")
    marks = [r["flags"] & (STOPPED | PASSED) for r in bench.records()]
    at = marks.index(STOPPED)
    need(not any(marks[:at]) and all(m == PASSED for m in marks[at + 1:]), f"{marks}")


@test
def shaper_throttle_lets_the_latest_item_into_each_cycle(bench):
    """A throttle passes at most one item per cycle, the latest one."""
    process, publisher, subscriber = bench.connected("rv", 100, 10, output={"kind": "throttle"})
    sent = publisher.some(100)
    time.sleep(0.3)
    process.terminate()
    process.wait(WATCHDOG_S)
    records = bench.records()
    in_slots(bench, records)
    need([r["sequence"] for r in records] == list(range(100)), "not every item was reported")
    through = [r for r in records if not r["flags"] & (DROPPED | PASSED)]
    # On a slow machine the publisher takes longer, and more cycles pass.
    arrivals = [r["arrival"] for r in records]
    passed = (max(arrivals) - min(arrivals)) / CYCLE_NS
    need(2 <= len(through) and passed / 2 <= len(through) <= passed + 2,
         f"{len(through)} of 100 items in {passed:.1f} cycles")
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
def shaper_sends_held_items_at_once_when_it_ends(bench):
    """After SIGTERM between slots, held items leave at once."""
    table = {"cycle_ns": 600_000_000_000, "origin_ns": time.monotonic_ns() + 300_000_000_000,
             "outputs": [{"slots": [{"start_ns": 1, "end_ns": 2_000_000}]}]}
    process, publisher, subscriber = bench.connected("rv", 5, 1, table=table)
    sent = publisher.some(5)
    need(subscriber.next(1) is None, "left before its slot")
    process.terminate()
    need(process.wait(WATCHDOG_S) == 0, f"exit code {process.returncode}")
    need(subscriber.some(5) == sent, "what was held back is lost")


@test
def shaper_passes_all_items_at_once_without_its_owner(bench):
    """When nobody reads its reports any more, the shaper passes all items at once and ends after the application."""
    process, publisher, subscriber = bench.connected("rv", 60, 50)
    need(len(subscriber.some(5)) == 5, "nothing arrived")
    os.close(bench.reader)
    bench.reader = None
    sent = publisher.some(60)
    need(subscriber.some(55) == sent[5:], "not what was sent")
    need(process.poll() is None, "it ended while there was a publisher")
    publisher.stop()
    need(process.wait(WATCHDOG_S) == 0, f"exit code {process.returncode}")


@test
def shaper_without_library_or_table_fails_in_one_line(bench):
    """Without a library or a table, the shaper prints an error of one line."""
    for rcl, more, said in (("/no/librcl.so", {}, "/no/librcl.so"),
                            (bench.env + "/lib/librcl.so", {"table": None}, "either page_fd or table")):
        path = bench.harness.file(f"wrong-{os.getpid()}.json")
        config = {"rcl": rcl, "outputs": [{"held_topic": "/a", "topic": "/b"}],
                  "table": {"cycle_ns": 1, "origin_ns": 0,
                            "outputs": [{"slots": [{"start_ns": 0, "end_ns": 1}]}]}, **more}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        done = subprocess.run([ONBEAT, "shaper", path], env=bench.variables, check=False,
                              capture_output=True, text=True, timeout=WATCHDOG_S)
        need(done.returncode == 1 and said in done.stderr and done.stderr.count("\n") == 1,
             f"{done.returncode}: {done.stderr}")
