"""Programs of onbeat-flow: the pipeline example that knows its own timing."""

import os

from compare import compare_executions, compare_graph, compare_latencies, lost
from harness import load
from registry import Mismatch, expect, register

# Tasks of onbeat-flow's pipeline: name, whose output they take, and which vertex shows what each
# burns. The one with two inputs is shown as two subscriptions, of which the first only takes note.
FLOW_TASKS = [("lidar", [], "/car/lidar:timer(20ms)"),
              ("filter", ["lidar"], "/car/filter:subscription(/car/lidar)"),
              ("map", ["lidar"], "/car/map:subscription(/car/lidar)"),
              ("fuse", ["filter", "map"], "/car/fuse:subscription(/car/map)"),
              ("brake", ["fuse"], "/car/brake:subscription(/car/fuse)")]


def flow_truth(own):
    """Returns the report of onbeat-flow's pipeline in the form of SYN's ground truth."""
    vertices = {name: vertex for name, _, vertex in FLOW_TASKS}
    note, sync = "/car/fuse:subscription(/car/filter)", "/car/fuse:sync(/car/fuse)"
    callbacks = [{"id": vertex, "type": vertex.split(":")[1].split("(")[0],
                  "outputs": [] if name == "fuse" else ["/car/" + name],
                  "count": len(own["cpu_ns"][name]), "cpu_ns": own["cpu_ns"][name]}
                 for name, _, vertex in FLOW_TASKS]
    callbacks += [{"id": note, "type": "subscription", "outputs": []},
                  {"id": sync, "type": "sync", "outputs": ["/car/fuse"]}]
    edges = [("lidar", vertices["filter"], "lidar"), ("lidar", vertices["map"], "lidar"),
             ("filter", note, "filter"), ("map", vertices["fuse"], "map")]
    edges = [(vertices[source], target, topic) for source, target, topic in edges]
    edges += [(note, sync, "filter"), (vertices["fuse"], sync, "map"),
              (sync, vertices["brake"], "fuse")]
    chains = [[vertices["lidar"], vertices[by], taker, sync, vertices["brake"]]
              for by, taker in (("filter", note), ("map", vertices["fuse"]))]
    return {
        "callbacks": callbacks,
        "edges": [{"from": a, "to": b, "topic": "/car/" + topic} for a, b, topic in edges],
        "junctions": [{"callback": sync, "kind": "and", "inputs": [note, vertices["fuse"]]}],
        "chains": [{"callbacks": c, "count": len(own["latency_ns"]),
                    "latency_ns": own["latency_ns"]} for c in chains],
        "compiled": True,
    }


def flow_variant(executor):
    """Makes a test of one of onbeat-flow's executors."""
    def run(harness):
        name, out = "flow_" + executor, harness.file(f"flow_{executor}.truth.json")
        trace = harness.record(name, [harness.pipeline(), executor, "4", out])
        truth, model = flow_truth(load(out)), harness.model(name, trace)
        truth |= harness.machine()
        probes = [p for p in load(os.path.join(trace, "manifest.json"))["probes"]
                  if p["name"].startswith("onbeat_flow_")]
        if len(probes) != 4 or any(p["placement"] == "stepped" for p in probes):
            raise Mismatch(f"the functions of onbeat-flow are not probed cheaply: {probes}")
        burnt = {**truth, "callbacks": [c for c in truth["callbacks"] if "cpu_ns" in c]}
        expect(lost(model), compare_graph(truth, model), compare_executions(burnt, model),
               compare_latencies(harness, truth, model))

    register(run, name="flow_" + executor,
             description=f"onbeat-flow: tasks of a {executor}, as callbacks")


for _executor in ("chain", "graph", "priority"):
    flow_variant(_executor)
