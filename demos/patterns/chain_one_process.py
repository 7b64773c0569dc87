#!/usr/bin/env python3
"""A chain whose three nodes share a process and an executor, as composed nodes do."""

import time

import rclpy
from pattern import Program
from rclpy.executors import SingleThreadedExecutor
from std_msgs.msg import String


def main():
    """sensor -> /raw -> planner -> /plan -> motor; the planner takes /other of the sensor too."""
    program = Program(__doc__)
    sense = program.callback("sensor", "timer(100ms)", outputs=["raw", "other"])
    plan = program.callback("planner", f"subscription({program.name('raw')})", outputs=["plan"])
    note = program.callback("planner", f"subscription({program.name('other')})")
    move = program.callback("motor", f"subscription({program.name('plan')})")
    program.edge(sense, plan, "raw")
    program.edge(sense, note, "other")
    program.edge(plan, move, "plan")
    latencies = program.chain(sense, plan, move)
    program.chain(sense, note)

    rclpy.init()
    executor = SingleThreadedExecutor()
    sensor, planner, motor = (program.node(n) for n in ("sensor", "planner", "motor"))
    for node in (sensor, planner, motor):
        executor.add_node(node)
    to_raw = sensor.create_publisher(String, "raw", 10)
    to_other = sensor.create_publisher(String, "other", 10)
    to_plan = planner.create_publisher(String, "plan", 10)

    def on_sense():
        with sense.execution() as run:
            run.burn(2)
            to_raw.publish(String(data=str(run.start_ns)))
            to_other.publish(String())

    def on_raw(message):
        with plan.execution() as run:
            run.burn(3)
            to_plan.publish(message)

    def on_other(_):
        with note.execution() as run:
            run.burn(2)

    def on_plan(message):
        with move.execution() as run:
            run.burn(2)
            latencies.append(time.monotonic_ns() - int(message.data))

    planner.create_subscription(String, "raw", on_raw, 10)
    planner.create_subscription(String, "other", on_other, 10)
    motor.create_subscription(String, "plan", on_plan, 10)
    program.wait_for(lambda: all(p.get_subscription_count() > 0
                                 for p in (to_raw, to_other, to_plan)))
    program.run(executor, sensor.create_timer(0.1, on_sense))
    program.print_truth()


if __name__ == "__main__":
    main()
