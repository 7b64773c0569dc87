"""Modes that switch within one run (demos/modes): every execution counts in the mode in which it began."""

import json
import os

from compare import lost
from harness import ROOT, load
from registry import expect, test

RUN = os.path.join(ROOT, "demos/modes/run.py")


def compare(harness, name, by, rule):
    """Counts each execution in its mode, as the application itself does; nothing is left over."""
    namespace = f"{harness.namespace}/{name}"
    out = harness.file(name + ".truth.txt")
    trace = harness.record(name, ["sh", "-c", f'"$0" "$@" > {out}', harness.python("kilted"), RUN,
                                  "--namespace", namespace, "--by", by])
    with open(out, encoding="utf-8") as file:
        truth = json.loads(file.read().splitlines()[-1])
    whole = harness.model(name + "-whole", trace)
    path = harness.file(name + ".json")
    harness.onbeat("model", trace, "-o", path, "--mode", "parked", "--mode", rule.format(namespace))
    model = load(path)
    wrong = lost(model)
    found = {c["id"]: {mode: f["exec_ns"]["count"] for mode, f in c["modes"].items()
                       if f["exec_ns"]["count"]} for c in model["callbacks"]}
    for callback, modes in truth["executions"].items():
        if found.get(callback) != modes:
            wrong.append(f"{callback} ran {modes}; in the model: {found.get(callback)}")
    chains = [c for c in model["chains"] if c["callbacks"] == list(truth["executions"])]
    figures = [{mode: {"executions": f["executions"], "crossed": f.get("crossed", 0)}
                for mode, f in c["modes"].items() if f["executions"]} for c in chains]
    if figures != [truth["chain"]]:
        wrong.append(f"the chain ran {truth['chain']}; in the model: {figures}")
    together = {c["id"]: c["exec_ns"]["sum"] for c in model["callbacks"]}
    if together != {c["id"]: c["exec_ns"]["sum"] for c in whole["callbacks"]}:
        wrong.append("the modes together are not the run")
    shown = json.loads(harness.onbeat("modes", path, "--json"))
    only = {p["id"] for p in shown["parts"] if p["part"] == "callback" and not p["counts"]["parked"]}
    if only != {c for c, modes in truth["executions"].items() if "parked" not in modes}:
        wrong.append(f"only while driving: {sorted(only)}")
    expect(wrong)


@test
def modes_are_switched_by_messages_on_a_topic(harness):
    """Messages on a topic switch the mode."""
    compare(harness, "modes_topic", "topic", "driving,parked@{}/mode")


@test
def modes_are_states_of_a_lifecycle_node(harness):
    """The mode of the run is the state of a lifecycle node."""
    compare(harness, "modes_lifecycle", "lifecycle", "driving@{}/planner=active")
