"""A ROS 2 application that no test knows: it runs beside the tests for `--with-foreign`.

Its nodes come and go every few seconds, so that some are there before a recording and some begin in
the middle of one. The listener publishes too: a graph with an edge, a chain and a timer.
"""

import subprocess

LIFE_S = 5

PROGRAM = """
import sys, time, rclpy
from std_msgs.msg import String
rclpy.init()
talker, listener = rclpy.create_node('foreign_talker'), rclpy.create_node('foreign_listener')
talk = talker.create_publisher(String, '/foreign/chatter', 10)
echo = listener.create_publisher(String, '/foreign/echo', 10)
talker.create_timer(0.1, lambda: talk.publish(String(data='x')))
listener.create_subscription(String, '/foreign/chatter', echo.publish, 10)
executor = rclpy.executors.SingleThreadedExecutor()
executor.add_node(talker)
executor.add_node(listener)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    executor.spin_once(timeout_sec=0.2)
"""


def run(harness):
    """Keeps two of them running, one for good and one anew every few seconds, until it is ended."""
    python = harness.python("kilted")
    subprocess.Popen([python, "-c", PROGRAM, "1e9"], stderr=subprocess.DEVNULL)
    while True:
        subprocess.run([python, "-c", PROGRAM, str(LIFE_S)], stderr=subprocess.DEVNULL, check=False)
