"""`onbeat advise`: finds costs that were planted, nothing where they are gone, and what it advises helps."""

import json
import os
import shlex

from chain import Chain, whole_chain
from harness import load
from registry import TIMED_TEST, Mismatch, Skip, expect, test

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CROWDED, INHIBITED = (os.path.join(HERE, name) for name in ("crowded.py", "inhibited.py"))
# A chain at this priority, and what goes before it though nobody waits for it.
CHAIN, INTRUDER = 10, 30


def advised(harness, name, trace, words):
    """The model of a trace, and what is advised."""
    model = harness.model(name, trace)
    out = harness.onbeat("advise", harness.file(name + ".json"), "--json", *words(model))
    return model, json.loads(out)


def mean_ms(model, chain_id):
    """The mean latency of a chain."""
    return next(c["latency_ns"]["mean"] for c in model["chains"] if c["id"] == chain_id) / 1e6


@test(places=TIMED_TEST)
def advise_names_a_priority_inversion_and_removes_it(harness):
    """A planted priority inversion is named, and is gone with the advised priorities."""
    if os.geteuid() != 0:
        raise Skip("real-time priorities need root")
    demo = Chain(harness, "advise_inversion")
    # 6 of each 20 ms of the chain's CPU.
    intruder = ["taskset", "-c", "1", "chrt", "-f", str(INTRUDER), demo.stage, "--name", "intruder",
                "--period-ms", "20", "--min-ms", "6", "--max-ms", "6",
                "--ros-args", "-r", "__node:=intruder"]

    def run(name, priority):
        chain = shlex.join(demo.command(7, "--fifo", str(priority)))
        script = f"{shlex.join(intruder)} & {chain}; kill $!; wait"
        trace = harness.record(name, ["sh", "-c", script])

        def important(model):
            whole = whole_chain(model["chains"])
            if not whole:
                raise Mismatch(f"no chain from stage 1 to stage 3: {model['chains']}")
            return ["--chain", whole]
        model, report = advised(harness, name, trace, important)
        blamed = [a for a in report["advices"] if a["rule"] == "priority" and a["chain"]["id"] ==
                  report["chains"][0]["id"] and "/intruder:timer(20ms)" in a["finding"]]
        return mean_ms(model, report["chains"][0]["id"]), blamed, report
    before, blamed, report = run("advise_inverted", CHAIN)
    wrong = [] if blamed else [f"the inversion was not found: {report['advices']}"]
    wrong += [f"advised is {a['remedy']}" for a in blamed if f"above {INTRUDER}" not in a["remedy"]]
    first = next((p for p in report["priorities"]), {"priority": 0})
    if first["priority"] <= INTRUDER:
        wrong.append(f"priorities begin with {first}")
    after, blamed, report = run("advise_righted", first["priority"])
    wrong += [f"still blamed: {a['finding']}" for a in blamed]
    harness.figures.append(f"mean latency {before:.1f} ms, as advised {after:.1f} ms")
    if not after < 0.9 * before:
        wrong.append(f"as advised the mean latency is {after:.1f} ms, before it was {before:.1f} ms")
    expect(wrong)


@test(places=TIMED_TEST)
def advise_names_the_callback_that_delays_an_urgent_one(harness):
    """An executor that delays an urgent callback is named with the cause. Apart, nothing is found."""
    python, reports, delays = harness.python("kilted"), {}, {}
    for name, words in (("crowded", []), ("crowded_apart", ["--apart"])):
        truth = harness.new_file(name + ".truth.json")
        trace = harness.record(name, [python, CROWDED, "7", *words, truth])
        _, reports[name] = advised(harness, name, trace, lambda _: [])
        delays[name] = sum(load(truth)) / len(load(truth)) / 1e6

    def executor(name):
        return [a for a in reports[name]["advices"] if a["rule"] == "executor"]
    wrong = []
    blamed = executor("crowded")
    if [a["subject"] for a in blamed] != ["/driver:subscription(/crowded/scan)"]:
        wrong.append(f"advised for {[a['finding'] for a in blamed]}")
    for advice in blamed:
        if "/mapper:timer(70ms)" not in advice["finding"]:
            wrong.append(f"the mapper is not blamed: {advice['finding']}")
        # The application's figure also contains the transport.
        if not 0.5 * delays["crowded"] < advice["cost_ns"] / 1e6 < 1.1 * delays["crowded"]:
            wrong.append(f"cost {advice['cost_ns'] / 1e6:.2f} ms, the application {delays['crowded']:.2f}")
    wrong += [f"apart: {a['finding']}" for a in executor("crowded_apart")]
    # Apart, the executors' threads wait for the interpreter's lock, which is no part of a bound.
    bounds = [b for b in reports["crowded"]["bounds"] if any("/driver:" in s["callback"] for s in b["steps"])]
    for bound in bounds:
        longest, limit = bound["measured_ns"] / 1e6, bound["bound_ns"] / 1e6
        harness.figures.append(f"longest {longest:.1f} ms, bound {limit:.1f} ms")
        # The mapper may be in the way, wherever it was. That a thread gets its CPU late is no part of it either.
        if limit < 25 or longest > 1.1 * limit:
            wrong.append(f"{longest:.2f} ms measured, and the bound is {limit:.2f} ms")
    if not bounds:
        wrong.append(f"no bound: {reports['crowded']['bounds']}")
    harness.figures.append(f"scans under way {delays['crowded']:.2f} ms, apart {delays['crowded_apart']:.2f}")
    if not delays["crowded_apart"] < delays["crowded"]:
        wrong.append(f"no gain: {delays}")
    expect(wrong)


@test(places=TIMED_TEST)
def advise_names_a_middleware_thread_without_cpu(harness):
    """A middleware thread that gets no CPU is named. The advice is gone at the advised priority."""
    if os.geteuid() != 0:
        raise Skip("real-time priorities need root")
    python, reports, delays = harness.python("kilted"), {}, {}
    for name, words in (("inhibited", []), ("inhibited_advised", ["--advised"])):
        truth = harness.new_file(name + ".truth.json")
        trace = harness.record(name, [python, INHIBITED, "7", *words, truth], how=["--all-threads"])
        _, reports[name] = advised(harness, name, trace, lambda _: [])
        delays[name] = sum(load(truth)) / len(load(truth)) / 1e6
    wrong = []
    # A host that takes CPU time away delays real-time threads too, and is then named as well.
    blamed = [a for a in reports["inhibited"]["advices"] if "another thread or the host" not in a["finding"]]
    if [(a["rule"], a["subject"]) for a in blamed] != [("helper", "/receiver (dds.shm)")]:
        wrong.append(f"advised for {[a['finding'] for a in blamed]}")
    for advice in (a for a in blamed if a["rule"] == "helper"):
        # The application's figure also contains the way to the callback.
        if not 0.5 * delays["inhibited"] < advice["cost_ns"] / 1e6 < 1.1 * delays["inhibited"]:
            wrong.append(f"cost {advice['cost_ns'] / 1e6:.2f} ms, the application {delays['inhibited']:.2f}")
    # The rest is the time in which this machine wakes up a CPU.
    left = [a["cost_ns"] / 1e6 for a in reports["inhibited_advised"]["advices"] if a["rule"] == "helper"]
    if max(left, default=0) > 0.1 * delays["inhibited"]:
        wrong.append(f"as advised it still costs {max(left):.2f} ms")
    harness.figures.append(
        f"scans under way {delays['inhibited']:.2f} ms, as advised {delays['inhibited_advised']:.2f}")
    if not delays["inhibited_advised"] < 0.3 * delays["inhibited"]:
        wrong.append(f"no gain: {delays}")
    expect(wrong)
