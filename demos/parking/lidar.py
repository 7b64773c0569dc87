"""A lidar's driver: publishes a scan ten times a second."""

import os
import time

import node
import scene
from cloud import to_message
from rclpy.node import Node
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header


def wait_for_trigger(path):
    """Waits for a file and returns the time that it contains."""
    while not os.path.exists(path):
        time.sleep(0.02)
    with open(path, encoding="utf-8") as file:
        return float(file.read())


class Lidar(Node):
    """Scans the scene from a car that drives through it."""

    PERIOD = 0.1

    def __init__(self):
        super().__init__("lidar")
        side = self.declare_parameter("side", "front").value
        seed = self.declare_parameter("seed", 0).value
        trigger = self.declare_parameter("trigger", "").value
        self.drive = scene.Drive(self.declare_parameter("duration", 20.0).value)
        columns = self.declare_parameter("columns", 900).value
        self.mount = scene.MOUNTS[side].matrix()
        self.frame_id = f"lidar_{side}"
        self.lidar = scene.Lidar(scene.boxes(), columns, seed=2 * seed + (side == "rear"))
        self.publisher = self.create_publisher(PointCloud2, "points_raw", 10)
        # All lidars of the car start at the time in the trigger file, so they scan together.
        self.start = wait_for_trigger(trigger) if trigger else time.time()
        time.sleep(max(0.0, self.start - time.time() - self.PERIOD))
        self.timer = self.create_timer(self.PERIOD, self.on_timer)

    def on_timer(self):
        now = self.get_clock().now()
        t = now.nanoseconds / 1e9 - self.start
        if t > self.drive.duration:
            self.timer.cancel()
            return
        points = self.lidar.scan(self.drive.pose(t).matrix() @ self.mount)
        header = Header(stamp=now.to_msg(), frame_id=self.frame_id)
        self.publisher.publish(to_message(points, header))


if __name__ == "__main__":
    node.run(Lidar)
