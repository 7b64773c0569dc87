"""End-to-end tests: applications that know their own timing, recorded, modelled, shaped, compared.

usage: ./dev test e2e [--keep DIR] [--all] [--one-at-a-time] [--with-foreign]
                      [--within SECONDS] [--inputs DIGEST] [NAME ...]

NAME is a subject (observe, patterns, flow, link, late, shaper, shape, gate, faults, interrupted), a test's name or a part of
it. Needs target/release/onbeat and the environments of ./dev ros-env. A test that needs what is not
there is skipped and says why. Tests that mostly wait run side by side.
"""

import argparse
import os
import signal
import sys
import tempfile

from registry import PLACES, TESTS, choose
from runner import Interrupted, Runner, stamp_of
import tests  # registers them


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(prog="./dev test e2e", usage=argparse.SUPPRESS,
                                     description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", metavar="DIR",
                        help="keep traces, models and ground truths in this folder")
    parser.add_argument("--list", action="store_true", help="print the chosen tests and end")
    parser.add_argument("--all", action="store_true", help="also what a run of everything leaves out")
    parser.add_argument("--one-at-a-time", action="store_true", help="run no test beside another")
    parser.add_argument("--with-foreign", action="store_true",
                        help="run another ROS 2 application beside the tests")
    parser.add_argument("--within", metavar="SECONDS", type=float,
                        help="after so many seconds begin no other test; those left are skipped")
    parser.add_argument("--inputs", metavar="DIGEST",
                        help="leave out tests that passed before with the same digest of their inputs")
    parser.add_argument("names", nargs="*", metavar="NAME")
    return parser.parse_args()


def by_reason(tests):
    """Reasons why tests are left out, each with the names of its tests."""
    found = {}
    for test in tests:
        found.setdefault(test.left_out, []).append(test.name)
    return found.items()


def shortened(names):
    """The names; of many only the first, the last and the number."""
    return ", ".join(names) if len(names) <= 10 else f"{names[0]} ... {names[-1]} ({len(names)} tests)"


def changed(tests_, inputs):
    """The tests that have not passed with these inputs; says how many have."""
    found = [test for test in tests_ if not stamp_of(test.name, inputs).read()]
    if len(found) < len(tests_):
        print(f"UNCHANGED {len(tests_) - len(found)} tests that passed before with the same inputs", flush=True)
    return found


def main():
    """Runs the tests that the command line chooses."""
    args = arguments()
    try:
        chosen, left_out = choose(args.names, args.all)
    except LookupError as error:
        sys.exit(f"e2e: {error.args[0]}")
    if args.list:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        for test in chosen + left_out:
            note = f" (left out: {test.left_out})" if test.left_out else ""
            print(f"{test.subject:8} {test.name:60} {test.description}{note}")
        return 0
    if args.inputs:
        chosen = changed(chosen, args.inputs)
    for reason, names in by_reason(left_out):
        print(f"LEFT OUT {shortened(names)}: {reason} (--all runs them)")
    places = 1 if args.one_at_a_time else PLACES
    with tempfile.TemporaryDirectory(prefix="onbeat-e2e-") as temporary:
        work = os.path.abspath(args.keep or temporary)
        os.makedirs(work, exist_ok=True)
        try:
            good = Runner(work, places, args.with_foreign, args.within, args.inputs).run(chosen)
        except Interrupted as reason:
            print(f"e2e: interrupted by {reason}; everything that the tests started has ended",
                  file=sys.stderr)
            return 130
    return 0 if good else 1


assert tests and TESTS
sys.exit(main())
