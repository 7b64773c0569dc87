"""A node of a chain over two hosts, which knows the latency: `host.py driver|worker SECONDS FILE`.

The driver publishes the time, the worker computes for 3 ms and publishes on. It writes how long ago the driver's time is when it
publishes, which is right where both have one clock (CLOCK_MONOTONIC): network namespaces of one machine.
"""
import sys
import time

import rclpy
from std_msgs.msg import Int64
role, seconds, out = sys.argv[1], float(sys.argv[2]), open(sys.argv[3], "w")
now = time.monotonic_ns
rclpy.init()
node = rclpy.create_node(role)
if role == "driver":
    pub = node.create_publisher(Int64, "/points", 10)
    def tick():
        pub.publish(Int64(data=now()))
    node.create_timer(0.05, tick)
    node.create_subscription(Int64, "/heartbeat", lambda m: None, 10)
else:
    pub = node.create_publisher(Int64, "/objects", 10)
    back = node.create_publisher(Int64, "/heartbeat", 10)
    def work(m):
        end = now() + 3_000_000
        while now() < end:
            pass
        out.write(f"{now() - m.data}\n")
        pub.publish(Int64(data=m.data))
    node.create_subscription(Int64, "/points", work, 10)
    node.create_timer(0.07, lambda: back.publish(Int64(data=now())))
end = now() + int(seconds * 1e9)
while now() < end:
    rclpy.spin_once(node, timeout_sec=0.1)
out.close()
