"""Watches the thinned-out clouds: what an integrator adds beside the localiser."""

import node
from cloud import to_numpy
from rclpy.node import Node
from sensor_msgs.msg import PointCloud2


class Monitor(Node):
    """Warns of clouds with too few points to localise with."""

    FEWEST = 20

    def __init__(self):
        super().__init__("monitor")
        self.create_subscription(
            PointCloud2, "/lidars/points_fused_downsampled", self.on_points, 10)

    def on_points(self, msg):
        if len(to_numpy(msg)) < self.FEWEST:
            self.get_logger().warning("too few points to localise with")


if __name__ == "__main__":
    node.run(Monitor)
