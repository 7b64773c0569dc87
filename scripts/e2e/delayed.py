"""A node whose scans are late now and then, for a reason that it logs itself.

usage: delayed.py SECONDS --cpu N [--slow MS] TRUTH
/scanner, a process of its own, publishes /delayed/scan every 50 ms. /fusion works 4 ms for each scan and
publishes /delayed/out. Every 970 ms a timer in the same executor is busy for --slow ms. The executor's
thread runs on CPU N. All threads have SCHED_FIFO 5, and the others keep off that CPU. TRUTH gets when the timer was busy, as JSON: begin and end in ns
(CLOCK_MONOTONIC).
"""

import argparse
import json
import os
import subprocess
import sys
import time

import rclpy
from std_msgs.msg import Int64

PRIORITY = 5


def busy(seconds):
    """Takes CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def scan():
    """Publishes scans until it is ended."""
    rclpy.init()
    node = rclpy.create_node("scanner")
    publisher = node.create_publisher(Int64, "/delayed/scan", 10)
    node.create_timer(0.05, lambda: publisher.publish(Int64(data=time.monotonic_ns())))
    rclpy.spin(node)


def fuse(seconds, cpu, slow_ms):
    """Takes scans for some seconds. Returns when the timer was busy."""
    # The middleware's threads inherit this.
    os.sched_setaffinity(0, os.sched_getaffinity(0) - {cpu})
    rclpy.init()
    node, bursts = rclpy.create_node("fusion"), []
    publisher = node.create_publisher(Int64, "/delayed/out", 10)

    def take(message):
        busy(0.004)
        publisher.publish(message)

    def slow():
        begin = time.monotonic_ns()
        busy(slow_ms / 1000)
        bursts.append((begin, time.monotonic_ns()))
    node.create_subscription(Int64, "/delayed/scan", take, 10)
    node.create_timer(0.97, slow)
    os.sched_setaffinity(0, {cpu})
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        rclpy.spin_once(node, timeout_sec=0.1)
    return bursts


def main():
    """Runs both nodes, each in its process."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    if sys.argv[1:] == ["scan"]:
        scan()
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--cpu", type=int, required=True)
    parser.add_argument("--slow", type=float, default=0, metavar="MS")
    parser.add_argument("truth")
    args = parser.parse_args()
    scanner = subprocess.Popen([sys.executable, os.path.abspath(__file__), "scan"])
    bursts = fuse(args.seconds, args.cpu, args.slow)
    scanner.kill()
    scanner.wait()
    with open(args.truth, "w", encoding="utf-8") as file:
        json.dump(bursts, file)
    os._exit(0)


if __name__ == "__main__":
    main()
