"""Patterns that real robots use (demos/patterns): all programs in one recording, compared one by one.

Another pattern is a program in demos/patterns and a line in PATTERNS.
"""

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from typing import Callable

from compare import compare_executions, compare_graph, compare_latencies, lost, own, values
from harness import ROOT
from registry import TIMED_TEST, expect, test

RUN = os.path.join(ROOT, "demos/patterns/run.py")
# From all nodes of a program being connected to its end.
STARTED_S = 4
# Late: the programs run until they are told to end, at most so long.
LATE_S = 120
LATE_RECORDED_S = 8


@dataclass(frozen=True)
class Pattern:
    """A program, and what is compared with its truth."""

    name: str
    # The parts that are compared if the program was started under the recorder.
    counts: bool = True
    latencies: bool = True
    # Whether its graph and execution times are compared in a late attach; if not, why.
    not_late: str | None = None
    # The share of an execution that rclpy's own handling may add.
    around: float = 0
    # The end of names that are not compared.
    without: str | None = None
    # Words for `onbeat model`, with {} for the program's namespace.
    words: tuple = ()
    # More to compare: (truth, the pattern's part of the model) to complaints.
    also: Callable = lambda truth, model: []


# The time that rclpy and the probes add to an execution before and after the program's own lines, beyond
# the share that is compared: with twelve programs on the machine its caches are cold, and some callbacks
# run four times only.
AROUND_NS = 200_000
# How far a release may be from what the program measured: its first line is a little later.
RELEASE_NS = 300_000


def releases(truth, model):
    """A timer's releases are where it was reset to: none later than the program saw it, one as late.

    The program looks at its clock in the callback, and may have waited for a CPU before: then the
    model's figure is the smaller one. Each alarm is as late as [at least, at most].
    """
    wrong = []
    found = {c["id"]: values(c["release_jitter_ns"]) for c in model["callbacks"]}
    for vid, late in truth["late_ns"].items():
        if vid not in found:
            continue
        shown = found[vid]
        as_late = any(low - RELEASE_NS <= ns <= high + RELEASE_NS
                      for low, high in late for ns in shown)
        if not as_late or max(shown) > max(high for _, high in late) + RELEASE_NS:
            wrong.append(f"{vid}: released {[round(ns / 1e6, 3) for ns in shown]} ms off, measured "
                         f"{[[round(ns / 1e6, 3) for ns in bounds] for bounds in late]} ms")
    return wrong


# How far data ages and reaction times may be from what the program measured in its callback.
AGE_NS = 2_000_000
# The oldest is often of a callback that waited for a CPU between its own clock and its message.
OLDEST_NS = 10_000_000


def ages(truth, model):
    """Data ages and reaction times, of as many outputs as there were."""
    wrong = []
    found = {" > ".join(c["callbacks"]): c for c in model["chains"]}
    for chain in truth["chains"]:
        known = found.get(" > ".join(chain["callbacks"]), {})
        for name in ("age_ns", "reaction_ns"):
            if name not in chain:
                continue
            measured, shown = chain[name], known.get(name, {"count": 0, "min": 0, "max": 0})
            off = (abs(shown["min"] - min(measured)), abs(shown["max"] - max(measured)))
            if shown["count"] != len(measured) or off[0] > AGE_NS or off[1] > OLDEST_NS:
                wrong.append(f"{name}: {len(measured)} of {min(measured)} to {max(measured)},"
                             f" not {shown['count']} of {shown['min']} to {shown['max']}")
    return wrong


def no_releases(truth, model):
    """On simulated time there are none, and that is said with its count."""
    wrong = []
    for c in model["callbacks"]:
        if c["id"] in truth["simulated"]:
            figures = (c["release_jitter_ns"]["count"], c["response_ns"]["count"])
            said = f"{c['id']} ran {c['exec_ns']['count']} times on simulated time"
            if figures != (0, 0) or not any(said in line for line in model["coverage"]):
                wrong.append(f"{c['id']}: {figures} releases and responses on simulated time, "
                             f"or not said: {said}")
    return wrong


# A callback's sleep may be longer than it asks for.
SLEEP_NS = 1_000_000


def sleeps(truth, model):
    """Returns callbacks with a wrong sleep time. Sleeps of the executor after a callback do not count."""
    wrong = []
    found = {c["id"]: c["blocked_ns"]["p50"] for c in model["callbacks"]}
    for vid, slept in truth["slept_ns"].items():
        if vid in found and not slept <= found[vid] + SLEEP_NS <= slept + 2 * SLEEP_NS:
            wrong.append(f"{vid} slept {found[vid] / 1e6:.3f} ms, not {slept / 1e6:.3f} ms")
    return wrong


# How far the median of a loop's blocked time may be off: a loop that gets its CPU late waits less, and
# Python's lock is another wait.
LOOP_BLOCKED_SHARE = 0.15
LOOP_PERIOD_SHARE = 0.02


def loops(truth, model):
    """A loop of the program's own has its period, and its waits for a mutex are within its executions."""
    loop = truth["loop"]
    found = next((c for c in model["callbacks"] if c["id"] == loop["id"]), None)
    if not found:
        return [f"no {loop['id']}"]
    wrong, blocked = [], found["blocked_ns"]["p50"]
    if abs((found["period_ns"] or 0) / loop["period_ns"] - 1) > LOOP_PERIOD_SHARE:
        wrong.append(f"{loop['id']}: its period is {found['period_ns']}, not {loop['period_ns']}")
    if abs(blocked / loop["blocked_ns"] - 1) > LOOP_BLOCKED_SHARE:
        wrong.append(f"{loop['id']}: blocked for {blocked / 1e6:.2f} ms, not {loop['blocked_ns'] / 1e6:.2f} ms")
    return wrong


PATTERNS = [
    Pattern("plain"),
    # Its last execution has no next one, whose call would show the sleep after it; and between a
    # timer's call and its callback lie 0.2 ms of rclpy's own that no event marks.
    Pattern("events_executor", counts=False, latencies=False, also=sleeps),
    # Its chain is of a few executions: one that waits for a CPU moves the median.
    Pattern("one_shot", latencies=False,
            not_late="the node of its timer that publishes nothing is not known"),
    # Its chain too is of a few executions.
    Pattern("watchdog", latencies=False, also=releases),
    Pattern("sim_time", also=no_releases),
    Pattern("stored_value", also=ages,
            words=("--link", "{}/keeper:subscription({}/pose) -> {}/keeper:timer(60ms)"),
            not_late="the link names callbacks by the node's name, and a timer by its period"),
    # The same: which images are nearest changes with a late one.
    Pattern("approximate_sync", latencies=False,
            words=("--junction", "{}/fusion -> {}/fused = approximate"),
            not_late="the junction is stated by the node's name, which a late recorder may not have"),
    # The work of a driver for its first publication is not known.
    Pattern("own_threads", counts=False),
    # The work of its thread before its first publication is not known.
    Pattern("control_loop", counts=False, also=loops),
    Pattern("polling", not_late="three nodes in one process: one that only listens may have no name"),
    Pattern("nested_spin"),
    # The middleware keeps only the latest state of a goal, so the taken states depend on chance. And rclpy
    # does much for a goal beside the user's code.
    Pattern("action_pool", latencies=False, around=0.45, without="/_action/status",
            not_late="three nodes in one process: those of an action have no names"),
    Pattern("coroutine"),
    Pattern("blocking_call"),
    # The work of the thread before its first publication is not known.
    Pattern("main_thread", counts=False),
]


def command(harness, out, duration_s, names):
    """The words that run programs side by side."""
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    # Their measurements are in their own files: a recorder that is root must be able to write.
    return [harness.python("kilted"), RUN, "--out", out, "--namespace", harness.namespace,
            "--duration", str(duration_s), *names]


def parts(harness, model, out, patterns):
    """(pattern, its truth, its part of the model), for each."""
    for pattern in patterns:
        truth = harness.truth(os.path.join(out, pattern.name + ".json"))
        truth["stolen"] = truth.get("stolen", 0) + pattern.around
        part = own(model, f"{harness.namespace}/{pattern.name}/")
        yield pattern, truth, leave_out(pattern.without, part)


def leave_out(end, part):
    """A part of a model without what has names that end so."""
    if not end:
        return part
    left_out = {c["id"] for c in part["callbacks"] if c["input"].endswith(end)}
    return {**part,
            "callbacks": [c for c in part["callbacks"] if c["id"] not in left_out],
            "edges": [e for e in part["edges"] if not {e["from"], e["to"]} & left_out],
            "junctions": [j for j in part["junctions"] if j["callback"] not in left_out],
            "chains": [c for c in part["chains"] if not set(c["callbacks"]) & left_out]}


def with_code(truth):
    """The truth without callbacks that run no code of the program, as a client's that is awaited."""
    return {**truth, "callbacks": [c for c in truth["callbacks"] if c["cpu_ns"]]}


def named(pattern, complaints):
    """Complaints with the pattern's name before them."""
    return [f"{pattern.name}: {c}" for c in complaints]


def started(harness, patterns):
    """Complaints about each pattern that is not as its program says, all started under one recorder."""
    out = harness.file("patterns")
    trace = harness.record("patterns", command(harness, out, STARTED_S,
                                               [p.name for p in patterns]))
    words = [word.replace("{}", f"{harness.namespace}/{p.name}") for p in patterns
             for word in p.words]
    model = harness.model("patterns", trace, *words)
    expect(lost(model))
    wrong = []
    for pattern, truth, part in parts(harness, model, out, patterns):
        found = compare_graph(truth, part)
        found += compare_executions(with_code(truth), part, pattern.counts, AROUND_NS)
        if pattern.latencies:
            measured = {**truth, "chains": [c for c in truth["chains"] if c["latency_ns"]]}
            found += compare_latencies(harness, measured, part, AROUND_NS)
        found += pattern.also(truth, part)
        if found:
            wrong.append((pattern, found))
    return wrong


def compare(harness, patterns, recorded):
    """All patterns side by side, a dozen programs on all CPUs; then what went wrong by itself.

    A pattern of a few executions cannot tell a wrong model from a callback that waited for a CPU.
    """
    for pattern, found in recorded(harness, patterns):
        harness.figures += [f"by itself again: {c}" for c in named(pattern, found)]
        expect([c for again, found in recorded(harness, [pattern]) for c in named(again, found)])


@test(places=TIMED_TEST)
def patterns_are_modelled_with_the_figures_that_they_report(harness):
    """Every pattern that the recorder starts has a true graph, counts, execution times and latencies."""
    compare(harness, PATTERNS, started)


def late(harness, patterns):
    """Complaints about each pattern, running already when the recorder comes."""
    out = harness.file("patterns-late")
    programs = subprocess.Popen(command(harness, out, LATE_S, [p.name for p in patterns]))
    try:
        for pattern in patterns:
            harness.begun(os.path.join(out, pattern.name + ".begun"), programs)
        with harness.recording("patterns-late", "--duration", f"{LATE_RECORDED_S}s") as trace:
            time.sleep(LATE_RECORDED_S)
    finally:
        with open(os.path.join(out, "over"), "w", encoding="utf-8"):
            pass
        programs.wait()
    model = harness.model("patterns-late", trace)
    expect(lost(model))
    wrong = []
    for pattern, truth, part in parts(harness, model, out, patterns):
        found = compare_graph(truth, part)
        found += compare_executions(with_code(truth), part, False, AROUND_NS)
        if found:
            wrong.append((pattern, found))
    return wrong


@test(places=TIMED_TEST)
def patterns_are_modelled_after_a_late_attach(harness):
    """Every pattern that runs already has a true graph and execution times."""
    # Those alone that are compared: on a starved machine a late recorder does not find all names.
    harness.figures += [f"{p.name} not compared: {p.not_late}" for p in PATTERNS if p.not_late]
    compare(harness, [p for p in PATTERNS if not p.not_late], late)
