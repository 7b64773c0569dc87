"""Applications in containers, shaped from outside of them."""

import contextlib
import json
import os
import re
import signal
import subprocess

from chain import CHAIN, PERIOD_MS, Chain, below, figure, wait_until
from harness import ONBEAT, ROOT, WATCHDOG_S
from registry import SHAPERS, Mismatch, Skip, need, test

BOX = os.path.join(ROOT, "scripts/e2e/box.py")
STAGES = 3


def container(chain, words):
    """The chain in a container of its own, with ROS 2 and the program at paths that do not exist outside."""
    env, stage = chain.harness.env("kilted"), os.path.dirname(chain.stage)
    # The interpreter without the environment's packages: only the stages use ROS 2.
    python = os.path.dirname(os.path.dirname(os.path.realpath(chain.python)))
    folders = [f"{python}=/robot/python", f"{env}=/robot/env", f"{stage}=/robot/stage", f"{CHAIN}=/robot/chain"]
    libraries = ["/robot/env/lib", "/robot/stage"]
    packages = os.path.join(env, "lib")
    for version in os.listdir(packages):
        site = os.path.join(packages, version, "site-packages")
        if version.startswith("python3") and os.path.isdir(site):
            libraries += [f"/robot/env/lib/{version}/site-packages/{name}"
                          for name in os.listdir(site) if name.endswith(".libs")]
    inside = ["/robot/python/bin/python3", "/robot/chain/run.py",
              *(w.replace(chain.stage, "/robot/stage/stage") for w in chain.command(0)[2:]), *words]
    # It has no network but its own loopback, where nobody is reached by multicast.
    return subprocess.Popen([*chain.harness.privileged(), chain.python, BOX, *folders, "--", *inside],
                            env={**os.environ, "LD_LIBRARY_PATH": ":".join(libraries),
                                 "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"})


def status(pid, field):
    """A field of /proc/PID/status."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(line.split(":")[1].split() for line in file if line.startswith(field + ":"))


def seen(pid):
    """Namespaces of a process that tell a container's."""
    return {kind: os.readlink(f"/proc/{pid}/ns/{kind}")
            for kind in ("pid", "mnt", "net", "ipc", "uts", "cgroup")}


def need_harmless(shaper, stage):
    """The shaper is in the container, and can do no more than what runs there."""
    need(seen(shaper) == seen(stage), f"the shaper is in {seen(shaper)}, the stage in {seen(stage)}")
    rights = {name: int(status(shaper, name)[0], 16) for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")}
    need(not any(rights.values()), f"the shaper has capabilities: {rights}")
    need(status(shaper, "NoNewPrivs") == ["1"], "the shaper can get rights from files")
    with open(f"/proc/{shaper}/maps", encoding="utf-8") as file:
        need("/robot/env/lib/librcl.so" in file.read(), "the shaper's ROS 2 is not the container's")


@test(group=SHAPERS)
def shape_shapes_a_chain_in_a_container_from_outside(harness):
    """A chain in a container is shaped from outside. Another application with the same names is not touched."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--pid", "--fork", "--mount", "--net", "true"],
                                           check=False, capture_output=True).returncode:
        raise Skip("namespaces cannot be made here: root and unshare are needed")
    chain = Chain(harness, "shape_container")
    plan = chain.plan("--strategy", "bands", "--bands", "1")
    remap = harness.onbeat("shape", plan, "--remap").split()
    outside = subprocess.Popen([w if w != "1" else "0" for w in chain.command(0)],
                               env={**os.environ, "ROS_DOMAIN_ID": harness.other_domain()})
    box = container(chain, remap)
    try:
        for application in (outside, box):
            wait_until("all stages run", lambda a=application: a.poll() is not None
                       or len(below(a.pid, "stage --name")) >= STAGES)
            need(application.poll() is None, f"the application ended: {application.args}")
        stage = below(box.pid, "stage --name")[0]
        command = [*harness.privileged(), ONBEAT, "shape", plan, "--verify", "8s", "--json",
                   "--container", str(stage)]
        process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            wait_until("a shaper runs", lambda: below(process.pid, "onbeat shaper -")
                       or process.poll() is not None)
            for shaper in below(process.pid, "onbeat shaper -"):
                wait_until("it has loaded ROS 2", lambda s=shaper: "librcl.so" in maps(s))
                need_harmless(shaper, stage)
            out, errors = process.communicate(timeout=WATCHDOG_S)
        finally:
            process.kill()
    finally:
        for application in (outside, box):
            application.send_signal(signal.SIGKILL if application is box else signal.SIGTERM)
            application.wait(WATCHDOG_S)
    if process.returncode not in (0, 5):
        raise Mismatch(f"exit code {process.returncode}: {errors[-2000:]}")
    report = json.loads(out)
    need(figure(report, "executions") > 5000 / PERIOD_MS, f"few executions: {report['figures']}")
    need(figure(report, "outputs inside a slot") > 90, f"outside their slots: {report['figures']}")
    need({t["server"] for t in report["threads"]} >= {"gamma", "middleware"}, f"{report['threads']}")
    left_alone = [n for n in report["notes"]
                  if re.fullmatch(rf"\d+ process(es)? outside of --container {stage} (was|were) not recorded\.", n)]
    need(left_alone and int(left_alone[-1].split()[0]) >= STAGES, f"nobody is outside: {report['notes']}")


def maps(pid):
    """The files that a process has mapped; none where it has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        return file.read()
    return ""
