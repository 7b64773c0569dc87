"""Recordings of everything that runs on the machine, and of programs that run already.

Other applications of the machine are in such a recording too. SYN therefore runs in a namespace that
only this test uses, and what is compared is the part of the model within it.
"""

import os
import subprocess
import time

from compare import compare_graph, differences, expect_all, lost, own
from harness import load
from registry import TIMED_TEST, Mismatch, Skip, expect, test
from tests.flow import flow_truth
from tests.observe import GENTLE


def syn_command(harness, distro, truth, *words):
    """The words that run SYN in the test's namespace."""
    return harness.syn_command(distro, truth, "--namespace", harness.namespace, *words)


def own_model(harness, name, trace):
    """The model of what runs in the test's namespace."""
    return own(harness.model(name, trace), harness.namespace + "/")


@test
def kilted_and_jazzy_are_recorded_in_one_trace(harness):
    """One recording has nodes of Kilted and of Jazzy: half of SYN's nodes in each."""
    truths = [harness.file(f"both.{part}.truth.json") for part in "ab"]
    domains = (os.environ["ROS_DOMAIN_ID"], harness.other_domain())
    begun = [harness.new_file(f"both.{part}.begun") for part in "ab"]
    with harness.recording("both") as trace:
        children = []
        for distro, truth, domain, there in zip(("kilted", "jazzy"), truths, domains, begun):
            children.append(subprocess.Popen(
                syn_command(harness, distro, truth, "--duration", "8", "--nodes", "n1,n4,n5",
                            "--begun", there),
                env=dict(os.environ, ROS_DOMAIN_ID=domain)))
            # The system that starts first has the first nodes of each name.
            harness.begun(there, children[-1])
        if any([child.wait() for child in children]):
            raise Mismatch(f"SYN ended with {[child.returncode for child in children]}")
    model = own_model(harness, "both", trace)
    # A foreign application may bring a third.
    if not {"jazzy", "kilted"} <= set(model["runs"][0]["distribution"]):
        raise Mismatch(f"distributions are {model['runs'][0]['distribution']}")
    expected = [c["id"] for c in load(truths[0])["callbacks"]]
    # The other system has the same nodes: they are the second of their names.
    second = [c.replace(":", "#2:", 1) for c in expected]
    second = [c + "#2" if c.endswith(f"@{harness.namespace}/n1") else c for c in second]
    expect(lost(model), differences("vertex", expected + second,
                                    [c["id"] for c in model["callbacks"]]))


@test
def late_attach_finds_the_names_of_a_running_system(harness):
    """In a system that runs already, topics and services are found by name and form a graph."""
    truth, begun = harness.file("late.truth.json"), harness.new_file("late.begun")
    app = subprocess.Popen(syn_command(harness, "kilted", truth, "--duration", "25", "--begun",
                                       begun, "--native",
                                       os.path.join(harness.native("kilted"), "syn-rclcpp"),
                                       "--as", "rclcpp"))
    try:
        harness.begun(begun, app)
        time.sleep(1)
        with harness.recording("late", "--duration", "6s") as trace:
            time.sleep(6)
    finally:
        app.wait()
    model, known = own_model(harness, "late", trace), load(truth)
    wrong = differences("topic", {e["topic"] for e in known["edges"]},
                        {e["topic"] for e in model["edges"]})
    # Which subscriptions are of one node is not known where a node's name is not: a synchroniser is
    # then not concluded.
    ran, found = ([c["id"] for c in m["callbacks"] if c["type"] != "sync"] for m in (known, model))
    if len(found) != len(ran):
        wrong.append(f"{len(ran)} callbacks run, the model has {len(found)}: {found}")
    expect(wrong)


@test
def a_process_that_starts_during_a_recording_is_recorded(harness):
    """A process that starts while everything is recorded is in the model."""
    truth = harness.file("later.truth.json")
    with harness.recording("later") as trace:
        time.sleep(1)
        subprocess.run(syn_command(harness, "jazzy", truth, *GENTLE), check=True)
    expect_all(harness, harness.truth(truth), own_model(harness, "later", trace))


@test
def a_compiled_program_that_starts_during_a_recording_is_recorded(harness):
    """Compiled programs that start later initialise within ms, so their installation is probed before."""
    truth = harness.file("later-program.truth.json")
    os.environ["AMENT_PREFIX_PATH"] = harness.env("jazzy")
    with harness.recording("later-program") as trace:
        subprocess.run(syn_command(harness, "jazzy", truth, *GENTLE, "--native",
                                   os.path.join(harness.native("jazzy"), "syn-rclcpp"),
                                   "--as", "rclcpp"), check=True)
    late = [p["command"] for p in load(os.path.join(trace, "manifest.json"))["processes"]
            if p["late"] and harness.namespace in p["command"]]
    if late:
        raise Mismatch(f"counted as late: {late}")
    expect_all(harness, harness.truth(truth), own_model(harness, "later-program", trace))


@test
def container_processes_with_other_library_paths_are_recorded(harness):
    """Processes in a mount namespace with other library paths are in the model."""
    env = harness.env("jazzy")
    truth = harness.file("container.truth.json")
    place = harness.file("elsewhere")
    os.makedirs(place, exist_ok=True)
    command = syn_command(harness, "jazzy", truth, *GENTLE)
    command[0] = place + "/bin/python"
    script = (f'mount --bind "{env}" "{place}" && mount -t tmpfs none "{os.path.dirname(env)}" && '
              'exec "$@"')
    if subprocess.run([*harness.privileged(), "unshare", "-m", "true"], check=False,
                      capture_output=True).returncode != 0:
        raise Skip("unshare -m is refused here")
    with harness.recording("container") as trace:
        subprocess.run([*harness.privileged(), "unshare", "-m", "sh", "-c", script, "sh", *command],
                       check=True)
    expect_all(harness, harness.truth(truth), own_model(harness, "container", trace))


@test
def flow_tasks_are_found_by_name_after_a_late_attach(harness):
    """In a flow program that runs already, tasks are found by name and form a graph."""
    out = harness.file("flow_late.truth.json")
    app = subprocess.Popen([harness.pipeline(), "graph", "12", out])
    try:
        time.sleep(2)
        with harness.recording("flow_late", "--pid", str(app.pid)) as trace:
            time.sleep(3)
    finally:
        app.wait()
    truth, model = flow_truth(load(out)), harness.model("flow_late", trace)
    expect(lost(model), compare_graph(truth, model))


# Alone: no other flow program of ours shall be in the recording.
@test(places=TIMED_TEST)
def flow_program_that_starts_during_a_recording_is_recorded(harness):
    """A flow program that starts while everything is recorded is in the model."""
    out = harness.file("flow_later.truth.json")
    with harness.recording("flow_later") as trace:
        subprocess.run([harness.pipeline(), "graph", "3", out], check=True)
    model = own(harness.model("flow_later", trace), "/car/")
    found, expected = ({c["id"] for c in m["callbacks"]}
                       for m in (model, flow_truth(load(out))))
    expect(lost(model), differences("vertex", expected, found))
