"""Random applications with known truth (demos/syn/zoo.py): each seed is one application and one way to run it.

    ./dev test e2e zoo_seed_17        one seed
    ./dev check zoo                   200 seeds on Kilted and on Jazzy; a seed that fails is reduced to a small application
"""

import os
import sys

from compare import EACH_OFF, POOL_OFF, compare_each, compare_executions, compare_graph, compare_latencies, lost
from harness import ROOT
from registry import Mismatch, expect, register

sys.path.insert(0, os.path.join(ROOT, "demos/syn"))
import zoo  # noqa: E402
from wiring import write_wiring  # noqa: E402

SEEDS = 200
TESTED = [1, 3, 4, 5, 6, 7, 8, 9, 10, 11]
SECONDS = "4"
# How far a median execution time may be off, beside its share. rclpy's own part of an execution is Python that no
# event marks: 50 us with warm caches, 300 us with cold ones on a virtual machine.
AROUND_NATIVE_NS, AROUND_RCLPY_NS = 75_000, 350_000
# With this variable, a seed that fails is reduced, which takes some minutes.
REDUCE = "ONBEAT_ZOO_REDUCE"


def settled(harness, name, table, model):
    """The model, with the truth stated about each junction of which it says that its kind cannot be told."""
    statements = set()
    for _ in range(3):
        new = {statement(table, j["settle"]) for j in model["junctions"] if j.get("state") == "ambiguous"}
        if new <= statements:
            break
        statements |= new
        words = [word for line in sorted(statements) for word in ("--junction", line)]
        model = harness.model(name, harness.file(name + ".trace"), *words)
    harness.figures.append(f"{len(statements)} junctions stated")
    return model


def statement(table, settle):
    """The true kind of a junction that `settle` is about: `/node(/input, ...) -> /topic = kind`."""
    place, topic = settle.rsplit(" = ", 1)[0].rsplit(" -> ", 1)
    node = place.split("(")[0]
    synced = [cb for cb in table if cb.kind == "sync" and cb.input == topic and "/" + cb.node == node]
    if not synced:
        return f"{node} -> {topic} = or"
    inputs = ", ".join(sorted(cb.input for cb in table if cb.joins == synced[0].name))
    return f"{node}({inputs}) -> {topic} = and"


def without_unheard_calls(harness, table, truth, model):
    """The model without chains that end at a call of which no request arrived. The middleware can report a server
    before it has matched the client; the application knows no end of such a chain."""
    ran = {cb["id"] for cb in truth["callbacks"] if cb["count"]}
    outputs = {cb["id"]: cb["outputs"] for cb in model["callbacks"]}
    unheard = set()
    for caller in (cb for cb in table if cb.calls):
        service = next(cb.input for cb in table if cb.name == caller.calls)
        server = next((cb.node for cb in table if cb.kind == "service" and cb.input == service), None)
        if server and f"/{server}:service({service})@/{caller.node}" not in ran:
            unheard |= {of for of in outputs if of.startswith(f"/{caller.node}:") and f"{service}/request" in outputs[of]}
    if not unheard:
        return model
    harness.figures.append(f"no request of {', '.join(sorted(unheard))} arrived")
    return {**model, "chains": [c for c in model["chains"] if c["callbacks"][-1] not in unheard]}


def untold(table, model):
    """What the model says that it cannot tell: which of several callbacks of a node, which waited for responses,
    published. Returns the ids of these clients and of their services, and of all callbacks whose times it leaves out."""
    notes = model["evidence"]["notes"]
    topics = {note["subject"] for note in notes if note["kind"] == "unknown_waiter"}
    clients = [cb for cb in table if cb.kind == "client" and topics & set(cb.publishes)]
    servers = {cb.input: cb.node for cb in table if cb.kind == "service"}
    graph = {f"/{cb.node}:client({cb.input})" for cb in clients}
    graph |= {f"/{servers[cb.input]}:service({cb.input})@/{cb.node}" for cb in clients}
    return graph, {note["subject"] for note in notes if note["kind"] == "unshown"} if graph else set()


def judge(harness, name, distro, seed, table):
    """Records an application in the way of its seed, and compares the model with the truth."""
    _, options, native = zoo.application(seed)
    path = harness.file(name + ".wiring.json")
    write_wiring(path, table)
    # Every third seed is recorded by the library.
    how = ["--preload"] if seed % 3 == 0 else []
    words = ["--duration", SECONDS, "--wiring", path, *options]
    words += ["--native", os.path.join(harness.native(distro), native)] if native else []
    truth, model = harness.syn(name, distro, *words, how=how)
    truth["compiled"] = bool(native)
    model = without_unheard_calls(harness, table, truth, settled(harness, name, table, model))
    around_ns = AROUND_NATIVE_NS if native else AROUND_RCLPY_NS
    # Which of rclpy's worker threads goes on after a response cannot be told for sure.
    pool = not native and "multi" in options
    late = [] if pool else compare_latencies(harness, truth, model)
    graph, times = untold(table, model)
    wrong = [line for line in compare_graph(truth, model) if not any(of in line for of in graph)]
    if graph:
        harness.figures.append(f"untold: {', '.join(sorted(graph | times))}")
    timed = {**truth, "callbacks": [cb for cb in truth["callbacks"] if cb["id"] not in times]}
    expect(lost(model), wrong, compare_executions(timed, model, around_ns=around_ns),
           compare_each(harness, timed, POOL_OFF if pool else EACH_OFF), late)


def smaller(table):
    """Applications that lack one callback, and everything that nothing triggers then."""
    for gone in reversed(table):
        rest = [cb for cb in table if cb.name not in (gone.name, gone.joins)]
        while True:
            fed = {topic for cb in rest for topic in cb.publishes}
            called = {cb.calls for cb in rest}
            requested = {cb.input for cb in rest if cb.kind == "client" and cb.name in called}
            kept = [cb for cb in rest if cb.kind == "timer" or (cb.kind == "client" and cb.name in called)
                    or (cb.kind == "service" and cb.input in requested)
                    or (cb.kind == "subscription" and cb.input in fed)
                    or (cb.kind == "sync" and sum(c.joins == cb.name for c in rest) > 1)]
            if len(kept) == len(rest):
                break
            rest = kept
        names = {cb.name for cb in rest}
        yield [zoo.copied(cb, names) for cb in rest]


def fails(harness, name, distro, seed, table):
    """Why an application fails in both of two runs; None: it does not."""
    why = None
    for _ in range(2):
        try:
            judge(harness, name, distro, seed, table)
            return None
        except Mismatch as error:
            why = error
    return why


def reduce(harness, name, distro, seed, table, why):
    """The smallest application that still fails, and why."""
    found = True
    while found:
        found = False
        for candidate in smaller(table):
            error = fails(harness, name, distro, seed, candidate) if candidate else None
            if error:
                table, why, found = candidate, error, True
                break
    lines = [f"{cb.name} {cb.node} {cb.kind} {cb.input} -> {' '.join([*cb.publishes, cb.calls, cb.joins])}"
             for cb in table]
    return Mismatch("\n".join([str(why), f"seed {seed}, reduced:", *lines]))


def zoo_test(distro, seed):
    """Makes a test of one seed on one distribution."""
    name = f"zoo_seed_{seed}" if distro == "kilted" else f"zoo_{distro}_seed_{seed}"

    def run(harness):
        table = zoo.application(seed)[0]
        try:
            judge(harness, name, distro, seed, table)
        except Mismatch as error:
            if not os.environ.get(REDUCE):
                raise
            raise reduce(harness, name, distro, seed, table, error) from error

    options = " ".join(zoo.WAYS[seed % len(zoo.WAYS)][0])
    register(run, name=name, description=f"a random application on {distro}, seed {seed} {options}".rstrip(),
             left_out=None if distro == "kilted" and seed in TESTED else "more seeds: ./dev check zoo")


for _distro in ("kilted", "jazzy"):
    for _seed in range(1, SEEDS + 1):
        zoo_test(_distro, _seed)
