"""A node that loses large items, because the receive buffer of its UDP socket is full.

usage: overflowing.py SECONDS TRUTH
/camera, a process of its own, publishes /overflowing/image (best effort) every 100 ms, over UDP only. Every second
image has 4 MB, the others have 1 KB. Each begins with its number. /viewer subscribes to it. TRUTH gets the numbers of
the images that /viewer got between the first and the last one, and the datagrams that the kernel dropped meanwhile at
the sockets of its process, as JSON.
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
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass


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
    if sys.argv[1:] == ["shoot"]:
        shoot()
        return
    with subprocess.Popen([sys.executable, os.path.abspath(__file__), "shoot"]) as camera:
        truth = view(float(sys.argv[1]))
        camera.kill()
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump(truth, file)
    os._exit(0)


if __name__ == "__main__":
    main()
