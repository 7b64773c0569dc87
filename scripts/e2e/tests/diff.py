"""Two models of one application: what was changed is found, and nothing where nothing was."""

import json
import os

from harness import ROOT
from registry import TIMED_TEST, expect, test

PARKING = os.path.join(ROOT, "demos/parking/run.py")
SLOWED = "/p2d_ndt_localizer_node:subscription(/lidars/points_fused_downsampled)"
MONITOR = "/monitor:subscription(/lidars/points_fused_downsampled)"
RUNS = 5
MIXED = os.path.join(ROOT, "demos/mixed/run.py")
MIXED_SLOWED = "/fusion:subscription(/front_f)"
MIXED_MONITOR = "/monitor:subscription(/fused)"


def compare(harness, a, b):
    """Returns the changes of `onbeat diff` that do not follow from other changes."""
    found = json.loads(harness.onbeat("diff", a, b, "--json", accept=(0, 7)))
    structure = [(d["part"] + " " + d["what"], d["id"]) for d in found["structure"]
                 if not d.get("follows")]
    return structure + [(f["figure"], f["id"]) for f in found["figures"] if not f["follows"]]


def merged(harness, name, models):
    """The model of several."""
    path = harness.file(name + ".json")
    harness.onbeat("merge", *models, "-o", path)
    return path


@test(places=TIMED_TEST)
def diff_of_single_runs_finds_the_changes_and_no_others(harness):
    """Single runs of 15 s: a callback that is 60 % slower and one more subscriber are found, nothing else, and
    nothing between unchanged runs.

    Memory layout alone changes the median of an unchanged callback by up to 15 % from run to run. On such a machine
    `diff` says that single runs show changes from 12 to 35 % on; five runs each show 20 %, see the next test.
    """
    models = {}
    for name, words in (("before", []), ("after", ["--slow", "fusion/fused=60", "--monitor"]), ("again", [])):
        trace = harness.record("mixed-" + name, [harness.python("kilted"), MIXED, "--duration", "15", *words])
        harness.model("mixed-" + name, trace)
        models[name] = harness.file(f"mixed-{name}.json")
    wrong = []
    found = compare(harness, models["before"], models["after"])
    if sorted(found) != [("callback added", MIXED_MONITOR), ("execution time", MIXED_SLOWED)]:
        wrong.append(f"one callback was slowed down and one added; found: {found}")
    found = compare(harness, models["before"], models["again"])
    if found:
        wrong.append(f"nothing was changed between before and again; found: {found}")
    expect(wrong)


@test(places=TIMED_TEST, left_out="ten recordings, 2.5 min; the test of single runs has three")
def diff_of_several_runs_finds_the_changes_and_no_others(harness):
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
    for a, b in zip(models["before"], models["before"][1:]):
        found = compare(harness, a, b)
        if found:
            wrong.append(f"nothing was changed between {a} and {b}; found: {found}")
    expect(wrong)
