"""Processes that several programs have: a server that answers requests, and one that hears messages."""

import time

import rclpy
from rclpy.executors import SingleThreadedExecutor
from std_msgs.msg import String
from std_srvs.srv import SetBool

# After a peer is seen it may take a moment until it has seen this side, too.
SETTLE_S = 0.3


def connected(program, ready):
    """Waits until the peers are there, and have seen this side."""
    program.wait_for(ready)
    time.sleep(SETTLE_S)


def server(program, callback, service, ms):
    """A process whose node `server` answers the requests of one client in so many ms."""
    def part():
        rclpy.init()
        node, executor = program.node("server"), SingleThreadedExecutor()
        executor.add_node(node)

        def on_request(_, response):
            with callback.execution() as run:
                run.burn(ms)
                return response

        node.create_service(SetBool, service, on_request)
        # A response to a client that it has not seen yet is lost, and waited for forever.
        connected(program, lambda: node.count_clients(program.name(service)) > 0)
        program.run(executor)

    return part


def hearer(program, name, callback, topic, latencies):
    """A process whose node takes a topic for 4 ms each, with the times that the messages carry."""
    def part():
        rclpy.init()
        node, executor = program.node(name), SingleThreadedExecutor()
        executor.add_node(node)

        def on_message(message):
            with callback.execution() as run:
                run.burn(4)
                latencies.append(time.monotonic_ns() - int(message.data))

        node.create_subscription(String, topic, on_message, 10)
        program.wait_for(lambda: node.count_publishers(topic) > 0)
        program.run(executor)

    return part
