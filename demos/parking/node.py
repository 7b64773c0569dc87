"""How every program of the demo runs its node."""

import functools
import os
import signal
import time

import rclpy
from rclpy._rclpy_pybind11 import RCLError
from rclpy.executors import ExternalShutdownException


def slowed(callback, share):
    """The callback with a loop before it that takes this share of what it took the last time."""
    last = 0.0

    @functools.wraps(callback)
    def wrapper(*words):
        nonlocal last
        begin = time.thread_time()
        while time.thread_time() - begin < share * last:
            pass
        begin = time.thread_time()
        callback(*words)
        last = time.thread_time() - begin
    return wrapper


def run(node_class):
    """Spins a node until SIGINT or SIGTERM."""
    # rclpy ends the node at SIGINT; an exception from Python's own handler could come anywhere.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    rclpy.init()
    share = float(os.environ.get("PARKING_SLOW", 0))
    if share:
        for name in ("on_points", "on_timer"):
            if hasattr(node_class, name):
                setattr(node_class, name, slowed(getattr(node_class, name), share))
    try:
        node = node_class()
        rclpy.spin(node)
    except ExternalShutdownException:
        pass
    except RCLError:
        # A callback that runs at SIGINT can no longer publish.
        if rclpy.ok():
            raise
    finally:
        rclpy.try_shutdown()
