"""Chains across onbeat-link: two processes of the crossing example that know their own timing."""

import os
import shlex
import socket

from compare import compare_executions, compare_graph, compare_latencies, lost
from harness import load
from registry import Mismatch, expect, register

EXECUTIONS = 150
LIDAR, BRAKE = "/front/lidar:timer(20ms)", "/drive/brake:subscription(/drive/fuse)"


def free_port():
    """A TCP port that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def place(harness, backend, way):
    """Where the two processes meet, and what recordings call the link."""
    end = "forth.value" if way == "values" else "forth"
    if backend == "shm":
        name = f"e2e-{way}-{os.getpid()}"
        return f"shm://{name}", f"/{name}/" + ("scans" if way == "channel" else end)
    address, key = f"127.0.0.1:{free_port()}", harness.new_file(f"link_{way}.key")
    harness.onbeat("link", "key", key)
    return (f"tcp://{address}?key={key}",
            "/scans" if way == "channel" else f"/tcp/{address}/{end}")


def truth_of(sensing, driving, way, topic):
    """Returns the reports of the two processes in the form of SYN's ground truth."""
    fuse = "/drive/fuse:" + ("subscription(/drive/fuse/0)" if way == "channel" else "timer(5ms)")
    cpu_ns = {LIDAR: sensing["cpu_ns"]["lidar"], fuse: driving["cpu_ns"]["fuse"],
              BRAKE: driving["cpu_ns"]["brake"]}
    outputs = {LIDAR: [topic], fuse: ["/drive/fuse"], BRAKE: []}
    chain = [LIDAR, fuse, BRAKE]
    return {
        "callbacks": [{"id": vertex, "type": vertex.split(":", 1)[1].split("(")[0],
                       "outputs": outputs[vertex], "count": len(burnt), "cpu_ns": burnt}
                      for vertex, burnt in cpu_ns.items()],
        "edges": [{"from": LIDAR, "to": fuse, "topic": topic},
                  {"from": fuse, "to": BRAKE, "topic": "/drive/fuse"}],
        "junctions": [],
        "chains": [{"callbacks": chain, "count": len(driving["latency_ns"]),
                    "latency_ns": driving["latency_ns"]}],
        "compiled": True,
    }


def crossed(model, topic, way, received):
    """Complaints about the items of the link: each is sent and received once, unless a newer value replaced it."""
    figures = next((e for e in model["edges"] if e["topic"] == topic), {})
    counts = [figures.get(name) for name in ("published", "taken", "lost", "overwritten")]
    replaced = EXECUTIONS - received if way == "values" else 0
    wanted = [EXECUTIONS, EXECUTIONS - replaced, 0, replaced]
    return [] if counts == wanted else [f"items on {topic}: {counts} sent, received, lost and replaced,"
                                        f" not {wanted}"]


def link_variant(backend, way):
    """Makes a test of a link: of a channel of flow, messages (with promises or without), or values."""
    def run(harness):
        name, program = f"link_{backend}_{way}", harness.example("onbeat-link", "crossing")
        where, topic = place(harness, backend, way)
        truths = [harness.new_file(f"{name}.{side}.json") for side in ("sense", "fuse")]
        words = [[program, way, side, where, str(EXECUTIONS), out]
                 for side, out in zip(("sense", "fuse"), truths)]
        script = " & ".join(map(shlex.join, words)) + " & wait"
        trace = harness.record(name, ["sh", "-c", script])
        missing = [out for out in truths if not os.path.exists(out)]
        if missing:
            raise Mismatch(f"a process of the example failed: {missing} not written")
        truths = [load(out) for out in truths]
        truth = truth_of(*truths, way, topic)
        truth |= harness.machine()
        model = harness.model(name, trace)
        # The fusion that asks for messages is a timer: chains begin there as well.
        model["chains"] = [c for c in model["chains"] if c["callbacks"][0] == LIDAR]
        burnt = [c for c in truth["callbacks"] if way == "channel" or "timer(5ms)" not in c["id"]]
        expect(lost(model), crossed(model, topic, way, len(truths[1]["latency_ns"])),
               compare_graph(truth, model),
               compare_executions({**truth, "callbacks": burnt}, model),
               compare_latencies(harness, truth, model))

    register(run, name=f"link_{backend}_{way}",
             description=f"a chain across a link: {way} over {backend}, between two processes")


for _backend in ("shm", "tcp"):
    for _way in ("channel", "messages", "promises", "values"):
        link_variant(_backend, _way)
