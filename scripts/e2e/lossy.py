"""A node that loses items and requests in ways that it counts itself.

usage: lossy.py SECONDS TRUTH
/feeder, a process of its own, publishes numbers. /lossy/scan and /lossy/refused (best effort) come every 20 ms.
/lossy/left and /lossy/right come every 100 ms, and now and then one of the two is missing.
/eater subscribes to /lossy/scan with a history of depth 1, and to /lossy/refused with reliable delivery. /joiner
joins equal numbers of left and right. Every 400 ms a timer in the executor of both nodes is busy for 90 ms.
/asker, a process of its own, calls /lossy/echo twice a second. The service raises an error for each third request.
TRUTH gets the counts, as JSON.
"""

import itertools
import json
import os
import subprocess
import sys
import time

import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.qos import QoSProfile, ReliabilityPolicy
from std_msgs.msg import Int64
from std_srvs.srv import Trigger

RELIABLE = QoSProfile(depth=5, reliability=ReliabilityPolicy.RELIABLE)
BEST_EFFORT = QoSProfile(depth=5, reliability=ReliabilityPolicy.BEST_EFFORT)


def feed():
    """Publishes until it is ended."""
    rclpy.init()
    node = rclpy.create_node("feeder")
    scan = node.create_publisher(Int64, "/lossy/scan", 10)
    refused = node.create_publisher(Int64, "/lossy/refused", BEST_EFFORT)
    left = node.create_publisher(Int64, "/lossy/left", 10)
    right = node.create_publisher(Int64, "/lossy/right", 10)
    scans, pairs = itertools.count(), itertools.count()

    def publish():
        message = Int64(data=next(scans))
        scan.publish(message)
        refused.publish(message)

    def pair():
        message = Int64(data=next(pairs))
        sides = [(left, 2), (right, 4)]
        for publisher, missing in sides if message.data % 2 else reversed(sides):
            if message.data % 5 != missing:
                publisher.publish(message)
    node.create_timer(0.02, publish)
    node.create_timer(0.1, pair)
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass


def ask():
    """Sends requests until it is ended."""
    rclpy.init()
    node = rclpy.create_node("asker")
    client = node.create_client(Trigger, "/lossy/echo")
    client.wait_for_service()
    node.create_timer(0.5, lambda: client.call_async(Trigger.Request()))
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass


def busy(seconds):
    """Takes CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def eat(seconds):
    """Takes items for some seconds. Returns the counts."""
    rclpy.init()
    node = rclpy.create_node("eater")
    scans, refused, joined, passed, asked = [], [], [], [], []
    joiner = rclpy.create_node("joiner")
    joins = joiner.create_publisher(Int64, "/lossy/joined", 10)
    waiting = {"left": set(), "right": set()}

    def take(side, other, number):
        waiting[side].add(number)
        if number in waiting[other]:
            joined.append(number)
            passed.extend(early for early in waiting["left"] if early < number)
            for numbers in waiting.values():
                numbers.difference_update([early for early in numbers if early <= number])
            joins.publish(Int64(data=number))

    def echo(_, response):
        asked.append(time.monotonic())
        if len(asked) % 3 == 0:
            raise ValueError("planted")
        return response
    node.create_subscription(Int64, "/lossy/scan", lambda m: scans.append(m.data), 1)
    node.create_subscription(Int64, "/lossy/refused", lambda m: refused.append(m.data), RELIABLE)
    joiner.create_subscription(Int64, "/lossy/left", lambda m: take("left", "right", m.data), 10)
    joiner.create_subscription(Int64, "/lossy/right", lambda m: take("right", "left", m.data), 10)
    node.create_service(Trigger, "/lossy/echo", echo)
    node.create_timer(0.4, lambda: busy(0.09))
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    executor.add_node(joiner)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            executor.spin_once(timeout_sec=0.1)
        except ValueError:
            continue
    missing = max(scans) - min(scans) + 1 - len(scans) if scans else 0
    return {"scans": len(scans), "missing": missing, "refused": len(refused), "joined": len(joined),
            "passed": len(passed), "asked": len(asked)}


def main():
    """Runs the nodes, each in its process."""
    if sys.argv[1:] == ["feed"]:
        feed()
        return
    if sys.argv[1:] == ["ask"]:
        ask()
        return
    others = [subprocess.Popen([sys.executable, os.path.abspath(__file__), name]) for name in ("feed", "ask")]
    counts = eat(float(sys.argv[1]))
    for other in others:
        other.kill()
        other.wait()
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump(counts, file)
    os._exit(0)


if __name__ == "__main__":
    main()
