"""A real-time node whose middleware's threads are not: what brings its messages waits for whoever is real-time too.

usage: inhibited.py SECONDS [--advised] TRUTH
/driver publishes /inhibited/scan every 33 ms, on CPU 0. /receiver takes it, at priority 98 on CPU 1, where
a program at priority 50 works for 30 ms of each 50. The middleware's threads of /receiver are
time-sharing, or at 97 (--advised). TRUTH gets how long scans were under way, as JSON, ns.
"""

import json
import os
import subprocess
import sys
import time

import rclpy
from std_msgs.msg import Int64

RECEIVER, ADVISED, INHIBITOR = 98, 97, 50
BUSY_S, REST_S = 0.03, 0.02


def at_priority(tid, priority):
    """Gives a thread a real-time priority."""
    os.sched_setscheduler(tid, os.SCHED_FIFO, os.sched_param(priority))


def middleware():
    """Gives the middleware's threads of this process a priority."""
    for tid in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{tid}/comm", encoding="ascii") as file:
            if file.read().startswith("dds."):
                at_priority(int(tid), ADVISED)


def drive():
    """Publishes."""
    os.sched_setaffinity(0, {0})
    node = rclpy.create_node("driver")
    publisher = node.create_publisher(Int64, "/inhibited/scan", 10)
    while publisher.get_subscription_count() == 0:
        time.sleep(0.01)
    node.create_timer(0.033, lambda: publisher.publish(Int64(data=time.monotonic_ns())))
    rclpy.spin(node)


def receive(seconds, truth, advised):
    """Takes what is published."""
    os.sched_setaffinity(0, {1})
    node, under_way = rclpy.create_node("receiver"), []
    node.create_subscription(
        Int64, "/inhibited/scan", lambda scan: under_way.append(time.monotonic_ns() - scan.data), 10)
    if advised:
        middleware()
    at_priority(0, RECEIVER)
    inhibitor = subprocess.Popen([sys.executable, __file__, "inhibit"])
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        rclpy.spin_once(node, timeout_sec=0.1)
    inhibitor.kill()
    inhibitor.wait()
    with open(truth, "w", encoding="utf-8") as file:
        json.dump(under_way, file)


def inhibit():
    """Works at its priority, again and again."""
    at_priority(0, INHIBITOR)
    while True:
        end = time.thread_time() + BUSY_S
        while time.thread_time() < end:
            pass
        time.sleep(REST_S)


def main():
    """Runs the nodes."""
    if sys.argv[1] == "inhibit":
        inhibit()
    rclpy.init()
    if sys.argv[1] == "drive":
        drive()
    driver = subprocess.Popen([sys.executable, __file__, "drive"])
    receive(float(sys.argv[1]), sys.argv[-1], "--advised" in sys.argv)
    driver.kill()
    driver.wait()


if __name__ == "__main__":
    main()
