#!/usr/bin/env python3
"""Small applications for single questions, each with its own ground truth (see README.md).

same-name  two nodes of one name, in a process each
latched    a transient-local topic whose subscriber starts after the publication
queue      a publisher's bursts wait in the queue of a slow subscriber
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time

import truth


def burn(milliseconds):
    """Computes for so long on the CPU."""
    until = time.thread_time_ns() + int(milliseconds * 1e6)
    while time.thread_time_ns() < until:
        pass


class Part:
    """One process of a case: a node, its measurements, and its end."""

    def __init__(self, name):
        import rclpy
        from rclpy.executors import SingleThreadedExecutor
        from rclpy.node import Node

        rclpy.init()
        self.node = Node(name)
        self.executor = SingleThreadedExecutor()
        self.executor.add_node(self.node)
        self.measured = truth.Measurements()

    def measure(self, start, vertex, function, *arguments):
        """Runs the body of a callback that began at `start` ns, and records what it took.

        The body gets the start time, and returns chains (start, path) that end with it.
        """
        cpu = time.thread_time_ns()
        completes = function(start, *arguments) or []
        cpu_ns = time.thread_time_ns() - cpu
        self.measured.executed(vertex, None, cpu_ns, time.monotonic_ns() - start)
        if completes:
            self.measured.complete(completes)

    def wait_for(self, ready):
        """Waits until ready() is true, for 20 s at most."""
        deadline = time.monotonic() + 20
        while not ready() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)

    def spin(self, raw, director=lambda: None):
        """Spins until the launcher has written its stop file; a director runs in another thread."""
        import rclpy
        from rclpy.executors import ExternalShutdownException

        def direct():
            director()
            while not os.path.exists(os.path.join(os.path.dirname(raw), "stop")):
                time.sleep(0.05)
            self.measured.wait_until_quiet()
            # Complete by now, should the shutdown hang.
            truth.write_json(raw, self.measured.raw())
            rclpy.try_shutdown()

        thread = threading.Thread(target=direct, daemon=True)
        thread.start()
        try:
            self.executor.spin()
            thread.join()
        except (KeyboardInterrupt, ExternalShutdownException):
            pass
        truth.write_json(raw, self.measured.raw())

    def start_timer(self, timer):
        """Starts a timer that was created and cancelled."""
        timer.reset()
        self.executor.wake()


def publisher_part(args, name, topic, vertex, count=1, exec_ms=5.0, once=False, latched=False):
    """A node with a timer that publishes its start time, `count` times in a row."""
    from rclpy.qos import DurabilityPolicy, QoSProfile
    from std_msgs.msg import String

    part = Part(name)
    durability = DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE
    publisher = part.node.create_publisher(
        String, topic, QoSProfile(depth=max(10, count), durability=durability))

    def body(start):
        burn(exec_ms)
        for _ in range(count):
            publisher.publish(String(data=truth.format_stamps([(start, vertex)])))
        if once:
            timer.cancel()

    timer = part.node.create_timer(args.period / 1000,
                                   lambda: part.measure(time.monotonic_ns(), vertex, body))
    timer.cancel()

    def director():
        if not latched:
            part.wait_for(lambda: publisher.get_subscription_count() > 0)
        part.start_timer(timer)
        # Not just when the timer is due: it could be called, and cancelled while it is.
        time.sleep(args.duration - 0.25 * args.period / 1000)
        timer.cancel()

    part.spin(args.raw, director)


def subscriber_part(args, name, inputs, depth=10, exec_ms=5.0, output=None, latched=False):
    """A node with subscriptions; when they end they publish, or record the latency."""
    from rclpy.qos import DurabilityPolicy, QoSProfile
    from std_msgs.msg import String

    part = Part(name)
    durability = DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE
    publisher = part.node.create_publisher(String, output, 10) if output else None

    def body(_, vertex, msg):
        burn(exec_ms)
        chains = [(start, f"{path} {vertex}") for start, path in truth.parse_stamps(msg.data)]
        if not publisher:
            return chains
        before = time.monotonic_ns()
        publisher.publish(String(data=msg.data))
        # The message left somewhere between these two moments.
        end = (before + time.monotonic_ns()) // 2
        for start, path in chains:
            part.measured.completed(path, end - start)
        return []

    for topic in inputs:
        vertex = f"/{name}:subscription({topic})"
        part.node.create_subscription(
            String, topic,
            lambda msg, vertex=vertex: part.measure(time.monotonic_ns(), vertex, body, vertex, msg),
            QoSProfile(depth=depth, durability=durability))
    part.spin(args.raw)


# Each case: its processes as (name, seconds to wait before the next starts, function).
def same_name(args):
    """Two nodes of one name; the order of their creation distinguishes them."""
    timer = f"timer({truth_period(args)})"
    return [
        ("first", 2, lambda: publisher_part(args, "twin", "/a", f"/twin:{timer}")),
        ("second", 0, lambda: publisher_part(args, "twin", "/b", f"/twin#2:{timer}")),
        ("listener", 0, lambda: subscriber_part(args, "listener", ["/a", "/b"])),
    ]


def latched(args):
    """The subscriber starts long after the publication."""
    timer = f"timer({truth_period(args)})"
    return [
        ("server", args.period / 1000 + 2, lambda: publisher_part(
            args, "map_server", "/map", f"/map_server:{timer}", once=True, latched=True)),
        ("late", 0, lambda: subscriber_part(args, "late", ["/map"], latched=True)),
    ]


def queue(args):
    """Items wait: the first is served while the others queue up."""
    timer = f"timer({truth_period(args)})"
    return [
        ("slow", 0, lambda: subscriber_part(args, "slow", ["/burst"], depth=args.depth,
                                            exec_ms=args.exec, output="/done")),
        ("burst", 0, lambda: publisher_part(args, "burst", "/burst", f"/burst:{timer}",
                                            count=args.burst, exec_ms=2)),
    ]


CASES = {"same-name": same_name, "latched": latched, "queue": queue}


def truth_period(args):
    """The timers' period as ids state it."""
    return f"{args.period:g}ms"


def run_case(args, parts):
    """Runs the processes of a case; their measurements, merged."""
    measured = truth.Measurements()
    with tempfile.TemporaryDirectory(prefix="syn-case-") as work:
        children = []
        try:
            for part, delay, _ in parts:
                raw = os.path.join(work, part + ".json")
                children.append((subprocess.Popen([sys.executable, *sys.argv, "--part", part,
                                                   "--raw", raw]), raw))
                time.sleep(delay)
            # Long enough for the slowest start and the timers' time.
            time.sleep(args.duration + 4)
            with open(os.path.join(work, "stop"), "w", encoding="utf-8"):
                pass
            if any(child.wait(60) != 0 for child, _ in children):
                sys.exit("cases: a process failed")
        finally:
            for child, _ in children:
                child.kill()
        for _, raw in children:
            with open(raw, encoding="utf-8") as file:
                measured.merge(truth.json.load(file))
    return measured


def document(args, measured):
    """The ground truth, in the form that SYN's has."""
    outputs, edges, chains = {}, [], []
    for path, latencies in measured.chains.items():
        first, last = path.split(" ")
        topic = last.split("(")[1].rstrip(")")
        outputs.setdefault(first, []).append(topic)
        edges.append({"from": first, "to": last, "topic": topic})
        chains.append({"callbacks": [first, last], "count": len(latencies),
                       "latency_ns": latencies})
        if args.case == "queue":
            outputs[last] = ["/done"]
    return {
        "app": args.case,
        "client": "rclpy",
        "callbacks": [
            {"id": vid, "node": vid.split(":")[0], "type": vid.split(":")[1].split("(")[0],
             "outputs": sorted(outputs.get(vid, [])), "count": len(values), "cpu_ns": values,
             "elapsed_ns": measured.responses[vid]}
            for vid, values in sorted(measured.executions.items())
        ],
        "edges": sorted(edges, key=lambda e: (e["from"], e["to"], e["topic"])),
        "junctions": [],
        "chains": chains,
    }


def main():
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=sorted(CASES))
    parser.add_argument("--duration", type=float, default=5, help="seconds that the timers run")
    parser.add_argument("--period", type=float, default=500, help="of the timers, in ms")
    parser.add_argument("--burst", type=int, default=12, help="queue: messages of one burst")
    parser.add_argument("--depth", type=int, default=20, help="queue: depth of the slow one's queue")
    parser.add_argument("--exec", type=float, default=8, help="queue: ms for every message")
    parser.add_argument("--truth", metavar="FILE", help="write the ground truth here as JSON")
    parser.add_argument("--quiet", action="store_true", help="print no table")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--raw", help=argparse.SUPPRESS)
    args = parser.parse_args()
    parts = CASES[args.case](args)
    if args.part:
        next(function for name, _, function in parts if name == args.part)()
        return
    os.environ.setdefault("ROS_DOMAIN_ID", truth.own_domain())
    result = document(args, run_case(args, parts))
    if args.truth:
        truth.write_json(args.truth, result)
    if not args.quiet:
        truth.print_summary(result)


if __name__ == "__main__":
    main()
