"""Checks of `onbeat monitor` beside a small running application.

usage: ./dev check watch live [--minutes N]      an hour without plants: memory, descriptors, disk, incidents
"""

import argparse
import shutil
import sys
import tempfile

import live
import service


def main():
    """Runs one part; prints its figures and complaints."""
    parser = argparse.ArgumentParser(prog="./dev check watch", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("live")
    part.add_argument("--minutes", type=float, default=60)
    part.set_defaults(run=lambda folder, args: live.run(folder, args.minutes))
    for part in parts.choices.values():
        part.add_argument("--keep", metavar="DIR", help="keep all files in this new directory")
    args = parser.parse_args()
    service.need_root()
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
