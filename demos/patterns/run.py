#!/usr/bin/env python3
"""Runs programs of patterns side by side and writes down what each knows of itself.

run.py --out DIR polling nested_spin: starts both, each in a namespace of its own, and writes
DIR/polling.json and DIR/nested_spin.json when they have ended. The first program runs in the ROS domain
$ROS_DOMAIN_ID, each further program in the next domain. When all nodes of one are connected
there is DIR/polling.begun. A file DIR/over ends both.
"""

import argparse
import contextlib
import glob
import os
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# A program ends by itself; one that does not is broken. On a busy machine all together take longer to
# begin than to run.
AT_MOST_S = 100


# ROS domains whose ports are outside the range that Linux gives to clients.
DOMAINS = 100


def domain(first, number):
    """Returns the ROS domain of the program `number`. If 30 processes of one domain started at once on a busy machine,
    Fast DDS 3.2 could deadlock in its participant discovery."""
    return str(first if number == 0 else 1 + (first - 1 + number) % DOMAINS)


def tree(pid):
    """A process and all that it started, as far as they run."""
    found = [pid]
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(OSError):
            with open(path, encoding="utf-8") as file:
                for child in file.read().split():
                    found += tree(int(child))
    return found


def state(pid):
    """A process's state (T: stopped) and what its first thread waits for in the kernel."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            letter = file.read().rpartition(")")[2].split()[0]
        with open(f"/proc/{pid}/wchan", encoding="utf-8") as file:
            return f"{pid} {letter} {file.read()}"
    return f"{pid} gone"


def end(process):
    """Ends a program that does not end by itself, with its children; what they were doing."""
    processes = tree(process.pid)
    states = ", ".join(map(state, processes))
    for pid in processes:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return states


def main():
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="DIR", help="write the truths here")
    parser.add_argument("--namespace", default="", metavar="/NAME")
    parser.add_argument("--duration", type=float, default=4, help="seconds")
    parser.add_argument("names", nargs="+", metavar="NAME", help="a program in this folder")
    args = parser.parse_args()
    first = int(os.environ.get("ROS_DOMAIN_ID") or 1 + os.getpid() % DOMAINS)
    running = {}
    for number, name in enumerate(args.names):
        words = [sys.executable, os.path.join(HERE, name + ".py"), "--namespace",
                 f"{args.namespace}/{name}", "--duration", str(args.duration)]
        if args.out:
            words += ["--begun", os.path.join(args.out, name + ".begun"),
                      "--until", os.path.join(args.out, "over")]
        running[name] = subprocess.Popen(words, stdout=subprocess.PIPE, text=True,
                                         env=dict(os.environ, ROS_DOMAIN_ID=domain(first, number)))
    failed, at_most = [], AT_MOST_S + args.duration
    for name, process in running.items():
        try:
            out, _ = process.communicate(timeout=at_most)
        except subprocess.TimeoutExpired:
            at_most = 1  # the others had their time too
            failed.append(f"{name} did not end ({end(process)})")
            # A process that has lost its parent is not found, and may keep the pipe open.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=5)
            continue
        lines = out.splitlines()
        if process.returncode != 0 or not lines:
            failed.append(f"{name} ended with {process.returncode}")
        elif args.out:
            with open(os.path.join(args.out, name + ".json"), "w", encoding="utf-8") as file:
                file.write(lines[-1] + "\n")
        else:
            print(f"{name}: {lines[-1]}")
    if failed:
        sys.exit("patterns: " + "; ".join(failed))


if __name__ == "__main__":
    main()
