"""Shaping from inside: the application's own processes hold their outputs back."""

import contextlib
import os
import signal
import subprocess
import time

from chain import Chain, check_drops, check_events, figure, middle, shaped, threads_of, tree, wait_until
from harness import ONBEAT, ROOT
from registry import SHAPERS, Mismatch, test

SECONDS = 8
RELAY = os.path.join(ROOT, "scripts/e2e/relay.py")


def outcome(chain, plan, place):
    """Shapes the chain; the share of outputs in a slot, and the jitter that a listener saw."""
    with chain.listener() as heard:
        report = shaped(chain, plan, SECONDS, "--hold", place)
        heard = heard()
    end = max(at for at, _ in heard)
    latency = [latency for at, latency in heard if end - SECONDS + 2 < at < end - 0.5]
    for name, least in (("executions", 100), ("cycles with an output", 95)):
        if figure(report, name) < least:
            raise Mismatch(f"--hold {place}: too few {name}: {report['figures']}")
    senders = [t for t in report["threads"] if t["name"] == "onbeat-hold"]
    if len(senders) != (place == "inside"):
        raise Mismatch(f"--hold {place}: threads that hold outputs: {senders}")
    return figure(report, "outputs inside a slot"), middle(latency) * 1e3


@test(group=SHAPERS)
def shape_inside_keeps_outputs_in_their_slots_as_a_shaper_does(harness):
    """A chain that holds its outputs back itself: as many are in their slots as behind a shaper."""
    chain = Chain(harness, "shape_inside")
    plan = chain.plan("--strategy", "bands", "--bands", "1")
    found = {place: outcome(chain, plan, place) for place in ("outside", "inside")}
    for place, (inside, jitter) in found.items():
        harness.figures.append(f"{place} {inside:.1f} % in a slot, jitter {jitter:.3f} ms")
    (outside, _), (inside, _) = found["outside"], found["inside"]
    if inside < min(95, outside - 1):
        raise Mismatch(f"shares in a slot and jitters: {found}")


@test(group=SHAPERS)
def shape_inside_drops_an_output_beyond_its_slots(harness):
    """Held inside, an output that comes too late is dropped and counted, even when the next one is due."""
    check_drops(Chain(harness, "shape_inside_drops"), "--hold", "inside")


@test(group=SHAPERS)
def shape_inside_lets_one_message_into_each_cycle(harness):
    """A throttled input waits in the process that publishes it, and one leaves in each cycle."""
    report = check_events(harness, "shape_inside_throttles", "--hold", "auto")
    if "The application itself holds back /t1, /t3." not in report["notes"]:
        raise Mismatch(f"the place is not printed: {report['notes']}")
    senders = [t for t in report["threads"] if t["name"] == "onbeat-hold"]
    if len(senders) != 2:
        raise Mismatch(f"threads that hold the input and the output: {senders}")


@contextlib.contextmanager
def listener(harness, python):
    """Runs a listener; yields a function that returns the numbers that it has heard."""
    path = harness.new_file("shape_inside_heard")
    process = subprocess.Popen([python, RELAY, "listen", path])

    def heard():
        with open(path, encoding="utf-8") as file:
            return [int(line) for line in file if line.endswith("\n")]
    try:
        harness.begun(path, process)
        yield heard
    finally:
        process.kill()
        process.wait()


def planned(harness, script):
    """Records, models and plans the application of a script; the plan's path."""
    trace = harness.record("shape_inside_rclpy", ["timeout", "-s", "INT", "20", *script], accept=(0, 124))
    chains = harness.model("shape_inside_rclpy", trace)["chains"]
    ids = [c["id"] for c in chains if c["callbacks"][0].startswith("/timer:") and len(c["callbacks"]) == 2]
    if not ids:
        raise Mismatch(f"no chain from the timer to the relay: {chains}")
    plan = harness.file("shape_inside_rclpy.yaml")
    harness.onbeat("plan", harness.file("shape_inside_rclpy.json"), "--chain", ids[0], "--cpu", "1",
                   "--strategy", "bands", "--bands", "1", "-o", plan)
    return plan


def is_shaped(pid):
    """Whether a thread that holds outputs has its real-time priority."""
    return any(name == "onbeat-hold" and policy == os.SCHED_FIFO
               for name, policy, _, _ in threads_of(pid).values())


@test(group=SHAPERS)
def shape_inside_holds_rclpy_behind_a_script_and_loses_nothing_when_killed(harness):
    """rclpy nodes behind a script that passes no arguments on: no message is lost, also if shape is killed."""
    python = harness.python("kilted")
    path = harness.file("shape_inside.sh")
    with open(path, "w", encoding="utf-8") as file:
        # A real-time priority, so that programs of others do not count as the chain's worst case.
        file.write(f"chrt -f 10 {python} {RELAY} timer &\nchrt -f 10 {python} {RELAY} relay &\nwait\n")
    script = ["sh", path]
    plan = planned(harness, script)
    with listener(harness, python) as heard:
        process = subprocess.Popen([*harness.privileged(), ONBEAT, "shape", plan, "--hold", "inside",
                                    "--", *script], start_new_session=True)
        application = []
        try:
            wait_until("it is shaped", lambda: is_shaped(process.pid) or process.poll() is not None)
            application = [pid for pid in tree(process.pid) if pid != process.pid]
            begun = len(heard())
            time.sleep(3)
            shaped_count = len(heard()) - begun
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            killed = len(heard())
            wait_until("messages go on", lambda: len(heard()) > killed + 20)
        finally:
            process.kill()
            for pid in application:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        numbers = heard()
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise Mismatch(f"messages are lost, doubled or in another order: {numbers}")
    if shaped_count < 15:
        raise Mismatch(f"{shaped_count} messages in 3 s while it was shaped")
