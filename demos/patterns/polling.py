#!/usr/bin/env python3
"""A timer that polls a subscription by take(), as Autoware's polling subscribers do."""

import time

import rclpy
from pattern import Program
from rclpy.callback_groups import CallbackGroup
from rclpy.executors import SingleThreadedExecutor
from std_msgs.msg import String


class Never(CallbackGroup):
    """A group whose entities no executor takes: the application does it."""

    def can_execute(self, entity):
        return False

    def beginning_execution(self, entity):
        return False

    def ending_execution(self, entity):
        pass


def main():
    """talker -> /scan, polled by poller's timer -> /command -> motor."""
    program = Program(__doc__)
    rclpy.init()
    talker, poller, motor = (program.node(n) for n in ("talker", "poller", "motor"))
    scan = program.callback("talker", "timer(80ms)", outputs=["scan"])
    poll = program.callback("poller", "timer(200ms)", outputs=["command"])
    drive = program.callback("motor", f"subscription({program.name('command')})")
    program.edge(scan, poll, "scan")
    program.edge(poll, drive, "command")
    program.chain(scan, poll, drive)
    latencies = program.chain(poll, drive)

    to_scan = talker.create_publisher(String, "scan", 10)
    to_command = poller.create_publisher(String, "command", 10)
    group = Never()
    polled = poller.create_subscription(String, "scan", lambda message: None, 1,
                                        callback_group=group)

    def on_scan():
        with scan.execution() as run:
            run.burn(4)
            to_scan.publish(String(data="scan"))

    def on_poll():
        with poll.execution() as run:
            run.burn(2)
            with polled.handle:
                polled.handle.take_message(String, False)
            run.burn(5)
            to_command.publish(String(data=str(run.start_ns)))

    def on_command(message):
        with drive.execution() as run:
            run.burn(4)
            latencies.append(time.monotonic_ns() - int(message.data))

    motor.create_subscription(String, "command", on_command, 10)
    executor = SingleThreadedExecutor()
    for node in (talker, poller, motor):
        executor.add_node(node)
    program.wait_for(lambda: to_scan.get_subscription_count() > 0
                     and to_command.get_subscription_count() > 0)
    timers = [talker.create_timer(0.08, on_scan), poller.create_timer(0.2, on_poll)]
    program.run(executor, *timers)
    program.print_truth()


if __name__ == "__main__":
    main()
