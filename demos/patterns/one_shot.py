#!/usr/bin/env python3
"""Callbacks made over and over: one-shot timers, and a node that is made and destroyed."""

import time

import rclpy
from pattern import Program
from rclpy.executors import SingleThreadedExecutor
from std_msgs.msg import String


def main():
    """commander's timer makes a one-shot timer each time, which publishes /done -> viewer; a node
    `worker` with a timer is made, runs it once, and is destroyed."""
    program = Program(__doc__)
    rclpy.init()
    executor = SingleThreadedExecutor()
    commander, viewer = program.node("commander"), program.node("viewer")
    command = program.callback("commander", "timer(100ms)")
    act = program.callback("commander", "timer(30ms)", outputs=["done"])
    view = program.callback("viewer", f"subscription({program.name('done')})")
    work = program.callback("worker", "timer(20ms)")
    program.edge(act, view, "done")
    latencies = program.chain(act, view)
    program.chain(command)
    program.chain(work)

    to_done = commander.create_publisher(String, "done", 10)
    pending = []

    def on_command():
        with command.execution() as run:
            run.burn(3)
            if pending and not pending[0].is_canceled():
                return  # a busy machine: the one before has not run yet
            old = pending.pop() if pending else None
            pending.append(commander.create_timer(0.03, on_act))
            # As `self.timer = self.create_timer(...)` does: the one before ends after that.
            if old is not None:
                commander.destroy_timer(old)

    def on_act():
        with act.execution() as run:
            run.burn(3)
            pending[0].cancel()
            if len(act.executions) % 2:
                commander.destroy_timer(pending.pop())
            to_done.publish(String(data=str(run.start_ns)))

    def on_done(message):
        with view.execution() as run:
            run.burn(3)
            latencies.append(time.monotonic_ns() - int(message.data))

    def on_work():
        with work.execution() as run:
            run.burn(3)

    viewer.create_subscription(String, "done", on_done, 10)
    for node in (commander, viewer):
        executor.add_node(node)
    program.wait_for(lambda: to_done.get_subscription_count() > 0)
    timer = commander.create_timer(0.1, on_command)

    def spin(seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            executor.spin_once(timeout_sec=0.01)

    program.all_connected()
    end = time.monotonic() + program.duration
    while time.monotonic() < end and not program.is_over():
        worker = program.node("worker", start_parameter_services=False)
        executor.add_node(worker)
        worker.create_timer(0.02, on_work)
        before = len(work.executions)
        while len(work.executions) == before:
            executor.spin_once(timeout_sec=0.01)
        spin(0.02)
        executor.remove_node(worker)
        worker.destroy_node()
        spin(0.3)
    timer.cancel()
    spin(1)
    program.print_truth()


if __name__ == "__main__":
    main()
