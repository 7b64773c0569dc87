#!/usr/bin/env python3
"""A chain or a graph of ROS 2 nodes whose execution times are chosen on the command line.

run.py chain and run.py dag start one process per callback, and on request nodes that interfere.
run.py beside --interference 2 -- COMMAND runs such nodes beside another application. Everything after
--ros-args goes to every node of the chain or graph. At the end it prints the latency that the
application measured: from the start of the first callback to the publication of the last.
"""

import argparse
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
EVENTS = os.path.join(HERE, "events.py")

# The graph: number, inputs, worst-case milliseconds, CPU. Two CPUs and a period of 764 ms as in the
# thesis's Figure 4.10, whose execution times are not in its text; these make a worst case of about
# 450 ms. Execution times vary from half of the worst case to all of it.
DAG = [(0, [], 40, 0), (2, [0], 60, 0), (3, [0], 50, 1), (4, [0], 70, 1), (5, [2], 50, 0),
       (6, [3], 60, 1), (7, [2, 3], 60, 0), (8, [4], 40, 1), (9, [5], 50, 0), (10, [6, 8], 70, 1),
       (11, [7], 40, 0), (12, [9, 11], 60, 0), (13, [10], 50, 1), (14, [13], 60, 1),
       (15, [12], 50, 0), (16, [12, 14], 60, 1), (17, [15], 40, 0), (1, [16, 17], 50, 1)]


class Stopped(Exception):
    """SIGINT or SIGTERM has come."""


def chain(args):
    """Words for the stages of a chain, first to last."""
    stages = []
    if args.events:
        stages.append(("sensor", ["--name", "sensor", "--mean-ms", str(args.events), "--out", "/t1",
                                  *([] if args.ppm is None else ["--ppm", str(args.ppm)])], args.cpu))
    for i in range(1 + len(stages), args.stages + 1):
        words = ["--name", f"stage_{i}", "--min-ms", str(args.min), "--max-ms", str(args.max),
                 "--out", f"/t{i}"]
        words += ["--period-ms", str(args.period)] if i == 1 else ["--in", f"/t{i - 1}"]
        if i == args.stages and args.over_every:
            words += ["--over-every", str(args.over_every), "--over-ms", str(args.over)]
        if i == args.stages and args.step:
            words += ["--step-ms", str(args.step), "--step-from", str(args.step_from),
                      "--step-until", str(args.step_until)]
        stages.append((f"stage_{i}", words, args.cpu))
    return second(args) + stages


def second(args):
    """Words for the stages of a second chain, which has a period of its own."""
    if not args.second:
        return []
    stages = []
    for i in range(1, args.stages + 1):
        words = ["--name", f"other_{i}", "--min-ms", str(args.min), "--max-ms", str(args.max),
                 "--out", f"/o{i}"]
        words += ["--period-ms", str(args.second)] if i == 1 else ["--in", f"/o{i - 1}"]
        stages.append((f"other_{i}", words, args.cpu))
    return stages


def dag(args):
    """Words for the vertices of the graph, and the CPU of each."""
    stages = []
    for number, inputs, worst, where in DAG:
        words = ["--name", f"v{number}", "--min-ms", str(worst / 2), "--max-ms", str(worst),
                 "--out", f"/t{number}"]
        words += [w for i in inputs for w in ("--in", f"/t{i}")]
        words += [] if inputs else ["--period-ms", "764"]
        stages.append((f"v{number}", words, where if args.cpu is None else args.cpu + where))
    return stages


def interferers(args, cpus):
    """Words for nodes that interfere, one on each of these CPUs."""
    if not args.interference:
        return []
    return [(f"interference_{cpu or 0}", [
        "--name", f"interference_{cpu or 0}", "--period-ms", str(args.interference_period),
        "--min-ms", str(args.interference / 2), "--max-ms", str(args.interference)], cpu)
        for cpu in sorted(cpus, key=str)]


def pinned(words, cpu):
    """Words that run on one CPU."""
    return words if cpu is None else ["taskset", "-c", str(cpu), *words]


def ignore():
    """Ignores signals from here on: nothing may interrupt the end of our children."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def beside(args, command):
    """Runs a command, and nodes that interfere on every CPU meanwhile; the command's exit code."""
    running = []
    try:
        for _, words, cpu in interferers(args, os.sched_getaffinity(0)):
            words = [args.stage, *words, "--seed", str(args.seed)]
            running.append(subprocess.Popen(pinned(words, cpu)))
        running.append(subprocess.Popen(command))
        return running[-1].wait()
    except Stopped:
        return 1
    finally:
        ignore()
        for process in reversed(running):
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


def lines(path):
    """How many lines a file has; none if there is no file yet."""
    try:
        with open(path, "rb") as file:
            return sum(1 for _ in file)
    except FileNotFoundError:
        return 0


def watch(running, seconds, until):
    """Waits so long, or until something holds; ends the program if a stage has ended."""
    begin = time.monotonic()
    while time.monotonic() - begin < seconds and not until():
        time.sleep(0.1)
        ended = next((p for p in running if p.poll() is not None), None)
        if ended:
            sys.exit(f"chain: a stage ended with {ended.returncode}")


def report(path, skip):
    """Prints latency figures from the last stage's log."""
    rows = [tuple(map(int, line.split(","))) for line in open(path, encoding="utf-8")][skip:]
    if len(rows) < 2:
        print("chain: nothing came out")
        return False
    latency = sorted((end - start) / 1e6 for _, start, end in rows)

    def at(share):
        """The latency that this share of the executions does not exceed."""
        return latency[min(len(latency) - 1, int(share * len(latency)))]

    print(f"chain: {len(rows)} executions; latency {latency[0]:.2f} to {latency[-1]:.2f} ms, mean"
          f" {sum(latency) / len(latency):.2f}; half of p0.5 to p99.5"
          f" {(at(0.995) - at(0.005)) / 2:.3f} ms")
    return True


def main():
    """Runs what the command line asks for."""
    words, command, ros_args = sys.argv[1:], [], []
    if "--" in words:
        at = words.index("--")
        words, command = words[:at], words[at + 1:]
    elif "--ros-args" in words:
        at = words.index("--ros-args")
        words, ros_args = words[:at], words[at:]
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", choices=["chain", "dag", "beside"])
    parser.add_argument("--stage", default=os.environ.get("STAGE", "stage"),
                        help="the program that build.sh made")
    parser.add_argument("--stages", type=int, default=5)
    parser.add_argument("--period", type=float, default=100, help="milliseconds")
    parser.add_argument("--events", type=float, default=0, metavar="MS",
                        help="chain: a sensor without period instead of the first stage, an event each"
                        " MS on average")
    parser.add_argument("--ppm", type=float, help="chain: the sensor has the period MS, by a clock that is so"
                        " much slow")
    parser.add_argument("--second", type=float, default=0, metavar="MS",
                        help="chain: another chain beside it, other_1 to other_N, with this period")
    parser.add_argument("--min", type=float, default=5, help="milliseconds")
    parser.add_argument("--max", type=float, default=15, help="milliseconds")
    parser.add_argument("--interference", type=float, default=0,
                        help="longest execution of the node that interferes, milliseconds")
    parser.add_argument("--interference-period", type=float, default=100, help="milliseconds")
    parser.add_argument("--cpu", type=int, help="run the stages on this CPU (dag: and the next one)")
    parser.add_argument("--fifo", type=int, default=0, help="SCHED_FIFO priority of the stages")
    parser.add_argument("--over", type=float, default=0, help="an overrun takes so many milliseconds")
    parser.add_argument("--over-every", type=int, default=0, help="the last stage overruns every so often")
    parser.add_argument("--step", type=float, default=0, metavar="MS",
                        help="chain: the last stage takes so many milliseconds longer for some items")
    parser.add_argument("--step-from", type=int, default=0, metavar="N", help="the first of these items")
    parser.add_argument("--step-until", type=int, default=1 << 62, metavar="N",
                        help="the first item after them")
    parser.add_argument("--async-last", action="store_true",
                        help="the last stage's middleware publishes from a thread of its own")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--duration", type=float, default=10, help="seconds; 0: until stopped")
    parser.add_argument("--outputs", type=int, default=0, metavar="N",
                        help="end after so many outputs, however long they take; the duration is the longest")
    parser.add_argument("--log", metavar="FILE", help="keep the last stage's log (CSV)")
    args = parser.parse_args(words)

    def stop(*_):
        raise Stopped

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    os.environ.setdefault("ROS_DOMAIN_ID", str(1 + os.getpid() % 100))
    if (args.graph == "beside") != bool(command):
        parser.error("beside needs a command behind --, and only it does")
    if command:
        sys.exit(beside(args, command))
    stages = chain(args) if args.graph == "chain" else dag(args)
    last = stages[-1][0]
    stages += interferers(args, {where for *_, where in stages})
    running = []
    with tempfile.TemporaryDirectory(prefix="chain-") as work:
        log = os.path.join(work, "log.csv")
        try:
            # The source starts last: its items shall find their subscribers.
            for name, words, cpu in reversed(stages):
                program = [sys.executable, EVENTS] if name == "sensor" else [args.stage]
                words = [*program, *words, "--seed", str(args.seed)]
                env = dict(os.environ)
                if name == last:
                    words += ["--log", log, *(["--flush", "1"] if args.outputs else [])]
                    if args.async_last:
                        env["RMW_FASTRTPS_PUBLICATION_MODE"] = "ASYNCHRONOUS"
                if args.fifo and not name.startswith("interference"):
                    words = ["chrt", "-f", str(args.fifo), *words]
                running.append(subprocess.Popen(
                    [*pinned(words, cpu), "--ros-args", "-r", f"__node:={name}", *ros_args], env=env))
                if name == stages[1][0]:
                    time.sleep(1)
            watch(running, args.duration or math.inf, lambda: args.outputs and lines(log) >= args.outputs)
        except Stopped:
            pass
        finally:
            ignore()
            for process in running:
                process.send_signal(signal.SIGTERM)
            for process in running:
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
        good = os.path.exists(log) and report(log, 2)
        if args.log and good:
            shutil.copyfile(log, args.log)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
