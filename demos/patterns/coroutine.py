#!/usr/bin/env python3
"""A coroutine as a callback: it sends a request, awaits the answer, and goes on."""

import rclpy
from parts import connected, hearer, server
from pattern import Program
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import SingleThreadedExecutor
from std_msgs.msg import String
from std_srvs.srv import SetBool


def main():
    """asker's timer awaits /answer and publishes /report; another timer runs meanwhile."""
    program = Program(__doc__)
    ask = program.callback("asker", "timer(200ms)", outputs=["answer/request", "report"])
    beat = program.callback("asker", "timer(50ms)")
    serve = program.callback("server", f"service({program.name('answer')})",
                             suffix=f"@{program.name('asker')}", outputs=["answer/response"])
    client = program.callback("asker", f"client({program.name('answer')})")
    read = program.callback("reader", f"subscription({program.name('report')})")
    program.edge(ask, serve, "answer/request")
    program.edge(serve, client, "answer/response")
    program.edge(client, ask)
    program.edge(ask, read, "report")
    program.chain(ask, serve, client)
    program.chain(beat)
    latencies = program.chain(ask, read)

    def asker():
        rclpy.init()
        node, executor = program.node("asker"), SingleThreadedExecutor()
        executor.add_node(node)
        to_report = node.create_publisher(String, "report", 10)
        # A suspended callback keeps its group: what it awaits must be in another one.
        group = ReentrantCallbackGroup()
        to_answer = node.create_client(SetBool, "answer", callback_group=group)

        async def on_ask():
            with ask.execution() as run:
                run.burn(5)
                future = to_answer.call_async(SetBool.Request())
                with run.suspended():
                    await future
                run.burn(6)
                to_report.publish(String(data=str(run.start_ns)))

        def on_beat():
            with beat.execution() as run:
                run.burn(4)

        connected(program, lambda: to_report.get_subscription_count() > 0
                  and to_answer.service_is_ready())
        program.run(executor, node.create_timer(0.2, on_ask),
                    node.create_timer(0.05, on_beat, callback_group=group))

    program.apart(asker, server(program, serve, "answer", 60),
                  hearer(program, "reader", read, "report", latencies))
    program.print_truth()


if __name__ == "__main__":
    main()
