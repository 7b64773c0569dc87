#!/usr/bin/env python3
"""An application whose mode switches while it runs, and which knows in which mode each execution began.

/sensor -> /scan -> /taker in one thread. Each twentieth execution of the sensor publishes its scan, and
then begins the next mode, by a message on /mode or by the state of the lifecycle node /planner: the
taker runs on that scan in the new mode. While driving, the taker computes longer and publishes /plan.
"""

import argparse
import json
import time

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.lifecycle import LifecycleNode
from rclpy.node import Node
from std_msgs.msg import Empty, UInt32

SENSOR, TAKER, ROAD = "sensor:timer(50ms)", "taker:subscription({}/scan)", "road:subscription({}/plan)"
EVERY = 20
SWITCHES = 3


class Application:
    """The nodes, and what is true of them."""

    def __init__(self, namespace, by):
        self.namespace, self.by, self.mode = namespace, by, "parked"
        self.counts, self.chain = {}, {}
        self.scans, self.switches, self.begun_in = 0, 0, {}
        self.over = rclpy.task.Future()
        sensor, taker, road = (Node(n, namespace=namespace) for n in ("sensor", "taker", "road"))
        self.planner = LifecycleNode("planner", namespace=namespace)
        self.to_scan = sensor.create_publisher(UInt32, "scan", 10)
        self.to_mode = sensor.create_publisher(Empty, "mode", 10)
        self.to_plan = taker.create_publisher(UInt32, "plan", 10)
        taker.create_subscription(UInt32, "scan", self.on_scan, 10)
        road.create_subscription(UInt32, "plan", self.on_plan, 10)
        self.nodes = (sensor, taker, road, self.planner)
        self.planner.trigger_configure()
        self.timer = sensor.create_timer(0.05, self.on_timer)

    def count(self, callback):
        """An execution begins."""
        of = self.counts.setdefault(f"{self.namespace}/{callback.format(self.namespace)}", {})
        of[self.mode] = of.get(self.mode, 0) + 1

    def on_timer(self):
        self.count(SENSOR)
        self.scans += 1
        self.begun_in[self.scans] = self.mode
        self.to_scan.publish(UInt32(data=self.scans))
        if self.scans % EVERY == 0:
            if self.switches == SWITCHES:
                self.timer.cancel()
                return
            self.switches += 1
            self.switch()

    def switch(self):
        """The next mode begins."""
        driving = self.mode == "parked"
        if self.by == "topic":
            self.to_mode.publish(Empty())
        elif driving:
            self.planner.trigger_activate()
        else:
            self.planner.trigger_deactivate()
        self.mode = "driving" if driving else "parked"

    def on_scan(self, message):
        self.count(TAKER)
        burn(6 if self.mode == "driving" else 2)
        if self.mode == "driving":
            self.to_plan.publish(message)
        if message.data == EVERY * (SWITCHES + 1) and self.mode == "parked":
            self.over.set_result(None)

    def on_plan(self, message):
        self.count(ROAD)
        began = self.begun_in.pop(message.data)
        of = self.chain.setdefault(began, {"executions": 0, "crossed": 0})
        of["executions"] += 1
        of["crossed"] += began != self.mode
        if message.data == EVERY * (SWITCHES + 1):
            self.over.set_result(None)


def burn(ms):
    """Computes for so many milliseconds of the thread's CPU time."""
    until = time.thread_time_ns() + int(ms * 1e6)
    while time.thread_time_ns() < until:
        pass


def main():
    """Runs until the last scan was taken; prints what is true as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namespace", default="", metavar="/NAME")
    parser.add_argument("--by", choices=("topic", "lifecycle"), default="topic",
                        help="what switches the mode")
    args = parser.parse_args()
    rclpy.init()
    application = Application(args.namespace, args.by)
    executor = SingleThreadedExecutor()
    for node in application.nodes:
        executor.add_node(node)
    executor.spin_until_future_complete(application.over)
    time.sleep(0.3)
    print(json.dumps({"executions": application.counts, "chain": application.chain}))


if __name__ == "__main__":
    main()
