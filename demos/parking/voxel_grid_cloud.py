"""Thins out a cloud: one point for every cube of space."""

import node
import numpy as np
import small_gicp
from cloud import to_message, to_numpy
from rclpy.node import Node
from sensor_msgs.msg import PointCloud2


class VoxelGridCloud(Node):
    """Downsamples with a voxel grid."""

    def __init__(self):
        super().__init__("voxel_grid_cloud_node")
        self.resolution = self.declare_parameter("resolution", 0.25).value
        self.publisher = self.create_publisher(
            PointCloud2, "/lidars/points_fused_downsampled", 10)
        self.create_subscription(PointCloud2, "/lidars/points_fused", self.on_points, 10)

    def on_points(self, msg):
        points = to_numpy(msg)[:, :3].astype(np.float64)
        sampled = small_gicp.voxelgrid_sampling(points, self.resolution).points()
        out = np.zeros((len(sampled), 4), dtype=np.float32)
        out[:, :3] = sampled[:, :3]
        self.publisher.publish(to_message(out, msg.header))


if __name__ == "__main__":
    node.run(VoxelGridCloud)
