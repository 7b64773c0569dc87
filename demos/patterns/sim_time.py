#!/usr/bin/env python3
"""A timer on simulated time, which passes at half the rate."""

import time

import rclpy
from pattern import Program
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from rosgraph_msgs.msg import Clock
from std_msgs.msg import String


def main():
    """simulator -> /clock, which drives mover's timer -> /position -> map."""
    program = Program(__doc__)
    rclpy.init()
    clock_topic = program.name("clock")
    simulator, viewer = program.node("simulator"), program.node("map")
    mover = program.node("mover", cli_args=["--ros-args", "-r", f"/clock:={clock_topic}"],
                         parameter_overrides=[Parameter("use_sim_time", value=True)])
    tick = program.callback("simulator", "timer(40ms)", outputs=["clock"])
    follow = program.callback("mover", f"subscription({clock_topic})")
    move = program.callback("mover", "timer(40ms)", outputs=["position"])
    view = program.callback("map", f"subscription({program.name('position')})")
    program.edge(tick, follow, "clock")
    program.edge(move, view, "position")
    program.chain(tick, follow)
    latencies = program.chain(move, view)
    program.more["simulated"] = [move.vid]

    to_clock = simulator.create_publisher(Clock, "clock", 10)
    to_position = mover.create_publisher(String, "position", 10)
    now_ms = [1000]

    def on_tick():
        with tick.execution() as run:
            run.burn(3)
            now_ms[0] += 20
            clock = Clock()
            clock.clock.sec, clock.clock.nanosec = now_ms[0] // 1000, now_ms[0] % 1000 * 10**6
            to_clock.publish(clock)

    def on_move():
        with move.execution() as run:
            run.burn(3)
            to_position.publish(String(data=str(run.start_ns)))

    def on_position(message):
        with view.execution() as run:
            run.burn(3)
            latencies.append(time.monotonic_ns() - int(message.data))

    followed = next(s for s in mover.subscriptions if s.topic_name == clock_topic)
    set_time = followed.callback

    def on_clock(message):
        with follow.execution() as run:
            run.burn(3)
            set_time(message)

    followed.callback = on_clock
    viewer.create_subscription(String, "position", on_position, 10)
    executor = SingleThreadedExecutor()
    for node in (simulator, mover, viewer):
        executor.add_node(node)
    program.wait_for(lambda: to_clock.get_subscription_count() > 0
                     and to_position.get_subscription_count() > 0)
    timers = [simulator.create_timer(0.04, on_tick), mover.create_timer(0.04, on_move)]
    program.run(executor, *timers)
    program.print_truth()


if __name__ == "__main__":
    main()
