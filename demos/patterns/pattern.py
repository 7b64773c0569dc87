"""Common code of the programs: names, callbacks that measure themselves, the truth at the end.

The truth has the form of SYN's (../syn/README.md), as one line of JSON on standard output.
"""

import argparse
import contextlib
import json
import mmap
import os
import signal
import sys
import threading
import time
import traceback


class Execution:
    """One execution of a callback: what the thread computes in it, without what it waits for."""

    def __init__(self, callback):
        self.callback = callback
        self.start_ns = time.monotonic_ns()
        self.cpu_ns = 0
        # The thread's CPU time when it last began or went on.
        self.since = time.thread_time_ns()

    def burn(self, ms):
        """Computes for so many milliseconds of the thread's CPU time."""
        until = time.thread_time_ns() + int(ms * 1e6)
        while time.thread_time_ns() < until:
            pass

    def pause(self):
        """Stops counting CPU time, because another execution runs within this one or it is suspended."""
        self.cpu_ns += time.thread_time_ns() - self.since

    def resume(self):
        """Continues counting CPU time, perhaps on another thread."""
        self.since = time.thread_time_ns()

    @contextlib.contextmanager
    def suspended(self):
        """Within `await`: the coroutine does not run."""
        self.callback.program.leave(self)
        try:
            yield
        finally:
            self.callback.program.enter(self)


class Callback:
    """A callback, that is a vertex of the model, and all its executions."""

    def __init__(self, program, vid, kind, outputs):
        self.program, self.vid, self.kind, self.outputs = program, vid, kind, sorted(outputs)
        self.executions = []  # (start in ns, thread CPU time in ns)

    @contextlib.contextmanager
    def execution(self):
        """Measures an execution. One within another on the same thread is not the outer one's."""
        run = Execution(self)
        self.program.enter(run)
        try:
            yield run
        finally:
            self.program.leave(run)
            self.executions.append((run.start_ns, run.cpu_ns))

    def truth(self):
        """As in SYN's truth."""
        return {"id": self.vid, "type": self.kind, "outputs": self.outputs,
                "count": len(self.executions), "cpu_ns": [cpu for _, cpu in self.executions],
                "starts_ns": [start for start, _ in self.executions]}


class Program:
    """The program of one pattern, and what is true of it."""

    def __init__(self, description):
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--namespace", default="", metavar="/NAME",
                            help="put this before the names of all nodes, topics and services")
        parser.add_argument("--duration", type=float, default=4,
                            help="seconds from all being connected to the end")
        parser.add_argument("--begun", metavar="FILE", help="make this file when all are connected")
        parser.add_argument("--until", metavar="FILE", help="end when this file is there")
        args = parser.parse_args()
        self.begun, self.until = args.begun, args.until
        self.namespace, self.duration = args.namespace, args.duration
        self.callbacks, self.edges, self.junctions, self.chains = [], [], [], []
        self.more = {}  # what is true of this program alone
        self.threads = threading.local()
        self.stop = threading.Event()
        # For each process of `apart` a byte, not 0 once its time is over; and which one this is.
        self.over, self.part = mmap.mmap(-1, mmap.PAGESIZE), 0
        # The same: not 0 once it is connected.
        self.connected = mmap.mmap(-1, mmap.PAGESIZE)
        self.parts = 1

    # ---- names

    def name(self, relative):
        """The full name of a node, topic or service."""
        return f"{self.namespace}/{relative}"

    def node(self, name, **options):
        """A node in the program's namespace."""
        from rclpy.node import Node  # here: a program may want to set up something before

        return Node(name, namespace=self.namespace or None, **options)

    # ---- the truth

    def callback(self, node, what, kind=None, outputs=(), suffix=""):
        """A callback that the model must have: `what` as in its id, e.g. `timer(100ms)`."""
        kind = kind or what.split("(")[0]
        found = Callback(self, f"{self.name(node)}:{what}{suffix}", kind,
                         [self.name(topic) for topic in outputs])
        self.callbacks.append(found)
        return found

    def edge(self, begin, end, topic=None):
        """An edge that the model must have; without a topic through the node's memory."""
        topic = self.name(topic) if topic else "(memory)"
        self.edges.append({"from": begin.vid, "to": end.vid, "topic": topic})

    def junction(self, kind, callback, *inputs):
        """A junction that the model must have."""
        self.junctions.append({"callback": callback.vid, "kind": kind,
                               "inputs": [i.vid for i in inputs]})

    def chain(self, *callbacks):
        """A chain that the model must have; the list takes its latencies in ns, if measured."""
        latencies = []
        self.chains.append({"callbacks": [c.vid for c in callbacks], "latency_ns": latencies})
        return latencies

    # ---- what runs on a thread

    def _stack(self):
        if not hasattr(self.threads, "stack"):
            self.threads.stack = []
        return self.threads.stack

    def enter(self, run):
        """An execution begins on this thread, or goes on."""
        stack = self._stack()
        if stack:
            stack[-1].pause()
        stack.append(run)
        run.resume()

    def leave(self, run):
        """An execution ends on this thread, or is suspended."""
        run.pause()
        stack = self._stack()
        stack.remove(run)
        if stack:
            stack[-1].resume()

    # ---- from the beginning to the end

    def wait_for(self, ready, spin=lambda: time.sleep(0.02), at_most=60):
        """Waits until `ready()`: peers are connected. Ends the program if that takes too long."""
        deadline = time.monotonic() + at_most
        while not ready():
            if time.monotonic() > deadline:
                sys.exit("not connected: is another ROS_DOMAIN_ID or network in use?")
            spin()

    def apart(self, *parts):
        """Runs functions in a process each, all begun before rclpy.init, and takes over what they
        measured. The truth is declared before."""
        begun, self.parts = [], len(parts)
        for number, part in enumerate(parts):
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                self.part = number
                self._be_a_part(part, writing)
            os.close(writing)
            begun.append((child, reading))
        for at, (child, reading) in enumerate(begun):
            with os.fdopen(reading, encoding="utf-8") as file:
                text = file.read()
            if os.waitpid(child, 0)[1] != 0:
                # The others may wait for it for ever, and would keep the program's output open.
                for other, _ in begun[at + 1:]:
                    os.kill(other, signal.SIGKILL)
                sys.exit("a part of the program failed")
            measured = json.loads(text)
            for callback, executions in zip(self.callbacks, measured["executions"]):
                callback.executions += executions
            for chain, latencies in zip(self.chains, measured["latencies"]):
                chain["latency_ns"] += latencies

    def _be_a_part(self, part, writing):
        """The life of a process of `apart`."""
        try:
            part()
            with os.fdopen(writing, "w", encoding="utf-8") as file:
                json.dump({"executions": [c.executions for c in self.callbacks],
                           "latencies": [c["latency_ns"] for c in self.chains]}, file)
        except BaseException:  # pylint: disable=broad-except
            traceback.print_exc()
            self.over[self.part] = 1
            os._exit(1)
        os._exit(0)

    def all_connected(self):
        """This process is connected; with all others of the program, says so to who waits for it."""
        self.connected[self.part] = 1
        if self.begun and not self.connected[:self.parts].count(0):
            with open(self.begun, "w", encoding="utf-8"):
                pass

    def is_over(self):
        """Whether the program was told to end."""
        return bool(self.until) and os.path.exists(self.until)

    def end_of(self, seconds):
        """A future that is done after so many seconds, or when the program is told to end.

        With a time-out an executor would make a timer for each round.
        """
        from rclpy.task import Future

        over, deadline = Future(), time.monotonic() + seconds

        def watch():
            while not self.is_over() and (left := deadline - time.monotonic()) > 0:
                time.sleep(min(left, 0.1) if self.until else left)
            over.set_result(None)

        threading.Thread(target=watch, daemon=True).start()
        return over

    def run(self, executor, *timers, quiet=1):
        """Spins for the duration, stops the timers, and lets what is under way come to an end."""
        self.all_connected()
        executor.spin_until_future_complete(self.end_of(self.duration))
        for timer in timers:
            timer.cancel()
        self.let_end(executor, quiet)

    def let_end(self, executor, quiet):
        """Spins until the time of all processes of the program is over, and so many seconds more."""
        self.until = None  # what is left to do takes the time that it takes
        # On a busy machine some are connected much later. A server that ended before its client
        # would leave it waiting for an answer.
        self.over[self.part] = 1
        while self.over[:self.parts].count(0):
            executor.spin_until_future_complete(self.end_of(0.05))
        executor.spin_until_future_complete(self.end_of(quiet))

    def print_truth(self):
        """Prints the truth: the program's last line."""
        print(json.dumps({
            "callbacks": [c.truth() for c in self.callbacks],
            "edges": self.edges,
            "junctions": self.junctions,
            "chains": [{**c, "count": len(c["latency_ns"])} for c in self.chains],
            **self.more,
        }), flush=True)
