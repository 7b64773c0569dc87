"""How every program of the demo runs its node."""

import rclpy
from rclpy.executors import ExternalShutdownException


def run(node_class):
    """Spins a node until SIGINT or SIGTERM."""
    rclpy.init()
    try:
        node = node_class()
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        rclpy.try_shutdown()
