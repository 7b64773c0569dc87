"""Compares a model with what the application itself knows: graph, executions, latencies."""

from harness import BUSY
from registry import expect

# How far a median may be off: execution time against what was burnt, latency against in-band.
EXEC_SHARE = 0.05
# So much longer an execution may be in rclpy, which works 0.1 to 0.2 ms before and after the application's own lines
# if caches are cold. This time and those below grow with the time that Python took meanwhile (pace.py).
EXEC_RCLPY_NS = 200_000
LATENCY_NS = 50_000
# How far a single execution may be off from the thread's own CPU clock, beside the median difference of its
# callback: the code around the application's two readings. So many of all may be further off, or have no time.
EACH_NS, EACH_SHARE = 150_000, 0.02
EACH_OFF = 0.02
# The same on threads of rclpy's pool, where no event marks the beginning of some executions.
POOL_OFF = 0.08
# In rclpy 20 to 80 us, as the machine is (see below): the 50 us that are wanted hold on some only.
LATENCY_RCLPY_NS = 120_000
# In rclpy the way from the executor's last call to the application's first line, and from its last
# line back, is Python that no event marks: 10 us with warm caches, 35 to 70 without. A host that takes
# CPU time away leaves them cold, and so do other programs: the share that was stolen widens the
# latter by so many times, and a busy machine (BUSY) doubles it.
STOLEN_LATENCY = 10
# Fewer executions have no useful median, because the application's own code is slow in the first one.
LATENCY_EXECUTIONS = 5
# The same for one chain alone, at least this and this share of its latency: its median is of a
# dozen executions, between two clock readings that a busy machine can tear apart.
ONE_LATENCY_NS = 300_000
ONE_LATENCY_SHARE = 0.02


def median(values):
    """The lower median, as a model's p50 is."""
    return sorted(values)[(len(values) + 1) // 2 - 1]


def differences(what, expected, found):
    """Lines that name what is missing and what is too much."""
    expected, found = set(expected), set(found)
    return ([f"{what} missing: {x}" for x in sorted(expected - found)]
            + [f"{what} not in the application: {x}" for x in sorted(found - expected)])


def edge_text(edge):
    """An edge as text."""
    return f"{edge['from']} -> {edge['to']} ({edge['topic']})"


def junction_text(junction):
    """A junction as text."""
    return f"{junction['kind']} at {junction['callback']} of {', '.join(sorted(junction['inputs']))}"


def compare_graph(truth, model):
    """Vertex for vertex, edge for edge."""
    wrong = differences("vertex", [c["id"] for c in truth["callbacks"]],
                        [c["id"] for c in model["callbacks"]])
    wrong += differences("edge", map(edge_text, truth["edges"]), map(edge_text, model["edges"]))
    wrong += differences("junction", map(junction_text, truth["junctions"]),
                         map(junction_text, model["junctions"]))
    wrong += differences("chain", [" > ".join(c["callbacks"]) for c in truth["chains"]],
                         [" > ".join(c["callbacks"]) for c in model["chains"]])
    types = {c["id"]: c["type"] for c in model["callbacks"]}
    outputs = {c["id"]: c["outputs"] for c in model["callbacks"]}
    for cb in truth["callbacks"]:
        if cb["id"] in types:
            if types[cb["id"]] != cb["type"]:
                wrong.append(f"{cb['id']} is a {cb['type']}, not a {types[cb['id']]}")
            if outputs[cb["id"]] != cb["outputs"]:
                wrong.append(f"{cb['id']} has outputs {cb['outputs']}, not {outputs[cb['id']]}")
    return wrong


def compare_executions(truth, model, counts=True, around_ns=0):
    """How often each callback ran, and its median time: at most a share less than the application burnt, and at most
    that share and `around_ns` more. For applications of rclpy, `around_ns` is at least what rclpy adds."""
    wrong = []
    around_ns = max(around_ns, 0 if truth.get("compiled") else EXEC_RCLPY_NS) * truth.get("pace", 1)
    # An application's clock of CPU time and the scheduler's know of stolen time at other moments.
    share = EXEC_SHARE + truth.get("stolen", 0)
    found = {c["id"]: c for c in model["callbacks"]}
    for cb in truth["callbacks"]:
        if cb["id"] not in found or cb["type"] == "sync":
            continue
        exec_ns = found[cb["id"]]["exec_ns"]
        ran = exec_ns["count"] + found[cb["id"]].get("untimed", 0)
        if counts and ran != cb["count"]:
            wrong.append(f"{cb['id']} ran {cb['count']} times, not {ran}")
        burnt = median(cb["cpu_ns"])
        if not -share * burnt <= exec_ns["p50"] - burnt <= share * burnt + around_ns:
            wrong.append(f"{cb['id']}: median execution time {exec_ns['p50'] / 1e6:.3f} ms, burnt"
                         f" {burnt / 1e6:.3f} ms ({(exec_ns['p50'] / burnt - 1) * 100:+.1f} %)")
    return wrong


def compare_each(harness, truth, share=EACH_OFF):
    """Each execution's time against the thread's own CPU clock."""
    count, untimed, off = 0, 0, []
    each_ns = EACH_NS * truth.get("pace", 1)
    for cb in truth["callbacks"]:
        found = truth["executions"].get(cb["id"], [])
        if cb["type"] == "sync" or len(found) != len(cb["cpu_ns"]):
            continue
        pairs = [(mine, own) for mine, own in zip(found, cb["cpu_ns"]) if mine is not None]
        count, untimed = count + len(found), untimed + len(found) - len(pairs)
        around = median([mine - own for mine, own in pairs] or [0])
        off += [(mine - own - around, cb["id"]) for mine, own in pairs
                if abs(mine - own - around) > each_ns + EACH_SHARE * own]
    harness.figures.append(f"of {count} executions {len(off)} off, {untimed} untimed")
    most = max(1, share * count)
    if len(off) <= most and untimed <= most:
        return []
    worst = ", ".join(f"{callback} {ns / 1e3:+.0f} us" for ns, callback in sorted(off, key=lambda o: -abs(o[0]))[:3])
    return [f"{len(off)} of {count} executions are not as the thread's CPU clock says ({worst}), and {untimed}"
            " have no time"]


def values(dist):
    """The values of a model's distribution, ascending: the middles of its buckets, which keep so many
    bits of a value."""
    bits, number, all = dist.get("bits", 14), 0, []
    for entry in dist["buckets"].split():
        more, _, count = entry.partition("x")
        number += int(more)
        shift = number >> bits
        low = (number & ((1 << bits) - 1)) << shift
        all += [min(max(low + ((1 << shift) - 1) // 2, dist["min"]), dist["max"])] * int(count or 1)
    return all


def apart_ns(own, found):
    """How far the model's latencies are from the application's: the median over their ranks.

    Not the difference of the medians alone: where latencies are spread over milliseconds, a single
    execution more or less moves that by the distance to the next one. Where one has some more
    (under way when the recording begins or ends), those are left out that fit worst.
    """
    longer, shorter = sorted((sorted(own), sorted(found)), key=len, reverse=True)
    longer = list(longer)
    while len(longer) > len(shorter):
        rest = (longer[:i] + longer[i + 1:] for i in range(len(longer)))
        longer = min(rest, key=lambda r: sum(abs(a - b) for a, b in zip(r, shorter)))
    apart = median([a - b for a, b in zip(longer, shorter)])
    return apart if len(found) > len(own) else -apart


def compare_latencies(harness, truth, model, around_ns=0):
    """End to end, against what the application carried in its messages."""
    wrong, offs = [], []
    stolen, pace = truth.get("stolen", 0), truth.get("pace", 1)
    found = {tuple(c["callbacks"]): c for c in model["chains"]}
    for chain in truth["chains"]:
        model_chain = found.get(tuple(chain["callbacks"]))
        if not model_chain:
            continue
        name = f"chain {chain['callbacks'][0]} .. {chain['callbacks'][-1]}"
        # The first item or the last may be under way when the recording begins or ends.
        if abs(model_chain["executions"] - chain["count"]) > 1:
            wrong.append(f"{name}: {chain['count']} executions, not {model_chain['executions']}")
        own = chain["latency_ns"]
        off = apart_ns(own, values(model_chain["latency_ns"]))
        if len(own) >= LATENCY_EXECUTIONS:
            offs.append(off)
        if abs(off) > max(ONE_LATENCY_NS * pace, (ONE_LATENCY_SHARE + stolen) * median(own)):
            wrong.append(f"{name}: median latency {median(own) / 1e6:.3f} ms in-band, the model's"
                         f" is {off / 1e3:+.0f} us off")
    if offs:
        sizes = [abs(off) for off in offs]
        harness.figures.append(f"latency off by {median(sizes) / 1e3:.0f} us, worst chain by"
                       f" {max(sizes) / 1e3:.0f} us")
        # Several threads of one executor wait for the executor's mutex between the two clock readings.
        is_short = truth.get("compiled") and not truth.get("several_threads")
        base = LATENCY_NS if is_short else LATENCY_RCLPY_NS
        base += around_ns
        allowed = base * pace * (1 + STOLEN_LATENCY * stolen)
        if median(sizes) > allowed * (2 if truth.get("busy", 0) > BUSY else 1):
            wrong.append("chains' median latencies are off by "
                         + ", ".join(f"{off / 1e3:+.0f}" for off in sorted(offs)) + " us")
    return wrong


def lost(model):
    """Complaints about events that the recorder lost."""
    return [f"run {run['id']} lost {run['lost']}" for run in model["runs"]
            if any(run["lost"].values())]


def own(model, *prefixes):
    """The part of a model whose nodes, topics or services have one of these names or prefixes.

    A recording of everything has other applications of the machine in it. The topics
    identify a node whose name the recorder does not know.
    """
    def named(text):
        return bool(text) and text.startswith(prefixes)

    callbacks = [c for c in model["callbacks"]
                 if named(c["node"]) or named(c["input"]) or any(map(named, c["outputs"]))]
    ids = {c["id"] for c in callbacks}
    return {**model, "callbacks": callbacks,
            "edges": [e for e in model["edges"] if e["from"] in ids or e["to"] in ids],
            "junctions": [j for j in model["junctions"] if j["callback"] in ids],
            "chains": [c for c in model["chains"] if ids & set(c["callbacks"])]}


def expect_all(harness, truth, model, latencies=True):
    """Graph, executions, latencies, and nothing lost."""
    expect(lost(model), compare_graph(truth, model), compare_executions(truth, model),
           compare_each(harness, truth, EACH_OFF if latencies else POOL_OFF) if "executions" in truth else [],
           compare_latencies(harness, truth, model) if latencies else [])
