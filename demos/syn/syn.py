#!/usr/bin/env python3
"""SYN in rclpy: six nodes with every scenario of the thesis's Table 3.2 (see README.md)."""

import argparse
import faulthandler
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import truth
from wiring import Graph, period_ms, read_wiring, wiring

def arguments(argv=None):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--duration", type=float, default=10, help="seconds that the timers run")
    parser.add_argument("--rate", type=float, default=4, help="of T1 and T2, in Hz (T3: half)")
    parser.add_argument("--twin", action="store_true", help="T2 and T3 have equal periods")
    parser.add_argument("--scale", type=float, default=1, help="multiplies all execution times")
    parser.add_argument("--set", action="append", default=[], metavar="CB=MS",
                        help="execution time of one callback, e.g. sc1=12.5")
    parser.add_argument("--nodes", help="run only these, e.g. n1,n2")
    parser.add_argument("--turns", action="store_true",
                        help="callbacks publish their topics in another order each time")
    parser.add_argument("--wiring", metavar="FILE",
                        help="the nodes and callbacks of this file, as zoo.py writes it, instead of SYN's")
    parser.add_argument("--namespace", default="", metavar="/NAME",
                        help="put this before the names of all nodes, topics and services")
    parser.add_argument("--layout", default="processes",
                        help="'processes': one per node; 'one': all nodes in one process; or which"
                             " nodes share one, e.g. n1,n2,n3/n4,n5,n6")
    parser.add_argument("--executor", choices=["single", "multi", "events"], default="single",
                        help="events: as rclcpp's EventsCBGExecutor, for the compiled client")
    parser.add_argument("--threads", type=int, default=2, help="of an executor with several threads")
    parser.add_argument("--native", metavar="PROGRAM",
                        help="run the nodes in this compiled client (native/build.sh) instead")
    parser.add_argument("--as", dest="style", choices=["rcl", "rclcpp"], default="rcl",
                        help="what the compiled client makes trace calls like")
    parser.add_argument("--intra", action="store_true",
                        help="the compiled client's nodes in one process use no middleware")
    parser.add_argument("--reentrant", action="store_true",
                        help="all callbacks of the compiled client may overlap, also each one itself")
    parser.add_argument("--truth", metavar="FILE", help="write the ground truth here as JSON")
    parser.add_argument("--quiet", action="store_true", help="print no table")
    parser.add_argument("--begun", metavar="FILE", help="create this file when all nodes are connected"
                        " (not for --layout one in rclpy)")
    # How the launcher speaks to the processes that it starts.
    parser.add_argument("--barrier", help=argparse.SUPPRESS)
    parser.add_argument("--raw", nargs=2, metavar=("NODES", "FILE"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if not args.native and (args.style != "rcl" or args.intra):
        parser.error("--as and --intra are for the compiled client: give --native PROGRAM")
    if not args.native and args.executor == "events":
        parser.error("--executor events is for the compiled client: give --native PROGRAM")
    if not args.native and args.reentrant:
        parser.error("--reentrant is for the compiled client: give --native PROGRAM")
    if args.intra and args.style != "rclcpp":
        parser.error("--intra needs --as rclcpp")
    if args.namespace and (args.namespace[0] != "/" or args.namespace[-1] == "/"):
        parser.error("--namespace begins with a slash and ends without one: /car")
    return args


def configured(args):
    """The wiring with the execution times of the command line."""
    table = read_wiring(args.wiring) if args.wiring else wiring(args.twin)
    by_name = {cb.name: cb for cb in table}
    for item in args.set:
        name, _, value = item.partition("=")
        if name not in by_name:
            sys.exit(f"syn: --set {item}: no callback of that name, there are {' '.join(by_name)}")
        by_name[name].exec_ms = float(value)
    for cb in table:
        cb.exec_ms *= args.scale
        cb.input = args.namespace + cb.input if cb.input else ""
        cb.publishes = [args.namespace + topic for topic in cb.publishes]
    return table


def burn(until_cpu_ns):
    """Computes until the thread's CPU clock shows this value."""
    while time.thread_time_ns() < until_cpu_ns:
        pass


class Execution:
    """One execution of a callback that began at `start` ns: computes for the configured time."""

    def __init__(self, cb, start):
        self.cpu = time.thread_time_ns()
        self.start = start
        self.cb = cb
        self.completes = []  # chains that end with this execution
        burn(self.cpu + int(cb.exec_ms * 1e6))

    def end(self, measured, caller=None):
        """Records what the execution took; a callback does this last."""
        cpu_ns = time.thread_time_ns() - self.cpu
        measured.executed(self.cb.name, caller, cpu_ns, time.monotonic_ns() - self.start)
        if self.completes:
            measured.complete(self.completes)


class SynNode:
    """One of the six nodes, built from the wiring."""

    def __init__(self, name, graph, measured, turns=False):
        from rclpy.callback_groups import ReentrantCallbackGroup
        from rclpy.node import Node
        from std_msgs.msg import String
        from std_srvs.srv import SetBool

        self.graph, self.measured = graph, measured
        # The number of times that topics were published in turns; None: their order stays.
        self.turn = 0 if turns else None
        self.String, self.SetBool = String, SetBool
        self.node = Node(name, namespace=graph.namespace or None)
        self.publishers, self.clients, self.timers, self.waiting = {}, {}, [], {}
        # With several threads, a node's clients and services may run beside its other callbacks.
        group = ReentrantCallbackGroup()
        for cb in graph.table:
            if cb.node != name:
                continue
            for topic in cb.publishes:
                if topic not in self.publishers:
                    self.publishers[topic] = self.node.create_publisher(String, topic, 10)
            if cb.kind == "timer":
                seconds = period_ms(graph.base_ms, cb) / 1000
                timer = self.node.create_timer(
                    seconds, lambda cb=cb: self.on_timer(time.monotonic_ns(), cb))
                timer.cancel()  # until every node is connected
                self.timers.append(timer)
            elif cb.kind == "subscription":
                self.node.create_subscription(
                    String, cb.input,
                    lambda msg, cb=cb: self.on_message(time.monotonic_ns(), cb, msg), 10)
            elif cb.kind == "service":
                self.node.create_service(
                    SetBool, cb.input,
                    lambda req, resp, cb=cb: self.on_request(time.monotonic_ns(), cb, req, resp),
                    callback_group=group)
            elif cb.kind == "client":
                self.clients[cb.name] = self.node.create_client(
                    SetBool, cb.input, callback_group=group)

    def connected(self):
        """Whether every peer of this node is connected."""
        graph = self.graph
        for topic, publisher in self.publishers.items():
            if publisher.get_subscription_count() < len(graph.subscribers(topic)):
                return False
        for cb in graph.table:
            if (cb.kind == "subscription"
                    and graph.full_name(cb.node) == self.node.get_fully_qualified_name()):
                expected = len({c.node for c in graph.table if cb.input in c.publishes})
                if self.node.count_publishers(cb.input) < expected:
                    return False
        return all(client.service_is_ready() for name, client in self.clients.items()
                   if graph.service(graph.by_name[name]))

    # Each of these gets the time at which the first line of the callback ran.

    def on_timer(self, now, cb):
        run = Execution(cb, now)
        run.completes = self.send(cb, [(run.start, cb.name)])
        run.end(self.measured)

    def on_message(self, now, cb, msg):
        run = Execution(cb, now)
        stamps = [(start, f"{path}>{cb.name}") for start, path in truth.parse_stamps(msg.data)]
        if cb.joins:
            self.join(cb, stamps)
        else:
            run.completes = self.send(cb, stamps)
        run.end(self.measured)

    def on_request(self, now, cb, request, response):
        run = Execution(cb, now)
        # The flag of the request says which caller it is: the first, or the second.
        callers = self.graph.callers(cb)
        response.success = True
        run.end(self.measured, callers[0] if request.data else callers[1])
        return response

    def on_response(self, now, cb, stamps):
        run = Execution(cb, now)
        service = self.graph.service(cb)
        hop = f"{service.name}@{cb.node}>{cb.name}"
        run.completes = self.send(cb, [(start, f"{path}>{hop}") for start, path in stamps])
        run.end(self.measured)

    def join(self, cb, stamps):
        """Publishes once after one input of each subscription of the group, of each the newest."""
        group = self.waiting.setdefault(cb.joins, {})
        group[cb.name] = stamps
        members = [c.name for c in self.graph.table if c.joins == cb.joins]
        if len(group) == len(members):
            sync = self.graph.by_name[cb.joins]
            merged = [(s, f"{path}>{sync.name}") for m in members for s, path in group[m]]
            group.clear()
            cpu = time.thread_time_ns()
            burn(cpu + int(sync.exec_ms * 1e6))
            self.send(sync, merged)
            self.measured.executed(sync.name, None, time.thread_time_ns() - cpu, 0)

    def ordered(self, topics):
        """The topics in the order in which this execution publishes them."""
        if self.turn is None or len(topics) < 2:
            return topics
        self.turn += 1
        first = self.turn % len(topics)
        return topics[first:] + topics[:first]

    def send(self, cb, stamps):
        """Ends a callback: publishes, calls a service, or does nothing.

        Returns the chains that the callback completes by ending.
        """
        before = time.monotonic_ns()
        for topic in self.ordered(cb.publishes):
            self.publishers[topic].publish(self.String(data=truth.format_stamps(stamps)))
        if not self.graph.successors(cb):
            if not cb.publishes:
                return stamps
            # The message left somewhere between these two moments.
            end = (before + time.monotonic_ns()) // 2
            for start, path in stamps:
                self.measured.completed(path, end - start)
        if cb.calls:
            client = self.graph.by_name[cb.calls]
            service = self.graph.service(client)
            if service:
                first = self.graph.callers(service)[0] == client.node
                future = self.clients[cb.calls].call_async(self.SetBool.Request(data=first))
                future.add_done_callback(
                    lambda _: self.on_response(time.monotonic_ns(), client, stamps))
        return []


def reach_barrier(directory, name):
    """Waits until every process of the launcher is at this point, or the launcher has given up."""
    with open(os.path.join(directory, name), "w", encoding="utf-8"):
        pass
    while not os.path.exists(os.path.join(directory, "go")):
        time.sleep(0.01)


def run_nodes(args, names, graph):
    """Runs nodes in this process; returns what they measured."""
    import rclpy
    from rclpy.executors import (ExternalShutdownException, MultiThreadedExecutor,
                                 SingleThreadedExecutor)

    rclpy.init()
    measured = truth.Measurements()
    nodes = [SynNode(name, graph, measured, args.turns) for name in names]
    executor = (SingleThreadedExecutor() if args.executor == "single"
                else MultiThreadedExecutor(num_threads=args.threads))
    for node in nodes:
        executor.add_node(node.node)

    def direct():
        deadline = time.monotonic() + 40
        while not all(node.connected() for node in nodes) and time.monotonic() < deadline:
            time.sleep(0.05)
        if args.barrier:
            reach_barrier(args.barrier, "+".join(names))
        time.sleep(0.3)  # the other side may discover us a moment later than we it
        for node in nodes:
            for timer in node.timers:
                timer.reset()
        executor.wake()  # the wait set was built without the timers
        # Not just when a timer is due: it could be called, and cancelled while it is.
        if stop.wait(args.duration - 0.25 * graph.base_ms / 1000):
            return
        for node in nodes:
            for timer in node.timers:
                timer.cancel()
        measured.wait_until_quiet()
        if args.raw:
            # The launcher waits no longer for the end of this process: rclpy's executor now and
            # then spins on, or hangs, for ever in a shutdown.
            truth.write_json(args.raw[1], measured.raw())
        rclpy.try_shutdown()

    stop = threading.Event()
    director = threading.Thread(target=direct, daemon=True)
    director.start()
    try:
        executor.spin()
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    stop.set()
    director.join()
    return measured


def groups(layout, names):
    """Which nodes share a process."""
    if layout == "processes":
        return [[name] for name in names]
    if layout == "one":
        return [names]
    found = [[n for n in group.split(",") if n in names] for group in layout.split("/")]
    if sorted(sum(found, [])) != sorted(names):
        sys.exit(f"syn: --layout {layout}: must name each of {','.join(names)} once")
    return [group for group in found if group]


def write_table(path, table, base_ms):
    """The wiring in the form that the compiled client reads."""
    with open(path, "w", encoding="utf-8") as file:
        for cb in table:
            period_ns = int(period_ms(base_ms, cb) * 1e6) if cb.kind == "timer" else 0
            print(cb.name, cb.node, cb.kind, cb.input or "-", ",".join(cb.publishes) or "-",
                  cb.calls or "-", cb.joins or "-", period_ns, int(cb.exec_ms * 1e6), file=file)


def wait_for(child, raw):
    """Waits until a process has ended, or hangs after it wrote its results; whether it wrote them."""
    written = None
    while child.poll() is None:
        if written is None and os.path.exists(raw):
            written = time.monotonic()
        if written is not None and time.monotonic() > written + 10:
            child.kill()
            child.wait()
            return True
        time.sleep(0.05)
    return child.returncode == 0 and os.path.exists(raw)


def run_processes(args, names, graph):
    """Starts the processes of the layout; returns what they measured together."""
    measured = truth.Measurements()
    with tempfile.TemporaryDirectory(prefix="syn-") as barrier:
        table = os.path.join(barrier, "table")
        write_table(table, graph.table, graph.base_ms)
        children = {}
        for group in groups(args.layout, names):
            own, raw = "+".join(group), os.path.join(barrier, "+".join(group) + ".json")
            threads = 1 if args.executor == "single" else args.threads
            if args.native:
                command = [args.native, "--nodes", ",".join(group), "--table", table,
                           "--duration", str(args.duration - 0.25 * graph.base_ms / 1000),
                           "--barrier", barrier, "--raw", raw,
                           "--threads", str(threads), "--executor", args.executor, "--as", args.style,
                           "--namespace", args.namespace]
                command += ["--intra"] if args.intra else []
                command += ["--reentrant"] if args.reentrant else []
                command += ["--turns"] if args.turns else []
            else:
                command = [sys.executable, os.path.abspath(__file__),
                           "--duration", str(args.duration), "--rate", str(args.rate),
                           "--scale", str(args.scale), "--nodes", ",".join(names),
                           "--executor", args.executor, "--threads", str(args.threads),
                           "--barrier", barrier, "--namespace", args.namespace,
                           "--raw", ",".join(group), raw]
                command += ["--twin"] if args.twin else []
                command += ["--wiring", args.wiring] if args.wiring else []
                command += ["--turns"] if args.turns else []
                for item in args.set:
                    command += ["--set", item]
            children[own] = subprocess.Popen(command)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: [c.terminate() for c in children.values()])
        while any(not os.path.exists(os.path.join(barrier, own)) for own in children):
            if any(child.poll() is not None for child in children.values()):
                for child in children.values():
                    child.terminate()
                break
            time.sleep(0.01)
        for begun in filter(None, (os.path.join(barrier, "go"), args.begun)):
            with open(begun, "w", encoding="utf-8"):
                pass
        failed = []
        for own, child in children.items():
            raw = os.path.join(barrier, own + ".json")
            if not wait_for(child, raw):
                failed.append(own)
                continue
            with open(raw, encoding="utf-8") as file:
                measured.merge(json.load(file))
        if failed:
            sys.exit(f"syn: process of {', '.join(failed)} failed")
    return measured


def main():
    """Runs what the command line asks for."""
    args = arguments()
    table = configured(args)
    known = list(dict.fromkeys(cb.node for cb in sorted(table, key=lambda cb: cb.node)))
    names = args.nodes.split(",") if args.nodes else known
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"syn: no node {', '.join(unknown)}: there are {', '.join(known)}")
    graph = Graph(table, 1000 / args.rate, names, args.namespace)
    os.environ.setdefault("ROS_DOMAIN_ID", truth.own_domain())
    # A process that hangs prints where, and ends.
    faulthandler.dump_traceback_later(args.duration + (60 if args.raw else 90), exit=True)
    if args.raw:
        own, path = args.raw
        truth.write_json(path, run_nodes(args, own.split(","), graph).raw())
        return
    if args.layout == "one" and not args.native:
        measured = run_nodes(args, names, graph)
    else:
        measured = run_processes(args, names, graph)
    client = args.style if args.native else "rclpy"
    document = truth.build(graph, measured, app="syn", client=client, layout=args.layout,
                           executor=args.executor)
    if args.truth:
        truth.write_json(args.truth, document)
    if not args.quiet:
        truth.print_summary(document)


if __name__ == "__main__":
    main()
