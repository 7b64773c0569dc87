"""The kinds of packages, and how they are made for a target."""

import archive
import debian
import programs
import wheel

KINDS = {"deb": debian.make, "wheel": wheel.make, "archive": archive.make}


def make(kinds, target, to):
    """Builds the programs for a target and makes packages of them in a folder; their paths."""
    programs.build(target, with_whole="wheel" in kinds)
    made = []
    for kind in kinds:
        programs.say(f"{kind} for {target.machine}")
        paths = KINDS[kind](target, to)
        made += [paths] if isinstance(paths, str) else paths
    return made
