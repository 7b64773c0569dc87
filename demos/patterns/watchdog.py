#!/usr/bin/env python3
"""A watchdog: a timer that each message resets, and that fires when none comes."""

import time

import rclpy
from pattern import Program
from rclpy.executors import SingleThreadedExecutor
from std_msgs.msg import String

PERIOD_NS = 300_000_000


def main():
    """robot -> /heartbeat, which resets watchdog's timer -> /alarm -> panel. Of 14 heartbeats the
    last 6 are left out."""
    program = Program(__doc__)
    rclpy.init()
    robot, watchdog, panel = (program.node(n) for n in ("robot", "watchdog", "panel"))
    beat = program.callback("robot", "timer(100ms)", outputs=["heartbeat"])
    hear = program.callback("watchdog", f"subscription({program.name('heartbeat')})")
    alarm = program.callback("watchdog", "timer(300ms)", outputs=["alarm"])
    show = program.callback("panel", f"subscription({program.name('alarm')})")
    program.edge(beat, hear, "heartbeat")
    program.edge(alarm, show, "alarm")
    program.chain(beat, hear)
    latencies = program.chain(alarm, show)
    # How late each alarm starts: at least and at most, since the program may wait for a CPU between
    # looking at its clock and resetting the timer. And when the next one is due, by either.
    late, due = [], [0, 0]
    program.more["late_ns"] = {alarm.vid: late}

    to_heartbeat = robot.create_publisher(String, "heartbeat", 10)
    to_alarm = watchdog.create_publisher(String, "alarm", 10)

    def on_beat():
        with beat.execution() as run:
            run.burn(3)
            if len(beat.executions) % 14 < 8:
                to_heartbeat.publish(String(data="alive"))

    def on_heartbeat(_message):
        with hear.execution() as run:
            run.burn(3)
            due[0] = time.monotonic_ns() + PERIOD_NS
            timer.reset()
            due[1] = time.monotonic_ns() + PERIOD_NS

    def on_alarm():
        with alarm.execution() as run:
            late.append([run.start_ns - due[1], run.start_ns - due[0]])
            due[:] = [due[0] + PERIOD_NS, due[1] + PERIOD_NS]
            run.burn(3)
            to_alarm.publish(String(data=str(run.start_ns)))

    def on_shown(message):
        with show.execution() as run:
            run.burn(3)
            latencies.append(time.monotonic_ns() - int(message.data))

    watchdog.create_subscription(String, "heartbeat", on_heartbeat, 10)
    panel.create_subscription(String, "alarm", on_shown, 10)
    executor = SingleThreadedExecutor()
    for node in (robot, watchdog, panel):
        executor.add_node(node)
    program.wait_for(lambda: to_heartbeat.get_subscription_count() > 0
                     and to_alarm.get_subscription_count() > 0)
    due[0] = time.monotonic_ns() + PERIOD_NS
    timer = watchdog.create_timer(PERIOD_NS / 1e9, on_alarm)
    due[1] = time.monotonic_ns() + PERIOD_NS
    program.run(executor, robot.create_timer(0.1, on_beat), timer)
    program.print_truth()


if __name__ == "__main__":
    main()
