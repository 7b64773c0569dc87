"""QoS settings: what a program asks for is in its model, and a change of it is a difference."""

import json

from registry import Mismatch, test

# A talker and a listener in one node; argument: the reliability of both. Ends by itself.
NODE = """
import sys, rclpy
from rclpy.duration import Duration
from rclpy.qos import QoSProfile, DurabilityPolicy, ReliabilityPolicy
from std_msgs.msg import String
rclpy.init()
node = rclpy.create_node("chooser")
qos = QoSProfile(depth=7, reliability=ReliabilityPolicy[sys.argv[1]],
    durability=DurabilityPolicy.VOLATILE, deadline=Duration(seconds=2))
got = []
out = node.create_publisher(String, "/chosen", qos)
sub = node.create_subscription(String, "/chosen", got.append, qos)
timer = node.create_timer(0.05, lambda: out.publish(String(data="x")))
while len(got) < 20:
    rclpy.spin_once(node)
"""


def settings(harness, distribution, name, reliability):
    """A model's path, and the settings of the node's publisher and subscription in it."""
    python = harness.python(distribution)
    harness.model(name, harness.record(name, [python, "-c", NODE, reliability]))
    path = harness.file(name + ".json")
    with open(path, encoding="utf-8") as model:
        endpoints = json.load(model)["endpoints"]
    return path, {e["kind"]: e["qos"] for e in endpoints if e["topic"].endswith("/chosen")}


def changed_reliability(harness, distribution):
    """Both settings are in the model, and `onbeat diff` finds the one that is changed."""
    before, asked = settings(harness, distribution, f"qos-{distribution}-before", "RELIABLE")
    expected = [{"history": "keep_last", "depth": 7, "reliability": "reliable",
                 "durability": "volatile", "deadline_ns": 2 * 10**9, "liveliness":
                 asked.get("publisher", [{}])[0].get("liveliness")}]
    if asked != {"publisher": expected, "subscription": expected}:
        raise Mismatch([f"asked for {expected}, the model has {asked}"])
    after, _ = settings(harness, distribution, f"qos-{distribution}-after", "BEST_EFFORT")
    found = json.loads(harness.onbeat("diff", before, after, "--json", accept=(7,)))["structure"]
    why = {d["why"] for d in found if d["part"] == "qos"}
    if len(found) != 2 or why != {"reliability best_effort, was reliable"}:
        raise Mismatch([f"only the reliability of both was changed; found: {found}"])


@test
def qos_change_is_found_in_kilted(harness):
    """`onbeat diff` finds a changed reliability on ROS 2 Kilted."""
    changed_reliability(harness, "kilted")


@test
def qos_change_is_found_in_jazzy(harness):
    """`onbeat diff` finds a changed reliability on ROS 2 Jazzy."""
    changed_reliability(harness, "jazzy")
