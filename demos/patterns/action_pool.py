#!/usr/bin/env python3
"""The action of action.py on a pool of threads: each of its parts runs on whatever thread is free."""

from action import main
from rclpy.executors import MultiThreadedExecutor


if __name__ == "__main__":
    main(lambda: MultiThreadedExecutor(3), __doc__)
