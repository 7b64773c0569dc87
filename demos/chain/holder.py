"""A callback that holds what a thread beside it needs: Python's interpreter.

A timer's callback computes for a few milliseconds, every fifth time for --long. Another thread of the
process, which is in no plan, counts; it needs the interpreter for each step. At the end the program
writes the starts of the long executions, and when the other thread counted, to --truth (JSON, ns).
"""

import argparse
import json
import signal
import threading
import time

import rclpy
from rclpy.node import Node
from rclpy.executors import ExternalShutdownException


def burn(seconds):
    """Computes for so much CPU time of this thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Holder(Node):
    """A node with a timer."""

    def __init__(self, args):
        super().__init__("holder")
        self.long_s, self.executions, self.starts = args.long / 1e3, 0, []
        self.create_timer(args.period / 1e3, self.work)

    def work(self):
        """The callback."""
        self.executions += 1
        if self.executions % 5:
            burn(0.002)
            return
        self.starts.append(time.monotonic_ns())
        burn(self.long_s)


def main():
    """Runs until a signal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--period", type=float, default=100, help="of the timer, ms")
    parser.add_argument("--long", type=float, default=45, help="every fifth execution, ms")
    parser.add_argument("--truth", required=True, metavar="FILE")
    args, ros = parser.parse_known_args()
    counted, over = [], threading.Event()

    def count():
        while not over.is_set():
            counted.append(time.monotonic_ns())
            time.sleep(0.001)

    rclpy.init(args=ros)
    signal.signal(signal.SIGTERM, lambda *_: rclpy.try_shutdown())
    node = Holder(args)
    thread = threading.Thread(target=count)
    thread.start()
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    over.set()
    thread.join()
    with open(args.truth, "w", encoding="utf-8") as file:
        json.dump({"starts": node.starts, "counted": counted}, file)


if __name__ == "__main__":
    main()
