"""Replay: what was recorded arrives byte for byte and in order while a neighbour takes the CPU.

Recordings are written here by hand, so that the truth is known. Devices under test are a UDP socket and
an rclpy node that keeps every serialised message.
"""

import contextlib
import glob
import hashlib
import json
import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time

from harness import ONBEAT
from registry import TIMED_TEST, Mismatch, need, test

# No step of a test takes that long; in emulation (scripts/replay-can.sh) all takes several times longer.
WATCHDOG_S = 600 if os.environ.get("ONBEAT_EMULATED") else 120
RELIABLE = ("- history: 3\n  depth: 0\n  reliability: 1\n  durability: 2\n  deadline:\n    sec: 9223372036\n"
            "    nsec: 854775807\n  liveliness: 1\n")
# Prints "ready", then a line for each message: topic and hash of its serialised bytes.
NODE = """
import hashlib, sys, rclpy
from rclpy.qos import QoSProfile, HistoryPolicy, ReliabilityPolicy
from std_msgs.msg import String
rclpy.init()
node = rclpy.create_node("under_test")
qos = QoSProfile(history=HistoryPolicy.KEEP_ALL, reliability=ReliabilityPolicy.RELIABLE)
left = int(sys.argv[1])
def take(topic):
    def taken(data):
        global left
        left -= 1
        print(topic, hashlib.sha1(data).hexdigest(), flush=True)
    return taken
subs = [node.create_subscription(String, t, take(t), qos, raw=True) for t in sys.argv[2:]]
print("ready", flush=True)
while left > 0:
    rclpy.spin_once(node)
"""


@contextlib.contextmanager
def busy_neighbours():
    """One program on each CPU that takes what it gets."""
    words = [sys.executable, "-c", "while True: pass"]
    children = [subprocess.Popen(words) for _ in range(os.cpu_count())]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()


# Takes 5 ms for each message, keeps only the last one that waits, and answers each on another topic.
SLOW = """
import hashlib, sys, time, rclpy
from rclpy.qos import QoSProfile, ReliabilityPolicy
from std_msgs.msg import String
rclpy.init()
node = rclpy.create_node("slow")
answer = node.create_publisher(String, sys.argv[3], QoSProfile(depth=100))
left = int(sys.argv[1])
def take(data):
    global left
    left -= 1
    time.sleep(0.005)
    print(sys.argv[2], hashlib.sha1(data).hexdigest(), flush=True)
    answer.publish(String())
sub = node.create_subscription(String, sys.argv[2], take,
    QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT), raw=True)
print("ready", flush=True)
while left > 0:
    rclpy.spin_once(node)
"""


# Prints "ready", then what /clock says and when it came, until it is killed.
CLOCK = """
import time, rclpy
from rclpy.qos import QoSProfile
from rosgraph_msgs.msg import Clock
rclpy.init()
node = rclpy.create_node("clock_reader")
def read(clock):
    print(clock.clock.sec * 10**9 + clock.clock.nanosec, time.monotonic_ns(), flush=True)
sub = node.create_subscription(Clock, "/clock", read, QoSProfile(depth=1000))
print("ready", flush=True)
rclpy.spin(node)
"""


class Device:
    """A UDP socket that keeps what it gets."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # Beyond the limit of the system, as root.
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 32 << 20)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(0.2)
        self.got, self.over = [], False
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        """Reads until it is over and nothing comes any more."""
        while True:
            try:
                self.got.append(self.socket.recv(65536))
            except TimeoutError:
                if self.over:
                    return

    def close(self):
        """Stops listening and returns the received data."""
        self.over = True
        self.thread.join(WATCHDOG_S)
        self.socket.close()
        return self.got

    @property
    def address(self):
        """Where it listens."""
        return f"udp:127.0.0.1:{self.socket.getsockname()[1]}"


def compare(what, got, sent):
    """All of it, in order, the same bytes."""
    first = next((i for i, (a, b) in enumerate(zip(got, sent)) if a != b), "the end")
    need(got == sent, f"{what}: {len(sent)} recorded, {len(got)} arrived, first difference at {first}")


def replay(harness, name, words, **options):
    """Runs the command; what its report says."""
    report, picture = harness.new_file(name + ".json"), harness.file(name + ".svg")
    done = subprocess.run([ONBEAT, "replay", *words, "--report", report, "--report", picture], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=WATCHDOG_S, check=False, **options)
    need(done.returncode == 0, f"exit code {done.returncode}: {done.stderr}")
    with open(report, encoding="utf-8") as file:
        seen = json.load(file)
    late, items = seen["lateness_ns"], seen["items"]
    harness.figures.append(f"{items['played']} items, late p99 {(late['p99'] or 0) / 1000:.0f} us, "
                           f"max {late['extent']['max'] / 1000:.0f} us")
    need(items["lost"] == items["not_played"] == items["unsuitable"] == 0, f"{items}")
    return seen


def times(count, mean_s):
    """Times of a recording that begins in 2023, in ns."""
    spread, now = random.Random(7), 1_700_000_000_000_000_000
    for _ in range(count):
        now += int(spread.expovariate(1 / mean_s) * 1e9) // 1000 * 1000
        yield now


def candump(path, count):
    """A log of two interfaces; the frames as Linux has them."""
    frames = []
    with open(path, "w", encoding="ascii") as file:
        for n, now in enumerate(times(count, 0.0005)):
            identifier, data = n % 0x7FF, struct.pack(">Q", n)[: n % 9]
            file.write(f"({now // 10**9}.{now % 10**9 // 1000:06}) can{n % 2} {identifier:03X}#"
                       f"{data.hex().upper()}\n")
            frames.append(struct.pack("=IB3x8s", identifier, len(data), data))
    return frames


def mcap(path, items, topics, qos=RELIABLE, type_name="std_msgs/msg/String", definition="string data\n", others=()):
    """An MCAP file: items are (time, topic's number, serialised message); `others` are topics of other types."""
    def text(value):
        return struct.pack("<I", len(value)) + value.encode()

    def record(kind, content):
        return struct.pack("<BQ", kind, len(content)) + content

    out = [b"\x89MCAP0\r\n", record(1, text("ros2") + text("test"))]
    types = [type_name, *dict(others).values()]
    for number, name in enumerate(types, 1):
        out.append(record(3, struct.pack("<H", number) + text(name) + text("ros2msg") + text(definition)))
    for number, topic in enumerate(topics):
        metadata = text("offered_qos_profiles") + text(qos)
        schema = 1 + types.index(dict(others).get(topic, type_name))
        out.append(record(4, struct.pack("<HH", number, schema) + text(topic) + text("cdr")
                          + struct.pack("<I", len(metadata)) + metadata))
    for number, (now, topic, data) in enumerate(items):
        out.append(record(5, struct.pack("<HIQQ", topic, number, now, now) + data))
    out += [record(15, bytes(4)), record(2, bytes(20)), b"\x89MCAP0\r\n"]
    with open(path, "wb") as file:
        file.write(b"".join(out))


def pcap(path, count):
    """A capture of UDP packets (Ethernet, IPv4); their payloads."""
    payloads, out = [], [struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)]
    for n, now in enumerate(times(count, 0.001)):
        payload = struct.pack(">I", n) + bytes([n % 256]) * (n % 1400)
        udp = struct.pack(">HHHH", 7, 8, 8 + len(payload), 0) + payload
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), n, 0, 64, 17, 0, bytes(4), bytes(4))
        frame = bytes(12) + b"\x08\0" + ip + udp
        out += [struct.pack("<IIII", now // 10**9, now % 10**9 // 1000, len(frame), len(frame)), frame]
        payloads.append(payload)
    with open(path, "wb") as file:
        file.write(b"".join(out))
    return payloads


def ros_variables(harness, distro):
    """The environment in which ROS 2 is found."""
    env = harness.env(distro)
    folders = [env + "/lib", *glob.glob(env + "/lib/python3*/site-packages/ros_*.libs")]
    return dict(os.environ, LD_LIBRARY_PATH=":".join(folders), AMENT_PREFIX_PATH=env)


@test(places=TIMED_TEST)
def replay_of_candump_arrives_by_udp_in_order_and_never_early(harness):
    """CAN frames arrive by UDP, all and in order, beside busy neighbours, and never early"""
    path, device = harness.file("replay.log"), Device()
    frames = candump(path, 4000)
    with busy_neighbours():
        seen = replay(harness, "candump", [path, "--to", device.address])
    compare("frames", device.close(), frames)
    recorded = list(times(4000, 0.0005))
    need(seen["machine"]["wall_ns"] >= recorded[-1] - recorded[0], "it ended before its time")
    need([s["played"] for s in seen["streams"]] == [2000, 2000], "streams are mixed up")


@test(places=TIMED_TEST)
def replay_of_three_recordings_arrives_whole_and_in_order(harness):
    """A bag, a candump and a capture on one time axis arrive whole and in order, in ROS 2 and by UDP"""
    topic, count = f"{harness.namespace}/both", 800
    items = [(now, 0, b"\0\1\0\0" + struct.pack("<I8s", 8, f"{n:07}\0".encode()))
             for n, now in enumerate(times(count, 0.002))]
    paths = [harness.file(f"kinds.{ending}") for ending in ("mcap", "log", "pcap")]
    mcap(paths[0], items, [topic])
    frames, payloads = candump(paths[1], count), pcap(paths[2], count)
    device = Device()
    words = [harness.python("kilted"), "-c", NODE, str(count), topic]
    node = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        need(node.stdout.readline().strip() == "ready", "the node did not start")
        with busy_neighbours():
            seen = replay(harness, "kinds", [*paths, "--wait", "60s", "--to", "ros", "--to", device.address],
                          env=ros_variables(harness, "kilted"))
            lines = read_lines(node, count)
    finally:
        node.kill()
        node.wait()
    need(seen["items"]["played"] == 3 * count, f"{seen['items']}")
    compare("messages", [line.split()[1] for line in lines], [hashlib.sha1(i[2]).hexdigest() for i in items])
    # Both came through one socket; their bytes tell them apart.
    got = device.close()
    compare("frames", [g for g in got if g in set(frames)], frames)
    compare("payloads", [g for g in got if g not in set(frames)], payloads)


@test(places=TIMED_TEST)
def replay_of_a_bag_arrives_byte_for_byte_at_a_node(harness):
    """A bag's messages arrive at an rclpy node, byte for byte and in order, beside busy neighbours"""
    topics = [f"{harness.namespace}/a", f"{harness.namespace}/b"]
    items = []
    for n, now in enumerate(times(1500, 0.002)):
        content = str(n).encode() * (20_000 if n % 100 == 0 else 1 + n % 70) + b"\0"
        data = b"\0\1\0\0" + struct.pack("<I", len(content)) + content
        # A multiple of four, as every middleware sends it and a bag has it.
        items.append((now, n % 2, data + bytes(-len(data) % 4)))
    path = harness.file("replay.mcap")
    mcap(path, items, topics)
    words = [harness.python("kilted"), "-c", NODE, str(len(items)), *topics]
    node = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        need(node.stdout.readline().strip() == "ready", "the node did not start")
        with busy_neighbours():
            replay(harness, "bag", [path, "--wait", "60s"], env=ros_variables(harness, "kilted"))
            lines = read_lines(node, len(items))
    finally:
        node.kill()
        node.wait()
    for number, topic in enumerate(topics):
        got = [line.split()[1] for line in lines if line.split()[0] == topic]
        sent = [hashlib.sha1(data).hexdigest() for _, to, data in items if to == number]
        compare(topic, got, sent)


@test
def replay_publishes_recorded_time_on_clock(harness):
    """/clock goes through the recorded times, half as fast at half the rate"""
    count, topic = 500, f"{harness.namespace}/data"
    recorded = list(times(count, 0.002))
    path = harness.file("clock.mcap")
    mcap(path, [(now, 0, b"\0\1\0\0" + struct.pack("<I4s", 2, b"x\0")) for now in recorded], [topic])
    # /clock has one name for everybody: a domain of its own.
    domain = {"ROS_DOMAIN_ID": str(1 + os.getpid() % 100)}
    words = [harness.python("kilted"), "-c", CLOCK]
    node = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, **domain})
    try:
        need(node.stdout.readline().strip() == "ready", "the node did not start")
        replay(harness, "clock", [path, "--wait", "3s", "--clock", "100", "--rate", "0.5"],
               env={**ros_variables(harness, "kilted"), **domain})
        # The last messages are still on their way.
        time.sleep(1)
    finally:
        node.kill()
        node.wait()
    read = [[int(word) for word in line.split()] for line in node.stdout]
    said = [time_ns for time_ns, _ in read]
    need(said == sorted(said), "it went back")
    wanted = (recorded[-1] - recorded[0]) * 2 // 10_000_000
    need(0.8 * wanted <= len(said) <= wanted + 2, f"{len(said)} times for {wanted} periods")
    need(recorded[0] - 10_000_000 <= said[0] and said[-1] <= recorded[-1] + 10_000_000,
         f"from {said[0] - recorded[0]} ns on, to {said[-1] - recorded[-1]} ns after the end")
    half = len(read) // 2
    pace = sorted((b[0] - a[0]) / (b[1] - a[1]) for a, b in zip(read, read[half:]))[half // 2]
    harness.figures.append(f"{len(said)} times, pace {pace:.3f}")
    need(0.4 < pace < 0.6, f"recorded time went {pace:.3f} times as fast")


@test
def replay_as_fast_as_consumed_loses_no_message(harness):
    """A node 15 times slower than the recording, with a queue of one, gets everything if it sets the pace"""
    topics = [f"{harness.namespace}/scan", f"{harness.namespace}/cmd"]
    items = []
    for n, now in enumerate(times(400, 0.0003)):
        items.append((now, 0, b"\0\1\0\0" + struct.pack("<I4s", 4, f"{n:03}\0".encode())))
    path = harness.file("fast.mcap")
    # Best effort: acknowledgements pace nothing.
    mcap(path, items, topics[:1], RELIABLE.replace("reliability: 1", "reliability: 2"))
    words = [harness.python("kilted"), "-c", SLOW, str(len(items)), *topics]
    node = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        need(node.stdout.readline().strip() == "ready", "the node did not start")
        seen = replay(harness, "fast", [path, "--wait", "60s", "--as-fast-as-consumed", "--answer", "=".join(topics)],
                      env=ros_variables(harness, "kilted"))
        lines = read_lines(node, len(items))
    finally:
        node.kill()
        node.wait()
    compare("messages", [line.split()[1] for line in lines], [hashlib.sha1(i[2]).hexdigest() for i in items])
    # Each but the first has waited for the answer to the one before.
    need(seen["machine"]["wall_ns"] >= (len(items) - 1) * 5_000_000, "it did not wait for answers")


def read_lines(process, count):
    """So many lines of a program."""
    lines, end = [], time.monotonic() + WATCHDOG_S

    def read():
        for line in process.stdout:
            lines.append(line)
            if len(lines) == count:
                return
    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    while thread.is_alive() and time.monotonic() < end:
        thread.join(0.1)
    if thread.is_alive():
        raise Mismatch(f"{len(lines)} of {count} messages arrived")
    return lines
