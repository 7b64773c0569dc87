"""The same scans through the parking application, at any rate: the same outputs, message by message."""

import concurrent.futures
import contextlib
import os
import signal
import struct
import subprocess
import threading
import time

from harness import ROOT
from registry import COMPUTING_TEST, need, test
from tests.replay import WATCHDOG_S, compare, mcap, replay, ros_variables

PARKING = os.path.join(ROOT, "demos/parking/run.py")
SCANS = ["/lidar_front/points_raw", "/lidar_rear/points_raw"]
POSE = "/localization/ndt_pose"
OUTPUTS = ["/lidar_front/points_filtered", "/lidar_rear/points_filtered", "/lidars/points_fused",
           "/lidars/points_fused_downsampled", POSE]
DURATION_S = 4
# Scans that were taken together are not further apart.
TOGETHER_NS = 50_000_000
# Nothing comes any more if nothing came for so long.
SILENCE_S = 3
RATES = ("0.5", "5")
# Keeps serialised messages of the topics in a file: time, number of the topic, stamp, bytes.
RECORDER = """
import struct, sys, time, rclpy
from rclpy.qos import QoSProfile, HistoryPolicy
from sensor_msgs.msg import PointCloud2
rclpy.init()
node = rclpy.create_node("scan_recorder")
out = open(sys.argv[1], "wb", buffering=0)
def keep(number):
    def kept(data):
        stamp = struct.unpack_from("<iI", data, 4)
        out.write(struct.pack("<QQII", time.time_ns(), stamp[0] * 10**9 + stamp[1], number, len(data)) + data)
    return kept
qos = QoSProfile(history=HistoryPolicy.KEEP_ALL)
subs = [node.create_subscription(PointCloud2, t, keep(n), qos, raw=True) for n, t in enumerate(sys.argv[2:])]
print("ready", flush=True)
rclpy.spin(node)
"""
# Prints "ready" once somebody publishes each output, then topic and hash of all fields of each message. Fields and
# not serialised bytes: between fields these have bytes without meaning.
LISTENER = """
import hashlib, sys, rclpy
from rclpy.qos import QoSProfile, HistoryPolicy
from geometry_msgs.msg import PoseStamped
from sensor_msgs.msg import PointCloud2
rclpy.init()
node = rclpy.create_node("output_listener")
def take(topic):
    def taken(msg):
        words = [str(msg)]
        if isinstance(msg, PointCloud2):
            shape = (msg.height, msg.width, msg.fields, msg.point_step, msg.row_step, msg.is_dense, msg.is_bigendian)
            words = [str(msg.header), str(shape), msg.data.tobytes()]
        whole = hashlib.sha1()
        for word in words:
            whole.update(word if isinstance(word, bytes) else word.encode())
        print(topic, whole.hexdigest(), flush=True)
    return taken
qos = QoSProfile(history=HistoryPolicy.KEEP_ALL)
subs = [node.create_subscription(PoseStamped if "pose" in t else PointCloud2, t, take(t), qos) for t in sys.argv[1:]]
while not all(node.count_publishers(t) for t in sys.argv[1:]):
    rclpy.spin_once(node, timeout_sec=0.05)
print("ready", flush=True)
rclpy.spin(node)
"""


@contextlib.contextmanager
def running(words, end=signal.SIGKILL, **options):
    """A program, ended afterwards by that signal."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **options)
    try:
        yield process
    finally:
        process.send_signal(end)
        try:
            process.wait(WATCHDOG_S)
        finally:
            process.kill()
            process.wait()


def begun(process, what):
    """Waits for the line "ready" of a program."""
    need(process.stdout.readline().strip() == "ready", f"{what} did not start")


def drive(harness):
    """Drives with lidars; the scans as (time, side, serialised): two for each moment, one after the other."""
    kept, python = harness.new_file("scans"), harness.python("kilted")
    with running([python, "-c", RECORDER, kept, *SCANS]) as recorder:
        begun(recorder, "the recorder")
        done = subprocess.run([python, PARKING, "--duration", str(DURATION_S)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=WATCHDOG_S, check=False)
        need("poses in" in done.stdout, f"the drive failed: {done.stdout}")
    sides = ([], [])
    with open(kept, "rb") as file:
        while head := file.read(24):
            time_ns, stamp_ns, number, size = struct.unpack("<QQII", head)
            sides[number].append((stamp_ns, time_ns, number, file.read(size)))
    scans, rear = [], list(sides[1])
    for scan in sides[0]:
        # A lidar that was late has scanned alone.
        partner = next((other for other in rear if abs(other[0] - scan[0]) < TOGETHER_NS), None)
        if partner:
            rear.remove(partner)
            begin_ns = min(scan[1], partner[1])
            scans += [(max(begin_ns, scans[-1][0] if scans else 0), *one[2:]) for one in (scan, partner)]
    need(len(scans) > 10 * DURATION_S, f"{len(scans)} scans in pairs, of {len(sides[0])} and {len(sides[1])}")
    return scans


class Outputs:
    """The messages that the application has published, by topic."""

    def __init__(self, listener):
        self.by_topic, self.last = {topic: [] for topic in OUTPUTS}, time.monotonic()
        self.thread = threading.Thread(target=self.read, args=[listener.stdout], daemon=True)
        self.thread.start()

    def read(self, lines):
        """Until the listener ends."""
        for line in lines:
            topic, digest = line.split()
            self.by_topic[topic].append(digest)
            self.last = time.monotonic()

    def settle(self):
        """Waits until nothing comes any more."""
        self.last, end = time.monotonic(), time.monotonic() + WATCHDOG_S
        while time.monotonic() < min(end, self.last + SILENCE_S):
            time.sleep(0.1)
        return self.by_topic


def through(harness, domain, bag, *words):
    """Plays the scans to an application that has just started, in a ROS domain; returns its outputs."""
    python = harness.python("kilted")
    software = [python, PARKING, "--without-lidars", "--duration", str(DURATION_S)]
    env = dict(os.environ, ROS_DOMAIN_ID=domain)
    with running(software, signal.SIGTERM, env=env), \
            running([python, "-c", LISTENER, *OUTPUTS], env=env) as listener:
        begun(listener, "the application or its listener")
        # Until every reader and writer has found its peers.
        time.sleep(2)
        outputs = Outputs(listener)
        replay(harness, f"parking-{domain}", [bag, "--wait", "60s", "--to", "ros", *words],
               env=dict(ros_variables(harness, "kilted"), ROS_DOMAIN_ID=domain))
        return outputs.settle()


def lane(harness, domain, bag, ways):
    """Plays the scans in each of these ways, one after the other; returns the outputs of each."""
    return {way: through(harness, domain, bag, *way) for way in ways}


@test(places=COMPUTING_TEST)
def replay_at_any_rate_gives_parking_the_same_outputs(harness):
    """The parking application gives the same outputs at 0.5 and 5 times the rate, message by message"""
    scans = drive(harness)
    bag, count = harness.file("parking.mcap"), len(scans) // 2
    mcap(bag, scans, SCANS, type_name="sensor_msgs/msg/PointCloud2")
    answer = ("--answer", ",".join(SCANS) + "=" + POSE)
    fast, half, five = (("--as-fast-as-consumed", *answer), *(("--rate", r, *answer) for r in RATES))
    # Two applications at a time: what comes out must not depend on who else is busy.
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        lanes = [pool.submit(lane, harness, domain, bag, ways) for domain, ways in (
            (os.environ["ROS_DOMAIN_ID"], (half,)), (harness.other_domain(), (fast, five)))]
        outputs = {way: found for done in lanes for way, found in done.result().items()}
    wanted = outputs.pop(fast)
    for topic in OUTPUTS:
        need(len(wanted[topic]) == count, f"{topic}: {len(wanted[topic])} messages for {count} pairs of scans")
        for way, found in outputs.items():
            compare(f"{topic} at rate {way[1]}", found[topic], wanted[topic])
    harness.figures.append(f"{count} pairs")
