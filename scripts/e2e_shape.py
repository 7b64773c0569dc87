"""End-to-end tests of shaping: real chains under plans, seen by a subscriber that knows of none."""

import contextlib
import json
import os
import signal
import subprocess
import time

from stand import FIGURES, ONBEAT, ROOT, TESTS, Mismatch, test

CHAIN = os.path.join(ROOT, "demos/chain")
PERIOD_MS = 50
# Threads that are not as they were before count as left behind after so long.
RESTORE_S = 10


class Chain:
    """The demo chain of three stages, with a listener of its output outside."""

    def __init__(self, stand, name, *words):
        self.stand, self.name = stand, name
        self.python = stand.python("kilted")
        env = os.path.dirname(os.path.dirname(self.python))
        self.stage = os.path.join(stand.work, "chain/stage")
        if not os.path.exists(self.stage):
            subprocess.run([os.path.join(CHAIN, "build.sh"), env, os.path.dirname(self.stage)],
                           check=True, stdout=subprocess.DEVNULL)
        self.env = dict(os.environ, ROS_DOMAIN_ID="87")
        self.words = words
        self.chain_id = None

    def command(self, seconds, *words):
        """The words that start it for so many seconds (0: until it is stopped)."""
        return [self.python, os.path.join(CHAIN, "run.py"), "chain", "--stage", self.stage,
                "--stages", "3", "--min", "2", "--max", "8", "--period", str(PERIOD_MS), "--cpu",
                "1", "--duration", str(seconds), *self.words, *words]

    def plan(self, *words):
        """Records and models it, once for all tests, and plans it; the plan's path."""
        path = self.stand.file("shape_chain.json")
        if not os.path.exists(path):
            self.stand.model("shape_chain", self.stand.record("shape_chain", self.command(7),
                                                              env=self.env))
        with open(path, encoding="utf-8") as file:
            chains = json.load(file)["chains"]
        self.chain_id = next((c["id"] for c in chains if c["callbacks"][0].startswith("/stage_1:")
                              and c["callbacks"][-1].startswith("/stage_3:")), None)
        if not self.chain_id:
            os.remove(path)
            raise Mismatch(f"no chain from stage 1 to stage 3: {chains}")
        plan = self.stand.file(self.name + ".yaml")
        self.stand.onbeat("plan", path, "--chain", self.chain_id, "--cpu", "1", *words, "-o", plan)
        return plan

    @contextlib.contextmanager
    def listener(self):
        """A subscriber of the chain's output that nobody knows of; yields a function that returns
        what it has seen: (arrival, latency) in seconds."""
        log = self.stand.file(self.name + ".heard.csv")
        process = subprocess.Popen([self.stage, "--name", "listener", "--in", "/t3", "--log", log],
                                   env=self.env)

        def heard():
            process.send_signal(signal.SIGTERM)
            process.wait(20)
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
    """Shapes the chain; what onbeat says, as JSON."""
    said = chain.stand.onbeat("shape", plan, "--verify", f"{seconds}s", "--json", *words, "--",
                              *chain.command(0), before=chain.stand.privileged(), accept=accept,
                              env=chain.env)
    return json.loads(said)


def figure(said, name):
    """A figure of what onbeat says."""
    found = [f["measured"] for f in said["figures"] if f["name"] == name]
    if not found:
        raise Mismatch(f"no figure '{name}' in {said['figures']}")
    return found[0]


@test
def shape_one_band(stand):
    """A chain in one band: its jitter is gone for a subscriber that knows nothing of it."""
    chain = Chain(stand, "shape_one_band")
    plan = chain.plan("--strategy", "bands", "--bands", "1")
    begin = time.monotonic()
    with chain.listener() as heard:
        said = shaped(chain, plan, 8)
        heard = heard()
    # Until shaping begins the chain runs as it likes: what came in the first and last seconds of
    # the application tells nothing.
    end = max(at for at, _ in heard)
    shaped_latency = [latency for at, latency in heard if end - 6 < at < end - 0.5]
    free = [latency for at, latency in heard if at < begin + 3]
    if len(shaped_latency) < 60:
        raise Mismatch(f"the listener heard {len(shaped_latency)} outputs in 5.5 s")
    FIGURES.append(f"jitter {middle(shaped_latency) * 1e3:.3f} ms")
    if len(free) > 5:
        FIGURES.append(f"before {middle(free) * 1e3:.3f} ms")
    # The stages take 2 to 8 ms each: their sum's middle four fifths span at least 5 ms.
    if middle(shaped_latency) > 1e-3:
        raise Mismatch(f"the listener still sees jitter; onbeat says {said['figures']}")
    if figure(said, "outputs inside a slot") < 95:
        raise Mismatch(f"outputs outside their slot: {said['figures']}")
    servers = {t["server"] for t in said["threads"]}
    if not {"gamma", "middleware"} <= servers:
        raise Mismatch(f"threads were put into {servers} only")


@test
def shape_bands_and_let(stand):
    """Three bands, and logical execution time per callback, of the same chain."""
    chain = Chain(stand, "shape_bands")
    plan = chain.plan("--strategy", "bands", "--bands", "3")
    said = shaped(chain, plan, 6)
    if figure(said, "outputs inside a slot") < 90:
        raise Mismatch(f"outputs outside their slots: {said['figures']}")
    plan = chain.plan("--strategy", "let-per-callback")
    said = shaped(chain, plan, 6)
    average = figure(said, "average")
    # Three callbacks of one period each.
    if abs(average - 3 * PERIOD_MS) > 5:
        raise Mismatch(f"three callbacks took {average} ms: {said['figures']}")


@test
def shape_overshoot(stand):
    """An output that comes too late: carried, or dropped and counted."""
    chain = Chain(stand, "shape_overshoot")
    plan = chain.plan("--strategy", "bands", "--bands", "1", "--overshoot", "drop")
    chain.words = ("--over", "40", "--over-every", "20")
    said = shaped(chain, plan, 8)
    dropped = figure(said, "discarded")
    if not 3 <= dropped <= 16:
        raise Mismatch(f"8 overruns were made, {dropped} outputs discarded: {said}")
    blamed = [n for n in said["notes"] if "stage_3:" in n]
    if not blamed:
        raise Mismatch(f"nobody blames stage 3: {said['notes']}")


@test
def shape_throttles_events(stand):
    """A chain that starts with events at any time: each cycle gets one, and its output leaves on time."""
    chain = Chain(stand, "shape_throttles", "--events", "30", "--min", "2", "--max", "6")
    trace = stand.record("shape_events", chain.command(7), env=chain.env)
    chains = stand.model("shape_events", trace)["chains"]
    chain_id = next((c["id"] for c in chains if c["callbacks"][0].startswith("/stage_2:")), None)
    if not chain_id:
        raise Mismatch(f"no chain begins with stage 2: {[c['callbacks'] for c in chains]}")
    plan = stand.file("shape_events.yaml")
    stand.onbeat("plan", stand.file("shape_events.json"), "--chain", chain_id, "--cpu", "1",
                 "--throttle", "/t1@/sensor", "--cycle", str(PERIOD_MS), "-o", plan)
    with chain.listener() as heard:
        said = shaped(chain, plan, 8)
        heard = heard()
    end = max(at for at, _ in heard)
    times = [at for at, _ in heard if end - 6 < at < end - 0.5]
    if abs(len(times) * PERIOD_MS / 1e3 - 5.5) > 0.5:
        raise Mismatch(f"{len(times)} outputs in 5.5 s, not one in {PERIOD_MS} ms")
    steps = [(b - a) * 1e3 for a, b in zip(times, times[1:])]
    FIGURES.append(f"distance of outputs {PERIOD_MS} ± {middle(steps):.3f} ms, of events 15 to 45 ms")
    if middle(steps) > 1 or figure(said, "outputs inside a slot") < 95:
        raise Mismatch(f"outputs do not come on the beat: {said['figures']}")


def threads_of(pid):
    """Policy, affinity and freezer group of all threads below a process."""
    found = {}
    for process in tree(pid):
        for tid in os.listdir(f"/proc/{process}/task"):
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


def restored_after(stand, name, end):
    """Shapes a running chain, ends onbeat by `end(process)`, and looks whether all is as before."""
    chain = Chain(stand, name)
    plan = chain.plan("--strategy", "bands", "--bands", "1")
    remap = stand.onbeat("shape", plan, "--remap").split()
    with chain.listener() as heard:
        app = subprocess.Popen([*chain.command(0), *remap], env=chain.env,
                               start_new_session=True, stdout=subprocess.DEVNULL)
        try:
            time.sleep(4)
            before = threads_of(app.pid)
            pids = [w for p in tree(app.pid) for w in ("--pid", str(p))]
            onbeat = subprocess.Popen([*stand.privileged(), ONBEAT, "shape", plan, "--json", *pids],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            deadline = time.monotonic() + 60
            while not any(t[3] for t in threads_of(app.pid).values()):
                if onbeat.poll() is not None or time.monotonic() > deadline:
                    onbeat.kill()
                    raise Mismatch(f"it does not shape: {onbeat.communicate()[1][-1000:]}")
                time.sleep(0.2)
            time.sleep(3)
            end(onbeat)
            deadline = time.monotonic() + RESTORE_S
            while True:
                after = threads_of(app.pid)
                wrong = [(t, before[t], after.get(t)) for t in before
                         if after.get(t) != before[t]]
                if not wrong:
                    break
                if time.monotonic() > deadline:
                    raise Mismatch(f"not as before (thread, before, after): {wrong}")
                time.sleep(0.2)
            ended = time.monotonic()
            time.sleep(3)
        finally:
            with contextlib.suppress(OSError):
                os.killpg(app.pid, signal.SIGTERM)
            app.wait(20)
        later = [latency for at, latency in heard() if at > ended + 0.5]
    # The application runs on, and its outputs still get through.
    if len(later) < 1000 / PERIOD_MS:
        raise Mismatch(f"{len(later)} outputs came in the 2.5 s after shaping had ended")


@test
def shape_restores_after_sigterm(stand):
    """Told to end, onbeat puts every thread back and the application runs on."""
    def end(onbeat):
        onbeat.send_signal(signal.SIGTERM)
        onbeat.communicate(timeout=30)
    restored_after(stand, "shape_sigterm", end)


@test
def shape_restores_after_sigkill(stand):
    """Killed, onbeat's guard puts every thread back and the application runs on."""
    def end(onbeat):
        onbeat.kill()
        onbeat.communicate(timeout=30)
    restored_after(stand, "shape_sigkill", end)


@test
def shape_survives_its_application(stand):
    """A stage is killed while it is shaped: onbeat ends and leaves nothing behind."""
    chain = Chain(stand, "shape_dying")
    plan = chain.plan("--strategy", "server-per-chain")
    onbeat = subprocess.Popen([*stand.privileged(), ONBEAT, "shape", plan, "--json", "--",
                               *chain.command(0)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, env=chain.env)
    deadline = time.monotonic() + 60
    while not any(t[3] for t in threads_of(onbeat.pid).values()):
        if onbeat.poll() is not None or time.monotonic() > deadline:
            onbeat.kill()
            raise Mismatch(f"it does not shape: {onbeat.communicate()[1][-1000:]}")
        time.sleep(0.2)
    time.sleep(1)
    subprocess.run(["pkill", "-KILL", "-f", "[s]tage --name stage_2"], check=True)
    try:
        _, said = onbeat.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        onbeat.kill()
        raise Mismatch("onbeat goes on without its application") from None
    if onbeat.returncode != 1:
        raise Mismatch(f"exit code {onbeat.returncode}, not the application's: {said[-1000:]}")
    left = subprocess.run(["find", "/sys/fs/cgroup", "-name", "onbeat-*"], check=False,
                          capture_output=True, text=True).stdout
    if left:
        raise Mismatch(f"groups are left: {left}")


def is_gated(pid):
    """Whether a thread below a process is in a server's group."""
    return any(t[3] for t in threads_of(pid).values())


def wait_until(what, holds, seconds=30):
    """Waits until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise Mismatch(f"after {seconds} s still not so: {what}")
        time.sleep(0.2)


@test
def shape_follows_a_restart(stand):
    """The process beside which the shaper stands is killed and started anew: it is shaped again."""
    chain = Chain(stand, "shape_restart")
    plan = chain.plan("--strategy", "bands", "--bands", "1")
    remap = stand.onbeat("shape", plan, "--remap").split()[1:]

    def stage(number, *words):
        base = [chain.stage, "--name", f"stage_{number}", "--min-ms", "2", "--max-ms", "8",
                "--out", f"/t{number}", *words, "--seed", "1"]
        return subprocess.Popen(["taskset", "-c", "1", *base, "--ros-args", "-r",
                                 f"__node:=stage_{number}", *remap], env=chain.env)

    running = [stage(3, "--in", "/t2"), stage(2, "--in", "/t1"),
               stage(1, "--period-ms", str(PERIOD_MS))]
    onbeat = None
    try:
        with chain.listener() as heard:
            time.sleep(3)
            onbeat = subprocess.Popen([*stand.privileged(), ONBEAT, "shape", plan, "--json"],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            wait_until("the last stage has a server",
                       lambda: onbeat.poll() is not None or is_gated(running[0].pid), 60)
            time.sleep(2)
            running[0].kill()
            running[0].wait()
            time.sleep(2)
            running[0] = stage(3, "--in", "/t2")
            wait_until("the new last stage has a server",
                       lambda: onbeat.poll() is not None or is_gated(running[0].pid))
            time.sleep(5)
            shaped_at = time.monotonic()
            onbeat.send_signal(signal.SIGTERM)
            said, errors = onbeat.communicate(timeout=30)
            outputs = [latency for at, latency in heard() if shaped_at - 4 < at < shaped_at - 0.5]
    finally:
        for process in [*running, onbeat]:
            if process and process.poll() is None:
                process.kill()
                process.wait()
    if "started anew" not in said:
        raise Mismatch(f"nothing is said of the shaper's restart: {said} {errors}")
    if len(outputs) < 60:
        raise Mismatch(f"{len(outputs)} outputs in 3.5 s: the new process is not served")
    FIGURES.append(f"jitter {middle(outputs) * 1e3:.3f} ms after the restart")
    if middle(outputs) > 1e-3:
        raise Mismatch(f"the new process is not shaped: {middle(outputs)} s")


@test
def shape_failing_leaves_the_application_running(stand):
    """The shaper dies while an application that onbeat started is at work: that runs on, unshaped."""
    chain = Chain(stand, "shape_failing")
    plan = chain.plan("--strategy", "bands", "--bands", "1")
    onbeat = subprocess.Popen([*stand.privileged(), ONBEAT, "shape", plan, "--json", "--",
                               *chain.command(0)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, env=chain.env)
    try:
        wait_until("it shapes", lambda: onbeat.poll() is not None or is_gated(onbeat.pid), 60)
        time.sleep(2)
        subprocess.run(["pkill", "-KILL", "-f", "[o]nbeat shaper -"], check=True)
        wait_until("the threads are free", lambda: not is_gated(onbeat.pid), RESTORE_S)
        time.sleep(1)
        alive = [p for p in tree(onbeat.pid) if p != onbeat.pid]
        if onbeat.poll() is not None or len(alive) < 4:
            raise Mismatch(f"the application does not run on: {alive}")
        onbeat.send_signal(signal.SIGTERM)
        _, said = onbeat.communicate(timeout=60)
    finally:
        if onbeat.poll() is None:
            onbeat.kill()
    if onbeat.returncode != 1 or "The application runs on, unshaped" not in said:
        raise Mismatch(f"exit code {onbeat.returncode}: {said[-1000:]}")


@test
def shape_refuses_in_one_line(stand):
    """Without privilege, or with an application that is not there: one line, and nothing changed."""
    chain = Chain(stand, "shape_refuses")
    plan = chain.plan("--strategy", "bands", "--bands", "1")
    if os.geteuid() == 0:
        # cap_sys_nice is not among what is left.
        process = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534",
                                  "--clear-groups", ONBEAT, "shape", "/dev/stdin"],
                                 stdin=open(plan, encoding="utf-8"), capture_output=True,
                                 text=True, check=False, timeout=60)
        if process.returncode != 4 or len(process.stderr.strip().splitlines()) != 1:
            raise Mismatch(f"without privilege: {process.returncode}: {process.stderr}")
    process = subprocess.run([*stand.privileged(), ONBEAT, "shape", plan, "--find", "2s"],
                             capture_output=True, text=True, check=False, timeout=60)
    lines = process.stderr.strip().splitlines()
    if process.returncode != 1 or "did not run within 2 s" not in lines[-1]:
        raise Mismatch(f"without the application: {process.returncode}: {process.stderr}")
