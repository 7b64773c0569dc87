"""Checks of `onbeat monitor` beside a small running application.

usage: ./dev check watch live [--minutes N]      an hour without plants: memory, descriptors, disk, incidents
       ./dev check watch plants [--singles N]    planted violations: each in one incident, its cause first (9 minutes)
       ./dev check watch delay [--count N]       from a late execution to journal, metrics, /diagnostics (3 minutes)
       ./dev check watch faults [--seed N] [--count N]     500 random faults: the monitor goes on (10 to 20 minutes)
       ./dev check watch cost [--seconds N]        CPU time of monitor and top, beside the parking demo and SYN
"""

import argparse
import os
import shutil
import sys
import tempfile

import cost
import delay
import faults
import live
import plants
import service


def main():
    """Runs one part; prints its figures and complaints."""
    parser = argparse.ArgumentParser(prog="./dev check watch", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("live")
    part.add_argument("--minutes", type=float, default=60)
    part.set_defaults(run=lambda folder, args: live.run(folder, args.minutes))
    part = parts.add_parser("plants")
    part.add_argument("--singles", type=int, default=175)
    part.set_defaults(run=lambda folder, args: plants.run(folder, args.singles))
    part = parts.add_parser("delay")
    part.add_argument("--count", type=int, default=60)
    part.set_defaults(run=lambda folder, args: delay.run(folder, args.count))
    part = parts.add_parser("faults")
    part.add_argument("--seed", type=int, default=1)
    part.add_argument("--count", type=int, default=500)
    part.add_argument("--without", type=float, default=30, help="seconds of the application without a monitor")
    part.set_defaults(run=lambda folder, args: faults.run(folder, args.seed, args.count, args.without))
    part = parts.add_parser("cost")
    part.add_argument("--seconds", type=float, default=60)
    part.set_defaults(run=lambda folder, args: cost.run(folder, args.seconds))
    for part in parts.choices.values():
        part.add_argument("--keep", metavar="DIR", help="keep all files in this directory")
    args = parser.parse_args()
    service.need_root()
    if args.keep:
        os.makedirs(args.keep, exist_ok=True)
    folder = args.keep or tempfile.mkdtemp(prefix="onbeat-watch-")
    try:
        wrong = args.run(folder, args)
    finally:
        if not args.keep:
            shutil.rmtree(folder, ignore_errors=True)
    for line in wrong:
        print(f"WRONG {line}")
    return f"watch {args.part}: {len(wrong)} complaints" if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
