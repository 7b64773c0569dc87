"""A publisher and a subscriber, each in a process of its own.

usage: talker.py talk LOG FIRST SEED     publishes numbers from FIRST on, and does what standard input says, a word a line
       talker.py listen LOG              writes each number that comes
Each line of a log is a number and a time (CLOCK_MONOTONIC, ns).
"""

import os
import random
import select
import sys
import time

import rclpy
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from std_msgs.msg import String

TOPIC = "/held"
QOS = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=2000, reliability=ReliabilityPolicy.RELIABLE,
                 durability=DurabilityPolicy.VOLATILE)
# The time between two publications, s.
APART = (0.03, 0.08)
LARGE = "x" * (300 << 10)


class Talker:
    """The publisher."""

    def __init__(self, log, first, seed):
        self.log, self.number, self.random = open(log, "a", buffering=1, encoding="ascii"), first, random.Random(seed)
        self.node = self.publisher = None

    def begin(self):
        """Makes the node, and waits until the listener is there."""
        rclpy.init()
        self.node = rclpy.create_node("talker")
        self.advertise()

    def advertise(self):
        """Makes the publisher."""
        self.publisher = self.node.create_publisher(String, TOPIC, QOS)
        while not self.publisher.get_subscription_count():
            time.sleep(0.01)
        # The listener may know the publisher a little later.
        time.sleep(0.2)

    def publish(self, more=""):
        """Publishes the next number."""
        at, message = time.monotonic_ns(), String(data=f"{self.number} {more}")
        self.publisher.publish(message)
        print(self.number, at, file=self.log)
        self.number += 1

    def fork(self):
        """Makes a child that holds nothing and ends at once."""
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)

    def recreate(self):
        """Ends the publisher, with messages held, and makes another."""
        self.node.destroy_publisher(self.publisher)
        self.advertise()

    def context(self):
        """Ends the context, with messages held, and makes another."""
        self.end()
        self.begin()

    def end(self):
        """Ends as an application does."""
        rclpy.shutdown()
        self.node.destroy_node()

    def obey(self, word):
        """Does what a word says. Returns False at the end."""
        if word == "fill":
            for _ in range(24):
                self.publish()
        elif word == "large":
            self.publish(LARGE)
        elif word in ("fork", "recreate", "context"):
            getattr(self, word)()
        elif word == "end":
            self.end()
        return word not in ("end", "")

    def run(self):
        """Publishes until it is told to end."""
        self.begin()
        print("ready", flush=True)
        while True:
            until = time.monotonic() + self.random.uniform(*APART)
            while (left := until - time.monotonic()) > 0:
                if select.select([0], [], [], left)[0]:
                    word = os.read(0, 64).decode().strip()
                    if not self.obey(word):
                        print(f"ended {self.number}", flush=True)
                        return
                    print("done", flush=True)
            self.publish()


def listen(log):
    """Writes what comes."""
    rclpy.init()
    node, file = rclpy.create_node("listener"), open(log, "a", buffering=1, encoding="ascii")
    subscription = node.create_subscription(
        String, TOPIC, lambda message: print(message.data.split()[0], time.monotonic_ns(), file=file), QOS)
    rclpy.spin(node)
    del subscription


def main():
    """Runs one of the two."""
    if sys.argv[1] == "listen":
        listen(sys.argv[2])
    else:
        Talker(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])).run()


main()
