"""Builds the programs and the library for C so that they run on older systems than this one.

zig's compiler links against an older glibc, and libelf and zlib become part of `onbeat`. Debian
package and archive have the same files; the wheel has one program with all commands.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CACHE = os.environ.get("ONBEAT_CACHE", os.path.expanduser("~/.cache/onbeat"))
TARGET_FOLDER = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
# The oldest glibc: Debian 10, Ubuntu 20.04, RHEL 8.
GLIBC = "2.28"
# Python packages: the compiler, its use by cargo, the check of wheels, and what builds wheels.
TOOLS = ("ziglang==0.17.1", "cargo-zigbuild==0.24.1", "auditwheel==6.8.2", "hatchling==1.28.0")
PROGRAMS = {"onbeat": "onbeat", "onbeat-link": "onbeat-link-cli", "onbeat-replay": "onbeat-replay-cli",
            "onbeat-store": "onbeat-store-cli", "onbeat-top": "onbeat-top-cli",
            "onbeat-monitor": "onbeat-monitor-cli"}
# The interface of the library for C changes with the second number of versions 0.x.
SO_NAME = "libonbeat_c.so.0"


@dataclass(frozen=True)
class Target:
    """A kind of machine that packages are made for, as each tool names it."""

    rust: str
    machine: str
    debian: str
    multiarch: str
    strip: str
    # The folder with libelf and zlib, None: those of this machine's system.
    libraries: str | None

    def built(self):
        """The folder with the programs and the library for C."""
        return os.path.join(TARGET_FOLDER, self.rust, "release")

    def whole(self):
        """The program with all commands, for the wheel."""
        return os.path.join(TARGET_FOLDER, "package/whole", self.machine, "onbeat")


X86_64 = Target("x86_64-unknown-linux-gnu", "x86_64", "amd64", "x86_64-linux-gnu", "strip", None)


def say(text):
    """A line about the progress."""
    print(f"-- {text}", file=sys.stderr, flush=True)


def version():
    """The version of the workspace."""
    with open(os.path.join(ROOT, "Cargo.toml"), encoding="utf-8") as file:
        return re.search(r'(?m)^version = "([^"]+)"', file.read())[1]


def source_date():
    """When the sources were changed last, as seconds: the date of every packaged file."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    said = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True)
    return int(said.stdout)


def tools():
    """The folder with the tools' programs; installs them if need be."""
    folder, wanted = os.path.join(CACHE, "package"), " ".join(TOOLS)
    stamp = os.path.join(folder, ".onbeat-packages")
    try:
        with open(stamp, encoding="utf-8") as file:
            is_there = file.read() == wanted
    except FileNotFoundError:
        is_there = False
    if not is_there:
        say(f"installing {wanted} into {folder}")
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        subprocess.run([os.path.join(folder, "bin/pip"), "install", "-q", "--disable-pip-version-check", *TOOLS],
                       check=True, stdout=sys.stderr)
        with open(stamp, "w", encoding="utf-8") as file:
            file.write(wanted)
    return os.path.join(folder, "bin")


def linked_libraries():
    """Gathers the static libraries that `onbeat` contains, and their headers, in a folder. Zig sees only these of the system's."""
    folder = os.path.join(TARGET_FOLDER, "package")
    include = os.path.join(folder, "include")
    os.makedirs(include, exist_ok=True)
    for name in ("libelf.a", "libz.a"):
        found = glob.glob(f"/usr/lib/x86_64-linux-gnu/{name}") + glob.glob(f"/usr/lib*/{name}")
        if not found:
            raise SystemExit(f"package: {name} is missing. Install libelf-dev and zlib1g-dev")
        shutil.copy(found[0], folder)
    for name in ("libelf.h", "gelf.h", "zlib.h", "zconf.h"):
        found = glob.glob(f"/usr/include/{name}") + glob.glob(f"/usr/include/x86_64-linux-gnu/{name}")
        if not found:
            raise SystemExit(f"package: {name} is missing. Install libelf-dev and zlib1g-dev")
        shutil.copy(found[0], include)
    return folder


def environment(libraries, target):
    """The environment of the build for a target. Files are named without the folders of this machine."""
    registry = os.path.join(os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo")), "registry/src")
    folders = {ROOT: "/onbeat", registry: "/registry"}
    return {**os.environ, "CARGO_TARGET_DIR": TARGET_FOLDER,
            "PATH": tools() + os.pathsep + os.environ["PATH"],
            "LIBBPF_SYS_LIBRARY_PATH": libraries,
            "LIBBPF_SYS_EXTRA_CFLAGS": "-I" + os.path.join(libraries, "include"),
            "RUSTFLAGS": " ".join(f"--remap-path-prefix={a}={b}" for a, b in folders.items()),
            f"CFLAGS_{target.rust.replace('-', '_')}": " ".join(f"-ffile-prefix-map={a}={b}" for a, b in folders.items())}


def build(target, with_whole):
    """Builds everything that is packaged, with the program with all commands if asked for."""
    common = ["--release", "--locked", "--target", f"{target.rust}.{GLIBC}"]
    env = environment(target.libraries or linked_libraries(), target)

    def cargo(*words):
        if subprocess.run(["cargo-zigbuild", *words], cwd=ROOT, env=env, check=False).returncode:
            raise SystemExit(f"package: the programs for {target.machine} could not be built")
    packages = [word for package in PROGRAMS.values() for word in ("-p", package)]
    if with_whole:
        # The libraries are built with the same features as for all programs. The build after it replaces `onbeat`.
        # In one unit, `onbeat` is compiled more slowly and becomes smaller.
        cargo("zigbuild", *common, "--config", "profile.release.package.onbeat.codegen-units=1", *packages,
              "--features", "onbeat/static,onbeat/whole")
        os.makedirs(os.path.dirname(target.whole()), exist_ok=True)
        shutil.copy(os.path.join(target.built(), "onbeat"), target.whole())
    cargo("zigbuild", *common, *packages, "--features", "onbeat/static")
    cargo("rustc", *common, "-p", "onbeat-c", "--crate-type", "cdylib,staticlib", "--",
          f"-Clink-arg=-Wl,-soname,{SO_NAME}")


def strip(target, source, to, *options):
    """Copies a program or library without what debuggers need."""
    os.makedirs(os.path.dirname(to), exist_ok=True)
    subprocess.run([target.strip, "--remove-section=.comment", *options, "-o", to, source], check=True)


def runs_here():
    """The folder with programs that run on this machine: those of the packages, else those of `./dev build`."""
    folders = [X86_64.built(), os.path.join(TARGET_FOLDER, "release")]
    found = next((folder for folder in folders if all(os.path.exists(os.path.join(folder, name)) for name in PROGRAMS)), None)
    if found is None:
        raise SystemExit("package: no programs run here: run ./dev build")
    return found
