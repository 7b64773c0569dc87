"""Replay with a comparison: changes of the device under test are found, and nothing else."""

import contextlib
import json
import re
import signal
import struct
import subprocess
import time

from harness import ONBEAT
from registry import COMPUTING_TEST, need, test
from tests.replay import WATCHDOG_S, mcap, ros_variables
from tests.replay_parking import OUTPUTS, PARKING, POSE, SCANS, begun, running

DURATION_S = 12
# The poses of --changed that are missing: each of these.
SKIPPED = 100
CLOUD, STAMPED_POSE = "sensor_msgs/msg/PointCloud2", "geometry_msgs/msg/PoseStamped"
# Each output with the one from which it is made.
FOLLOWS = ",".join(f"{after}={before}" for before, after in zip(OUTPUTS[1:], OUTPUTS[2:]))
# The application has its own priority, so that other programs do not change its times.
REAL_TIME = ["chrt", "-f", "40"]
# Keeps serialised messages of the topics in a file: time, number of the topic, length, bytes.
RECORDER = """
import struct, sys, time, rclpy
from rclpy.qos import QoSProfile, HistoryPolicy
from geometry_msgs.msg import PoseStamped
from sensor_msgs.msg import PointCloud2
rclpy.init()
node = rclpy.create_node("drive_recorder")
out = open(sys.argv[1], "wb", buffering=0)
def keep(number):
    def kept(data):
        out.write(struct.pack("<QII", time.time_ns(), number, len(data)) + data)
    return kept
qos = QoSProfile(history=HistoryPolicy.KEEP_ALL)
subs = [node.create_subscription(PoseStamped if "pose" in t else PointCloud2, t, keep(n), qos, raw=True)
        for n, t in enumerate(sys.argv[2:])]
print("ready", flush=True)
rclpy.spin(node)
"""
# Prints "ready" when each topic has a subscriber and, but for the scans, a publisher.
CONNECTED = """
import sys, time, rclpy
rclpy.init()
node = rclpy.create_node("waiter")
topics = sys.argv[1:]
while not all(node.count_subscribers(t) for t in topics[:-1]) or not all(node.count_publishers(t) for t in topics[2:]):
    time.sleep(0.05)
print("ready", flush=True)
time.sleep(1000)
"""


def drive(harness, path):
    """Drives with lidars, and records scans and outputs in an MCAP file without definitions of types."""
    kept, python, topics = harness.new_file("drive"), harness.python("jazzy"), SCANS + OUTPUTS
    with running([*REAL_TIME, python, "-c", RECORDER, kept, *topics]) as recorder:
        begun(recorder, "the recorder")
        # With few points, the application's times depend little on the machine's speed.
        words = [*REAL_TIME, python, PARKING, "--duration", str(DURATION_S), "--columns", "150"]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=WATCHDOG_S,
                              check=False)
        need("poses in" in done.stdout, f"the drive failed: {done.stdout}")
        time.sleep(1)
    items = []
    with open(kept, "rb") as file:
        while len(head := file.read(16)) == 16:
            time_ns, number, size = struct.unpack("<QII", head)
            items.append((time_ns, number, file.read(size)))
    mcap(path, items, topics, type_name=CLOUD, definition="", others={POSE: STAMPED_POSE})
    return sum(number == topics.index(POSE) for _, number, _ in items)


@contextlib.contextmanager
def application(harness, *words):
    """The application without its lidars, connected."""
    python = harness.python("jazzy")
    software = [*REAL_TIME, python, PARKING, "--without-lidars", "--duration", str(DURATION_S), *words]
    with running(software, signal.SIGTERM), \
            running([python, "-c", CONNECTED, *SCANS, *OUTPUTS]) as waiter:
        begun(waiter, "the application")
        time.sleep(1)
        yield


def compared(harness, name, code, recording, *words):
    """Replays the scans and compares the outputs; what the report says, by topic."""
    report = harness.new_file(name + ".json")
    done = subprocess.run([ONBEAT, "replay", recording, "--wait", "20s", "--to", "ros", "--compare", ",".join(OUTPUTS),
                           "--report", report, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=WATCHDOG_S, check=False, env=ros_variables(harness, "jazzy"))
    need(done.returncode == code, f"{name}: exit code {done.returncode}: {done.stdout}{done.stderr}")
    with open(report, encoding="utf-8") as file:
        return {topic["name"]: topic for topic in json.load(file)["compared"]["topics"]}


def shifts(found):
    """The medians, for people."""
    return ", ".join(f"{topic.rsplit('/', 1)[1]} {t['shift_ns']['p50'] / 1e6:+.2f}" for topic, t in found.items())


@test(places=COMPUTING_TEST)
def compare_finds_each_change_of_a_localiser_and_no_other(harness):
    """A localiser whose poses are 1 ms later, 1 % off in x and each 100th missing: each is found, no other change"""
    recording, before = harness.file("drive.mcap"), harness.file("before.mcap")
    poses = drive(harness, recording)
    with application(harness):
        found = compared(harness, "before", 0, recording, "--observed", before)
    need(all(t["paired"] == t["expected"] > 9 * DURATION_S for t in found.values()), f"{found}")
    junit = harness.new_file("outputs.xml")
    with application(harness, "--changed"):
        found = compared(harness, "changed", 7, recording, "--expect", before, "--max-shift", "p50=600us",
                         "--follows", FOLLOWS, "--junit", junit)
    harness.figures.append("changed: ms " + shifts(found))
    pose = found.pop(POSE)
    # How late a topic is depends on the other programs of the machine, too. Its messages do not.
    need(all(t["missing"]["count"] == t["additional"]["count"] == t["different"] == 0 for t in found.values()),
         f"{found}")
    need(pose["missing"]["count"] == poses // SKIPPED >= 1 and pose["additional"]["count"] == 0, f"{pose}")
    need([f["path"] for f in pose["fields"]] == ["pose.position.x"], f"{pose['fields']}")
    need(abs(pose["fields"][0]["largest_relative"] - 0.01) < 1e-6, f"{pose['fields']}")
    need(pose["different"] == pose["paired"] == poses - poses // SKIPPED, f"{pose}")
    need(0.3e6 < pose["shift_ns"]["own_p50"] < 3e6, f"{pose['shift_ns']}")
    with open(junit, encoding="utf-8") as file:
        failures = int(re.search(r'failures="(\d+)" errors="0"', file.read())[1])
    need(failures >= 2, f"JUnit has {failures} failures")
