#!/usr/bin/env python3
"""A callback that calls a service and waits for the answer (`Client.call`). Another thread of the pool
takes the answer."""

import rclpy
from parts import connected, hearer, server
from pattern import Program
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import MultiThreadedExecutor
from std_msgs.msg import String
from std_srvs.srv import SetBool


def main():
    """asker's timer calls /answer and publishes /report."""
    program = Program(__doc__)
    ask = program.callback("asker", "timer(200ms)", outputs=["answer/request", "report"])
    serve = program.callback("server", f"service({program.name('answer')})",
                             suffix=f"@{program.name('asker')}", outputs=["answer/response"])
    client = program.callback("asker", f"client({program.name('answer')})")
    read = program.callback("reader", f"subscription({program.name('report')})")
    program.edge(ask, serve, "answer/request")
    program.edge(serve, client, "answer/response")
    program.edge(client, ask)
    program.edge(ask, read, "report")
    program.chain(ask, serve, client)
    latencies = program.chain(ask, read)

    def asker():
        rclpy.init()
        node, executor = program.node("asker"), MultiThreadedExecutor(3)
        executor.add_node(node)
        to_report = node.create_publisher(String, "report", 10)
        # The timer's callback keeps its group while it waits.
        group = ReentrantCallbackGroup()
        to_answer = node.create_client(SetBool, "answer", callback_group=group)

        def on_ask():
            with ask.execution() as run:
                run.burn(5)
                to_answer.call(SetBool.Request())
                run.burn(6)
                to_report.publish(String(data=str(run.start_ns)))

        connected(program, lambda: to_report.get_subscription_count() > 0
                  and to_answer.service_is_ready())
        program.run(executor, node.create_timer(0.2, on_ask))

    program.apart(asker, server(program, serve, "answer", 20),
                  hearer(program, "reader", read, "report", latencies))
    program.print_truth()


if __name__ == "__main__":
    main()
