#!/usr/bin/env python3
"""A value that is stored and published again and again: it ages (the model is told with --link)."""

import time

import rclpy
from pattern import Program
from rclpy.executors import SingleThreadedExecutor
from std_msgs.msg import String


def main():
    """sensor -> /pose -> keeper, whose timer publishes the last one on /held -> control."""
    program = Program(__doc__)
    rclpy.init()
    sensor, keeper, control = (program.node(n) for n in ("sensor", "keeper", "control"))
    sense = program.callback("sensor", "timer(200ms)", outputs=["pose"])
    store = program.callback("keeper", f"subscription({program.name('pose')})")
    send = program.callback("keeper", "timer(60ms)", outputs=["held"])
    steer = program.callback("control", f"subscription({program.name('held')})")
    program.edge(sense, store, "pose")
    program.edges.append({"from": store.vid, "to": send.vid, "topic": "(memory)"})
    program.edge(send, steer, "held")
    latencies = program.chain(sense, store, send, steer)
    own = program.chain(send, steer)
    ages, reactions = [], []

    to_pose = sensor.create_publisher(String, "pose", 10)
    to_held = keeper.create_publisher(String, "held", 10)
    stored = []

    def on_sense():
        with sense.execution() as run:
            run.burn(2)
            to_pose.publish(String(data=str(run.start_ns)))

    def on_pose(message):
        with store.execution() as run:
            run.burn(2)
            stored[:] = [message.data]

    def on_send():
        with send.execution() as run:
            run.burn(2)
            value = stored[0] if stored else "0"
            to_held.publish(String(data=f"{value} {run.start_ns}"))

    last = []

    def on_held(message):
        with steer.execution() as run:
            run.burn(2)
            value, sent = map(int, message.data.split())
            now = time.monotonic_ns()
            own.append(now - sent)
            if not value:
                return
            ages.append(now - value)
            if last[-1:] != [value]:
                latencies.append(now - value)
                reactions.extend(now - before for before in last[-1:])
                last.append(value)

    keeper.create_subscription(String, "pose", on_pose, 10)
    control.create_subscription(String, "held", on_held, 10)
    executor = SingleThreadedExecutor()
    for node in (sensor, keeper, control):
        executor.add_node(node)
    program.wait_for(lambda: to_pose.get_subscription_count() > 0
                     and to_held.get_subscription_count() > 0)
    timers = [sensor.create_timer(0.2, on_sense), keeper.create_timer(0.06, on_send)]
    program.run(executor, *timers)
    program.chains[0].update(age_ns=ages, reaction_ns=reactions)
    program.print_truth()


if __name__ == "__main__":
    main()
