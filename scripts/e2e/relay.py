"""Two rclpy nodes, each in a process of its own: a timer, and a relay that works for a while. A third one listens.

usage: relay.py timer | relay | listen FILE
"""

import random
import sys
import time

import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.qos import QoSProfile
from std_msgs.msg import String

PERIOD_S = 0.1
QOS = QoSProfile(depth=100)


def burn(seconds):
    """Uses so much CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def timer(node):
    """Publishes numbers."""
    publisher, count = node.create_publisher(String, "/numbers", QOS), 0

    def tick():
        nonlocal count
        publisher.publish(String(data=str(count)))
        count += 1
    node.create_timer(PERIOD_S, tick)


def relay(node):
    """Publishes each number again, after 1 to 5 ms of work."""
    publisher = node.create_publisher(String, "/relayed", QOS)

    def take(message):
        burn(random.uniform(0.001, 0.005))
        publisher.publish(message)
    node.create_subscription(String, "/numbers", take, QOS)


def listen(node, path):
    """Writes the relayed numbers to a file."""
    file = open(path, "w", buffering=1, encoding="utf-8")
    node.create_subscription(String, "/relayed", lambda message: print(message.data, file=file), QOS)


def main():
    """Runs one node."""
    rclpy.init()
    node = rclpy.create_node(sys.argv[1])
    {"timer": timer, "relay": relay, "listen": listen}[sys.argv[1]](node, *sys.argv[2:])
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass


main()
