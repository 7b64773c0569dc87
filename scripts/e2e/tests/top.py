"""`onbeat top`: figures of a running system beside its own truth, and its screen in a terminal emulator."""

import json
import os
import shutil
import signal
import subprocess
import time
from statistics import median

from harness import ONBEAT, ROOT
from registry import COMPUTING_TEST, Skip, need, test
from tests.observe import GENTLE
from tests.why import DELAYED, SLOW

PARKING = os.path.join(ROOT, "demos/parking/run.py")


@test
def top_once_shows_the_callbacks_and_rates_that_the_programs_counted(harness):
    """onbeat top --once, watching all of SYN, shows the callbacks and rates of its truth."""
    truth = harness.file("top.truth.json")
    said = harness.onbeat("top", "--once", "--json", "--duration", "120s", "--",
                          *harness.syn_command("kilted", truth, *GENTLE), before=harness.privileged())
    lines = said.splitlines()
    need(len(lines) == 1, f"{len(lines)} lines in place of one")
    view = json.loads(lines[0])
    with open(truth, encoding="utf-8") as file:
        known = json.load(file)
    lost = view["lost_events"]["start"]
    need(lost == 0, f"{lost} events are lost")
    rows = {row["id"]: row for row in view["callbacks"]}
    expected = {c["id"]: c for c in known["callbacks"] if ":sync(" not in c["id"]}
    missing = set(expected) - set(rows)
    need(not missing, f"callbacks are missing: {sorted(missing)}")
    for callback, own in expected.items():
        ran = rows[callback]["exec"]["start"]
        need(ran["count"] == own["count"], f"{callback} ran {own['count']} times, not {ran['count']}")
        burnt = median(own["cpu_ns"])
        need(abs(ran["p50_ns"] - burnt) <= 0.1 * burnt + 200e3,
             f"{callback}: median {ran['p50_ns'] / 1e6:.3f} ms, burnt {burnt / 1e6:.3f} ms")
    timers = [row for row in rows.values() if row["type"] == "timer" and row["period_ns"]]
    need(timers, "there is no timer")
    for row in timers:
        rate, period = row["rate_hz"]["start"], 1e9 / row["period_ns"]
        need(abs(rate - period) < 0.25 * period, f"{row['id']} runs at {rate} Hz in place of {period}")
    need(view["chains"], "there is no chain")
    for chain in view["chains"]:
        latency = chain["latency"]["start"]
        need(0 < latency["p50_ns"] <= latency["p99_ns"] <= latency["max_ns"], f"{chain['title']}: {latency}")
        parts = sum(part["mean_ns"] for part in chain["parts"])
        mean = chain["latency"]["last_10s"]["mean_ns"]
        need(abs(parts - mean) <= 0.001 * mean + 1000, f"{chain['title']}: the parts are {parts} of {mean}")
    harness.figures.append(f"{len(rows)} callbacks, {len(view['chains'])} chains")


class Tmux:
    """A terminal of 80 by 24 in a server of its own."""

    def __init__(self, harness):
        if not shutil.which("tmux"):
            raise Skip("tmux is needed to look at the screen")
        self.words = ["tmux", "-f", "/dev/null", "-S", harness.new_file("tmux")]
        self.run("new-session", "-d", "-x", "80", "-y", "24", "env PS1='ready ' sh")

    def run(self, *words):
        """Runs a command of tmux; its output."""
        return subprocess.run([*self.words, *words], check=True, stdout=subprocess.PIPE, text=True).stdout

    def type(self, *keys):
        """Types keys."""
        self.run("send-keys", *keys)

    def screen(self):
        """The text on the screen."""
        return self.run("capture-pane", "-p")

    def wait(self, text, seconds=60):
        """Waits until a text is on the screen; the screen."""
        deadline = time.monotonic() + seconds
        while text not in (screen := self.screen()):
            need(time.monotonic() < deadline, f"'{text}' is not on the screen:\n{screen}")
            time.sleep(0.1)
        return screen


@test
def top_screen_reacts_to_keys_and_restores_the_terminal(harness):
    """The screen in tmux shows pages, filters, resizes, saves a trace, and restores the terminal after each end."""
    harness.privileged()
    tmux = Tmux(harness)
    try:
        python = harness.python("kilted")
        tmux.type(f"cd {harness.work}; stty -a > before", "Enter")
        command = " ".join([*harness.privileged(), ONBEAT, "top", "--", python, PARKING, "--duration", "120"])
        tmux.type(command, "Enter")
        tmux.wait("localizer")
        time.sleep(5)
        for key, text in (("2", "exec p50"), ("3", "/lidars/points_fused"), ("4", "held up"), ("1", "p99")):
            tmux.type(key)
            tmux.wait(text)
        tmux.type("Enter")
        tmux.wait("mean over the last 10 s")
        tmux.type("Escape")
        tmux.type("/", "rear")
        screen = tmux.wait("filter: rear_")
        need("lidar_front ->" not in screen, f"the filter hides nothing:\n{screen}")
        tmux.type("Enter")
        tmux.run("resize-window", "-x", "120", "-y", "30")
        tmux.wait("largest latency in each second")
        time.sleep(2)
        tmux.type("t")
        tmux.wait("The last 60 s are in trace-")
        tmux.type("q")
        tmux.wait("ready")
        traces = [name for name in os.listdir(harness.work) if name.startswith("trace-")]
        need(len(traces) == 1, f"saved: {traces}")
        model = harness.model("top_saved", harness.file(traces[0]))
        need(len(model["chains"]) == 2, f"the saved trace has {len(model['chains'])} chains")
        ends(harness, tmux)
    finally:
        tmux.run("kill-server")


def ends(harness, tmux):
    """Ends the screen by each signal; the terminal is as before."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        out = harness.new_file("after")
        words = " ".join([*harness.privileged(), ONBEAT, "top"])
        tmux.type(f"clear; sh -c 'echo $$ > pid; exec {words}'; stty -a > {out}", "Enter")
        tmux.wait("1 chains")
        with open(harness.file("pid"), encoding="utf-8") as file:
            os.kill(int(file.read()), number)
        deadline = time.monotonic() + 60
        while not (os.path.exists(out) and os.path.getsize(out)):
            need(time.monotonic() < deadline, f"it goes on after {number.name}:\n{tmux.screen()}")
            time.sleep(0.1)
        with open(harness.file("before"), encoding="utf-8") as file, open(out, encoding="utf-8") as other:
            # The size has changed since.
            need(file.read().split(";")[3:] == other.read().split(";")[3:], f"settings after {number.name}")
        need("1 chains" not in tmux.screen(), f"the screen stays after {number.name}")


@test(places=COMPUTING_TEST)
def top_names_a_slow_callback_as_the_first_cause(harness):
    """A planted slow callback is the first cause of the late executions on the screen."""
    if os.geteuid() != 0:
        raise Skip("real-time priorities need root")
    if len(os.sched_getaffinity(0)) < 2:
        raise Skip("needs two CPUs: one is for the nodes alone")
    limits = harness.file("top.requirements.yaml")
    with open(limits, "w", encoding="utf-8") as file:
        file.write("chains:\n  - {from: /scanner, latency: {max: 15ms}}\n")
    cpu = str(max(os.sched_getaffinity(0)))
    said = harness.onbeat("top", "--json", "--requirements", limits, "--", harness.python("kilted"), DELAYED,
                          "20", "--cpu", cpu, "--slow", "40", harness.file("top.delayed.json"),
                          before=harness.privileged())
    lines = [json.loads(line) for line in said.splitlines()]
    need(15 <= len(lines) <= 40, f"{len(lines)} lines in 20 s")
    first, counts = {}, []
    for line in lines:
        for chain in line["chains"]:
            late = chain["late_execution"]
            counts.append(chain["late"]["start"] if chain["late"] else 0)
            if late:
                causes = late["causes"]
                first[line["time_ns"] - late["ago_ns"]] = causes[0]["what"] if causes else ""
    blamed = [what for what in first.values() if SLOW in what]
    harness.figures.append(f"{max(counts, default=0)} executions late, {len(first)} seen, {len(blamed)} with the planted cause first")
    need(max(counts, default=0) >= 5, f"only {max(counts, default=0)} executions were late")
    need(len(first) >= 5 and len(blamed) >= 0.8 * len(first), f"the first causes are {sorted(first.values())}")
