"""`onbeat why` on shaped applications: outputs that missed their slot, and outputs that the shaper discarded."""

import contextlib
import csv
import json
import os
import signal
import subprocess
import time

from chain import Chain, threads_of, wait_until
from harness import ONBEAT
from registry import SHAPERS, Mismatch, expect, test

SECONDS = 9
# Each overrun ends after the output's slot, and before the next cycle.
OVERRUN_MS = 30
# Longer than a cycle: the output misses the next slot, too.
LONG_MS = 55
EVERY = 30
OUTPUT = "/t3"
EDGE_NS = 300_000_000


def is_shaped(pid):
    """Whether a stage of the chain has its real-time priority."""
    return any(name == "stage" and policy & ~os.SCHED_RESET_ON_FORK in (os.SCHED_FIFO, os.SCHED_RR)
               for name, policy, _, _ in threads_of(pid).values())


def rows(path):
    """The lines of a log of the chain: (number, start, end) in ns."""
    with open(path, encoding="utf-8") as file:
        return [tuple(map(int, row)) for row in csv.reader(file) if len(row) == 3]


class Shaped:
    """A shaped chain with overruns, recorded while it is shaped, with the programs' own logs."""

    def __init__(self, harness, place, overrun_ms, *policy):
        name = f"why_shaped_{place}{'_'.join(('', *policy)).replace('--', '')}"
        self.chain = chain = Chain(harness, name)
        plan = chain.plan("--strategy", "bands", "--bands", "1", *policy)
        published = harness.new_file(name + ".published.csv")
        chain.words = ("--over", str(overrun_ms), "--over-every", str(EVERY), "--log", published)
        with chain.listener() as heard:
            with self.running(plan, place), harness.recording(name) as self.trace:
                time.sleep(SECONDS)
            # The listener writes the rest of its log when it ends.
            heard()
        # The stages' own clocks: when the last one published each item, and when the listener got it.
        self.published = {start: at for _, start, at in rows(published)}
        self.heard = {start: at for _, start, at in rows(harness.file(name + ".heard.csv"))}

    @contextlib.contextmanager
    def running(self, plan, place):
        """Shapes the chain."""
        process = subprocess.Popen([*self.chain.harness.privileged(), ONBEAT, "shape", plan, "--hold", place, "--",
                                    *self.chain.command(0)], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            wait_until("it is shaped", lambda: is_shaped(process.pid) or process.poll() is not None, 60)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def why(self, *words):
        """What `onbeat why` says about the recording."""
        return json.loads(self.chain.harness.onbeat("why", self.trace, "--json", *words))

    def to_listener(self):
        """The id of the chain from the first stage to the listener."""
        chains = self.chain.harness.model(self.chain.name + ".why", self.trace)["chains"]
        ends = [c["id"] for c in chains if c["callbacks"][0].startswith("/stage_1:")
                and c["callbacks"][-1].startswith("/listener:")]
        if len(ends) != 1:
            raise Mismatch(f"no chain from the first stage to the listener: {[c['callbacks'] for c in chains]}")
        return ends[0]

    def own(self, start_ns):
        """The item whose chain began in an execution of the first stage: its own time of start, or None."""
        after = [start for start in self.heard if start_ns <= start <= start_ns + 20_000_000]
        return min(after, default=None)


def check_slots(shaped):
    """Returns what is wrong about outputs that missed their slot, and the share of their wait that was found."""
    found = shaped.why("--chain", shaped.to_listener(), "--all")
    wrong, shares = [], []
    for execution in found["executions"]:
        start = shaped.own(execution["start_ns"])
        if start is None or shaped.published[start] - start < OVERRUN_MS * 1_000_000:
            continue
        waited = shaped.heard[start] - shaped.published[start]
        held = sum(s["ns"] for s in execution["stretches"] if s["kind"] == "held")
        shares.append(held / waited)
        if not execution["late"]:
            wrong.append(f"an overrun at {start} is not late")
    shares.sort()
    if len(shares) < SECONDS * 20 // EVERY // 2:
        return [f"only {len(shares)} overruns"], 0
    causes = [(f["kind"], f["place"]) for f in found["comparison"]["findings"][:2]]
    listener = found["executions"][0]["stretches"][-1]["place"]
    if sorted(c[0] for c in causes) != ["held", "runs"] or ("held", listener) not in causes:
        wrong.append(f"the first causes are {causes}")
    middle = shares[len(shares) // 2]
    if middle < 0.95:
        wrong.append(f"of the wait of late outputs, {middle * 100:.1f} % are the shaper's: {shares}")
    return wrong, middle


def on_both(check):
    """Makes a test for each place where the shaper can hold outputs back."""
    for place in ("inside", "outside"):
        def run(harness, place=place):
            check(harness, place)
        run.__name__ = f"{check.__name__}_{place}"
        run.__doc__ = check.__doc__
        test(group=SHAPERS)(run)
    return check


@on_both
def why_names_an_output_that_missed_its_slot(harness, place):
    """The chain goes on behind the shaper, and the wait for the next slot is the shaper's, to the listener's clock."""
    wrong, share = check_slots(Shaped(harness, place, OVERRUN_MS))
    harness.figures.append(f"{share * 100:.1f} % of the wait")
    expect(wrong)


@on_both
def why_lost_names_an_output_that_the_shaper_discarded(harness, place):
    """An output that the shaper discards has this cause, and no other output is lost."""
    shaped = Shaped(harness, place, LONG_MS, "--overshoot", "drop")
    starts = [e["start_ns"] for e in shaped.why("--chain", shaped.to_listener(), "--all")["executions"]]
    # The recording begins shortly before the first execution, and ends shortly after the last one.
    least, most = (sum(min(starts) - more < s < max(starts) + more and s not in shaped.heard for s in shaped.published)
                   for more in (0, EDGE_NS))
    topics = [t for t in shaped.why("--lost")["topics"] if t["topic"] == OUTPUT and "/listener:" in t["to"]]
    causes = {c["kind"]: c["count"] for t in topics for c in t["causes"]}
    wrong = []
    if least < 5:
        wrong.append(f"the shaper discarded only {least} outputs")
    # At the ends of the recording, a callback may have begun before it or not have begun yet.
    if not least <= causes.get("discarded", 0) <= most or causes.get("read", 0) > 2 \
            or set(causes) - {"discarded", "read", "recording_ended"}:
        wrong.append(f"{least} to {most} outputs were not heard, found {causes}")
    expect(wrong)
