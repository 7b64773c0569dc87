"""Collects the licences of all libraries that the programs contain."""

import glob
import json
import os
import subprocess

import programs

# The program's parts that no crate names: built from libraries of the system.
SYSTEM = {"elfutils (libelf)": "/usr/share/doc/libelf-dev/copyright", "zlib": "/usr/share/doc/zlib1g-dev/copyright"}
NAMES = ("LICENSE*", "LICENCE*", "COPYING*", "COPYRIGHT*", "NOTICE*", "license*", "UNLICENSE*")


def crates():
    """The crates that the packaged programs contain, as cargo describes them."""
    said = subprocess.run(["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", programs.X86_64.rust],
                          cwd=programs.ROOT, capture_output=True, text=True, check=True)
    told = json.loads(said.stdout)
    packages = {package["id"]: package for package in told["packages"]}
    needs = {node["id"]: [dep["pkg"] for dep in node["deps"]
                          if any(kind["kind"] is None for kind in dep["dep_kinds"])] for node in told["resolve"]["nodes"]}
    wanted = {*programs.PROGRAMS.values(), "onbeat-c"}
    waiting = [id for id, package in packages.items() if package["name"] in wanted]
    seen = set(waiting)
    while waiting:
        for id in needs[waiting.pop()]:
            if id not in seen:
                seen.add(id)
                waiting.append(id)
    return sorted((packages[id] for id in seen if packages[id]["source"]), key=lambda each: (each["name"], each["version"]))


def texts(folder):
    """The texts of the licences in a crate's folder."""
    for path in sorted({path for name in NAMES for path in glob.glob(os.path.join(folder, name))}):
        if os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                yield file.read().strip()


def whole():
    """One text: every library with its licence, then each licence's text once, with the libraries that have it."""
    found, by_text, table = crates(), {}, []
    for crate in found:
        name = f"{crate['name']} {crate['version']}"
        table.append(f"{name}: {crate['license'] or 'see its text'}")
        for text in texts(os.path.dirname(crate["manifest_path"])):
            by_text.setdefault(text, []).append(name)
    for name, path in SYSTEM.items():
        table.append(f"{name}: see its text")
        with open(path, encoding="utf-8") as file:
            by_text.setdefault(file.read().strip(), []).append(name)
    parts = ["Libraries that the programs and the library of onbeat contain, with their licences.\n", *table]
    for text, names in by_text.items():
        parts.append("\n" + "=" * 80 + "\n" + ", ".join(names) + "\n" + "-" * 80 + "\n" + text)
    return "\n".join(parts) + "\n"
