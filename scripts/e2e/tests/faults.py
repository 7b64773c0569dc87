"""Faults while a chain is shaped: onbeat, the shaper or the application ends, and nothing is left."""

import contextlib
import json
import os
import signal
import subprocess
import time

from chain import (PERIOD_MS, Chain, below, figure, is_gated, middle, threads_of, tree, wait_until,
                   wait_until_settled)
from harness import ONBEAT
from registry import SHAPERS, Mismatch, need, test
from supervise import command

# Threads that are not as they were before count as left behind after so long.
RESTORE_S = 60
# Whatever has to happen has by then, also on a slow machine.
WATCHDOG_S = 120


def shape(harness, plan, *words):
    """Starts `onbeat shape`."""
    return subprocess.Popen([*harness.privileged(), ONBEAT, "shape", plan, "--json", *words],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until_shaped(onbeat, pid):
    """Waits until a thread below a process is in a server."""
    deadline = time.monotonic() + WATCHDOG_S
    while not is_gated(pid):
        if onbeat.poll() is not None or time.monotonic() > deadline:
            onbeat.kill()
            raise Mismatch(f"it does not shape: {onbeat.communicate()[1][-1000:]}")
        time.sleep(0.2)


def kill(harness, onbeat, text):
    """Kills the process below onbeat whose command line has this text."""
    found = below(onbeat.pid, text)
    need(found, f"no process '{text}' below onbeat")
    subprocess.run([*harness.privileged(), "kill", "-KILL", *map(str, found)], check=True)


def groups():
    """The control groups that onbeat has made, this one or another."""
    found = subprocess.run(["find", "/sys/fs/cgroup", "-name", "onbeat-*"], check=False,
                           capture_output=True, text=True).stdout
    return set(found.split())


def wait_until_restored(pid, before):
    """Waits until every thread below a process is as before."""
    deadline = time.monotonic() + RESTORE_S
    while True:
        after = threads_of(pid)
        wrong = [(t, before[t], after.get(t)) for t in before if after.get(t) != before[t]]
        if not wrong:
            return
        if time.monotonic() > deadline:
            raise Mismatch(f"not as before (thread, before, after): {wrong}")
        time.sleep(0.2)


def restored_after(harness, name, end, *words):
    """Shapes a running chain, ends onbeat by `end(process)`, and checks that all is as before."""
    chain = Chain(harness, name)
    plan = chain.plan("--strategy", "bands", "--bands", "1")
    remap = harness.onbeat("shape", plan, "--remap").split()
    with chain.listener() as heard:
        app = subprocess.Popen([*chain.command(0), *remap], start_new_session=True,
                               stdout=subprocess.DEVNULL)
        try:
            wait_until_settled(app.pid)
            before = threads_of(app.pid)
            onbeat = shape(harness, plan, *words,
                           *(w for p in tree(app.pid) for w in ("--pid", str(p))))
            wait_until_shaped(onbeat, app.pid)
            time.sleep(3)
            end(onbeat)
            wait_until_restored(app.pid, before)
            ended = time.monotonic()
            time.sleep(3)
        finally:
            with contextlib.suppress(OSError):
                os.killpg(app.pid, signal.SIGTERM)
            app.wait(WATCHDOG_S)
        later = [latency for at, latency in heard() if at > ended + 0.5]
    # The application runs on, and its outputs still get through.
    # On a machine that is too slow for the period, too: then fewer.
    if len(later) < 200 / PERIOD_MS:
        raise Mismatch(f"{len(later)} outputs came in the 2.5 s after shaping had ended")


@test(group=SHAPERS)
def shape_restores_threads_after_sigterm(harness):
    """After SIGTERM onbeat puts every thread back and the application runs on."""
    def end(onbeat):
        onbeat.send_signal(signal.SIGTERM)
        onbeat.communicate(timeout=WATCHDOG_S)
    restored_after(harness, "shape_sigterm", end)


@test(group=SHAPERS)
def shape_restores_threads_after_sigkill(harness):
    """After SIGKILL onbeat's guard puts every thread back and the application runs on.

    The process that publishes diagnostics was killed before, and its successor stopped: shaping goes on, and
    that one ends with onbeat too.
    """
    publisher = "onbeat diagnostics -"

    def end(onbeat):
        first = below(onbeat.pid, publisher)
        kill(harness, onbeat, publisher)
        wait_until("there are diagnostics again",
                   lambda: set(below(onbeat.pid, publisher)) - set(first))
        second = below(onbeat.pid, publisher)
        subprocess.run([*harness.privileged(), "kill", "-STOP", *map(str, second)], check=True)
        onbeat.kill()
        onbeat.communicate(timeout=WATCHDOG_S)
        wait_until("the publisher of diagnostics ends",
                   lambda: not any(publisher in (command(p) or "") for p in second))
    restored_after(harness, "shape_sigkill", end, "--diagnostics")


def of_two_origins(harness, chain):
    """Records two chains with timers of their own and plans them, the second beside the first."""
    model = harness.file("shape_origins.json")
    harness.model("shape_origins", chain.record("shape_origins"))
    plans, beside = [], []
    for name in ("stage", "other"):
        plans.append(harness.file(f"shape_origins_{name}.yaml"))
        harness.onbeat("plan", model, "--chain", f"/{name}_1..{name}_3", "--cpu", "1",
                       "--middleware-cpu", "0", *beside, "-o", plans[-1])
        beside = ["--beside", plans[-1]]
    return plans


@test(group=SHAPERS)
def shape_session_survives_the_kill_of_another(harness):
    """Two chains have a session each. When one session is killed, the other goes on."""
    chain = Chain(harness, "shape_origins", "--period", "150", "--second", "240", "--max", "4")
    plans = of_two_origins(harness, chain)
    remaps = [harness.onbeat("shape", plan, "--remap").split() for plan in plans]
    before_groups = groups()
    sessions = []
    app = subprocess.Popen([*chain.command(0), *remaps[0], *remaps[1][1:]], start_new_session=True,
                           stdout=subprocess.DEVNULL)

    def gated(name):
        return [is_gated(p) for p in below(app.pid, f"stage --name {name}_")]
    try:
        wait_until_settled(app.pid, 6)
        before = threads_of(app.pid)
        for name, plan in zip(("stage", "other"), plans):
            sessions.append(shape(harness, plan, *(w for p in tree(app.pid) for w in ("--pid", str(p)))))
            wait_until(f"{name}_1 to 3 have servers", lambda of=name, session=sessions[-1]:
                       session.poll() is not None or all(gated(of)))
        first, second = sessions
        time.sleep(3)
        need(first.poll() is None and second.poll() is None, "a session has ended")
        first.kill()
        first.communicate(timeout=WATCHDOG_S)
        wait_until("the first chain is put back", lambda: not any(gated("stage")), RESTORE_S)
        need(second.poll() is None and all(gated("other")), "the second session has ended with the first")
        second.send_signal(signal.SIGTERM)
        report, errors = second.communicate(timeout=WATCHDOG_S)
        wait_until_restored(app.pid, before)
    finally:
        for session in sessions:
            if session.poll() is None:
                session.kill()
        with contextlib.suppress(OSError):
            os.killpg(app.pid, signal.SIGTERM)
        app.wait(WATCHDOG_S)
    report = json.loads(report)
    if figure(report, "executions") < 8 or figure(report, "outputs inside a slot") < 60:
        raise Mismatch(f"the second chain does not leave in its slot: {report['figures']} {errors}")
    # The guards remove them, after the threads.
    wait_until("no group is left", lambda: not groups() - before_groups, RESTORE_S)


@test(group=SHAPERS)
def shape_ends_cleanly_when_its_application_is_killed(harness):
    """A process is killed while it is shaped: onbeat ends and leaves nothing behind."""
    before = groups()
    chain = Chain(harness, "shape_dying")
    plan = chain.plan("--strategy", "server-per-chain")
    onbeat = shape(harness, plan, "--", *chain.command(0))
    wait_until_shaped(onbeat, onbeat.pid)
    time.sleep(1)
    kill(harness, onbeat, "stage --name stage_2")
    try:
        _, errors = onbeat.communicate(timeout=WATCHDOG_S)
    except subprocess.TimeoutExpired:
        onbeat.kill()
        raise Mismatch("onbeat goes on without its application") from None
    if onbeat.returncode != 1:
        raise Mismatch(f"exit code {onbeat.returncode}, not the application's: {errors[-1000:]}")
    left = groups() - before
    if left:
        raise Mismatch(f"groups are left: {left}")


@test(group=SHAPERS)
def shape_shapes_a_restarted_process_again(harness):
    """A shaped process is killed and started again: onbeat shapes it again."""
    chain = Chain(harness, "shape_restart")
    plan = chain.plan("--strategy", "bands", "--bands", "1")
    remap = harness.onbeat("shape", plan, "--remap").split()[1:]

    def stage(number, *words):
        base = [chain.stage, "--name", f"stage_{number}", "--min-ms", "2", "--max-ms", "8",
                "--out", f"/t{number}", *words, "--seed", "1"]
        return subprocess.Popen(["taskset", "-c", "1", *base, "--ros-args", "-r",
                                 f"__node:=stage_{number}", *remap])

    running = [stage(3, "--in", "/t2"), stage(2, "--in", "/t1"),
               stage(1, "--period-ms", str(PERIOD_MS))]
    onbeat = None
    try:
        with chain.listener() as heard:
            time.sleep(3)
            onbeat = shape(harness, plan)
            wait_until("the last stage has a server",
                       lambda: onbeat.poll() is not None or is_gated(running[0].pid))
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
            report, errors = onbeat.communicate(timeout=WATCHDOG_S)
            outputs = [latency for at, latency in heard() if shaped_at - 4 < at < shaped_at - 0.5]
    finally:
        for process in [*running, onbeat]:
            if process and process.poll() is None:
                process.kill()
                process.wait()
    if "A new shaper belongs to the application's process" not in report:
        raise Mismatch(f"the report does not mention the shaper's restart: {report} {errors}")
    if len(outputs) < 60:
        raise Mismatch(f"{len(outputs)} outputs in 3.5 s: the new process is not served")
    harness.figures.append(f"jitter {middle(outputs) * 1e3:.3f} ms after the restart")
    if middle(outputs) > 1e-3:
        raise Mismatch(f"the new process is not shaped: {middle(outputs)} s")


@test(group=SHAPERS)
def shape_that_fails_leaves_the_application_running(harness):
    """The shaper dies while the application works: the application runs on, unshaped."""
    chain = Chain(harness, "shape_failing")
    plan = chain.plan("--strategy", "bands", "--bands", "1")
    onbeat = shape(harness, plan, "--", *chain.command(0))
    try:
        wait_until_shaped(onbeat, onbeat.pid)
        time.sleep(2)
        kill(harness, onbeat, "onbeat shaper -")
        wait_until("the threads are free", lambda: not is_gated(onbeat.pid), RESTORE_S)
        time.sleep(1)
        alive = [p for p in tree(onbeat.pid) if p != onbeat.pid]
        if onbeat.poll() is not None or len(alive) < 4:
            raise Mismatch(f"the application does not run on: {alive}")
        onbeat.send_signal(signal.SIGTERM)
        _, errors = onbeat.communicate(timeout=WATCHDOG_S)
    finally:
        if onbeat.poll() is None:
            onbeat.kill()
    if onbeat.returncode != 1 or "The application continues to run, unshaped" not in errors:
        raise Mismatch(f"exit code {onbeat.returncode}: {errors[-1000:]}")
