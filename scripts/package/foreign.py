"""Fetches what building and running programs for aarch64 needs on this machine: libraries and qemu-user."""

import glob
import os
import shutil
import subprocess
import sys
import tempfile

import programs

FOLDER = os.path.join(programs.CACHE, "aarch64")
EMULATORS = ("qemu-aarch64", "qemu-aarch64-static")
# The machine's own source of packages.
SOURCES = "/etc/apt/sources.list.d/debian.sources"


def unpacked(packages, architecture, to):
    """Unpacks Debian packages of an architecture without installing them; False if they cannot be fetched."""
    state = os.path.join(FOLDER, "apt-" + architecture)
    for folder in ("state/lists/partial", "cache/archives/partial"):
        os.makedirs(os.path.join(state, folder), exist_ok=True)
    if not os.path.exists(SOURCES):
        return False
    apt = ["apt-get", "-qq", *(word for option in (
        f"Dir::State={state}/state", f"Dir::Cache={state}/cache", "Dir::State::status=/dev/null", f"Dir::Etc::SourceList={SOURCES}",
        "Dir::Etc::SourceParts=/dev/null", f"APT::Architecture={architecture}", f"APT::Architectures={architecture}",
        "APT::Sandbox::User=root") for word in ("-o", option))]
    with tempfile.TemporaryDirectory() as folder:
        for words in (["update"], ["download", *packages]):
            if subprocess.run([*apt, *words], cwd=folder, stdout=sys.stderr, check=False).returncode:
                return False
        for package in glob.glob(os.path.join(folder, "*.deb")):
            subprocess.run(["dpkg-deb", "-x", package, to], check=True)
    return True


def system():
    """The folder with the C library for aarch64, which the command needs at run time; None if it cannot be fetched."""
    folder = os.path.join(FOLDER, "system")
    linker = os.path.join(folder, "lib/ld-linux-aarch64.so.1")
    if not os.path.lexists(linker) and not unpacked(["libc6"], "arm64", folder):
        return None
    return folder


def linked_libraries():
    """The folder with the static libraries for aarch64 and their headers, or None if they cannot be fetched."""
    folder = os.path.join(FOLDER, "libraries")
    if os.path.exists(os.path.join(folder, "libz.a")):
        return folder
    with tempfile.TemporaryDirectory() as root:
        if not unpacked(["libelf-dev", "zlib1g-dev"], "arm64", root):
            return None
        os.makedirs(os.path.join(folder, "include"), exist_ok=True)
        for name in ("libelf.h", "gelf.h", "zlib.h", "zconf.h"):
            found = glob.glob(os.path.join(root, "usr/include/**", name), recursive=True)
            shutil.copy(found[0], os.path.join(folder, "include"))
        for name in ("libelf.a", "libz.a"):
            shutil.copy(os.path.join(root, "usr/lib/aarch64-linux-gnu", name), folder)
    return folder


def emulator():
    """The path of qemu-user for aarch64, or None if it cannot be fetched."""
    folder = os.path.join(FOLDER, "qemu")
    places = [shutil.which(name) for name in EMULATORS] + [os.path.join(folder, "usr/bin", name) for name in EMULATORS]
    for again in (False, True):
        if found := next((path for path in places if path and os.access(path, os.X_OK)), None):
            return found
        if again or not unpacked(["qemu-user-static"], "amd64", folder):
            return None
    return None


def aarch64():
    """The target aarch64, ready to be built for, or None if the libraries cannot be fetched."""
    libraries = linked_libraries()
    if libraries is None:
        return None
    target = programs.Target("aarch64-unknown-linux-gnu", "aarch64", "arm64", "aarch64-linux-gnu", "llvm-strip", libraries)
    subprocess.run(["rustup", "-q", "target", "add", target.rust], check=True)
    return target
