"""Asks onbeat and other analyses the same question about one LTTng session, and compares their CPU time.

usage: python3 scripts/beside [--cycles N] [--turns N] NAME=PYTHON ...

The question: how long did each callback run, and how long did the chain take from the start of the timer's callback to
the end of the subscription's? NAME is one of the files `with_NAME.py`. PYTHON is an interpreter that can import what the
file needs; the environment is passed on, so PYTHONPATH can add to it. CPU time is that of the interpreter and of the
programs that it starts, from their start to their end. The speed of a virtual machine changes within seconds, so a quick
analysis is asked again and again in each turn, for 10 s.
"""

import argparse
import glob
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import session

# The least time in s for which each analysis is asked in a turn.
LEAST_S = 10
HERE = os.path.dirname(os.path.abspath(__file__))
# Passed to the interpreter. Prints a few figures of the answer, by which answers are compared.
ASK = """
import importlib, json, sys
sys.path.append(sys.argv[1])
durations, latencies = importlib.import_module("with_" + sys.argv[2]).answer(sys.argv[3])
figures = sorted((len(one), int(one.sum()), int(one.max())) for one in (*durations, latencies))
print("figures", json.dumps(figures))
"""


def environment():
    """The environment of the analyses. They run in another folder, because CARET writes a log there."""
    paths = os.environ.get("PYTHONPATH", "")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in paths.split(os.pathsep) if path)}
    if command := os.environ.get("ONBEAT"):
        env["ONBEAT"] = os.path.abspath(command)
    return env


def asked(name, python, place):
    """Figures of the answer, CPU time and time in s."""
    begin = time.monotonic()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen([python, "-c", ASK, HERE, name, os.path.join(place, "session")], stdout=out, cwd=place, env=environment())
        _, status, usage = os.wait4(process.pid, 0)
        took = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"beside: {name} failed with {process.returncode}")
        out.seek(0)
        figures = next(line for line in out.read().decode().splitlines() if line.startswith("figures "))
    return json.loads(figures.removeprefix("figures ")), usage.ru_utime + usage.ru_stime, took


def main():
    """Writes the session, and asks in turns."""
    names = [os.path.basename(path)[len("with_"):-len(".py")] for path in sorted(glob.glob(os.path.join(HERE, "with_*.py")))]
    parser = argparse.ArgumentParser(prog="scripts/beside", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cycles", type=int, default=100_000, help="ten events each (100000)")
    parser.add_argument("--turns", type=int, default=5, help="how often each is asked (5)")
    parser.add_argument("analyses", nargs="+", metavar="NAME=PYTHON", help=", ".join(names))
    args = parser.parse_args()
    chosen = [(name, os.path.abspath(shutil.which(python) or python))
              for name, _, python in (word.partition("=") for word in args.analyses)]
    if unknown := [name for name, _ in chosen if name not in names]:
        parser.error(f"there is no analysis {unknown[0]}. Write one of {', '.join(names)}")
    found = {name: [] for name, _ in chosen}
    with tempfile.TemporaryDirectory() as scratch:
        original = os.path.join(scratch, "original")
        print(f"{session.write(os.path.join(original, 'ust'), args.cycles)} events")
        for _ in range(args.turns):
            for name, python in chosen:
                took = 0
                while took < LEAST_S:
                    # Some keep what they have read in the session's folder.
                    place = os.path.join(scratch, "asked")
                    os.mkdir(place)
                    shutil.copytree(original, os.path.join(place, "session"))
                    found[name].append(asked(name, python, place))
                    took += found[name][-1][2]
                    shutil.rmtree(place)
    figures = [one[0] for turns in found.values() for one in turns]
    for name, turns in found.items():
        cpu, took = (statistics.median(one[n] for one in turns) for n in (1, 2))
        times = cpu / statistics.median(one[1] for one in found[chosen[0][0]])
        print(f"{name}: {cpu:.2f} s of CPU ({times:.1f} times {chosen[0][0]}), {took:.2f} s, median of {len(turns)}")
    if any(one != figures[0] for one in figures):
        raise SystemExit(f"beside: the answers differ: {figures}")
    print("The answers are equal.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
