"""Filters a lidar's scan and brings it into the car's frame."""

import math

import node
import numpy as np
import small_gicp
from cloud import to_message, to_numpy
from rclpy.node import Node
from sensor_msgs.msg import PointCloud2


class FilterTransform(Node):
    """Drops points that are too near, too far, on the car itself, or alone in the air."""

    # A point is kept if so many others lie within 0.1 m plus a twentieth of its range.
    NEIGHBOURS = 3

    def __init__(self):
        super().__init__("filter_transform")
        self.min_range = self.declare_parameter("min_range", 1.0).value
        self.max_range = self.declare_parameter("max_range", 30.0).value
        x = self.declare_parameter("mount_x", 0.0).value
        z = self.declare_parameter("mount_z", 1.1).value
        yaw = self.declare_parameter("mount_yaw", 0.0).value
        c, s = math.cos(yaw), math.sin(yaw)
        self.rotation = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]], dtype=np.float32)
        self.offset = np.array([x, 0, z], dtype=np.float32)
        self.publisher = self.create_publisher(PointCloud2, "points_filtered", 10)
        self.create_subscription(PointCloud2, "points_raw", self.on_points, 10)

    def on_points(self, msg):
        points = to_numpy(msg)
        distance = np.sqrt(np.einsum("ij,ij->i", points[:, :3], points[:, :3]))
        near = (distance > self.min_range) & (distance < self.max_range)  # also drops NaN
        points, distance = points[near], distance[near]
        # A point far from its neighbours is noise: rain, or an edge's mixed echo.
        places = points[:, :3].astype(np.float64)
        _, squares = small_gicp.KdTree(places).batch_knn_search(places, self.NEIGHBOURS + 1)
        kept = points[np.sqrt(squares[:, -1]) < 0.1 + 0.05 * distance]
        out = np.empty_like(kept)
        out[:, :3] = kept[:, :3] @ self.rotation.T + self.offset
        out[:, 3] = kept[:, 3]
        body = (np.abs(out[:, 0]) < 2.4) & (np.abs(out[:, 1]) < 1.0)
        out = out[~body & (out[:, 2] > -0.3) & (out[:, 2] < 3.5)]
        msg.header.frame_id = "base_link"
        self.publisher.publish(to_message(out, msg.header))


if __name__ == "__main__":
    node.run(FilterTransform)
