"""`onbeat monitor` beside a running application: a short run of `./dev check watch faults`."""

import os
import shutil
import subprocess
import sys

from harness import ONBEAT, ROOT
from registry import PLACES, Mismatch, Skip, test

WATCH = os.path.join(ROOT, "scripts/watch")
FAULTS = 13


@test(places=PLACES)
def monitor_goes_on_after_faults_and_leaves_nothing(harness):
    """A monitor survives one fault of each kind: what it saved is readable, and nothing is left behind."""
    if os.geteuid() != 0:
        raise Skip("a small disk and real-time priorities need root")
    if len(os.sched_getaffinity(0)) < 2:
        raise Skip("needs two CPUs: one is the application's")
    if not shutil.which("chattr"):
        raise Skip("chattr is needed to make a directory immutable")
    folder = harness.file(f"monitor-{os.getpid()}")
    os.makedirs(folder)
    done = subprocess.run([sys.executable, WATCH, "faults", "--count", str(FAULTS), "--without", "5", "--keep", folder],
                          capture_output=True, text=True, check=False, env=dict(os.environ, ONBEAT=ONBEAT))
    harness.figures += [line for line in done.stdout.splitlines() if "the monitor was started" in line]
    if done.returncode != 0:
        raise Mismatch(done.stdout + done.stderr)
