"""Influence of integration: a planted neighbour is named with what it costs, and nobody where nobody is."""

import csv
import io
import json
import os
import subprocess
import sys
import time

from harness import ROOT
from registry import PLACES, Skip, expect, test

CHAIN = os.path.join(ROOT, "demos/chain/run.py")
BURNER = os.path.join(ROOT, "demos/syn/burner.py")
# Most of the first four go by until the nodes have found one another.
SECONDS = 12
# Of the chain; the neighbour has 10. Nothing with a normal priority comes between them, whatever else
# the machine does.
FIFO = 5


def record(harness, name, cpu):
    """The chain on one CPU; its trace, and its model's path."""
    trace = harness.record(name, [sys.executable, CHAIN, "chain", "--stage", harness.stage("kilted"),
                                  "--stages", "3", "--cpu", str(cpu), "--min", "4", "--max", "6",
                                  "--period", "50", "--duration", str(SECONDS),
                                  "--fifo", str(FIFO)])
    harness.model(name, trace)
    return trace, harness.file(name + ".json")


def influence(harness, a, b):
    """The rows that `onbeat diff --influence` finds, but what the virtual machine's host took."""
    found = json.loads(harness.onbeat("diff", a, b, "--influence", "--json", accept=(0, 7)))
    return [row for row in found["influence"] if row["component"] != "host of the virtual machine"]


def busy_within(harness, trace, bursts):
    """By callback: how long the neighbour was busy within its executions, ns."""
    table = harness.file("influence.csv")
    harness.onbeat("export", trace, "--to", "executions", "-o", table)
    within = {}
    with open(table, encoding="utf-8") as rows:
        for row in csv.DictReader(io.StringIO(rows.read())):
            start, end = int(row["start_ns"]), int(row["end_ns"])
            busy = sum(max(0, min(end, until) - max(start, begin)) for begin, until in bursts)
            within[row["callback"]] = within.get(row["callback"], 0) + busy
    return within


@test(places=PLACES)
def influence_neighbour(harness):
    """A neighbour of higher priority that logs when it is busy: named, with the amount; alone, nobody."""
    if len(os.sched_getaffinity(0)) < 2:
        raise Skip("needs two CPUs: one is taken away in part")
    cpu = max(os.sched_getaffinity(0))
    _, alone = record(harness, "influence-alone", cpu)
    _, again = record(harness, "influence-again", cpu)
    log = harness.new_file("influence-bursts.csv")
    burner = subprocess.Popen([*harness.privileged(), sys.executable, BURNER, "--cpu", str(cpu),
                               "--period", "23", "--busy", "5", "--log", log],
                              stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(0.5)
        if burner.poll() is not None:
            raise Skip(burner.stderr.read().strip())
        trace, beside = record(harness, "influence-beside", cpu)
    finally:
        burner.terminate()
        burner.wait()
    with open(log, encoding="utf-8") as lines:
        bursts = [tuple(map(int, line.split(",")[:2])) for line in lines]
    name = os.path.basename(os.path.realpath(sys.executable))[:15]
    names = {name, os.path.basename(sys.executable)[:15]}
    wrong = []
    found = [(row["component"], row["how"]) for row in influence(harness, alone, beside)]
    if len(found) != 1 or found[0][0] not in names or found[0][1] != "has_cpu":
        wrong.append(f"a neighbour {name} took the CPU; found: {found}")
    found = influence(harness, alone, again)
    if found:
        wrong.append(f"nobody came between two runs alone; found: {found}")
    truth = busy_within(harness, trace, bursts)
    for callback in json.load(open(beside, encoding="utf-8"))["callbacks"]:
        told = sum(c["preempted_ns"] for c in callback.get("causes", ())
                   if c.get("process") in names)
        busy = truth.get(callback["id"], 0)
        if abs(told - busy) > 0.05 * busy + 2e6:
            wrong.append(f"{callback['id']}: the neighbour was busy for {busy / 1e6:.1f} ms within it,"
                         f" the model says {told / 1e6:.1f}")
    if sum(truth.values()) < 20e6:
        wrong.append(f"the neighbour hardly met the chain: {truth}")
    expect(wrong)
