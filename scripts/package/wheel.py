"""Makes the Python wheel for every Linux with a glibc that is new enough, and the source distribution."""

import glob
import os
import re
import subprocess
import tempfile

import programs

MANYLINUX = f"manylinux_{programs.GLIBC.replace('.', '_')}"


def glibc_of(path):
    """The newest version of glibc that a file asks for."""
    said = subprocess.run(["readelf", "--dyn-syms", "-W", path], capture_output=True, text=True, check=True).stdout
    found = [tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([0-9.]+)", said)]
    return max(found, default=(0, 0))


def check_glibc(target):
    """Fails if the program needs a newer glibc than the tag says, or a library that it preloads does:
    they are inside of the program, where auditwheel does not see them."""
    libraries = [max(glob.glob(os.path.join(target.built(), "build", name)), key=os.path.getmtime)
                 for name in ("onbeat-record-*/out/libonbeat_preload.so", "onbeat-ros-*/out/libonbeat_hold.so")]
    allowed = tuple(map(int, programs.GLIBC.split(".")))
    for path in (target.whole(), *libraries):
        if (needed := glibc_of(path)) > allowed:
            raise SystemExit(f"package: {path} needs glibc {'.'.join(map(str, needed))}, newer than {programs.GLIBC}")


def hatchling(to, kind, env):
    """Runs the build backend; the path of what it made."""
    said = subprocess.run([os.path.join(programs.tools(), "hatchling"), "build", "-t", kind, "-d", to],
                          cwd=os.path.join(programs.ROOT, "python"), env=env, capture_output=True, text=True, check=False)
    if said.returncode:
        raise SystemExit(f"package: the {kind} could not be built: {(said.stdout + said.stderr).strip()}")
    return os.path.join(to, (said.stdout.strip() or said.stderr.strip()).splitlines()[-1])


def make(target, to):
    """Makes the wheel and the source distribution in a folder; their paths."""
    check_glibc(target)
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(programs.source_date())}
    with tempfile.TemporaryDirectory() as scratch:
        programs.strip(target, target.whole(), os.path.join(scratch, "onbeat"))
        wheel = hatchling(to, "wheel", {**env, "ONBEAT_WHEEL_PROGRAMS": scratch, "ONBEAT_WHEEL_TAG": f"{MANYLINUX}_{target.machine}"})
    # The same zip file in a smaller form: hatchling packs less tightly.
    subprocess.run(["advzip", "-z", "-2", "-q", wheel], check=True)
    audit(wheel, target)
    return wheel, hatchling(to, "sdist", env)


def audit(wheel, target):
    """Fails if auditwheel finds that the wheel needs a newer system than its tag says."""
    tools = programs.tools()
    said = subprocess.run([os.path.join(tools, "auditwheel"), "show", wheel], capture_output=True, text=True, check=False,
                          env={**os.environ, "PATH": tools + os.pathsep + os.environ["PATH"]})
    found = re.search(rf'platform tag:\s+"manylinux_(\d+)_(\d+)_{target.machine}"', said.stdout)
    allowed = tuple(map(int, programs.GLIBC.split(".")))
    if not found or (int(found[1]), int(found[2])) > allowed:
        raise SystemExit(f"package: auditwheel does not confirm {MANYLINUX}_{target.machine}: {said.stdout}{said.stderr}")
    programs.say(f"auditwheel: {found[0]}")
