"""Measurements of a SYN process about itself, and how those of several processes are merged."""

import json
import os
import time


def parse_stamps(text):
    """The stamps that a message carries: (start of the chain in ns, its callbacks so far)."""
    return [(int(start), path) for start, path in (line.split(" ") for line in text.splitlines())]


def format_stamps(stamps):
    """The inverse of parse_stamps."""
    return "\n".join(f"{start} {path}" for start, path in stamps)


class Measurements:
    """Executions and chain latencies as the application itself measures them."""

    def __init__(self):
        self.executions = {}  # "name@caller" or "name" -> [thread CPU ns]
        self.responses = {}  # the same -> [elapsed ns from entry to end]
        self.chains = {}  # "T1>sc1>..." -> [latency ns]
        self.last = time.monotonic()

    def executed(self, name, caller, cpu_ns, elapsed_ns):
        """A callback ran."""
        key = f"{name}@{caller}" if caller else name
        self.last = time.monotonic()
        self.executions.setdefault(key, []).append(cpu_ns)
        self.responses.setdefault(key, []).append(elapsed_ns)

    def completed(self, path, latency_ns):
        """A chain's output left."""
        self.chains.setdefault(path, []).append(latency_ns)

    def complete(self, stamps):
        """Chains (start in ns, path) end with the callback that runs and that does this last.

        The clock is read when all but the result is in place: time after that is the callback's
        too, and is not measured.
        """
        chains = [(self.chains.setdefault(path, []), start) for start, path in stamps]
        now = time.monotonic_ns()
        for latencies, start in chains:
            latencies.append(now - start)

    def wait_until_quiet(self, seconds=1.5, at_most=15):
        """Waits until no callback has run for a while, also on a machine that is short of CPU."""
        self.last = time.monotonic()
        deadline = self.last + at_most
        while time.monotonic() < min(self.last + seconds, deadline):
            time.sleep(0.05)

    def merge(self, other):
        """Adds what another process measured."""
        for mine, theirs in (
            (self.executions, other["executions"]),
            (self.responses, other["responses"]),
            (self.chains, other["chains"]),
        ):
            for key, values in theirs.items():
                mine.setdefault(key, []).extend(values)

    def raw(self):
        """As plain values, for another process."""
        return {
            "executions": self.executions,
            "responses": self.responses,
            "chains": self.chains,
        }


def build(graph, measured, **about):
    """The ground truth as a document. Vertices are those that executed, as in a model."""
    ran = {}
    for (name, caller), vid in graph.ids.items():
        key = f"{name}@{caller}" if caller else name
        ran[vid] = measured.executions.get(key, [])
    responses = {
        vid: measured.responses.get(f"{name}@{caller}" if caller else name, [])
        for (name, caller), vid in graph.ids.items()
    }
    # A synchroniser has no execution of its own: it ran if what it publishes was sent.
    callbacks = []
    for cb, caller, vid in graph.vertices():
        if ran[vid]:
            callbacks.append(
                {
                    "id": vid,
                    "name": cb.name,
                    "node": graph.full_name(cb.node),
                    "type": cb.kind,
                    "caller": graph.full_name(caller) if caller else None,
                    "outputs": graph.outputs(cb),
                    "count": len(ran[vid]),
                    "cpu_ns": ran[vid],
                    "elapsed_ns": responses[vid],
                }
            )
    ids = {c["id"] for c in callbacks}
    return {
        **about,
        "callbacks": sorted(callbacks, key=lambda c: c["id"]),
        "edges": [e for e in graph.edges() if e["from"] in ids and e["to"] in ids],
        "junctions": [
            {**j, "inputs": [i for i in j["inputs"] if i in ids]}
            for j in graph.junctions()
            if j["callback"] in ids and sum(i in ids for i in j["inputs"]) > 1
        ],
        "chains": [
            {
                "callbacks": [graph.ids[tuple((n.split("@") + [None])[:2])] for n in path.split(">")],
                "count": len(latencies),
                "latency_ns": latencies,
            }
            for path, latencies in sorted(measured.chains.items())
        ],
    }


def write_json(path, document):
    """Writes a file whole or not at all."""
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
    os.replace(temporary, path)


def median(values):
    """The median, 0 of nothing."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0


def print_summary(document):
    """A table of callbacks and chains, for people."""
    print(f"{'callback':34} {'type':13} {'runs':>5} {'CPU ms':>7} {'elapsed ms':>10}")
    for cb in document["callbacks"]:
        print(
            f"{cb['id']:34} {cb['type']:13} {cb['count']:5} {median(cb['cpu_ns']) / 1e6:7.2f}"
            f" {median(cb['elapsed_ns']) / 1e6:10.2f}"
        )
    for chain in document["chains"]:
        print(f"chain of {len(chain['callbacks'])}: {chain['callbacks'][0]} .. "
              f"{chain['callbacks'][-1]}: {chain['count']} runs, "
              f"median {median(chain['latency_ns']) / 1e6:.2f} ms")


def own_domain():
    """A ROS domain for this run, so that several on one machine do not hear each other."""
    return str(1 + os.getpid() % 100)
