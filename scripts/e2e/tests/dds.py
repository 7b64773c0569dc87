"""Applications of plain DDS (demos/dds), alone and beside ROS 2 and onbeat-flow, in one model."""

import contextlib
import os
import shutil
import subprocess
import sys

from compare import compare_executions, compare_graph, compare_latencies, lost
from harness import ROOT, TARGET, load
from registry import Skip, expect, need, test
from tests.flow import flow_truth

DEMO = os.path.join(ROOT, "demos/dds")
# The time that the probes add to an execution: about six times a dozen microseconds for the way into
# the kernel and back.
AROUND_NS = 200_000


PACKAGES = ["cyclonedds-dev", "cyclonedds-tools", "libfastrtps-dev"]
HEADERS = ["dds/dds.h", "fastdds/dds/domain/DomainParticipant.hpp"]
# For the package lists and the packages, a few MB.
INSTALL_S = 120


def need_packages(harness):
    """The DDS libraries of Debian and Ubuntu, installed where that is possible."""
    def is_there():
        return shutil.which("idlc") and all(os.path.exists(os.path.join("/usr/include", header))
                                            for header in HEADERS)

    for program in ("cc", "c++"):
        if not shutil.which(program):
            raise Skip(f"{program} is needed to build programs of plain DDS")
    if is_there():
        return
    apt = [*harness.privileged(), "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    install = [*apt, "install", "-y", "--no-install-recommends", *PACKAGES]
    if shutil.which("apt-get"):
        with contextlib.suppress(subprocess.SubprocessError):
            for words in ([*apt, "update"], install):
                subprocess.run(words, check=True, timeout=INSTALL_S, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    if not is_there():
        raise Skip(f"programs of plain DDS need {', '.join(PACKAGES)}, which cannot be installed")


def programs(harness):
    """Folder with the stages on Cyclone DDS and on Fast DDS."""
    need_packages(harness)
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "-p", "onbeat-c"], check=True, cwd=ROOT)
    library = os.path.join(TARGET, "release/libonbeat_c.a")
    inputs = [DEMO, os.path.join(ROOT, "crates/runtime/c/include"), library]
    build = os.path.join(DEMO, "build.sh")
    return harness.compiled("dds", inputs, lambda out: [build, out, os.path.dirname(library)])


def command(truth, chains, *words):
    """The words that run chains of stages."""
    return [sys.executable, os.path.join(DEMO, "run.py"), "--truth", truth, *words,
            *(",".join(chain) for chain in chains)]


def stages(folder, *names):
    """Programs of a chain."""
    return [os.path.join(folder, name) for name in names]


def compare(harness, truth, model):
    """All that the programs say of themselves."""
    expect(lost(model), compare_graph(truth, model),
           compare_executions(truth, model, around_ns=AROUND_NS),
           compare_latencies(harness, truth, model, around_ns=AROUND_NS))


def alone(name, middleware):
    """A chain on one DDS, without ROS 2: a writer's thread, a listener, a loop with a waitset."""
    def run(harness):
        folder, out = programs(harness), harness.new_file(name + ".truth.json")
        chain = stages(folder, *(f"{middleware}_{how}" for how in ("source", "listener", "waitset")))
        trace = harness.record(name, command(out, [chain]))
        compare(harness, harness.truth(out), harness.model(name, trace))

    return run


@test
def dds_programs_on_cyclone_are_modelled(harness):
    """Plain Cyclone DDS: the model has a writer's thread, a listener, and a loop with a waitset"""
    alone("dds_cyclone", "cyclone")(harness)


@test
def dds_programs_on_fast_dds_are_modelled(harness):
    """Plain Fast DDS: the model has a writer's thread, a listener, and a loop with a waitset"""
    alone("dds_fast", "fast")(harness)


@test
def dds_ros_and_onbeat_flow_programs_appear_in_one_model(harness):
    """Cyclone DDS, Fast DDS, a node of ROS 2 and tasks of onbeat-flow are in one model"""
    folder, out = programs(harness), harness.new_file("dds_mixed.truth.json")
    flow_out = harness.new_file("dds_mixed.flow.json")
    relay = f"{harness.python('kilted')} {os.path.join(DEMO, 'relay.py')}"
    first = [*stages(folder, "cyclone_source", "fast_listener"), relay,
             *stages(folder, "flow_relay", "cyclone_waitset")]
    second = stages(folder, "fast_source", "cyclone_listener", "fast_waitset")
    beside = f"{harness.pipeline()} chain 4 {flow_out}"
    trace = harness.record("dds_mixed", command(out, [first, second], "--beside", beside))
    truth, model, flow = harness.truth(out), harness.model("dds_mixed", trace), load(flow_out)
    for what, parts in flow_truth(flow).items():
        if isinstance(parts, list):
            truth[what] += parts
    # The pipeline's tasks with two vertices say for one of them alone what they burn.
    burnt = {**truth, "callbacks": [c for c in truth["callbacks"] if "cpu_ns" in c]}
    expect(lost(model), compare_graph(truth, model),
           compare_executions(burnt, model, around_ns=AROUND_NS),
           compare_latencies(harness, truth, model, around_ns=AROUND_NS))


# A node of ROS 2 that calls Cyclone DDS too, as a middleware of its would.
IN_ROS = """
import ctypes, ctypes.util, rclpy
rclpy.init()
node = rclpy.create_node("node")
dds = ctypes.CDLL(ctypes.util.find_library("ddsc"))
participant = dds.dds_create_participant({domain}, None, None)
waitset = dds.dds_create_waitset(participant)
for _ in range(20):
    dds.dds_waitset_wait(waitset, None, ctypes.c_size_t(0), ctypes.c_int64(20_000_000))
"""


@test
def dds_calls_of_ros_processes_are_not_recorded(harness):
    """DDS calls of a process with ROS 2 are not recorded, because they belong to its middleware."""
    folder, out = programs(harness), harness.new_file("dds_beneath_ros.truth.json")
    script = harness.file("dds_in_ros.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(IN_ROS.format(domain=os.environ["ROS_DOMAIN_ID"]))
    # The library is probed for a plain program.
    chain = stages(folder, "cyclone_source", "cyclone_waitset")
    trace = harness.record("dds_beneath_ros", command(
        out, [chain], "--count", "10", "--beside", f"{harness.python('kilted')} {script}"))
    waits = {}
    for line in harness.onbeat("export", trace, "--to", "text").splitlines():
        _, _, thread, event = line.split()[:4]
        process = thread.split("/")[0]
        waits[process] = waits.get(process, 0) + (event == "wait")
    processes = load(os.path.join(trace, "manifest.json"))["processes"]
    found = {bool(p["distribution"]): waits.get(str(p["pid"]), 0) for p in processes
             if "source" not in p["command"]}
    need(set(found) == {False, True}, f"not the two processes: {processes}")
    need(found[False] >= 10, f"the plain program waited {found[False]} times")
    need(found[True] == 0, f"a process of ROS 2 waited {found[True]} times in its own DDS")
