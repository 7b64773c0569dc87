#!/usr/bin/env python3
"""Autonomous valet parking, the localisation part: starts all nodes and judges the result.

Each node is a process of its own. At the end the estimated poses are compared with the car's true
ones: exit code 0 means that the estimate was good, 1 that it was not or that a node failed.
Everything after --ros-args (remappings, for example) goes to every node.
"""

import argparse
import csv
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import plot
import rclpy
import scene
from rclpy.signals import SignalHandlerOptions

TOPICS = [
    "/lidar_front/points_raw", "/lidar_front/points_filtered",
    "/lidar_rear/points_raw", "/lidar_rear/points_filtered",
    "/lidars/points_fused", "/lidars/points_fused_downsampled",
]
# How the localiser of --changed differs: its poses come 1 ms later, their x is 1 % off, and every
# 100th pose is missing.
CHANGED = {"late_ms": 1.0, "x_factor": 1.01, "skip_every": 100}
HERE = os.path.dirname(os.path.abspath(__file__))
# The signals that ask nodes to end before they are killed, and the seconds between them.
STOPS, STOP_S = (signal.SIGINT, signal.SIGINT, signal.SIGTERM), 2


class Stopped(Exception):
    """SIGINT or SIGTERM has come."""


class Processes:
    """The nodes' processes."""

    def __init__(self, ros_args=(), slow=None):
        self.running = {}
        self.ros_args = list(ros_args)
        self.slow = slow or {}

    def start(self, program, name, namespace="/", **parameters):
        """Starts a node under a name, with parameters."""
        command = [sys.executable, os.path.join(HERE, program + ".py"), "--ros-args",
                   "-r", f"__node:={name}", "-r", f"__ns:={namespace}"]
        for key, value in parameters.items():
            command += ["-p", f"{key}:={value}"]
        command += self.ros_args
        # One thread for each node, as on a car where cores are shared out.
        env = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1",
                   PARKING_SLOW=str(self.slow.get(name, 0)))
        self.running[name] = subprocess.Popen(command, env=env)

    def dead(self):
        """Names of processes that have ended by themselves, each with its exit code (of a signal: negative)."""
        return [f"{name} (exit code {process.returncode})" for name, process in self.running.items()
                if process.poll() is not None]

    def stop(self):
        """Ends all nodes; the names of those that failed."""
        # rclpy wakes a node before it ends the node's context: a node that waits again in between needs
        # a second signal. A few ignore more SIGINTs, too, so SIGTERM is the last.
        for signum in STOPS:
            left = [process for process in self.running.values() if process.poll() is None]
            for process in left:
                process.send_signal(signum)
            deadline = time.monotonic() + STOP_S
            while time.monotonic() < deadline and any(process.poll() is None for process in left):
                time.sleep(0.02)
        failed = []
        for name, process in self.running.items():
            if process.poll() is None:
                process.kill()
            code = process.wait()
            if code not in (0, -signal.SIGINT, -signal.SIGTERM):
                failed.append(f"{name} (exit code {code})")
        return failed


def sleep_watching(processes, seconds):
    """Sleeps; raises RuntimeError as soon as a node ends."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        dead = processes.dead()
        if dead:
            raise RuntimeError(f"{', '.join(dead)} ended unexpectedly")
        time.sleep(0.1)


def wait_until_connected(processes, watched=None):
    """Waits until every topic has its publisher and its subscriber; `watched` has two of them."""
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    watcher = rclpy.create_node("parking_launcher")
    deadline = time.monotonic() + 60
    while not all(watcher.count_publishers(t)
                  and watcher.count_subscribers(t) > (t == watched) for t in TOPICS):
        if time.monotonic() > deadline:
            raise RuntimeError("the nodes were not connected after 60 s")
        sleep_watching(processes, 0.1)
    watcher.destroy_node()
    rclpy.shutdown()


def start_software(args, processes, log, work):
    """Starts everything behind the lidars."""
    map_file = os.path.join(work, "map.npy")
    np.save(map_file, scene.survey(scene.boxes()))
    start_pose = scene.Drive(args.duration).pose(0)
    changes = CHANGED if args.changed else {}
    processes.start("p2d_ndt_localizer", "p2d_ndt_localizer_node", map=map_file,
                    latency_log=log, initial_pose=f"[{start_pose.x}, {start_pose.y}, 0.0]", **changes)
    processes.start("voxel_grid_cloud", "voxel_grid_cloud_node")
    processes.start("point_cloud_fusion", "point_cloud_fusion")
    for side, mount in scene.MOUNTS.items():
        processes.start("filter_transform", f"filter_transform_vlp16_{side}",
                        namespace=f"/lidar_{side}", mount_x=mount.x, mount_z=mount.z,
                        mount_yaw=mount.yaw)


def wait_for_scans(args, log, work):
    """Runs everything behind the lidars, until it is stopped: their scans are replayed."""
    processes, asked = Processes(args.ros_args, dict(args.slow)), threading.Event()
    # No exception from a handler: one that is raised in a destructor would be lost.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    try:
        start_software(args, processes, log, work)
        while not asked.is_set():
            sleep_watching(processes, 0.2)
    finally:
        processes.stop()


def drive(args, log, work):
    """Runs one drive from start to end; the time at which it started."""
    processes = Processes(args.ros_args, dict(args.slow))
    try:
        start_software(args, processes, log, work)
        trigger = os.path.join(work, "trigger")
        for side, columns in (("front", args.columns), ("rear", args.columns * 2 // 3)):
            processes.start("lidar", f"lidar_{side}", namespace=f"/lidar_{side}", side=side,
                            columns=columns, seed=args.seed, duration=float(args.duration),
                            trigger=trigger)
        if args.monitor:
            processes.start("monitor", "monitor")
        wait_until_connected(processes, TOPICS[-1] if args.monitor else None)
        start = time.time() + 1.0
        with open(trigger + ".tmp", "w", encoding="utf-8") as file:
            file.write(repr(start))
        os.replace(trigger + ".tmp", trigger)
        sleep_watching(processes, start - time.time() + args.duration + 1.0)
    finally:
        failed = processes.stop()
    if failed:
        raise RuntimeError("failed when they were stopped: " + ", ".join(failed))
    return start


def judge(log, start, duration):
    """Prints the pose errors; whether the estimates were good."""
    truth, errors, turns, latencies = scene.Drive(duration), [], [], []
    with open(log, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            pose = truth.pose(int(row["stamp_ns"]) / 1e9 - start)
            errors.append(math.hypot(float(row["x"]) - pose.x, float(row["y"]) - pose.y))
            turn = float(row["yaw"]) - pose.yaw
            turns.append(abs(math.degrees((turn + math.pi) % (2 * math.pi) - math.pi)))
            latencies.append(int(row["latency_ns"]) / 1e6)
    if not errors:
        print("parking: no pose was estimated")
        return False
    print(f"parking: {len(errors)} poses in {duration:g} s; error mean {np.mean(errors):.3f} m,"
          f" max {max(errors):.3f} m; {np.mean(turns):.2f} deg, max {max(turns):.2f} deg;"
          f" scan to pose median {np.median(latencies):.1f} ms")
    return len(errors) > 5 * duration and max(errors) < 0.5 and max(turns) < 5


def slow_node(text):
    """A node's name and by which share its callback is slowed down, from NODE=PERCENT."""
    name, _, percent = text.partition("=")
    return name, float(percent) / 100


def main():
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--duration", type=float, default=20, help="seconds of driving")
    parser.add_argument("--seed", type=int, default=0, help="of the lidars' noise")
    parser.add_argument("--columns", type=int, default=1200,
                        help="points per ring of the front lidar (the rear one has two thirds)")
    parser.add_argument("--slow", metavar="NODE=PERCENT", type=slow_node, action="append",
                        default=[], help="slow a node's callback down, as a change would")
    parser.add_argument("--changed", action="store_true",
                        help="run a changed localiser: poses 1 ms later, x 1 %% off, every 100th missing")
    parser.add_argument("--monitor", action="store_true",
                        help="add a node that subscribes to the thinned-out clouds")
    parser.add_argument("--without-lidars", action="store_true",
                        help="start what is behind the lidars and run it until it is stopped")
    parser.add_argument("--latency-log", metavar="FILE",
                        help="keep the localiser's log of poses and latencies (CSV)")
    parser.add_argument("--plot", metavar="FILE",
                        help="draw the scene and the estimated path, seen from above (SVG)")
    words, ros_args = sys.argv[1:], []
    if "--ros-args" in words:
        at = words.index("--ros-args")
        words, ros_args = words[:at], words[at:]
    args = parser.parse_args(words)
    args.ros_args = ros_args

    def stop(*_):
        raise Stopped

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    # A domain of its own, so that several demos on one machine do not hear each other.
    os.environ.setdefault("ROS_DOMAIN_ID", str(1 + os.getpid() % 100))
    with tempfile.TemporaryDirectory(prefix="parking-") as work:
        log = os.path.join(work, "poses.csv")
        try:
            if args.without_lidars:
                wait_for_scans(args, log, work)
                sys.exit(0)
            start = drive(args, log, work)
            good = judge(log, start, args.duration)
        except Stopped:
            sys.exit("parking: stopped")
        except RuntimeError as error:
            sys.exit(f"parking: {error}")
        if args.plot:
            plot.draw(args.plot, log, start, args.duration)
        if args.latency_log:
            shutil.copyfile(log, args.latency_log)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
