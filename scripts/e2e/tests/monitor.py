"""`onbeat monitor` on a running system: faults, and what others hear of a violation."""

import os
import shutil
import subprocess
import sys

from chain import Chain
from diagnostics import monitor
from harness import ONBEAT, ROOT
from registry import SHAPERS, Mismatch, Skip, need, test

WATCH = os.path.join(ROOT, "scripts/watch")
FAULTS = 13
OK, ERROR, STALE = 0, 2, 3
REQUIREMENTS = """
callbacks:
  - {node: /stage_1, response: {max: 1ms}}
  - {node: /stage_1, response: {max: 10s, p50: 10s}}
  - {node: /nobody, response: {max: 1ms}}
"""


@test(group=SHAPERS)
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


@test
def monitor_publishes_each_requirement_with_its_evidence_on_diagnostics(harness):
    """A requirement that the demo chain violates, one that it keeps, and one of a node that never comes."""
    chain = Chain(harness, "monitor_diagnostics")
    requirements, incidents = harness.file("monitor.yaml"), harness.file("monitor.incidents")
    shutil.rmtree(incidents, ignore_errors=True)
    with open(requirements, "w", encoding="utf-8") as file:
        file.write(REQUIREMENTS)
    with monitor(chain) as heard:
        harness.onbeat("monitor", requirements, "--window", "10s", "--diagnostics", "--incidents", incidents,
                       "--after", "1s", "--", *chain.command(20), before=harness.privileged(), accept=(5,))
        statuses = heard()

    def about(requirement):
        return [s for s in statuses if s["name"].startswith(f"onbeat: {requirement}")]

    violated = [s for s in about("callbacks[0].response.max of /stage_1") if s["level"] == ERROR]
    need(violated, f"no violation among {len(statuses)} statuses: {statuses[-3:]}")
    need("and the limit is at most 1 ms" in violated[0]["message"], f"no figure and limit: {violated[0]}")
    saved = [s["values"] for s in violated if "incident directory" in s["values"]]
    need(saved and os.path.isdir(saved[-1]["incident directory"]), f"no saved incident: {violated[-1]}")
    need(any(s["level"] == OK for s in about("callbacks[1].response")), "no requirement holds")
    unknown = about("callbacks[2]")
    need(unknown and all(s["level"] == STALE for s in unknown), f"a node that never came is known: {unknown[:1]}")
    need("not known yet" in unknown[0]["message"], f"it is not said to be unknown: {unknown[0]}")
    need(statuses[-1]["message"] == "onbeat monitor has ended", f"the end is not published: {statuses[-1]}")
    harness.figures.append(f"{len(violated)} statuses with ERROR")
