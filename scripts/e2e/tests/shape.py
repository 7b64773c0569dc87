"""Shaping: real chains under plans, observed by a subscriber that knows of none."""

import csv
import os
import shutil
import subprocess
import time

from chain import PERIOD_MS, Chain, check_drops, check_events, figure, middle, shaped, wait_until
from diagnostics import check_told, monitor
from harness import ONBEAT
from registry import SHAPERS, Mismatch, test
from service import Service, samples


@test(group=SHAPERS)
def shape_with_one_band_removes_the_jitter_of_a_chain(harness):
    """A subscriber outside the plan sees the outputs of a chain in one band without jitter."""
    chain = Chain(harness, "shape_one_band")
    plan = chain.plan("--strategy", "bands", "--bands", "1")
    begin = time.monotonic()
    with chain.listener() as heard:
        report = shaped(chain, plan, 8)
        heard = heard()
    # Until shaping begins the chain runs as it likes: what came in the first and last seconds of
    # the application tells nothing.
    end = max(at for at, _ in heard)
    shaped_latency = [latency for at, latency in heard if end - 6 < at < end - 0.5]
    free = [latency for at, latency in heard if at < begin + 3]
    if len(shaped_latency) < 60:
        raise Mismatch(f"the listener heard {len(shaped_latency)} outputs in 5.5 s")
    harness.figures.append(f"jitter {middle(shaped_latency) * 1e3:.3f} ms")
    if len(free) > 5:
        harness.figures.append(f"before {middle(free) * 1e3:.3f} ms")
    # The stages take 2 to 8 ms each: their sum's middle four fifths span at least 5 ms.
    if middle(shaped_latency) > 1e-3:
        raise Mismatch(f"the listener still sees jitter; onbeat says {report['figures']}")
    if figure(report, "outputs inside a slot") < 95:
        raise Mismatch(f"outputs outside their slot: {report['figures']}")
    # The same executions: when their outputs were ready, and in how many cycles there was one.
    if figure(report, "unshaped: jitter, p0.5 to p99.5") < 1:
        raise Mismatch(f"the chain's own jitter is not seen: {report['figures']}")
    if figure(report, "cycles with an output") < 95:
        raise Mismatch(f"cycles without an output: {report['figures']}")
    servers = {t["server"] for t in report["threads"]}
    if not {"gamma", "middleware"} <= servers:
        raise Mismatch(f"threads were put into {servers} only")


def operated(harness, chain, plan, others):
    """Three bands as a service: its status while it runs, a plan that is refused, one band from then on.

    A monitor in the application's domain hears it meanwhile.
    """
    with monitor(chain) as heard:
        service_operated(harness, chain, plan, others)
        # It was sent before the session ended; a monitor on a slow machine reads it later.
        wait_until("the monitor hears of the end", lambda: any(
            s["values"].get("state") == "stopped" for s in heard()))
        check_told(heard(), chain)


def service_operated(harness, chain, plan, others):
    """The same without the monitor."""
    service = Service(chain, plan, 9, "--diagnostics")
    try:
        status = service.wait_for("40 executions", lambda s: s["counts"]["executions"] >= 40)
        figures = samples(service.ask("shape", "--status", "--prometheus", "--pid", str(status["pid"])))
        if figures["onbeat_executions_total"] < status["counts"]["executions"]:
            raise Mismatch(f"Prometheus hears of other executions than the status: {figures}")
        if figures['onbeat_state{state="shaping"}'] != 1 or not any(
                thread for server in status["servers"] for thread in server["threads"]):
            raise Mismatch(f"the session shapes nothing: {status}")
        refused = service.reload(plan, others["let"], accept=(1,))
        if refused:
            raise Mismatch(f"a plan of another design was taken: {refused}")
        taken = service.reload(plan, others["one"])
        if "Plan 2 (bands) is in force now" not in taken:
            raise Mismatch(f"one band was not taken: {taken}")
        report = service.end()
    finally:
        service.kill()
    for word in ("READY=1", "STOPPING=1"):
        if word not in service.manager.said:
            raise Mismatch(f"the service manager heard no {word}: {service.manager.said[:3]}")
    (before,) = report["earlier_plans"]
    harness.figures.append(f"{before['executions']} executions in three bands")
    for found, bands in ((before, 3), (report, 1)):
        if figure(found, "executions") < 20 or figure(found, "outputs inside a slot") < 90:
            raise Mismatch(f"outputs outside their {bands} slots: {found['figures']}")
        jitters = [f for f in found["figures"] if f["name"].startswith("jitter, band")]
        if len(jitters) > bands:
            raise Mismatch(f"more than {bands} bands: {found['figures']}")


@test(group=SHAPERS)
def shape_keeps_bands_and_logical_execution_time(harness):
    """A chain keeps three bands, then one band without a new start, and logical execution time."""
    chain = Chain(harness, "shape_bands")
    others = {}
    for name, words in (("one", ("bands", "--bands", "1")), ("let", ("let-per-callback",))):
        others[name] = harness.file(f"shape_{name}.yaml")
        shutil.copy(chain.plan("--strategy", *words), others[name])
    plan = chain.plan("--strategy", "bands", "--bands", "3")
    operated(harness, chain, plan, others)
    plan = chain.plan("--strategy", "let-per-callback")
    report = shaped(chain, plan, 6)
    average = figure(report, "average")
    # Three callbacks of one period each.
    if abs(average - 3 * PERIOD_MS) > 5:
        raise Mismatch(f"three callbacks took {average} ms: {report['figures']}")


@test(group=SHAPERS)
def shape_drops_and_counts_an_output_beyond_its_slots(harness):
    """An output that comes too late is dropped and counted, even if it comes when the next one is due."""
    check_drops(Chain(harness, "shape_overshoot"))


@test(group=SHAPERS)
def shape_raises_the_last_band_under_a_grown_load(harness):
    """The load has grown since the plan was made: the last band moves up, and outputs are in time."""
    chain = Chain(harness, "shape_follow")
    plan = chain.plan("--strategy", "bands", "--bands", "3", "--room", "14")
    with open(plan, encoding="utf-8") as file:
        last = max(float(line.split("[")[1].split(",")[0]) for line in file if "latency_ms: [" in line)
    # The stages take 15 ms on average, and now as long as the last band, whatever was measured, and 3 more.
    chain.words = ("--step", f"{last - 12:.1f}")
    samples = harness.file("shape_follow.csv")
    report = shaped(chain, plan, 12, "--adapt", "--samples", samples)
    bands = report["adapted"]["bands"]
    begins = [band["slots_ns"][-1][0] / 1e6 for band in bands]
    if not {"missed", "near_miss"} & {band["reason"] for band in bands[1:]} or max(begins) <= begins[0]:
        raise Mismatch(f"the last band was not raised: {bands}; {report['figures']}")
    with open(samples, encoding="utf-8") as file:
        late = [row["late"] == "1" for row in csv.DictReader(file)]
    harness.figures.append(f"last band at {begins[0]:.1f}, then {max(begins):.1f} ms; {sum(late)} of {len(late)} late")
    # The first ones are late until they are known.
    rest = late[len(late) // 2:]
    if sum(rest) > len(rest) / 5:
        raise Mismatch(f"{sum(rest)} of the last {len(rest)} outputs are late: {bands}")


@test(group=SHAPERS)
def shape_lets_one_message_into_each_cycle(harness):
    """A chain starts with events at any time: each cycle gets one event, and its output leaves on time."""
    check_events(harness, "shape_throttles")


@test(group=SHAPERS)
def shape_without_root_or_application_fails_in_one_line_and_changes_nothing(harness):
    """Without root, or without the application, shape prints one line and changes nothing."""
    chain = Chain(harness, "shape_refuses")
    plan = chain.plan("--strategy", "bands", "--bands", "1")
    if os.geteuid() == 0:
        # cap_sys_nice is not among what is left.
        process = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534",
                                  "--clear-groups", ONBEAT, "shape", "/dev/stdin"],
                                 stdin=open(plan, encoding="utf-8"), capture_output=True,
                                 text=True, check=False, timeout=60)
        if process.returncode != 4 or len(process.stderr.strip().splitlines()) != 1:
            raise Mismatch(f"without privilege: {process.returncode}: {process.stderr}")
    process = subprocess.run([*harness.privileged(), ONBEAT, "shape", plan, "--find", "2s"],
                             capture_output=True, text=True, check=False, timeout=60)
    lines = process.stderr.strip().splitlines()
    if process.returncode != 1 or "did not run within 2 s" not in lines[-1]:
        raise Mismatch(f"without the application: {process.returncode}: {process.stderr}")
