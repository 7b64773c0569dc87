"""A node that reads scans, on one executor with a node that is busy for long, or on two of their own.

usage: crowded.py SECONDS [--apart] TRUTH
/scanner publishes /crowded/scan every 50 ms, from a thread and an executor of its own. /driver reads it.
/mapper works for 25 ms every 70 ms. TRUTH gets how long scans were under way to /driver, as JSON, ns.
"""

import json
import os
import sys
import threading
import time

import rclpy
from rclpy.executors import SingleThreadedExecutor
from std_msgs.msg import Int64

BUSY_S = 0.025


def busy(_=None):
    """Takes CPU time."""
    end = time.thread_time() + BUSY_S
    while time.thread_time() < end:
        pass


def main():
    """Runs the nodes."""
    seconds, truth, apart = float(sys.argv[1]), sys.argv[-1], "--apart" in sys.argv
    rclpy.init()
    scanner, driver, mapper = (rclpy.create_node(name) for name in ("scanner", "driver", "mapper"))
    under_way = []

    def drive(scan):
        under_way.append(time.monotonic_ns() - scan.data)

    publisher = scanner.create_publisher(Int64, "/crowded/scan", 10)
    driver.create_subscription(Int64, "/crowded/scan", drive, 10)
    scanner.create_timer(0.05, lambda: publisher.publish(Int64(data=time.monotonic_ns())))
    mapper.create_timer(0.07, busy)
    groups = [[scanner], [driver], [mapper]] if apart else [[scanner], [driver, mapper]]
    for nodes in groups:
        executor = SingleThreadedExecutor()
        for node in nodes:
            executor.add_node(node)
        threading.Thread(target=executor.spin, daemon=True).start()
    time.sleep(seconds)
    with open(truth, "w", encoding="utf-8") as file:
        json.dump(under_way, file)
    # Executors that spin in threads end with the process.
    os._exit(0)


if __name__ == "__main__":
    main()
