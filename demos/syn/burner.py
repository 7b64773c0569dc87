#!/usr/bin/env python3
"""Takes a CPU away from others: every period it is busy for a while, at real-time priority."""

import argparse
import os
import signal
import sys
import time


def main():
    """Runs until SIGTERM or SIGINT, or for the duration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", type=int, required=True, help="the CPU to run on")
    parser.add_argument("--fifo", type=int, default=10, help="SCHED_FIFO priority")
    parser.add_argument("--period", type=float, default=10, help="milliseconds")
    parser.add_argument("--busy", type=float, default=3, help="milliseconds of every period")
    parser.add_argument("--duration", type=float, default=0, help="seconds; 0: until stopped")
    parser.add_argument("--log", metavar="FILE",
                        help="keep when it was busy: begin and end (CLOCK_MONOTONIC, ns), CPU time")
    parser.add_argument("--name", help="the process's name, as ps and recordings show it")
    args = parser.parse_args()
    if args.name:
        with open("/proc/self/comm", "w", encoding="utf-8") as comm:
            comm.write(args.name)
    if not 0 <= args.busy < args.period:
        parser.error("--busy must be less than --period: a CPU that is always busy hangs others")
    try:
        os.sched_setaffinity(0, {args.cpu})
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(args.fifo))
    except OSError as error:
        sys.exit(f"burner: CPU {args.cpu} at SCHED_FIFO {args.fifo}: {error} (needs root)")
    bursts = []

    def stop(*_):
        """Writes the log, and ends."""
        if args.log:
            with open(args.log, "w", encoding="utf-8") as log:
                log.writelines(f"{begin},{end},{ran}\n" for begin, end, ran in bursts)
        sys.exit(0)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    begin = time.monotonic()
    release = begin
    while not args.duration or time.monotonic() - begin < args.duration:
        from_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns()
        until = cpu_ns + args.busy * 1e6
        while time.thread_time_ns() < until:
            pass
        if args.log:
            bursts.append((from_ns, time.monotonic_ns(), time.thread_time_ns() - cpu_ns))
        release += args.period / 1000
        time.sleep(max(0.0, release - time.monotonic()))
    stop()


if __name__ == "__main__":
    main()
