"""Finds the car's pose by matching its scans against a map of normal distributions."""

import math
import time

import node
import numpy as np
import small_gicp
from cloud import stamp_ns, to_numpy
from geometry_msgs.msg import PoseStamped
from rclpy.node import Node
from sensor_msgs.msg import PointCloud2


def planar(x, y, yaw):
    """A movement in the plane as a 4x4 transform."""
    c, s = math.cos(yaw), math.sin(yaw)
    return np.array([[c, -s, 0, x], [s, c, 0, y], [0, 0, 1, 0], [0, 0, 0, 1.0]])


class P2dNdtLocalizer(Node):
    """Publishes a pose for every cloud. The map is a .npy file with points."""

    def __init__(self):
        super().__init__("p2d_ndt_localizer_node")
        points = np.load(self.declare_parameter("map", "map.npy").value)
        resolution = self.declare_parameter("resolution", 1.0).value
        x, y, yaw = self.declare_parameter("initial_pose", [0.0, 0.0, 0.0]).value
        cloud, _ = small_gicp.preprocess_points(points, 0.2, 10)
        self.map = small_gicp.GaussianVoxelMap(resolution)
        self.map.set_lru(horizon=10**9, clear_cycle=10**9)
        self.map.insert(cloud)
        self.pose = planar(x, y, yaw)
        self.speed = np.zeros(3)  # forward and sideways in m/s, turn rate in rad/s
        self.stamp = None
        log = self.declare_parameter("latency_log", "").value
        self.log = open(log, "w", encoding="utf-8", buffering=1) if log else None
        if self.log:
            self.log.write("stamp_ns,latency_ns,x,y,yaw\n")
        # What a changed build does: publishes later, another x, and not every pose.
        self.late_s = self.declare_parameter("late_ms", 0.0).value / 1000
        self.x_factor = self.declare_parameter("x_factor", 1.0).value
        self.skip_every = self.declare_parameter("skip_every", 0).value
        self.count = 0
        self.publisher = self.create_publisher(PoseStamped, "/localization/ndt_pose", 10)
        self.create_subscription(
            PointCloud2, "/lidars/points_fused_downsampled", self.on_points, 10)

    def on_points(self, msg):
        source = small_gicp.PointCloud(to_numpy(msg)[:, :3].astype(np.float64))
        small_gicp.estimate_covariances(source, num_neighbors=10)
        stamp = stamp_ns(msg)
        elapsed = (stamp - self.stamp) / 1e9 if self.stamp else 0.0
        guess = self.pose @ planar(*(self.speed * elapsed))  # assumes constant speed
        result = small_gicp.align(self.map, source, guess, max_correspondence_distance=1.5,
                                  max_iterations=30)
        if result.converged:
            moved = np.linalg.inv(self.pose) @ result.T_target_source
            if elapsed > 0:
                turn = math.atan2(moved[1, 0], moved[0, 0])
                self.speed = np.array([moved[0, 3], moved[1, 3], turn]) / elapsed
            self.pose, self.stamp = result.T_target_source, stamp
        else:
            self.get_logger().warning("scan matching did not converge")
        yaw = math.atan2(self.pose[1, 0], self.pose[0, 0])
        out = PoseStamped(header=msg.header)
        out.header.frame_id = "map"
        out.pose.position.x = self.pose[0, 3] * self.x_factor
        out.pose.position.y = self.pose[1, 3]
        out.pose.orientation.z, out.pose.orientation.w = math.sin(yaw / 2), math.cos(yaw / 2)
        end = time.monotonic() + self.late_s
        while time.monotonic() < end:
            pass
        now = self.get_clock().now().nanoseconds
        self.count += 1
        if not self.skip_every or self.count % self.skip_every:
            self.publisher.publish(out)
        if self.log:
            self.log.write(f"{stamp},{now - stamp},{self.pose[0, 3]:.4f},{self.pose[1, 3]:.4f},"
                           f"{yaw:.5f}\n")


if __name__ == "__main__":
    node.run(P2dNdtLocalizer)
