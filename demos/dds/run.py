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


def words_of(number, programs, count):
    """The words that start a chain's programs."""
    topics = [f"rt/chain{number}/t{i}" for i in range(len(programs) - 1)]
    ends = zip(["-", *topics], [*topics, "-"])
    return [[*shlex.split(program), *around, str(count), str(PERIOD_MS), str(BURN_MS)]
            for program, around in zip(programs, ends)]


def run_all(lines):
    """Runs programs, and says what each has printed. If one fails the others end: they would wait for
    it."""
    programs = []
    try:
        for line in lines:
            programs.append(subprocess.Popen(line, stdout=subprocess.PIPE, text=True))
        while any(program.poll() is None for program in programs):
            if any(program.poll() for program in programs):
                sys.exit(1)
            time.sleep(0.05)
    finally:
        for program in programs:
            program.kill()
    if any(program.returncode for program in programs):
        sys.exit(1)
    # It waits in the pipes.
    return [program.stdout.read() for program in programs]


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
    lines = [words_of(number, chain.split(","), args.count)
             for number, chain in enumerate(args.chains)]
    beside = [shlex.split(args.beside)] if args.beside else []
    said = run_all([*sum(lines, []), *beside])
    truth = {"callbacks": [], "edges": [], "junctions": [], "chains": []}
    for chain in lines:
        # A line for each callback.
        own, said = said[:len(chain)], said[len(chain):]
        callbacks, edges, chain = truth_of([json.loads(x) for x in "".join(own).splitlines()])
        truth["callbacks"] += callbacks
        truth["edges"] += edges
        truth["chains"].append(chain)
    with open(args.truth, "w", encoding="utf-8") as file:
        json.dump(truth, file)


if __name__ == "__main__":
    main()
