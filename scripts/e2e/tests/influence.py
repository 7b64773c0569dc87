"""Influence of integration: a planted neighbour is named with what it costs, and nobody where nobody is."""

import csv
import json
import os
import subprocess
import sys
import time

from harness import ROOT
from registry import TIMED_TEST, Skip, expect, test

CHAIN = os.path.join(ROOT, "demos/chain/run.py")
BURNER = os.path.join(ROOT, "demos/syn/burner.py")
# Number of outputs of the chain. Discovery takes its nodes seconds, and more on a busy machine.
OUTPUTS = 80
# Priority of the chain; the neighbour has 10. No thread of normal priority delays them, whatever else the
# machine does.
FIFO = 5


def record(harness, name, cpu):
    """The chain on one CPU; its trace, and its model's path."""
    trace = harness.record(name, [sys.executable, CHAIN, "chain", "--stage", harness.stage("kilted"),
                                  "--stages", "3", "--cpu", str(cpu), "--min", "4", "--max", "6",
                                  "--period", "50", "--duration", "100", "--outputs", str(OUTPUTS),
                                  "--fifo", str(FIFO)])
    harness.model(name, trace)
    return trace, harness.file(name + ".json")


def influence(harness, a, b):
    """The rows that `onbeat diff --influence` finds, but what the virtual machine's host took."""
    found = json.loads(harness.onbeat("diff", a, b, "--influence", "--json", accept=(0, 7)))
    return [row for row in found["influence"] if row["component"] != "host of the virtual machine"]


def busy_within(harness, trace, bursts):
    """By callback: ms that the neighbour was busy within its executions, ms of these in which others may
    have had the CPU (the neighbour waited, too), and the executions that did not wait as long."""
    table = harness.file("influence.csv")
    harness.onbeat("export", trace, "--to", "executions", "-o", table)
    within = {}
    with open(table, encoding="utf-8", newline="") as rows:
        for number, row in enumerate(csv.DictReader(rows)):
            if not row["exec_ns"]:
                continue
            start, end = int(row["start_ns"]), int(row["end_ns"])
            met = [(min(end, until) - max(start, begin), until - begin - ran)
                   for begin, until, ran in bursts if begin < end and until > start]
            busy = sum(ns for ns, _ in met) / 1e6
            waited = (end - start - int(row["exec_ns"])) / 1e6
            all_busy, others, odd = within.get(row["callback"], (0, 0, []))
            odd += [f"row {number}: {waited:.1f} of {busy:.1f}"] if busy - waited > 1 else []
            others += sum(max(0, ns) for _, ns in met) / 1e6
            within[row["callback"]] = (all_busy + busy, others, odd)
    return within


@test(places=TIMED_TEST)
def influence_of_a_busy_neighbour_is_named_with_its_amount(harness):
    """A busy neighbour of higher priority is named with the amount of its influence. Without it, nothing is named."""
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
        bursts = [tuple(map(int, line.split(","))) for line in lines]
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
        told = sum(c.get("preempted_ns", 0) for c in callback.get("causes", ())
                   if (c.get("process") or c.get("thread")) in names) / 1e6
        busy, others, odd = truth.get(callback["id"], (0, 0, []))
        room = 0.05 * busy + 2
        if not busy - others - room <= told <= busy + room:
            wrong.append(f"{callback['id']}: the neighbour was busy for {busy:.1f} ms within it, others for"
                         f" {others:.1f} of these, the model says {told:.1f}; {'; '.join(odd)}")
    if sum(busy for busy, *_ in truth.values()) < 20:
        wrong.append(f"the neighbour hardly met the chain: {truth}")
    expect(wrong)
