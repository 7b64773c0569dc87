#!/usr/bin/env python3
"""Twelve callbacks in five processes that do different kinds of work, for comparisons of two runs.

usage: run.py [--duration SECONDS] [--slow CALLBACK=PERCENT] [--monitor]
"""

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import zlib

import numpy as np
import rclpy
from rclpy._rclpy_pybind11 import RCLError
from std_msgs.msg import String

# Of each node: period or topic, the topic that it publishes or None, kind and amount of work.
NODES = {
    "sensors": [(0.05, "front", "burn", 2), (0.1, "rear", "text", 15)],
    "filters": [("front", "front_f", "array", 20), ("rear", "rear_f", "pack", 150)],
    "fusion": [("front_f", "fused", "sort", 30), ("rear_f", "rear_g", "json", 8), (0.2, "map", "hash", 5)],
    "planner": [("fused", "plan", "text", 10), (0.1, "goal", "pack", 120)],
    "control": [(0.02, "cmd", "burn", 1), ("plan", "ref", "json", 7), ("goal", "stop", "array", 15)],
}
# One more node, on request.
MONITOR = {"monitor": [("fused", "seen", "burn", 1)]}


def burn(milliseconds):
    """Takes this much CPU time."""
    until = time.thread_time() + milliseconds / 1e3
    while time.thread_time() < until:
        pass


def work(kind, amount):
    """Returns a function that does this kind of work."""
    random = np.random.default_rng(1)
    if kind == "burn":
        return lambda: burn(amount)
    if kind == "pack":
        data = (random.random(amount * 1000) * 8).astype(np.uint8).tobytes()
        return lambda: zlib.compress(data, 3)
    if kind == "json":
        points = [{"x": float(v), "name": f"p{i}"} for i, v in enumerate(random.random(amount * 300))]
        return lambda: json.loads(json.dumps(points))
    if kind == "hash":
        data = random.bytes(amount * 1000000)
        return lambda: hashlib.sha256(data).hexdigest()
    if kind == "text":
        text = " ".join(f"{v:.3f}" for v in random.random(amount * 1500))
        return lambda: sum(map(float, re.findall(r"[0-9.]+", text)))
    if kind == "sort":
        rows = random.random((amount, 12000))
        return lambda: np.sort(rows, axis=1)
    rows = random.random((60 * amount, 1000))
    return lambda: (np.sqrt(rows) * rows).sum()


def callback(publisher, do, share):
    """Returns a callback that works, takes this share longer, and publishes."""
    def called(_=None):
        begin = time.thread_time()
        do()
        if share:
            burn(share * (time.thread_time() - begin) * 1e3)
        publisher.publish(String(data="x" * 200))
    return called


def run(name, slow):
    """Spins one node until SIGINT."""
    # rclpy ends the node at SIGINT; an exception from Python's own handler could come anywhere.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    rclpy.init()
    try:
        node = rclpy.create_node(name)
        for source, topic, kind, amount in {**NODES, **MONITOR}[name]:
            share = slow.get(f"{name}/{topic}", 0)
            called = callback(node.create_publisher(String, topic, 10), work(kind, amount), share)
            if isinstance(source, str):
                node.create_subscription(String, source, called, 10)
            else:
                node.create_timer(source, called)
        rclpy.spin(node)
    except rclpy.executors.ExternalShutdownException:
        pass
    except RCLError:
        # Code that runs at SIGINT can no longer publish.
        if rclpy.ok():
            raise
    finally:
        rclpy.try_shutdown()


def slow_callback(text):
    """A callback's node and topic and by which share it is slowed down, from NODE/TOPIC=PERCENT."""
    name, _, percent = text.partition("=")
    return name, float(percent) / 100


def end_of(process):
    """Returns the exit code of a node that was sent SIGINT.

    rclpy wakes a node before it ends the node's context: a node that waits again in between needs a second signal.
    In about 1 of 25 runs a node ignores more SIGINTs, too. So SIGTERM follows, which ends it in any case.
    """
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        try:
            process.wait(2)
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signum)
    code = process.wait()
    return 0 if code == -signal.SIGTERM else code


def main():
    """Starts all nodes, and ends them after the duration."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--duration", type=float, default=15, help="seconds")
    parser.add_argument("--slow", metavar="NODE/TOPIC=PERCENT", type=slow_callback, action="append",
                        default=[], help="slow down the callback that publishes this topic")
    parser.add_argument("--monitor", action="store_true", help="start a sixth process that subscribes to fused")
    parser.add_argument("--node", choices=[*NODES, *MONITOR], help="run only this node, in this process")
    args = parser.parse_args()
    if args.node:
        run(args.node, dict(args.slow))
        return
    env = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    env.setdefault("ROS_DOMAIN_ID", str(1 + os.getpid() % 100))
    processes = [subprocess.Popen([sys.executable, *sys.argv, "--node", name], env=env)
                 for name in (*NODES, *(MONITOR if args.monitor else ()))]
    time.sleep(args.duration)
    for process in processes:
        process.send_signal(signal.SIGINT)
    sys.exit(max(abs(end_of(process)) for process in processes))


if __name__ == "__main__":
    main()
