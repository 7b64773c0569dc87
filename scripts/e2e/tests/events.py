"""rclcpp's EventsCBGExecutor: several threads that events wake, no rcl_wait, groups that overlap themselves.

demos/syn/native/events.hpp takes its steps, with the symbols of Lyrical.
"""

import os
import subprocess
import time

from compare import differences, expect_all, lost, median
from harness import load
from registry import COMPUTING_TEST, expect, need, test
from tests.late import own_model, syn_command
from tests.observe import GENTLE
from tests.preload import means

WORDS = ["--as", "rclcpp", "--layout", "one", "--executor", "events", "--threads", "4"]
# sc7 runs longer than the second between its items: it overlaps itself, on more threads than one.
OVERLAPPING = ["--duration", "8", "--rate", "1", "--reentrant", "--set", "sc7=1200"]
SELF = "/n1:subscription(/f4)"


def program(harness):
    """The words for the compiled client."""
    return [*WORDS, "--native", os.path.join(harness.native("kilted"), "syn-lyrical")]


def record(harness, name, *words, **options):
    """SYN on the events executor: (truth, model). Its clients' calls must be seen exactly."""
    truth, model = harness.syn(name, "kilted", *words, *program(harness), **options)
    truth["compiled"] = True
    wrong = [line for line in model["coverage"] if "execute_client" in line]
    need(not wrong, f"Lyrical's symbols were not found: {wrong}")
    return truth, model


def overlaps(harness, name):
    """How many executions of SELF began before an earlier one had ended."""
    rows = harness.onbeat("export", harness.file(name + ".trace"), "--to", "executions").splitlines()
    head = rows[0].split(",")
    places = [head.index(column) for column in ("start_ns", "end_ns")]
    spans = sorted(tuple(int(row.split(",")[place]) for place in places) for row in rows[1:] if SELF in row)
    return sum(begin < end for (_, end), (begin, _) in zip(spans, spans[1:]))


@test
def events_cbg_executor_is_modelled(harness):
    """An application on EventsCBGExecutor that the recorder starts has a true graph, execution times and latencies."""
    expect_all(harness, *record(harness, "events_cbg", *GENTLE))


@test
def events_cbg_executor_is_modelled_from_a_recording_of_the_preloaded_library(harness):
    """The same application, recorded by the preloaded library."""
    expect_all(harness, *record(harness, "events_cbg_preloaded", *GENTLE, how=["--preload"]))
    probing, _ = means(harness, "events_cbg_preloaded")
    need(probing == "preload", f"it was recorded by {probing}")


@test
def events_cbg_messages_within_a_process_are_modelled(harness):
    """Messages within a process: the executor takes them from a buffer, without a middleware."""
    expect_all(harness, *record(harness, "events_cbg_intra", *GENTLE, "--intra"))


@test(places=COMPUTING_TEST)
def events_cbg_overlapping_executions_have_their_own_times(harness):
    """Executions of reentrant callbacks overlap, also those of one callback. Each has its own times."""
    truth, model = record(harness, "events_cbg_overlapping", *OVERLAPPING)
    # More executions than CPUs wait for one another: the times of chains say nothing.
    expect_all(harness, truth, model, latencies=False)
    found = overlaps(harness, "events_cbg_overlapping")
    need(found > 0, "no execution overlapped an earlier one of its callback")
    harness.figures.append(f"{found} executions overlapped one of their own callback")


# What a probe and cold caches may add to an execution.
AROUND_NS = 300_000


def named(callback):
    """The callback's id without its node, which is not known: clients that are no objects of rclcpp do not name it."""
    return callback["id"].split(":", 1)[1].split("#")[0]


@test
def events_cbg_executor_is_modelled_after_a_late_attach(harness):
    """The same application, which runs already. No thread waits in rcl, and the model has topics and times."""
    truth, begun = harness.file("events_late.truth.json"), harness.new_file("events_late.begun")
    app = subprocess.Popen(syn_command(harness, "kilted", truth, "--duration", "20", "--begun", begun,
                                       *program(harness)))
    try:
        harness.begun(begun, app)
        time.sleep(1)
        with harness.recording("events_late", "--duration", "6s") as trace:
            time.sleep(6)
    finally:
        app.wait()
    model, known = own_model(harness, "events_late", trace), load(truth)
    wrong = lost(model) + differences("topic", {e["topic"] for e in known["edges"]},
                                      {e["topic"] for e in model["edges"]})
    kinds = ("subscription", "timer")
    ran, found = (sorted(named(c) for c in m["callbacks"] if c["type"] in kinds) for m in (known, model))
    need(ran == found, f"{ran} run, the model has {found}")
    times = {named(c): median(c["cpu_ns"]) for c in known["callbacks"] if ran.count(named(c)) == 1}
    for callback in model["callbacks"]:
        expected = times.get(named(callback))
        if expected and abs(callback["exec_ns"]["p50"] - expected) > AROUND_NS:
            wrong.append(f"{callback['id']}: {callback['exec_ns']['p50'] / 1e6:.2f} ms, not {expected / 1e6:.2f} ms")
    expect(wrong)
