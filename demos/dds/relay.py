#!/usr/bin/env python3
"""A stage of a chain on ROS 2, with the words of the stages on plain DDS (stage.h).

    relay.py IN OUT COUNT PERIOD_MS BURN_MS
"""

import json
import os
import sys
import time

import rclpy
from std_msgs.msg import String


class Relay:
    """Takes a message, computes, and publishes it."""

    def __init__(self, node, publisher, burn_ms):
        self.node, self.publisher, self.burn_ns = node, publisher, burn_ms * 1_000_000
        self.cpu_ns, self.starts_ns, self.ends_ns = [], [], []

    def on_message(self, message):
        """An execution."""
        self.starts_ns.append(time.monotonic_ns())
        begin = time.thread_time_ns()
        while time.thread_time_ns() < begin + self.burn_ns:
            pass
        self.publisher.publish(message)
        self.cpu_ns.append(time.thread_time_ns() - begin)
        self.ends_ns.append(time.monotonic_ns())


def main():
    """Reads once it is read itself, so that the chain is complete when its source begins."""
    source, target, count, _period_ms, burn_ms = sys.argv[1:]
    # The topic rt/x of DDS is /x in ROS 2.
    source, target = source.removeprefix("rt"), target.removeprefix("rt")
    rclpy.init()
    node = rclpy.create_node("relay")
    relay = Relay(node, node.create_publisher(String, target, 10), int(burn_ms))
    while relay.publisher.get_subscription_count() == 0:
        time.sleep(0.02)
    time.sleep(0.3)
    node.create_subscription(String, source, relay.on_message, 10)
    while len(relay.ends_ns) < int(count):
        rclpy.spin_once(node, timeout_sec=1)
    # The other side has taken what was written last.
    time.sleep(0.5)
    print(json.dumps({"id": f"/relay:subscription({source})", "type": "subscription",
                      "outputs": [target], "count": len(relay.ends_ns), "cpu_ns": relay.cpu_ns,
                      "starts_ns": relay.starts_ns, "ends_ns": relay.ends_ns}), flush=True)
    # As the other stages end: that a publisher is destroyed calls listeners on DDS too.
    os._exit(0)


if __name__ == "__main__":
    main()
