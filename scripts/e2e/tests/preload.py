"""Recording without any right: SYN as an ordinary user records it, and as in a plain container."""

import csv
import os
import shutil
import sys
from statistics import median

from compare import compare_graph, expect_all
from harness import ONBEAT, ROOT, load
from registry import Skip, expect, need, test
from tests.observe import GENTLE, PARKING, parking_truth

CONFINED = [sys.executable, os.path.join(ROOT, "scripts/e2e/confined.py")]


def means(harness, name):
    """By what means a trace was recorded."""
    manifest = load(os.path.join(harness.file(name + ".trace"), "manifest.json"))
    return manifest["probing"], manifest["scheduling"]


@test
def preload_records_rclpy_without_capabilities(harness):
    """SYN in rclpy is recorded without a capability, with the kernel's records of context switches."""
    truth, model = harness.syn("preload_rclpy", "kilted", *GENTLE, how=["--preload"],
                               before=[*CONFINED, "--perf"])
    if means(harness, "preload_rclpy") == ("preload", "clocks"):
        raise Skip("perf_event_open is refused: kernel.perf_event_paranoid is above 2, or a filter"
                   " of system calls")
    need(means(harness, "preload_rclpy") == ("preload", "perf"), "it was recorded in another way")
    expect_all(harness, truth, model)


@test
def preload_uses_cpu_clocks_where_perf_events_are_refused(harness):
    """Where BPF and perf_event_open are refused, the CPU time of SYN comes from the threads' clocks."""
    native = os.path.join(harness.native("kilted"), "syn")
    truth, model = harness.syn("preload_rcl_confined", "kilted", *GENTLE, "--native", native,
                               before=CONFINED)
    truth["compiled"] = True
    need(means(harness, "preload_rcl_confined") == ("preload", "clocks"),
         "it was recorded in another way")
    expect_all(harness, truth, model)


def structure(model):
    """Returns the structure of a model without times and counts."""
    return {
        "callbacks": sorted((c["id"], c["type"], *c["outputs"]) for c in model["callbacks"]),
        "edges": sorted((e["from"], e["to"], e["topic"]) for e in model["edges"]),
        "junctions": sorted((j["callback"], j["kind"]) for j in model["junctions"]),
        "chains": sorted(c["callbacks"] for c in model["chains"]),
    }


@test
def preload_and_bpf_give_models_of_equal_structure(harness):
    """The same case, recorded with BPF and with the library: both models have the same structure."""
    models = []
    for name, how in [("with_bpf", []), ("with_preload", ["--preload"])]:
        truth, model = harness.case(name, "kilted", "same-name", how=how)
        expect_all(harness, truth, model)
        models.append(structure(model))
    probing = [means(harness, name)[0] for name in ("with_bpf", "with_preload")]
    need(probing == ["bpf", "preload"], f"recorded by {probing}")
    # Root's command gains rights when it is executed, which takes inherited events from it.
    if means(harness, "with_preload")[1] == "perf":
        events = harness.onbeat("export", harness.file("with_preload.trace"), "--to", "text")
        need(" switch_in " in events, "no context switch was recorded")
    need(models[0] == models[1], f"with BPF {models[0]}, with the library {models[1]}")


# How far both may be apart in one run: execution times (of which the library does not see what a host takes
# away), and a chain's latency at the median of its executions.
BOTH_EXEC_SHARE = 0.01
BOTH_LATENCY_NS = 20_000
# How far the longest may be apart: one thread that loses its CPU between both readings is enough. That happens
# to few: so many starts and ends of callbacks may be further apart than BOTH_LATENCY_NS.
BOTH_LONGEST_NS = 2_000_000
BOTH_FAR_SHARE = 0.2


def apart(what, bpf, library, most):
    """A line if two figures are further apart than `most`."""
    if abs(library - bpf) <= most:
        return []
    return [f"{what}: {bpf / 1e3:.1f} us with BPF, {library / 1e3:.1f} us with the library"]


def later_ns(harness, *traces):
    """How much later each callback starts and ends by the first trace than by the second, which has the same
    executions: lists, by the callback."""
    times = []
    for trace in traces:
        rows = csv.DictReader(harness.onbeat("export", harness.file(trace), "--to", "executions").splitlines())
        times.append({})
        for row in rows:
            times[-1].setdefault(row["callback"], []).append((int(row["start_ns"]), int(row["end_ns"])))
    first, second = times
    return {callback: tuple([a[i] - b[i] for a, b in zip(mine, second[callback])] for i in (0, 1))
            for callback, mine in first.items() if len(mine) == len(second.get(callback, []))}


@test
def preload_and_bpf_together_give_equal_times(harness):
    """SYN, recorded with BPF and by the library at once: the same executions, times and latencies."""
    inner = harness.file("preload_inner.trace")
    shutil.rmtree(inner, ignore_errors=True)
    prefix = [ONBEAT, "record", "--preload", "-o", inner, "--"]
    _, bpf = harness.syn("preload_beside_bpf", "kilted", *GENTLE, prefix=prefix)
    library = harness.model("preload_inner", inner)
    probing = [means(harness, name)[0] for name in ("preload_beside_bpf", "preload_inner")]
    need(probing == ["bpf", "preload"], f"recorded by {probing}")
    need(structure(bpf) == structure(library), f"with BPF {structure(bpf)}, with the library {structure(library)}")
    wrong, exec_share, latency_ns = [], 0, 0
    others = {c["id"]: c for c in library["callbacks"]}
    for callback in bpf["callbacks"]:
        mine, other = callback["exec_ns"], others[callback["id"]]["exec_ns"]
        ran = [c["exec_ns"]["count"] + c.get("untimed", 0) for c in (callback, others[callback["id"]])]
        if ran[0] != ran[1]:
            wrong.append(f"{callback['id']}: {ran[0]} executions with BPF, {ran[1]} with the library")
        most = (BOTH_EXEC_SHARE + 2 * harness.stolen) * mine["p50"]
        wrong += apart(callback["id"], mine["p50"], other["p50"], most)
        exec_share = max(exec_share, abs(other["p50"] / max(1, mine["p50"]) - 1) if mine["p50"] else 0)
    others = {tuple(c["callbacks"]): c["latency_ns"] for c in library["chains"]}
    later, median_ns = later_ns(harness, "preload_beside_bpf.trace", "preload_inner.trace"), 0
    for chain in bpf["chains"]:
        mine, other = chain["latency_ns"], others[tuple(chain["callbacks"])]
        wrong += apart(f"{chain['id']}, longest", mine["max"], other["max"], BOTH_LONGEST_NS)
        latency_ns = max(latency_ns, abs(other["max"] - mine["max"]))
        # Each execution beside itself: medians of a model are too coarse.
        begin, end = median(later[chain["callbacks"][0]][0]), median(later[chain["callbacks"][-1]][1])
        wrong += apart(f"{chain['id']}, its executions", end, begin, BOTH_LATENCY_NS)
        median_ns = max(median_ns, abs(end - begin))
    distances = [abs(one - median(times)) for both in later.values() for times in both for one in times]
    far = sum(distance > BOTH_LATENCY_NS for distance in distances) / len(distances)
    if far > BOTH_FAR_SHARE:
        wrong.append(f"{far * 100:.1f} % of {len(distances)} starts and ends are more than {BOTH_LATENCY_NS / 1e3:.0f} us apart")
    harness.figures.append(f"{far * 100:.1f} % of starts and ends further than {BOTH_LATENCY_NS / 1e3:.0f} us")
    harness.figures.append(f"execution times within {exec_share * 100:.2f} %, latencies within "
                           f"{median_ns / 1e3:.1f} us of each other at the median, the longest within {latency_ns / 1e3:.0f} us")
    expect(wrong)


@test
def preload_records_the_confined_parking_demo_like_bpf(harness):
    """The parking demo, recorded for some seconds as in a plain container, and with BPF: Figure 3.8b both
    times, and the same structure."""
    models = []
    ways = [("preload_parking", {"how": ["--preload"], "before": CONFINED}), ("parking_bpf", {})]
    for name, options in ways:
        command = [harness.python("kilted"), PARKING, "--duration", "10"]
        model = harness.model(name, harness.record(name, command, **options))
        expect(compare_graph(parking_truth(), model))
        models.append(structure(model))
    need(means(harness, "preload_parking") == ("preload", "clocks"), "it was recorded in another way")
    need(models[0] == models[1], f"with the library {models[0]}, with BPF {models[1]}")
