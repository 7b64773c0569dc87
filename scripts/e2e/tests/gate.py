"""The end of a slot meets a thread at work that holds what others need; a node runs twice."""

import contextlib
import json
import os
import signal
import statistics
import subprocess

from chain import CHAIN, is_gated, wait_until
from harness import ONBEAT, load
from registry import SHAPERS, TIMED_TEST, need, test

CYCLE_MS = 100
SLOT_MS = 20

PLAN = f"""schema: onbeat-plan/1
strategy: by hand
chains:
- id: holder
  callbacks: [/holder:timer(100ms)]
cycle_ms: {CYCLE_MS}
origin: /holder:timer(100ms)
servers:
- name: gamma
  cpu: 1
  priority: 80
  slots_ms:
  - [0, {SLOT_MS}]
  callbacks: [/holder:timer(100ms)]
outputs: []
middleware: {{cpu: 0, priority: 91}}
overshoot: carry
promises: {{average_ms: {CYCLE_MS}, worst_ms: {CYCLE_MS}, jitter_ms: {CYCLE_MS}, utilisation: {{1: 0.2}}}}
"""


def shaped(harness, kind):
    """Shapes the program with gates of this kind: how often its other thread counted behind the slot
    of each long execution, and onbeat's report."""
    plan, truth = harness.file("gate.yaml"), harness.file(f"gate_{kind}.truth.json")
    with open(plan, "w", encoding="utf-8") as file:
        file.write(PLAN)
    report = harness.onbeat("shape", plan, "--duration", "8s", "--json", "--gate", kind, "--",
                            harness.python("kilted"), os.path.join(CHAIN, "holder.py"),
                            "--truth", truth, before=harness.privileged())
    found = load(truth)
    end = max(found["counted"])
    # It was shaped for eight seconds before its end.
    starts = [s for s in found["starts"] if end - 6e9 < s < end - 1e9]
    need(len(starts) >= 5, f"{len(starts)} long executions in 5 s")

    def behind_slot(start):
        since, until = start + (SLOT_MS + 5) * 1e6, start + (CYCLE_MS - 5) * 1e6
        return sum(since < at < until for at in found["counted"])

    return [behind_slot(s) for s in starts], json.loads(report)


@test(places=TIMED_TEST)
def gate_hard_stops_other_threads_of_a_process_and_gate_soft_does_not(harness):
    """A callback that is frozen with the interpreter's lock stops other threads. A soft gate does not freeze it."""
    counts, report = shaped(harness, "hard")
    gate = report["gates"][0]
    need(statistics.median(counts) == 0, f"with a hard gate the other thread counts: {counts}")
    need(gate["frozen_working"] >= 5, f"nothing was frozen at work: {gate}")
    hard = statistics.mean(counts)
    counts, report = shaped(harness, "soft")
    gate = report["gates"][0]
    # The rest of the slot's cycle is 70 ms. The interpreter changes threads each 5 ms if the machine is not
    # busy.
    need(statistics.median(counts) >= 1, f"with a soft gate the other thread stands still: {counts}")
    need(gate["working"] >= 5 and gate["waited"] >= 5, f"nobody was at work: {gate}")
    need(gate["frozen_working"] == 0, f"frozen at work: {gate}")
    # From the first end of a slot on it is known what the executor of rclpy does.
    need(gate["unknown"] <= 2 and gate["ends"] > 50, f"not known what the thread did: {gate}")
    harness.figures.append(f"counts behind the slot: {hard:.0f} hard, {statistics.mean(counts):.0f} soft")


@contextlib.contextmanager
def holders(harness):
    """Yields a function that starts the program once more; ends what it started."""
    running = []

    def start():
        words = ["--truth", harness.file(f"holder{len(running)}.json"), "--long", "10"]
        program = [harness.python("kilted"), os.path.join(CHAIN, "holder.py"), *words]
        running.append(subprocess.Popen(program))
        return running[-1]

    try:
        yield start
    finally:
        for process in running:
            process.kill()
            process.wait()


@test(group=SHAPERS)
def shape_does_not_shape_a_second_instance_of_a_node(harness):
    """A node runs twice: onbeat reports the second process and does not change it until the first one ends."""
    plan = harness.file("twice.yaml")
    with open(plan, "w", encoding="utf-8") as file:
        file.write(PLAN)
    log = harness.file("twice.log")
    with holders(harness) as start, open(log, "w", encoding="utf-8") as notes:
        first = start()
        onbeat = subprocess.Popen([*harness.privileged(), ONBEAT, "shape", plan, "--json"],
                                  stdout=subprocess.PIPE, stderr=notes, text=True)

        def reached(what, is_so):
            wait_until(what, lambda: onbeat.poll() is not None or is_so(), 90)
            if onbeat.poll() is not None:
                need(False, f"onbeat has ended before: {what}: {open(log, encoding='utf-8').read()}")

        def noted(words):
            with open(log, encoding="utf-8") as file:
                return words in file.read()

        try:
            reached("the first is gated", lambda: is_gated(first.pid))
            second = start()
            reached("the second is reported", lambda: noted(f"and {second.pid} both run /holder:timer"))
            need(not is_gated(second.pid), "the second instance is gated")
            need(is_gated(first.pid), "the first one is gated no more")
            first.send_signal(signal.SIGTERM)
            first.wait(60)
            reached("the second is gated", lambda: is_gated(second.pid))
            reached("the change is reported", lambda: noted(f"now runs in process {second.pid}"))
            onbeat.send_signal(signal.SIGTERM)
            report, _ = onbeat.communicate(timeout=90)
            placed = {t["pid"] for t in json.loads(report)["threads"] if t["server"] == "gamma"}
            need(placed == {first.pid, second.pid}, f"threads of {placed} were in the server")
            need(not is_gated(second.pid), "it is still gated")
        finally:
            if onbeat.poll() is None:
                onbeat.kill()
                onbeat.wait()
