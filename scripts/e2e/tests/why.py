"""`onbeat why`: names a planted cause with its whole length, and nobody where nothing is planted."""

import json
import os
import subprocess
import sys

from harness import ROOT, load
from registry import TIMED_TEST, Mismatch, Skip, expect, test

DELAYED = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "delayed.py")
BURNER = os.path.join(ROOT, "demos/syn/burner.py")
SECONDS = 9
SLOW = "/fusion:timer(970ms)"


def explained(harness, name, *words, how=()):
    """Records the nodes and explains all executions of their chain. Returns the explanation and when the
    slow callback was busy. `how` are more words of `onbeat record`."""
    truth = harness.new_file(name + ".truth.json")
    cpu = max(os.sched_getaffinity(0))
    trace = harness.record(name, [harness.python("kilted"), DELAYED, str(SECONDS), "--cpu", str(cpu), *words,
                                  truth], how=how)
    out = harness.onbeat("why", trace, "--from", "/scanner", "--to", "/delayed/out", "--all", "--json")
    why = json.loads(out)
    model = harness.model(name, trace)
    count = next(e["taken"] for e in model["edges"] if e["topic"] == "/delayed/scan")
    # The recording may end between the start of the last execution and its output.
    if not count - 2 <= why["count"] <= count or why["count"] < 100:
        raise Mismatch(f"{why['count']} executions, and {count} scans were taken")
    wrong = [e["start_ns"] for e in why["executions"]
             if sum(s["ns"] for s in e["stretches"]) != e["latency_ns"]]
    expect([f"the stretches of these do not add up: {wrong}"] if wrong else [])
    return why, load(truth)


def overlap(execution, bursts):
    """The time of an execution within bursts, ns."""
    begin, end = execution["start_ns"], execution["start_ns"] + execution["latency_ns"]
    return sum(max(0, min(end, burst[1]) - max(begin, burst[0])) for burst in bursts)


def blamed(execution, is_culprit):
    """The time of an execution for which a culprit is named, ns."""
    return sum(s["ns"] for s in execution["stretches"] if is_culprit(s.get("by", {})))


def unknown_of_late(why):
    """The share of the latency of late executions whose cause is unknown."""
    late = [e for e in why["executions"] if e["late"]]
    unknown = sum(s["ns"] for e in late for s in e["stretches"] if s["kind"] == "unknown")
    return unknown / max(1, sum(e["latency_ns"] for e in late))


def compare(harness, name, why, bursts, is_culprit):
    """Complaints: the planted time is not attributed, or is not the first finding."""
    executions = [e for e in why["executions"] if overlap(e, bursts) > 1e6]
    planted = sum(overlap(e, bursts) for e in executions)
    found = sum(blamed(e, is_culprit) for e in executions)
    harness.figures.append(f"{name}: {planted / 1e6:.0f} ms planted in {len(executions)} executions, "
                           f"{found / planted * 100 if planted else 0:.1f} % attributed, "
                           f"{unknown_of_late(why) * 100:.2f} % of the late ones unknown")
    wrong = []
    if len(executions) < 5:
        wrong.append(f"{name}: only {len(executions)} executions met it")
    if not 0.95 * planted < found < 1.05 * planted:
        wrong.append(f"{name}: {found / 1e6:.1f} of {planted / 1e6:.1f} ms attributed")
    findings = why["comparison"]["findings"]
    if not findings or not is_culprit(findings[0].get("by", {})):
        wrong.append(f"{name}: {why['sentence']}")
    most = 0.1 if "preload" in name else 0.02
    if max(why["unknown_share"], unknown_of_late(why)) > most:
        wrong.append(f"{name}: {why['unknown_share'] * 100:.1f} % are unknown, {unknown_of_late(why) * 100:.1f} % of the "
                     "late executions")
    return wrong


@test(places=TIMED_TEST)
def why_names_a_slow_callback_and_a_busy_neighbour(harness):
    """A planted slow callback and a planted neighbour are each named first, with 95 % of their time."""
    if os.geteuid() != 0:
        raise Skip("real-time priorities need root")
    if len(os.sched_getaffinity(0)) < 2:
        raise Skip("needs two CPUs: one is taken away in part")

    def is_slow(by):
        return by.get("callback") == SLOW

    def is_neighbour(by):
        thread = by.get("thread", {})
        return thread.get("kind") == "thread" and not thread.get("nodes") and "python" in thread["process"]
    why, bursts = explained(harness, "why-slow", "--slow", "60")
    wrong = compare(harness, "slow callback", why, bursts, is_slow)
    if SLOW not in why["sentence"]:
        wrong.append(f"not said: {why['sentence']}")
    # Without root, the recording shows which callback ran, but not who had the CPU.
    why, bursts = explained(harness, "why-slow-preload", "--slow", "60", how=["--preload"])
    wrong += compare(harness, "slow callback, preload", why, bursts, is_slow)
    log = harness.new_file("why-bursts.csv")
    cpu = max(os.sched_getaffinity(0))
    with subprocess.Popen([sys.executable, BURNER, "--cpu", str(cpu), "--period", "713", "--busy", "40",
                           "--log", log]) as burner:
        try:
            why, _ = explained(harness, "why-neighbour")
        finally:
            burner.terminate()
    with open(log, encoding="utf-8") as lines:
        bursts = [tuple(map(int, line.split(",")[:2])) for line in lines]
    wrong += compare(harness, "neighbour", why, bursts, is_neighbour)
    why, _ = explained(harness, "why-alone")
    for finding in (why["comparison"] or {"findings": []})["findings"]:
        by = finding.get("by", {})
        if finding["explained_ns"] > 1e6 and (is_slow(by) or is_neighbour(by)):
            wrong.append(f"nothing is planted, and it says: {finding}")
    expect(wrong)
