"""A node that loses large items or gets them late, because the receive buffer of its UDP socket is full.

usage: overflowing.py SECONDS TRUTH
/camera, a process of its own, publishes /overflowing/image (best effort) every 100 ms, over UDP only. Every second
image has 4 MB, the others have 1 KB. Each begins with its number. /viewer subscribes to it.
/drawer, also a process of its own, publishes /overflowing/map (reliable) every 900 ms, over UDP only. Each map has 4 MB
and begins with the time before its publication. /reader, a process of its own, subscribes to it.
TRUTH gets the numbers of the images that /viewer got, the datagrams that the kernel dropped meanwhile at the sockets of
its process, and for each map its time and the time at which /reader's callback began, as JSON (CLOCK_MONOTONIC, ns).
"""

import array
import itertools
import json
import os
import subprocess
import sys
import time

os.environ["FASTDDS_BUILTIN_TRANSPORTS"] = "UDPv4"

import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.qos import QoSProfile, ReliabilityPolicy
from std_msgs.msg import UInt8MultiArray

BEST_EFFORT = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
RELIABLE = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
LARGE = 4 << 20
SMALL = 1 << 10


def shoot():
    """Publishes until it is ended."""
    rclpy.init()
    node = rclpy.create_node("camera")
    images = node.create_publisher(UInt8MultiArray, "/overflowing/image", BEST_EFFORT)
    numbers = itertools.count()
    sizes = [UInt8MultiArray(data=array.array("B", bytes(size))) for size in (SMALL, LARGE)]

    def publish():
        number = next(numbers)
        image = sizes[number % 2]
        image.data[0:8] = array.array("B", number.to_bytes(8, "little"))
        images.publish(image)
    node.create_timer(0.1, publish)
    spin(node)


def spin(node):
    """Runs a node until it is ended."""
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass


def draw():
    """Publishes maps until it is ended."""
    rclpy.init()
    node = rclpy.create_node("drawer")
    maps = node.create_publisher(UInt8MultiArray, "/overflowing/map", RELIABLE)
    drawn = UInt8MultiArray(data=array.array("B", bytes(LARGE)))

    def publish():
        drawn.data[0:8] = array.array("B", time.monotonic_ns().to_bytes(8, "little"))
        maps.publish(drawn)
    node.create_timer(0.9, publish)
    spin(node)


def read(path):
    """Takes maps until it is ended, and writes when each came."""
    rclpy.init()
    node = rclpy.create_node("reader")
    log = open(path, "w", encoding="ascii", buffering=1)

    def on_map(message):
        began = time.monotonic_ns()
        log.write(f"{int.from_bytes(message.data[0:8].tobytes(), 'little')} {began}\n")
    node.create_subscription(UInt8MultiArray, "/overflowing/map", on_map, RELIABLE)
    spin(node)


def drops():
    """The datagrams that the kernel has dropped at sockets of this process, by the socket's number."""
    own = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if link.startswith("socket:["):
            own.add(link[8:-1])
    with open("/proc/net/udp", encoding="ascii") as table:
        rows = [line.split() for line in list(table)[1:]]
    return sum(int(row[12]) for row in rows if row[9] in own)


def view(seconds):
    """Takes images for some seconds. Returns what it got and lost."""
    rclpy.init()
    node = rclpy.create_node("viewer")
    got = []
    node.create_subscription(UInt8MultiArray, "/overflowing/image",
                             lambda m: got.append(int.from_bytes(m.data[0:8].tobytes(), "little")), BEST_EFFORT)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        executor.spin_once(timeout_sec=0.1)
    return {"got": got, "dropped": drops()}


def main():
    """Runs the nodes, each in its process."""
    roles = {"shoot": shoot, "draw": draw, "read": lambda: read(*sys.argv[2:])}
    if sys.argv[1] in roles:
        roles[sys.argv[1]]()
        return
    log = sys.argv[2] + ".maps"
    others = [subprocess.Popen([sys.executable, os.path.abspath(__file__), *words])
              for words in (["shoot"], ["draw"], ["read", log])]
    truth = view(float(sys.argv[1]))
    for other in others:
        other.kill()
        other.wait()
    with open(log, encoding="ascii") as maps:
        truth["maps"] = [list(map(int, line.split())) for line in maps]
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump(truth, file)
    os._exit(0)


if __name__ == "__main__":
    main()
