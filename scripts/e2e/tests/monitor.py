"""`onbeat monitor` on a running system: what others hear of a violation."""

import os
import shutil

from chain import Chain
from diagnostics import monitor
from registry import need, test

OK, ERROR, STALE = 0, 2, 3
REQUIREMENTS = """
callbacks:
  - {node: /stage_1, response: {max: 1ms}}
  - {node: /stage_1, response: {max: 10s, p50: 10s}}
  - {node: /nobody, response: {max: 1ms}}
"""


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
