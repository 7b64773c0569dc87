#!/usr/bin/env python3
"""A sensor that publishes when something happens: no timer, no callback, no period. Or, with --ppm, one with a
clock of its own."""

import argparse
import random
import sys
import time

import rclpy
from rclpy._rclpy_pybind11 import RCLError
from rclpy.utilities import remove_ros_args
from std_msgs.msg import String


def connect(publisher):
    """Waits until a publisher is connected, for 3 s at most: nobody may want its events.

    It knows of a subscription before that knows of it, and what it sends meanwhile is taken 50 ms and
    more later. So it waits again as long as it took to be known on one side, and a second more.
    """
    begin = time.monotonic()
    while rclpy.ok() and not publisher.get_subscription_count() and time.monotonic() < begin + 3:
        time.sleep(0.01)
    time.sleep(time.monotonic() - begin + 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="sensor")
    parser.add_argument("--out", default="/t1")
    parser.add_argument("--mean-ms", type=float, default=40,
                        help="time between events: half to one and a half times this")
    parser.add_argument("--ppm", type=float, help="one event each mean, by a clock that is so much slow")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(remove_ros_args(sys.argv)[1:])
    rclpy.init()
    node = rclpy.create_node(args.name)
    publisher = node.create_publisher(String, args.out, 10)
    draw, number = random.Random(args.seed), 0
    try:
        connect(publisher)
        begin = time.monotonic()
        while rclpy.ok():
            if args.ppm is None:
                time.sleep(args.mean_ms * draw.uniform(0.5, 1.5) / 1e3)
            else:
                due = begin + (number + 1) * args.mean_ms / 1e3 * (1 + args.ppm / 1e6)
                time.sleep(max(0, due - time.monotonic()))
            # Number of the item, and when its chain began.
            publisher.publish(String(data=f"{number} {time.monotonic_ns()} "))
            number += 1
    except (KeyboardInterrupt, RCLError):
        # SIGINT or SIGTERM, perhaps just before a publication.
        pass
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
