#!/usr/bin/env python3
"""Runs programs of patterns side by side and writes down what each knows of itself.

run.py --out DIR polling nested_spin: starts both, each in a namespace of its own, and writes
DIR/polling.json and DIR/nested_spin.json when they have ended.
"""

import argparse
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# A program ends by itself; one that does not is broken.
AT_MOST_S = 60


def main():
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="DIR", help="write the truths here")
    parser.add_argument("--namespace", default="", metavar="/NAME")
    parser.add_argument("--duration", type=float, default=4, help="seconds")
    parser.add_argument("names", nargs="+", metavar="NAME", help="a program in this folder")
    args = parser.parse_args()
    os.environ.setdefault("ROS_DOMAIN_ID", str(1 + os.getpid() % 100))
    running = {}
    for name in args.names:
        words = [sys.executable, os.path.join(HERE, name + ".py"), "--namespace",
                 f"{args.namespace}/{name}", "--duration", str(args.duration)]
        running[name] = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    failed = []
    for name, process in running.items():
        try:
            out, _ = process.communicate(timeout=AT_MOST_S + args.duration)
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
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
