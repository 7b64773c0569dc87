"""Tests the import of traces: LTTng and onbeat record SYN at the same time, and both models agree."""

import contextlib
import os
import shutil
import subprocess

from harness import ROOT
from registry import Skip, expect, need, test
from tests.preload import structure

PROVIDER = os.path.join(ROOT, "scripts/e2e/lttng/provider.c")
# The tracers read the clock one after the other, with their own calls in between.
LATENCY_NS = 300_000


def provider(harness, distro):
    """Builds a library to preload. It makes events of LTTng in the tracing calls of ROS 2."""
    missing = [program for program in ("lttng", "lttng-sessiond", "gcc") if not shutil.which(program)]
    if missing or not os.path.exists("/usr/include/lttng/tracepoint.h") and not any(
            os.path.exists(f"/usr/include/{machine}-linux-gnu/lttng/tracepoint.h") for machine in ("x86_64", "aarch64")):
        raise Skip("LTTng is not installed: apt install lttng-tools liblttng-ust-dev gcc")

    def build(out):
        include = os.path.join(harness.env(distro), "include/tracetools")
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-I", include, "-o", out, PROVIDER, "-llttng-ust", "-ldl"],
                       check=True, capture_output=True)
    return harness.once("lttng-" + distro + ".so", build)


@contextlib.contextmanager
def session(harness, name):
    """Records events of ROS 2 in a session, with its own daemon if none runs. Yields the folder of the session."""
    home = harness.file("lttng-home")
    os.makedirs(home, exist_ok=True)
    env = {**os.environ, "LTTNG_HOME": home}
    folder = harness.file(name + ".lttng")
    shutil.rmtree(folder, ignore_errors=True)

    def lttng(*words):
        subprocess.run(["lttng", *words], env=env, check=True, capture_output=True)
    # Root has one daemon for the machine. Applications of root find no other daemon.
    daemon = None
    if subprocess.run(["lttng", "list"], env=env, check=False, capture_output=True).returncode != 0:
        daemon = subprocess.Popen(["lttng-sessiond", "--no-kernel"], env=env, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
    try:
        with contextlib.ExitStack() as stack:
            try:
                lttng("--no-sessiond", "create", name, "--output", folder)
                stack.callback(lttng, "destroy", name)
                lttng("enable-event", "-u", "-s", name, "ros2:*")
                lttng("add-context", "-u", "-s", name, "-t", "vpid", "-t", "vtid", "-t", "procname")
                lttng("start", name)
            except subprocess.CalledProcessError as error:
                raise Skip("LTTng cannot record here: " + error.stderr.decode().strip()[-200:]) from None
            yield folder
            lttng("stop", name)
    finally:
        if daemon:
            daemon.terminate()
            daemon.wait()


@test
def lttng_and_onbeat_give_equal_models_of_one_run(harness):
    """SYN, recorded by LTTng and onbeat at once: equal callbacks, edges, chains, counts and latencies."""
    library = provider(harness, "kilted")
    native = os.path.join(harness.native("kilted"), "syn")
    truth = harness.file("lttng.truth.json")
    words = harness.syn_command("kilted", truth, "--native", native, "--as", "rclcpp", "--layout", "one",
                                "--duration", "4")
    with session(harness, "onbeat-e2e") as folder:
        trace = harness.record("lttng", ["env", "LD_PRELOAD=" + library, *words])
    imported = harness.file("lttng.imported")
    shutil.rmtree(imported, ignore_errors=True)
    harness.onbeat("import", folder, "-o", imported)
    own, theirs = harness.model("lttng_own", trace), harness.model("lttng_theirs", imported)
    need(structure(own) == structure(theirs), f"onbeat {structure(own)}, LTTng {structure(theirs)}")

    def executions(model):
        return {c["id"]: c["exec_ns"]["count"] + c.get("untimed", 0) for c in model["callbacks"]}
    need(executions(own) == executions(theirs), f"onbeat {executions(own)}, LTTng {executions(theirs)}")
    wrong = [f"{c['id']} has execution times without context switches" for c in theirs["callbacks"]
             if c["exec_ns"]["count"]]
    other = {tuple(c["callbacks"]): c["latency_ns"] for c in theirs["chains"]}
    for chain in own["chains"]:
        ours, their = chain["latency_ns"], other[tuple(chain["callbacks"])]
        name = " -> ".join(chain["callbacks"])
        if ours["count"] != their["count"]:
            wrong.append(f"{name}: {ours['count']} and {their['count']} executions")
        apart = max(abs(ours[figure] - their[figure]) for figure in ("min", "max"))
        if apart > LATENCY_NS:
            wrong.append(f"{name}: latencies are {apart / 1e3:.0f} us apart")
    expect(wrong)
