"""Merges the points of the front and the rear lidar."""

import node
import numpy as np
from cloud import stamp_ns, to_message, to_numpy
from rclpy.node import Node
from sensor_msgs.msg import PointCloud2


class PointCloudFusion(Node):
    """Publishes one cloud for every pair of scans that were taken together."""

    TOPICS = ("/lidar_front/points_filtered", "/lidar_rear/points_filtered")
    TOLERANCE_NS = 50_000_000

    def __init__(self):
        super().__init__("point_cloud_fusion")
        self.waiting = {}
        self.publisher = self.create_publisher(PointCloud2, "/lidars/points_fused", 10)
        for topic in self.TOPICS:
            self.create_subscription(
                PointCloud2, topic, lambda msg, topic=topic: self.on_points(topic, msg), 10)

    def on_points(self, topic, msg):
        self.waiting[topic] = msg
        if len(self.waiting) < len(self.TOPICS):
            return
        oldest = min(self.TOPICS, key=lambda t: stamp_ns(self.waiting[t]))
        newest = max(self.TOPICS, key=lambda t: stamp_ns(self.waiting[t]))
        if stamp_ns(self.waiting[newest]) - stamp_ns(self.waiting[oldest]) > self.TOLERANCE_NS:
            del self.waiting[oldest]  # its partner was lost
            return
        # The merged cloud is as old as its older part.
        header = self.waiting[oldest].header
        fused = np.concatenate([to_numpy(self.waiting[t]) for t in self.TOPICS])
        self.waiting.clear()
        self.publisher.publish(to_message(fused, header))


if __name__ == "__main__":
    node.run(PointCloudFusion)
