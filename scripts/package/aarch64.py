"""Makes the packages for aarch64, and compares the models that the packed programs make of the recorded traces with those of
this machine's `onbeat`.

usage: ./dev check aarch64

The programs for aarch64 run under qemu-user. Models and lists of executions must be equal byte for byte. The last line is
`N passed, N failed, N skipped`.
"""

import filecmp
import glob
import os
import subprocess
import sys
import tempfile
import zipfile

import foreign
import kinds
import programs


def said(command, words):
    """What a command writes to its standard output."""
    done = subprocess.run([*command, *words], cwd=programs.ROOT, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"aarch64: exit code {done.returncode} of {' '.join([*command, *words])}: {done.stderr.decode()}")
    return done.stdout


def unpack(paths, to):
    """Unpacks the packages; the folders with the programs of the Debian package, the wheel and the archive."""
    deb, wheel, archive = (next(path for path in paths if path.endswith(ending)) for ending in (".deb", ".whl", ".tar.gz"))
    subprocess.run(["dpkg-deb", "-x", deb, os.path.join(to, "deb")], check=True)
    subprocess.run(["tar", "xzf", archive, "--one-top-level=" + os.path.join(to, "archive"), "--strip-components=1"], check=True)
    with zipfile.ZipFile(wheel) as file:
        file.extractall(os.path.join(to, "wheel"))
    scripts = glob.glob(os.path.join(to, "wheel/*.data/scripts"))[0]
    os.chmod(os.path.join(scripts, "onbeat"), 0o755)
    return os.path.join(to, "deb/usr/bin"), scripts, os.path.join(to, "archive/bin")


def compared(command):
    """For each recorded trace: what was asked, and whether the answer is that of this machine's command."""
    here = [os.path.join(programs.runs_here(), "onbeat")]
    for manifest in sorted(glob.glob(os.path.join(programs.ROOT, "demos/recorded/*/manifest.json"))):
        trace = os.path.relpath(os.path.dirname(manifest), programs.ROOT)
        for words in (["model", trace, "-o", "-"], ["export", trace, "--to", "executions"]):
            one, other = said(here, words), said(command, words)
            yield f"onbeat {' '.join(words)}: {len(one)} and {len(other)} bytes", bool(one) and one == other


def checks(folders, run):
    """Each check of the unpacked packages, with its result. `run` precedes a program."""
    deb, wheel, archive = folders
    version = f" {programs.version()}".encode()
    for name in programs.PROGRAMS:
        yield f"archive: {name} --version", version in said([*run, os.path.join(archive, name)], ["--version"])
        yield f"deb: {name} is the archive's", filecmp.cmp(os.path.join(deb, name), os.path.join(archive, name), shallow=False)
    for kind, folder in (("archive", archive), ("wheel", wheel)):
        for asked, is_equal in compared([*run, os.path.join(folder, "onbeat")]):
            yield f"{kind}: {asked}", is_equal
    help_text = said([*run, os.path.join(wheel, "onbeat")], ["replay", "--help"])
    yield "wheel: onbeat replay --help", b"Usage: onbeat replay" in help_text


def main():
    """Makes the packages and checks what is in them."""
    qemu = foreign.emulator()
    target = foreign.aarch64() if qemu else None
    root = foreign.system() if target else None
    if root is None:
        print("SKIPPED packages for aarch64: qemu-user-static, libelf-dev, zlib1g-dev or libc6 cannot be fetched\n"
              "0 passed, 0 failed, 1 skipped")
        return 0
    failed = passed = 0
    with tempfile.TemporaryDirectory() as folder:
        paths = kinds.make(list(kinds.KINDS), target, folder)
        # The source distribution does not depend on the machine.
        folders = unpack([path for path in paths if target.machine in path or target.debian in path], folder)
        for text, is_right in checks(folders, [qemu, "-L", root]):
            passed, failed = passed + is_right, failed + (not is_right)
            print(f"{'ok    ' if is_right else 'FAILED'} {text}", flush=True)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
