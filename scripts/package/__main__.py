"""Makes the packages: Debian package, Python wheel with source distribution, archive.

usage: ./dev package [deb] [wheel] [archive] [--machine x86_64 | aarch64 | all] [-o DIR]

Without a word, all. They are written to `dist`, with SHA256SUMS. All have the same commands, which run with
glibc 2.28 or newer, on the machine x86_64 if you do not choose another one. The files do not depend on the building machine
or the time: $SOURCE_DATE_EPOCH, or the date of the last commit, is the date of every packaged file. The wheel's bytes
also depend on the version of advzip.
"""

import argparse
import hashlib
import os
import sys

import foreign
import kinds
import programs


def targets(machine):
    """The targets for the value of --machine."""
    chosen = [programs.X86_64] if machine in ("x86_64", "all") else []
    if machine in ("aarch64", "all"):
        aarch64 = foreign.aarch64()
        if aarch64 is None:
            sys.exit("package: libelf-dev and zlib1g-dev for arm64 cannot be fetched: check the network and apt's sources")
        chosen.append(aarch64)
    return chosen


def write_sums(folder, made):
    """Writes the sums of the packages of this version, also of those that were made before for another machine."""
    version = programs.version()
    names = sorted({*map(os.path.basename, made),
                    *(name for name in os.listdir(folder) if name.startswith("onbeat") and version in name)})
    with open(os.path.join(folder, "SHA256SUMS"), "w", encoding="utf-8") as sums:
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                sums.write(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {name}\n")


def main():
    """Builds the programs and makes the packages; prints their paths."""
    parser = argparse.ArgumentParser(prog="./dev package", usage=__doc__, add_help=False)
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--machine", choices=("x86_64", "aarch64", "all"), default="x86_64")
    parser.add_argument("-o", "--output", default=os.path.join(programs.ROOT, "dist"))
    parser.add_argument("-h", "--help", action="store_true")
    args = parser.parse_args()
    if args.help or (unknown := [kind for kind in args.kinds if kind not in kinds.KINDS]):
        print(__doc__.strip(), file=sys.stdout if args.help else sys.stderr)
        return 0 if args.help else f"package: no package '{unknown[0]}'"
    os.makedirs(args.output, exist_ok=True)
    made = []
    for target in targets(args.machine):
        made += kinds.make(args.kinds or list(kinds.KINDS), target, args.output)
    write_sums(args.output, made)
    for path in dict.fromkeys(made):
        print(f"{path}  {os.path.getsize(path) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
