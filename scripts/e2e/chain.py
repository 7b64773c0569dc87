"""The demo chain under plans, and a subscriber of its output that knows of none."""

import contextlib
import json
import os
import signal
import subprocess
import time

from harness import ROOT, load
from registry import Mismatch
from supervise import command

CHAIN = os.path.join(ROOT, "demos/chain")
PERIOD_MS = 50


def whole_chain(chains):
    """The id of the chain from the first stage to the last, or None."""
    return next((c["id"] for c in chains if c["callbacks"][0].startswith("/stage_1:")
                 and c["callbacks"][-1].startswith("/stage_3:")), None)


class Chain:
    """The demo chain of three stages, with a listener of its output outside."""

    def __init__(self, harness, name, *words):
        self.harness, self.name = harness, name
        self.python = harness.python("kilted")
        self.stage = harness.stage("kilted")
        self.words = words
        self.chain_id = None

    def command(self, seconds, *words):
        """The words that start it for so many seconds (0: until it is stopped)."""
        return [self.python, os.path.join(CHAIN, "run.py"), "chain", "--stage", self.stage,
                "--stages", "3", "--min", "2", "--max", "8", "--period", str(PERIOD_MS), "--cpu",
                "1", "--duration", str(seconds), *self.words, *words]

    def plan(self, *words):
        """Records and models it, once for all tests, and plans it; the plan's path."""
        path = self.harness.once("shape_chain", self.measure) + ".json"
        self.chain_id = whole_chain(load(path)["chains"])
        plan = self.harness.file(self.name + ".yaml")
        self.harness.onbeat("plan", path, "--chain", self.chain_id, "--cpu", "1", *words, "-o", plan)
        return plan

    def record(self, name):
        """Records it; at a real-time priority where possible, as under a plan, so that programs of
        others do not count as the chain's worst case."""
        words = ["--fifo", "10"] if os.geteuid() == 0 else []
        return self.harness.record(name, self.command(7, *words))

    def measure(self, name):
        """Records and models the chain; fails if the model does not have it whole, or if the
        machine was so busy that no plan fits into its period."""
        trace = self.record(name)
        chains = self.harness.model(name, trace)["chains"]
        whole = whole_chain(chains)
        if not whole:
            raise Mismatch(f"no chain from stage 1 to stage 3: {chains}")
        self.harness.onbeat("plan", self.harness.file(name + ".json"), "--chain", whole, "--cpu",
                            "1", "--strategy", "bands", "--bands", "1",
                            "-o", self.harness.file(name + ".yaml"))

    @contextlib.contextmanager
    def listener(self):
        """A subscriber of the chain's output that no plan mentions; yields a function that returns
        what it received: (arrival, latency) in seconds."""
        log = self.harness.file(self.name + ".heard.csv")
        process = subprocess.Popen([self.stage, "--name", "listener", "--in", "/t3", "--log", log])

        def heard():
            process.send_signal(signal.SIGTERM)
            process.wait(120)
            with open(log, encoding="utf-8") as file:
                rows = [tuple(map(int, line.split(","))) for line in file]
            return [(at / 1e9, (at - start) / 1e9) for _, start, at in rows]

        try:
            yield heard
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def middle(values, share=0.8):
    """Half of the range that the middle of the values takes."""
    values = sorted(values)
    cut = int(len(values) * (1 - share) / 2)
    return (values[-1 - cut] - values[cut]) / 2


def shaped(chain, plan, seconds, *words, accept=(0, 5)):
    """Shapes the chain; onbeat's report."""
    report = chain.harness.onbeat("shape", plan, "--verify", f"{seconds}s", "--json", *words, "--",
                                  *chain.command(0), before=chain.harness.privileged(),
                                  accept=accept)
    return json.loads(report)


def figure(report, name):
    """One figure of onbeat's report."""
    found = [f["measured"] for f in report["figures"] if f["name"] == name]
    if not found:
        raise Mismatch(f"no figure '{name}' in {report['figures']}")
    return found[0]


def check_drops(chain, *words):
    """Shapes a chain that overruns now and then, with --overshoot drop."""
    plan = chain.plan("--strategy", "bands", "--bands", "1", "--overshoot", "drop")
    # Stage 3 takes 2 to 8 ms: these overruns end when the next output usually comes.
    chain.words = ("--over", str(PERIOD_MS + 5), "--over-every", "20")
    report = shaped(chain, plan, 8, *words)
    dropped = figure(report, "discarded outputs")
    # Each overrun and perhaps the execution behind it, and one in twenty of the 160 cycles on a machine that others
    # use too: the plan was made from a recording of 7 s.
    if not 6 <= dropped <= 24:
        raise Mismatch(f"8 overruns were made, {dropped} outputs discarded: {report}")
    # Lineage gives the cycle of each output.
    for name in ("outputs whose cycle was inferred from arrival", "outputs that lineage and recording put into different cycles"):
        found = [f["measured"] for f in report["figures"] if f["name"] == name]
        if any(found):
            raise Mismatch(f"{name}: {found}")
    known, executions = figure(report, "outputs whose cycle is known from lineage"), figure(report, "executions")
    if known < executions * 0.9 or executions < 60:
        raise Mismatch(f"of {executions} outputs {known} brought their cycle: {report['figures']}")
    blamed = [n for n in report["notes"] if "stage_3:" in n]
    if not blamed:
        raise Mismatch(f"nobody blames stage 3: {report['notes']}")


def plan_of_events(harness, chain):
    """Records a chain that starts with events, and plans it; the plan's path."""
    name = chain.name
    trace = chain.record(name)
    thread_id = harness.model(name + "_whole", trace)["chains"][0]["id"]
    whole = ["plan", harness.file(name + "_whole.json"), "--chain", thread_id, "--throttle",
             "/t1@/sensor", "-o", harness.file(name + "_whole.yaml")]
    try:
        harness.onbeat(*whole)
    except Mismatch as refused:
        if "--input /t1" not in str(refused):
            raise
    else:
        raise Mismatch("a chain that begins with a thread of a sensor is planned")
    # The plan does not shape the sensor's work before its event.
    chains = harness.model(name, trace, "--input", "/t1")["chains"]
    chain_id = next((c["id"] for c in chains if c["callbacks"][0].startswith("/stage_2:")), None)
    if not chain_id:
        raise Mismatch(f"no chain begins with stage 2: {[c['callbacks'] for c in chains]}")
    plan = harness.file(name + ".yaml")
    harness.onbeat("plan", harness.file(name + ".json"), "--chain", chain_id, "--cpu", "1",
                   "--throttle", "/t1@/sensor", "--cycle", str(PERIOD_MS), "-o", plan)
    return plan


def check_events(harness, name, *words):
    """Shapes a chain that starts with events at any time, one in each cycle; onbeat's report."""
    chain = Chain(harness, name, "--events", "30", "--min", "2", "--max", "6")
    plan = plan_of_events(harness, chain)
    with chain.listener() as heard:
        report = shaped(chain, plan, 8, *words)
        heard = heard()
    end = max(at for at, _ in heard)
    times = [at for at, _ in heard if end - 6 < at < end - 0.5]
    if abs(len(times) * PERIOD_MS / 1e3 - 5.5) > 0.5:
        raise Mismatch(f"{len(times)} outputs in 5.5 s, not one in {PERIOD_MS} ms")
    steps = [(b - a) * 1e3 for a, b in zip(times, times[1:])]
    harness.figures.append(f"distance of outputs {PERIOD_MS} ± {middle(steps):.3f} ms, of events 15 to 45 ms")
    if middle(steps) > 1 or figure(report, "outputs inside a slot") < 95:
        raise Mismatch(f"outputs do not come once per cycle: {report['figures']}")
    return report


def wait_until_settled(pid, stages=3):
    """Waits until so many stages run below a process and have had the same threads for two seconds."""
    known, since = None, time.monotonic()

    def settled():
        nonlocal known, since
        now = set(threads_of(pid))
        if now != known or len(below(pid, "stage --name")) < stages:
            known, since = now, time.monotonic()
        return time.monotonic() - since > 2

    wait_until("all stages run", settled)


def threads_of(pid):
    """Policy, affinity and freezer group of all threads below a process."""
    found = {}
    for process in tree(pid):
        tids = []
        with contextlib.suppress(OSError):  # it has ended meanwhile
            tids = os.listdir(f"/proc/{process}/task")
        for tid in tids:
            with contextlib.suppress(OSError):
                with open(f"/proc/{process}/task/{tid}/cgroup", encoding="utf-8") as file:
                    groups = file.read()
                with open(f"/proc/{process}/task/{tid}/comm", encoding="utf-8") as file:
                    name = file.read().strip()
                found[int(tid)] = (name, os.sched_getscheduler(int(tid)),
                                   tuple(sorted(os.sched_getaffinity(int(tid)))),
                                   "onbeat" in groups)
    return found


def tree(pid):
    """A process and all its descendants."""
    found = [pid]
    with contextlib.suppress(OSError):
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/children", encoding="utf-8") as file:
                for child in file.read().split():
                    found += tree(int(child))
    return found


def below(pid, text):
    """Ids of processes below one whose command line has this text."""
    return [p for p in tree(pid) if text in (command(p) or "")]


def is_gated(pid):
    """Whether a thread below a process is in a server's group."""
    return any(t[3] for t in threads_of(pid).values())


def wait_until(what, reached, seconds=120):
    """Waits until reached() is true."""
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > deadline:
            raise Mismatch(f"not reached within {seconds} s: {what}")
        time.sleep(0.2)
