"""An action of rclpy (demos/patterns/action.py): its callbacks, and the entity that they make."""

import json
import os

from compare import compare_executions, lost, median, own
from harness import BUSY, ROOT
from registry import expect, test

PROGRAM = os.path.join(ROOT, "demos/patterns/action.py")
# The application's clock reads lie outside of the calls that are recorded, with Python on both ends: 1.4 ms with cold
# caches. A result of another goal would be 600 ms off.
AROUND_NS = 3_000_000
# rclpy's own handling of a goal lies within its execution, beside the 4 ms of the application: 1 to 3 ms with cold
# caches, as the machine is. The kernel's account (BPF) and the thread's own clock (--preload) agree on it.
HANDLING_NS = 4_000_000


def run(harness, name):
    """The truth, and the program's part of the model of its recording."""
    words = [harness.python("kilted"), PROGRAM, "--namespace", f"{harness.namespace}/{name}"]
    out = harness.file(name + ".truth.txt")
    trace = harness.record(name, ["sh", "-c", f'"$0" "$@" > {out}', *words])
    with open(out, encoding="utf-8") as file:
        truth = json.loads(file.read().splitlines()[-1])
    truth |= harness.machine()
    return truth, harness.model(name, trace)


@test
def rclpy_actions_are_counted_with_goals_feedback_and_results(harness):
    """Actions of rclpy: the model has every answer, feedback item and result, and the user's code that handled it."""
    truth, model = run(harness, "action")
    part = own(model, f"{harness.namespace}/action/")
    truth["callbacks"] = [c for c in truth["callbacks"] if c["cpu_ns"]]
    wrong = lost(model) + compare_executions(truth, part, around_ns=HANDLING_NS)
    found = [a for a in model.get("actions", []) if a["name"] == truth["action"]["name"]]
    if len(found) != 1:
        wrong.append(f"the action is {len(found)} times in the model")
    for action in found:
        wrong += [f"the action's {key} are {action[key]}, not {value}"
                  for key, value in truth["action"].items() if action[key] != value]
        if action["untimed"]:
            wrong.append(f"{action['untimed']} results belong to no goal")
        ids = {c["id"] for c in truth["callbacks"] if "/walk" in c["id"]}
        if not ids <= set(action["callbacks"]):
            wrong.append(f"not the action's: {sorted(ids - set(action['callbacks']))}")
        off = action["goal_to_result_ns"]["p50"] - median(truth["goal_to_result_ns"])
        harness.figures.append(f"goal to result off by {off / 1e3:+.0f} us")
        around = AROUND_NS * truth["pace"] * (2 if truth["busy"] > BUSY else 1)
        if not -around < off < 0:
            wrong.append(f"goal to result is {off / 1e3:+.0f} us off")
    expect(wrong)
