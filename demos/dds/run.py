#!/usr/bin/env python3
"""Runs chains whose stages are programs of their own, and writes down what is true of them.

    run.py --truth FILE [--count N] STAGE,STAGE,... [STAGE,...]

A STAGE is a program with the words of stage.h. The topics of a chain are rt/chainN/t0, rt/chainN/t1 ...
A program of something else (`--beside`) runs meanwhile.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time

PERIOD_MS = 100
BURN_MS = 5


def start(number, programs, count):
    """Starts a chain's programs; the last one first, although each waits for the next."""
    topics = [f"rt/chain{number}/t{i}" for i in range(len(programs) - 1)]
    ends = zip(["-", *topics], [*topics, "-"])
    words = [[*shlex.split(program), *around, str(count), str(PERIOD_MS), str(BURN_MS)]
             for program, around in zip(programs, ends)]
    return [subprocess.Popen(line, stdout=subprocess.PIPE, text=True) for line in reversed(words)]


def wait_for_all(programs):
    """Waits until all have ended, or one has failed: then the others would wait for it. Whether none
    has."""
    while any(program.poll() is None for program in programs):
        if any(program.poll() for program in programs):
            for program in programs:
                program.kill()
            return False
        time.sleep(0.05)
    return not any(program.returncode for program in programs)


def truth_of(stages):
    """A chain's truth, of what each of its stages says: message by message, in order."""
    edges = [{"from": a["id"], "to": b["id"], "topic": a["outputs"][0]}
             for a, b in zip(stages, stages[1:])]
    latencies = [end - begin for begin, end in zip(stages[0]["starts_ns"], stages[-1]["ends_ns"])]
    chain = {"callbacks": [s["id"] for s in stages], "count": len(latencies),
             "latency_ns": latencies}
    return stages, edges, chain


def main():
    """All chains at once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--truth", required=True)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--beside", metavar="COMMAND")
    parser.add_argument("chains", nargs="+", metavar="STAGE,STAGE,...")
    args = parser.parse_args()
    beside = subprocess.Popen(shlex.split(args.beside)) if args.beside else None
    running = [start(number, chain.split(","), args.count)
               for number, chain in enumerate(args.chains)]
    if not wait_for_all([*sum(running, []), *([beside] if beside else [])]):
        sys.exit(1)
    truth = {"callbacks": [], "edges": [], "junctions": [], "chains": []}
    for programs in running:
        # A line each, which waits in the pipe.
        stages = [json.loads(program.stdout.read()) for program in programs]
        callbacks, edges, chain = truth_of(stages[::-1])
        truth["callbacks"] += callbacks
        truth["edges"] += edges
        truth["chains"].append(chain)
    with open(args.truth, "w", encoding="utf-8") as file:
        json.dump(truth, file)


if __name__ == "__main__":
    main()
