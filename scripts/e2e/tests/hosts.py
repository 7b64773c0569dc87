"""Two hosts: network namespaces with a link between them, a recording in each, one model of both."""

import contextlib
import os
import re
import shutil
import statistics
import subprocess

from harness import ONBEAT, ROOT, WATCHDOG_S, load
from registry import Mismatch, Skip, need, test

HOST = os.path.join(ROOT, "demos/hosts/host.py")
SECONDS = 12
# The time by which the second host's clock is ahead, ns.
AHEAD_NS = "7123456789"
# How far the chain's latency may be from what the application measured itself, with one clock.
WITHIN_NS = 100_000
# The largest error that a model may state for a joined clock. On a slow machine, messages show no more.
UNSURE_NS = 1_000_000


@contextlib.contextmanager
def two_hosts(harness):
    """Two network namespaces with one link; yields the words that run a command in each."""
    if not shutil.which("ip"):
        raise Skip("ip is needed to make network namespaces")
    names = [f"e2e-{os.getpid()}-{side}" for side in "ab"]
    before = harness.privileged()

    def ip(*words):
        done = subprocess.run([*before, "ip", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Skip("no network namespaces here: " + done.stderr.strip())
    made = []
    try:
        for name in names:
            ip("netns", "add", name)
            made.append(name)
        ip("link", "add", "link0", "netns", names[0], "type", "veth", "peer", "name", "link0", "netns", names[1])
        for number, name in enumerate(names):
            ip("-n", name, "addr", "add", f"10.77.0.{number + 1}/24", "dev", "link0")
            ip("-n", name, "link", "set", "link0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "route", "add", "224.0.0.0/4", "dev", "link0")
        yield [[*before, "ip", "netns", "exec", name] for name in names]
    finally:
        for name in made:
            subprocess.run([*before, "ip", "netns", "del", name], check=False)


def record(harness, hosts):
    """Records both at one time; (their traces, what the second one measured)."""
    python, out = harness.python("kilted"), harness.new_file("hosts.txt")
    traces, running = [], []
    for role, before in zip(("driver", "worker"), hosts):
        trace = harness.file(f"hosts_{role}.trace")
        shutil.rmtree(trace, ignore_errors=True)
        command = [*before, ONBEAT, "record", "-o", trace, "--", python, HOST, role, str(SECONDS), out]
        traces.append(trace)
        running.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
    for process in running:
        try:
            _, errors = process.communicate(timeout=WATCHDOG_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Mismatch(f"a recording still ran after {WATCHDOG_S} s") from None
        if process.returncode == 4:
            raise Skip(errors.strip().splitlines()[-1])
        need(process.returncode == 0, errors[-2000:])
    with open(out, encoding="utf-8") as file:
        return traces, [int(line) for line in file]


def other_machine(harness, trace, *words):
    """A copy of a trace as of another machine, whose clock is ahead and goes faster."""
    copy = harness.file("hosts_other.trace")
    shutil.rmtree(copy, ignore_errors=True)
    subprocess.run(["cargo", "run", "--locked", "--quiet", "-p", "onbeat-trace", "--example", "shift", "--",
                    trace, copy, *words], check=True, cwd=ROOT)
    return copy


def across(model):
    """The chain from the publication of the driver's message to the worker's publication."""
    chains = [c for c in model["chains"] if c["topics"] == ["/objects"] and c.get("from_input")]
    need(len(chains) == 1, f"chains: {[c['topics'] for c in model['chains']]}")
    return chains[0]


@test
def hosts_joined_in_one_model_give_a_chain_the_latency_that_its_messages_show(harness):
    """A chain over two hosts has the latency that its own messages show"""
    with two_hosts(harness) as hosts:
        (driver, worker), measured = record(harness, hosts)
    truth = statistics.median(measured)
    for name, words in (("one boot", None), ("two boots", ["0"]), ("7 s ahead", [AHEAD_NS]), ("40 ppm", [AHEAD_NS, "40"])):
        other = worker if words is None else other_machine(harness, worker, *words)
        path = harness.file("hosts.json")
        # From the publication on, as the application measures: rclpy's way into the timer's callback does not count.
        harness.onbeat("model", "--join", driver, other, "--input", "/points", "-o", path)
        model = load(path)
        chain = across(model)
        need(chain["executions"] >= 0.9 * len(measured), f"{chain['executions']} of {len(measured)} executions")
        latency = chain["latency_ns"]["p50"]
        said = [s for s in model["assumptions"] if "CPU n of" in s]
        need(len(said) == 1, f"{name}: {model['assumptions']}")
        if words is None:
            # One clock: nothing is estimated.
            exact, off = latency, latency - truth
            need(abs(off) <= WITHIN_NS, f"{name}: {off / 1e6:.3f} ms off the application's {truth / 1e6:.3f} ms; {said[0]}")
        else:
            off = latency - exact
            unsure = round(float(re.search(r"is at most ([\d.]+) ms\.", said[0])[1]) * 1e6)
            need(unsure <= UNSURE_NS, f"{name}: {said[0]}")
            need(abs(off) <= unsure, f"{name}: {off / 1e6:.3f} ms off one clock's {exact / 1e6:.3f} ms; {said[0]}")
        harness.figures.append(f"{name}: {off / 1000:+.0f} us")
    # Without joining they are refused.
    harness.onbeat("model", driver, other, "-o", harness.file("never.json"), accept=(1,))
