"""Holds each execution time against the thread's own CPU clock, which the application reads.

usage: ./dev check clock [--seconds N]     12 runs of N seconds each (default 60; root)

Runs SYN (demos/syn), compiled with rclcpp's calls and on rclpy: started under the recorder, attached to while it runs, and
with the preloaded library; each alone, and beside a program on every CPU that never sleeps. From each difference, the
median of its callback is taken off: it is the code between the application's readings and the callback's bounds.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../e2e"))

from compare import EACH_NS, EACH_SHARE, median  # noqa: E402
from harness import Harness, load  # noqa: E402
from registry import Mismatch, Skip  # noqa: E402

# Some 200 executions a second, which need a third of a CPU.
WORDS = ["--rate", "10", "--scale", "0.25"]
# So few may be further off than EACH_NS and EACH_SHARE, or have no time. None may be too short.
OFF, UNTIMED = 0.001, 0.005
COLUMNS = "{:8} {:9} {:6} {:>10} {:>9} {:>9} {:>10} {:>10}  {}"


def started(harness, name, words, how=()):
    """The execution times of an application that the recorder starts, and what the application read."""
    truth = harness.file(name + ".truth.json")
    trace = harness.record(name, [*harness.syn_command("kilted", truth, *words)], how=how)
    return harness.executions(trace), load(truth)


def preloaded(harness, name, words):
    """The same, by the library in the application."""
    return started(harness, name, words, ["--preload"])


def late(harness, name, words):
    """The same of an application that runs already."""
    truth, begun = harness.file(name + ".truth.json"), harness.new_file(name + ".begun")
    app = subprocess.Popen(harness.syn_command("kilted", truth, "--begun", begun, *words))
    try:
        harness.begun(begun, app)
        with harness.recording(name) as trace:
            app.wait()
    finally:
        app.wait()
    return harness.executions(trace), load(truth)


def differences(found, own):
    """What the model's times of a callback are above those of the application; the latter may have begun earlier."""
    first = max(0, len(own) - len(found))
    pairs = [(mine, read) for mine, read in zip(found, own[first:]) if mine is not None]
    around = median([mine - read for mine, read in pairs] or [0])
    return [(mine - read - around, read) for mine, read in pairs]


def row(executions, truth):
    """The figures of a run: executions, those off, those too short, those without a time, the 99.9th percentile in us."""
    count, untimed, all_off = 0, 0, []
    for callback in truth["callbacks"]:
        found = executions.get(callback["id"], [])
        if callback["type"] == "sync":
            continue
        # A callback that is missing in the model has no times.
        found = found or [None] * len(callback["cpu_ns"])
        count, untimed = count + len(found), untimed + found.count(None)
        all_off += differences(found, callback["cpu_ns"])
    off = [ns for ns, read in all_off if abs(ns) > EACH_NS + EACH_SHARE * read]
    apart = sorted(abs(ns) for ns, _ in all_off)
    far_us = apart[min(len(apart) - 1, int(0.999 * len(apart)))] / 1e3 if apart else 0
    return count, len(off), sum(ns < 0 for ns in off), untimed, far_us


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60)
    try:
        return run_all(parser.parse_args().seconds)
    except (Mismatch, Skip) as error:
        sys.exit(f"check clock: {error}")


def run_all(seconds):
    """Makes all runs and prints a line for each; 1 if one missed."""
    print(COLUMNS.format("client", "way", "load", "executions", "off", "too short", "no time", "p99.9, us", "verdict"))
    missed = False
    with tempfile.TemporaryDirectory() as work:
        harness = Harness(work, 1)
        compiled = ["--native", os.path.join(harness.native("kilted"), "syn-rclcpp"), "--as", "rclcpp"]
        for client, words in [("rclcpp", compiled), ("rclpy", [])]:
            for way in (started, late, preloaded):
                for busy in (False, True):
                    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
                              for _ in range(os.cpu_count() if busy else 0)]
                    try:
                        name = f"{client}_{way.__name__}_{busy}"
                        run = way(harness, name, ["--duration", str(seconds), *WORDS, *words])
                    finally:
                        for other in others:
                            other.kill()
                            other.wait()
                    count, off, short, untimed, far_us = row(*run)
                    met = count > 0 and short == 0 and off <= OFF * count and untimed <= UNTIMED * count
                    missed |= not met
                    print(COLUMNS.format(client, way.__name__, "both" if busy else "none", count, off, short, untimed,
                                         f"{far_us:.0f}", "met" if met else "MISSED"), flush=True)
                    time.sleep(1)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
