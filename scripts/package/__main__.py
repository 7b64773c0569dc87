"""Makes the packages: Debian package, Python wheel with source distribution, archive.

usage: ./dev package [deb] [wheel] [archive] [-o DIR]

Without a word, all. They are written to `dist`, with SHA256SUMS. All have the same commands, which run with
glibc 2.28 or newer. The files do not depend on the machine or the time: $SOURCE_DATE_EPOCH, or the date of the last
commit, is the date of every packaged file. The wheel's bytes also depend on the version of advzip.
"""

import argparse
import hashlib
import os
import sys

import archive
import debian
import programs
import wheel

KINDS = {"deb": debian.make, "wheel": wheel.make, "archive": archive.make}


def main():
    """Builds the programs and makes the packages; prints their paths."""
    parser = argparse.ArgumentParser(prog="./dev package", usage=__doc__, add_help=False)
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("-o", "--output", default=os.path.join(programs.ROOT, "dist"))
    parser.add_argument("-h", "--help", action="store_true")
    args = parser.parse_args()
    if args.help or (unknown := [kind for kind in args.kinds if kind not in KINDS]):
        print(__doc__.strip(), file=sys.stdout if args.help else sys.stderr)
        return 0 if args.help else f"package: no package '{unknown[0]}'"
    os.makedirs(args.output, exist_ok=True)
    kinds = args.kinds or list(KINDS)
    built = programs.build(os.path.join(programs.TARGET_FOLDER, "package"), with_whole="wheel" in kinds)
    made = []
    for kind in kinds:
        programs.say(kind)
        paths = KINDS[kind](built, args.output)
        made += [paths] if isinstance(paths, str) else paths
    with open(os.path.join(args.output, "SHA256SUMS"), "w", encoding="utf-8") as sums:
        for path in made:
            with open(path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            sums.write(f"{digest}  {os.path.basename(path)}\n")
            print(f"{path}  {os.path.getsize(path) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
