"""A loop of the program's own over a wait set, which executes services itself: no executor marks their begin or end."""

import os
import subprocess
import time
from statistics import median

from compare import lost, values
from registry import expect, need, test
from tests.late import own_model, syn_command

# Services of 1.2 ms, beside callbacks of several ms on the same threads.
SHORT_MS = 1.2
WORDS = ["--rate", "2", *(word for name in ("sv1", "sv2", "sv3", "sv4") for word in ("--set", f"{name}={SHORT_MS}"))]
# What taking a request and sending its response may add to an execution: at the median, and to all but a few. The
# machine can delay a few executions by milliseconds. If times of other callbacks were counted in, many would be longer.
MEDIAN_SHARE, MEDIAN_NS = 0.05, 30_000
LONGER_NS, FEW_LONGER = 400_000, 0.1


def services(document):
    """The services of a truth or a model by their names; several callers of one are together."""
    found = {}
    for callback in document["callbacks"]:
        if callback["type"] == "service":
            name = callback["id"].split(":service(")[1].split(")")[0]
            found.setdefault(name, []).append(callback)
    return found


def compare_services(harness, known, model):
    """Complaints about services whose executions take another time than in the program."""
    wrong, found = lost(model), services(model)
    for name, callbacks in services(known).items():
        ran = [ns for c in callbacks for ns in c["cpu_ns"]]
        times = [ns for c in found.get(name, []) if c["exec_ns"]["count"] for ns in values(c["exec_ns"])]
        if not times:
            wrong.append(f"{name}: no execution")
            continue
        middle, expected = median(times), median(ran)
        if abs(middle - expected) > MEDIAN_SHARE * expected + MEDIAN_NS * known["pace"]:
            wrong.append(f"{name}: {middle / 1e6:.3f} ms at the median, not {expected / 1e6:.3f} ms")
        longer = [ns for ns in times if ns > max(ran) + LONGER_NS * known["pace"]]
        if len(longer) > max(1, FEW_LONGER * len(times)):
            wrong.append(f"{name}: {len(longer)} of {len(times)} executions are longer than {max(ran) / 1e6:.3f} ms,"
                         f" up to {max(longer) / 1e6:.3f} ms")
        harness.figures.append(f"{name} {(middle / expected - 1) * 100:+.1f} %, {len(longer)} longer")
    return wrong


def native(harness):
    """The words for the compiled client, whose loop makes no trace calls."""
    return ["--native", os.path.join(harness.native("kilted"), "syn")]


@test
def own_loop_of_a_program_that_calls_services_is_modelled(harness):
    """A loop of its own that calls services is modelled, with probes and with the preloaded library."""
    for name, how in [("own_loop_bpf", []), ("own_loop_preload", ["--preload"])]:
        truth, model = harness.syn(name, "kilted", "--duration", "8", *WORDS, *native(harness), how=how)
        expect(compare_services(harness, truth, model))
        need(sum(c["exec_ns"]["count"] for found in services(model).values() for c in found)
             == sum(len(c["cpu_ns"]) for found in services(truth).values() for c in found),
             "another number of services ran")


@test
def own_loop_of_a_program_that_calls_services_is_modelled_after_late_attach(harness):
    """The same program, which runs already when the recording begins."""
    truth, begun = harness.file("own_loop.truth.json"), harness.new_file("own_loop.begun")
    app = subprocess.Popen(syn_command(harness, "kilted", truth, "--duration", "16", "--begun", begun, *WORDS,
                                       *native(harness)))
    try:
        harness.begun(begun, app)
        with harness.recording("own_loop", "--duration", "6s") as trace:
            time.sleep(6)
    finally:
        app.wait()
    expect(compare_services(harness, harness.truth(truth), own_model(harness, "own_loop", trace)))
