#!/usr/bin/env python3
"""A loop beside an executor, as ros2_control's update: a thread sleeps until absolute times, takes a mutex,
and publishes. Another thread holds the mutex in each cycle, for longer than the loop sleeps."""

import ctypes
import threading
import time

import rclpy
from parts import connected, hearer
from pattern import Program
from rclpy.executors import ExternalShutdownException
from std_msgs.msg import String

PERIOD_NS = 100_000_000
# The loop's own work, before and after it has the mutex.
BEFORE_MS, AFTER_MS = 2, 5
# The holder takes the mutex this long before the loop wakes up, and holds it for so long.
EARLY_NS, HELD_MS = 4_000_000, 62
TIMER_ABSTIME = 1

libc = ctypes.CDLL(None, use_errno=True)


class Timespec(ctypes.Structure):
    """struct timespec."""

    _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]


def sleep_until(ns):
    """Sleeps until a time of CLOCK_MONOTONIC, as real-time loops do. Python's lock is free meanwhile."""
    until = Timespec(ns // 1_000_000_000, ns % 1_000_000_000)
    libc.clock_nanosleep(time.CLOCK_MONOTONIC, TIMER_ABSTIME, ctypes.byref(until), None)


def main():
    """control's loop thread publishes /command, which motor takes; its executor runs a timer."""
    program = Program(__doc__)
    loop = program.callback("control", f"thread({program.name('command')})", outputs=["command"])
    beat = program.callback("control", "timer(150ms)")
    move = program.callback("motor", f"subscription({program.name('command')})")
    program.edge(loop, move, "command")
    program.chain(loop, move)
    program.chain(beat)

    def control():
        rclpy.init()
        node = program.node("control")
        to_command = node.create_publisher(String, "command", 10)
        mutex, over = ctypes.create_string_buffer(64), threading.Event()

        def on_beat():
            with beat.execution() as run:
                run.burn(1)

        def spin():
            try:
                rclpy.spin(node)
            except ExternalShutdownException:
                pass

        def holding(begin):
            due = begin
            while not over.is_set():
                due += PERIOD_NS
                sleep_until(due - EARLY_NS)
                libc.pthread_mutex_lock(mutex)
                sleep_until(due - EARLY_NS + HELD_MS * 1_000_000)
                libc.pthread_mutex_unlock(mutex)

        def updating(begin):
            due = begin
            while not over.is_set():
                due += PERIOD_NS
                sleep_until(due)
                with loop.execution() as run:
                    run.burn(BEFORE_MS)
                    libc.pthread_mutex_lock(mutex)
                    libc.pthread_mutex_unlock(mutex)
                    run.burn(AFTER_MS)
                    to_command.publish(String(data=str(run.start_ns)))

        node.create_timer(0.15, on_beat)
        spinning = threading.Thread(target=spin)
        spinning.start()
        connected(program, lambda: to_command.get_subscription_count() > 0)
        begin = time.monotonic_ns()
        threads = [threading.Thread(target=part, args=(begin,)) for part in (holding, updating)]
        for thread in threads:
            thread.start()
        program.all_connected()
        ended = program.end_of(program.duration)
        while not ended.done():
            time.sleep(0.1)
        over.set()
        for thread in threads:
            thread.join()
        time.sleep(0.5)
        program.over[program.part] = 1
        time.sleep(1)
        rclpy.shutdown()
        spinning.join()

    program.more["loop"] = {"id": loop.vid, "period_ns": PERIOD_NS,
                            "blocked_ns": (HELD_MS - BEFORE_MS) * 1_000_000 - EARLY_NS}
    program.apart(control, hearer(program, "motor", move, "command", []))
    program.print_truth()


if __name__ == "__main__":
    main()
