"""Builds `onbeat` for aarch64, and compares its models of the recorded traces with those of this machine's `onbeat`.

usage: ./dev check aarch64

The program for aarch64 runs under qemu-user. Models and lists of executions must be equal byte for byte. The last line is
`N passed, N failed, N skipped`.
"""

import glob
import os
import shutil
import subprocess
import sys
import tempfile

import programs

TARGET = "aarch64-unknown-linux-gnu"
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


def built(libraries):
    """Builds the command for aarch64; its path."""
    subprocess.run(["rustup", "-q", "target", "add", TARGET], check=True)
    words = ["zigbuild", "--release", "--locked", "--target", f"{TARGET}.{programs.GLIBC}", "-p", "onbeat", "--features", "onbeat/static"]
    if subprocess.run(["cargo-zigbuild", *words], cwd=programs.ROOT, env=programs.environment(libraries, TARGET),
                      check=False).returncode:
        raise SystemExit("aarch64: the command could not be built")
    return os.path.join(programs.TARGET_FOLDER, TARGET, "release/onbeat")


def own():
    """This machine's command: that of the packages, else that of `./dev build`."""
    paths = [os.path.join(programs.TARGET_FOLDER, folder, "release/onbeat") for folder in (programs.TARGET, "")]
    found = next((path for path in paths if os.path.exists(path)), None)
    if found is None:
        raise SystemExit("aarch64: there is no onbeat to compare with: run ./dev build")
    return found


def said(command, words):
    """What a command writes to its standard output."""
    done = subprocess.run([*command, *words], cwd=programs.ROOT, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"aarch64: exit code {done.returncode} of {' '.join([*command, *words])}: {done.stderr.decode()}")
    return done.stdout


def main():
    """Compares each recorded trace."""
    qemu = emulator()
    libraries = linked_libraries() if qemu else None
    root = system() if libraries else None
    if root is None:
        print("SKIPPED models on aarch64: qemu-user-static, libelf-dev, zlib1g-dev or libc6 cannot be fetched\n"
              "0 passed, 0 failed, 1 skipped")
        return 0
    here, there = [own()], [qemu, "-L", root, built(libraries)]
    failed = passed = 0
    for manifest in sorted(glob.glob(os.path.join(programs.ROOT, "demos/recorded/*/manifest.json"))):
        trace = os.path.relpath(os.path.dirname(manifest), programs.ROOT)
        for words in (["model", trace, "-o", "-"], ["export", trace, "--to", "executions"]):
            one, other = said(here, words), said(there, words)
            is_equal = one == other and one
            passed, failed = passed + bool(is_equal), failed + (not is_equal)
            print(f"{'ok    ' if is_equal else 'FAILED'} onbeat {' '.join(words)}: {len(one)} and {len(other)} bytes")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
