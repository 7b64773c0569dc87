"""`onbeat monitor` on a running system: faults, and what others hear of a violation."""

import os
import re
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
CHAIN = """
chains:
  - {from: /stage_1, to: /stage_3, latency: {max: 10s}}
"""
# The chain has three stages of at least 2 ms, and a period of 50 ms.
SHORTEST_MS, LONGEST_MS = 4, 1000


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


@test
def monitor_publishes_the_latency_of_a_chain_as_a_number(harness):
    """Somebody who plots numbers sees the demo chain's latency, about once a second, in ms."""
    chain = Chain(harness, "monitor_values")
    requirements = harness.file("monitor_values.yaml")
    with open(requirements, "w", encoding="utf-8") as file:
        file.write(CHAIN)
    with monitor(chain, "values") as heard:
        harness.onbeat("monitor", requirements, "--window", "10s", "--diagnostics", "--latency-topics",
                       "--", *chain.command(15), before=harness.privileged())
        values = heard()
    topics = {one["topic"] for one in values}
    need(len(topics) == 1, f"one chain is required, and the topics are {topics}")
    topic = topics.pop()
    need(re.fullmatch("/onbeat/chain_[0-9a-f]{12}/latency_ms", topic), f"the topic is {topic}")
    need(all(one["types"] == ["std_msgs/msg/Float64"] for one in values), f"the types are {values[:1]}")
    latencies = [one["value"] for one in values]
    need(5 <= len(latencies) <= 40, f"{len(latencies)} values in 15 s")
    need(all(SHORTEST_MS <= ms <= LONGEST_MS for ms in latencies), f"the latencies are {latencies} ms")
    need(len(set(latencies)) > len(latencies) // 2, f"the values repeat: {latencies}")
    harness.figures.append(f"{len(latencies)} values, {min(latencies):.1f} to {max(latencies):.1f} ms")
