#!/usr/bin/env python3
"""The control: a timer, a subscription that publishes, a subscription; nothing unusual."""

import time

import rclpy
from pattern import Program
from rclpy.executors import SingleThreadedExecutor
from std_msgs.msg import String


def main():
    """camera -> /image -> filter -> /edges -> viewer, a process each."""
    program = Program(__doc__)
    shoot = program.callback("camera", "timer(100ms)", outputs=["image"])
    find = program.callback("filter", f"subscription({program.name('image')})", outputs=["edges"])
    view = program.callback("viewer", f"subscription({program.name('edges')})")
    program.edge(shoot, find, "image")
    program.edge(find, view, "edges")
    latencies = program.chain(shoot, find, view)

    def start(name):
        rclpy.init()
        executor, node = SingleThreadedExecutor(), program.node(name)
        executor.add_node(node)
        return executor, node

    def camera():
        executor, node = start("camera")
        to_image = node.create_publisher(String, "image", 10)

        def on_shoot():
            with shoot.execution() as run:
                run.burn(2)
                to_image.publish(String(data=str(run.start_ns)))

        program.wait_for(lambda: to_image.get_subscription_count() > 0
                         and node.count_subscribers("edges") > 0)
        program.run(executor, node.create_timer(0.1, on_shoot))

    def filtering():
        executor, node = start("filter")
        to_edges = node.create_publisher(String, "edges", 10)

        def on_image(message):
            with find.execution() as run:
                run.burn(3)
                to_edges.publish(message)

        node.create_subscription(String, "image", on_image, 10)
        program.wait_for(lambda: to_edges.get_subscription_count() > 0)
        program.run(executor)

    def viewer():
        executor, node = start("viewer")

        def on_edges(message):
            with view.execution() as run:
                run.burn(2)
                latencies.append(time.monotonic_ns() - int(message.data))

        node.create_subscription(String, "edges", on_edges, 10)
        program.wait_for(lambda: node.count_publishers("edges") > 0)
        program.run(executor)

    program.apart(camera, filtering, viewer)
    program.print_truth()


if __name__ == "__main__":
    main()
