"""Two models of one application: what was changed is found, and nothing where nothing was."""

import json
import os

from harness import ROOT, load
from registry import PLACES, expect, test

PARKING = os.path.join(ROOT, "demos/parking/run.py")
SLOWED = "/p2d_ndt_localizer_node:subscription(/lidars/points_fused_downsampled)"
MONITOR = "/monitor:subscription(/lidars/points_fused_downsampled)"
RUNS = 5


def compare(harness, a, b):
    """What `onbeat diff` finds that does not follow from something else."""
    found = json.loads(harness.onbeat("diff", a, b, "--json", accept=(0, 7)))
    structure = [(d["part"] + " " + d["what"], d["id"]) for d in found["structure"]
                 if not d.get("follows")]
    return structure + [(f["figure"], f["id"]) for f in found["figures"] if not f["follows"]]


def violated(harness, before, model, margin):
    """What of the limits that `onbeat check --init` writes of a model another one violates."""
    limits = harness.file("diff-limits.yaml")
    harness.onbeat("check", before, "--init", limits, "--medians", "--margin", margin)
    found = json.loads(harness.onbeat("check", model, limits, "--json", accept=(0, 5, 6)))
    figures = ("execution", "latency", "readers")
    return {(next((f for f in figures if f".{f}." in found["requirement"]), found["requirement"]),
             found["id"]) for found in found["findings"] if found["verdict"] == "violated"}


def merged(harness, name, models):
    """The model of several."""
    path = harness.file(name + ".json")
    harness.onbeat("merge", *models, "-o", path)
    return path


@test(places=PLACES)
def diff_parking(harness):
    """One callback slowed down by a fifth and one more subscriber: both found, nothing else, and nothing
    between unchanged runs."""
    models = {"before": [], "after": []}
    # In turn: the machine changes, too.
    for i in range(RUNS):
        for which, words in (("before", []),
                             ("after", ["--slow", "p2d_ndt_localizer_node=20", "--monitor"])):
            name = f"diff-{which}-{i}"
            trace = harness.record(name, [harness.python("kilted"), PARKING, "--duration", "7",
                                          *words])
            harness.model(name, trace)
            models[which].append(harness.file(name + ".json"))
    before, after = (merged(harness, "diff-" + which, models[which]) for which in models)
    wrong = []
    found = compare(harness, before, after)
    if sorted(found) != [("callback added", MONITOR), ("execution time", SLOWED)]:
        wrong.append(f"one callback was slowed down and one added; found: {found}")
    # Limits of a tenth: what they find beside the two are chains through the slowed callback.
    found = violated(harness, before, after, "10%")
    topic = MONITOR.split("(")[1].rstrip(")")
    slowed = {("execution", SLOWED), ("readers", topic)}
    passing = {("latency", c["id"]) for c in load(before)["chains"] if SLOWED in c["callbacks"]}
    if not slowed <= found or not found <= slowed | passing:
        wrong.append(f"limits of {before}, checked on {after}: violated {found}")
    # Unchanged: runs in turn, so that a slow minute is in both.
    halves = [merged(harness, f"diff-half-{i}", models["before"][i::2]) for i in (0, 1)]
    found = violated(harness, *halves, "20%")
    if found:
        wrong.append(f"nothing was changed between halves of the runs before; violated: {found}")
    for a, b in zip(models["before"], models["before"][1:]):
        found = compare(harness, a, b)
        if found:
            wrong.append(f"nothing was changed between {a} and {b}; found: {found}")
    expect(wrong)
