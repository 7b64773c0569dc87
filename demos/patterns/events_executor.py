#!/usr/bin/env python3
"""A chain of three nodes on rclpy's executor of events, which never calls rcl_wait."""

import time

import rclpy
from pattern import Program
from rclpy.experimental import EventsExecutor
from rclpy.task import Future
from std_msgs.msg import String

# The sleep of the second callback.
SLEEP_NS = 2_000_000


def main():
    """first's timer -> /c1 -> second -> /c2 -> third."""
    program = Program(__doc__)
    rclpy.init()
    first, second, third = (program.node(n) for n in ("first", "second", "third"))
    begin = program.callback("first", "timer(200ms)", outputs=["c1"])
    middle = program.callback("second", f"subscription({program.name('c1')})", outputs=["c2"])
    end = program.callback("third", f"subscription({program.name('c2')})")
    program.edge(begin, middle, "c1")
    program.edge(middle, end, "c2")
    latencies = program.chain(begin, middle, end)

    to_c1 = first.create_publisher(String, "c1", 10)
    to_c2 = second.create_publisher(String, "c2", 10)

    def on_timer():
        with begin.execution() as run:
            run.burn(9)  # rclpy takes 0.3 ms around a timer's callback
            to_c1.publish(String(data=str(run.start_ns)))

    def on_c1(message):
        with middle.execution() as run:
            run.burn(2)
            time.sleep(SLEEP_NS / 1e9)  # within the callback, not idle
            run.burn(1)
            to_c2.publish(message)
            run.burn(1)

    def on_c2(message):
        with end.execution() as run:
            run.burn(3)
            latencies.append(time.monotonic_ns() - int(message.data))

    second.create_subscription(String, "c1", on_c1, 10)
    third.create_subscription(String, "c2", on_c2, 10)
    executor = EventsExecutor()
    for node in (first, second, third):
        executor.add_node(node)
    program.wait_for(lambda: to_c1.get_subscription_count() > 0
                     and to_c2.get_subscription_count() > 0)
    timer = first.create_timer(0.2, on_timer)
    program.all_connected()
    deadline = time.monotonic() + program.duration
    # As spin() does, in long goes: spin_once would come back to Python after every event. And this
    # executor does not return for a future that another thread completes.
    while not program.is_over() and (left := deadline - time.monotonic()) > 0:
        executor.spin_until_future_complete(Future(), timeout_sec=min(left, 2))
    timer.cancel()
    executor.spin_until_future_complete(Future(), timeout_sec=1)
    program.more["slept_ns"] = {begin.vid: 0, middle.vid: SLEEP_NS, end.vid: 0}
    program.print_truth()


if __name__ == "__main__":
    main()
