"""Recording and modelling: applications that know their own timing, recorded alone."""

import os
import subprocess
import sys
import time

from compare import compare_executions, compare_graph, expect_all, lost, median
from harness import ROOT
from registry import TIMED_TEST, WAITING_TEST, Mismatch, Skip, expect, register, test

BURNER = os.path.join(ROOT, "demos/syn/burner.py")
PARKING = os.path.join(ROOT, "demos/parking/run.py")
# SYN with callbacks of 10 to 18 ms at a third of a core: what a client library does around a
# callback is small beside it, and a machine that others use too is not overloaded.
GENTLE = ["--duration", "10", "--rate", "1.25", "--scale", "2"]


def syn_variant(distro, variant, *words, native=None):
    """Makes a test of one way to run SYN."""
    name = f"syn_{distro}_{variant}"

    def run(harness):
        extra = ["--native", os.path.join(harness.native(distro), native)] if native else []
        # Which of rclpy's worker threads goes on after a response cannot be told for sure: its
        # graph and execution times are compared, its chains' latencies are not.
        workers = not native and "multi" in words
        truth, model = harness.syn(name, distro, *GENTLE, *words, *extra)
        truth["compiled"], truth["several_threads"] = bool(native), "--threads" in words
        expect_all(harness, truth, model, latencies=not workers)

    register(run, name=name, description=f"SYN on {distro}: {' '.join([native or 'rclpy', *words])}",
             left_out=SAME_ON_KILTED if distro == "jazzy" and variant not in JAZZY else None)


SAME_ON_KILTED = "the same on Kilted is run, and what differs on Jazzy by others"
# Ways to run SYN; with Jazzy those that meet what differs between the distributions, and the
# others with --all.
JAZZY = ["rclpy", "rclpy_multi_threaded", "rcl", "rclcpp_one_process_three_threads"]
for _distro in ("kilted", "jazzy"):
    syn_variant(_distro, "rclpy")
    syn_variant(_distro, "rclpy_one_process", "--layout", "one")
    syn_variant(_distro, "rclpy_twin_timers", "--twin")
    syn_variant(_distro, "rclpy_multi_threaded", "--executor", "multi")
    syn_variant(_distro, "rcl", native="syn")
    syn_variant(_distro, "rcl_one_process_three_threads", "--layout", "one", "--executor", "multi",
                "--threads", "3", native="syn")
    syn_variant(_distro, "rclcpp", "--as", "rclcpp", native="syn-rclcpp")
    syn_variant(_distro, "rclcpp_inlined_execute", "--as", "rclcpp", native="syn")
    syn_variant(_distro, "rclcpp_one_process_three_threads", "--as", "rclcpp", "--layout", "one",
                "--executor", "multi", "--threads", "3", native="syn-rclcpp")
    syn_variant(_distro, "rclcpp_intra_process", "--as", "rclcpp", "--intra", "--layout",
                "n1,n2,n3/n4,n5,n6", native="syn-rclcpp")


@test(places=TIMED_TEST)
def preemption_lengthens_the_response_not_the_execution_time(harness):
    """Beside a process of higher priority on the core, response time grows and execution time does not."""
    if len(os.sched_getaffinity(0)) < 2:
        raise Skip("needs two CPUs: one is taken away in part")
    cpu = max(os.sched_getaffinity(0))
    # Low-priority load and the application share a core with the burner, so give it all of them.
    before = harness.privileged()
    burner = subprocess.Popen([*before, sys.executable, BURNER, "--cpu", str(cpu), "--period", "10",
                               "--busy", "3"], stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(0.5)
        if burner.poll() is not None:
            raise Skip(burner.stderr.read().strip())
        truth, model = harness.syn("preempted", "kilted", *GENTLE,
                                 prefix=["taskset", "-c", str(cpu)])
    finally:
        burner.terminate()
        burner.wait()
    wrong = lost(model) + compare_graph(truth, model) + compare_executions(truth, model)
    ratios = [c["response_ns"]["mean"] / c["exec_ns"]["mean"] for c in model["callbacks"]
              if c["type"] != "sync"]
    if median(ratios) < 1.2:
        wrong.append(f"response time is only {median(ratios):.2f} times the execution time, though"
                     " a burner took 30 % of the core")
    preemptions = sum(c["preemptions"] for c in model["callbacks"])
    if preemptions == 0:
        wrong.append("no preemption was seen")
    expect(wrong)


@test
def ten_items_in_a_queue_keep_their_own_latencies(harness):
    """Ten items and more wait in a queue, and each keeps its own latency."""
    truth, model = harness.case("ten_waiting", "kilted", "queue", "--duration", "6")
    if max(truth["chains"][0]["latency_ns"]) < 10 * 8e6:
        raise Mismatch("the application itself saw no ten items wait")
    expect_all(harness, truth, model)


@test
def items_taken_from_and_lost_in_a_short_queue_add_up(harness):
    """The queue is too short for its bursts. The items taken and lost add up to those published."""
    truth, model = harness.case("queue_overwrites", "kilted", "queue", "--duration", "6", "--depth",
                              "5")
    sent = 12 * next(c["count"] for c in truth["callbacks"] if c["type"] == "timer")
    taken = next(c["count"] for c in truth["callbacks"] if c["type"] == "subscription")
    wrong = compare_graph(truth, model) + compare_executions(truth, model)
    if taken >= sent:
        wrong.append("the application itself lost nothing")
    edge = model["edges"][0]
    # The last items of a burst overwrite earlier ones. All other missing items are lost.
    missing = edge["overwritten"] + edge["lost"]
    if (edge["published"], edge["taken"], missing) != (sent, taken, sent - taken):
        wrong.append(f"published {sent}, taken {taken}, missing {sent - taken}; the model says"
                     f" {edge['published']}, {edge['taken']}, {missing}")
    if edge["overwritten"] == 0:
        wrong.append("a queue that keeps the last overwrote nothing")
    expect(wrong)


@test(places=WAITING_TEST)
def two_nodes_with_the_same_name_are_two_nodes(harness):
    """Two nodes with the same name are two nodes in the model."""
    expect_all(harness, *harness.case("same_name", "kilted", "same-name"))


@test(places=WAITING_TEST)
def a_latched_message_reaches_a_subscriber_that_starts_afterwards(harness):
    """A subscriber that comes after the publication still gets an edge."""
    expect_all(harness, *harness.case("latched", "jazzy", "latched"))


PARKING_GRAPH = {
    "callbacks": [
        ("/lidar_front/lidar_front:timer(100ms)", "timer", ["/lidar_front/points_raw"]),
        ("/lidar_rear/lidar_rear:timer(100ms)", "timer", ["/lidar_rear/points_raw"]),
        ("/lidar_front/filter_transform_vlp16_front:subscription(/lidar_front/points_raw)",
         "subscription", ["/lidar_front/points_filtered"]),
        ("/lidar_rear/filter_transform_vlp16_rear:subscription(/lidar_rear/points_raw)",
         "subscription", ["/lidar_rear/points_filtered"]),
        ("/point_cloud_fusion:subscription(/lidar_front/points_filtered)", "subscription", []),
        ("/point_cloud_fusion:subscription(/lidar_rear/points_filtered)", "subscription", []),
        ("/point_cloud_fusion:sync(/lidars/points_fused)", "sync", ["/lidars/points_fused"]),
        ("/voxel_grid_cloud_node:subscription(/lidars/points_fused)", "subscription",
         ["/lidars/points_fused_downsampled"]),
        ("/p2d_ndt_localizer_node:subscription(/lidars/points_fused_downsampled)", "subscription",
         ["/localization/ndt_pose"]),
    ],
    # By position above.
    "edges": [(0, 2, "/lidar_front/points_raw"), (1, 3, "/lidar_rear/points_raw"),
              (2, 4, "/lidar_front/points_filtered"), (3, 5, "/lidar_rear/points_filtered"),
              (4, 6, "/lidar_front/points_filtered"), (5, 6, "/lidar_rear/points_filtered"),
              (6, 7, "/lidars/points_fused"), (7, 8, "/lidars/points_fused_downsampled")],
}


def parking_truth():
    """Figure 3.8b in the form of SYN's ground truth."""
    ids = [c[0] for c in PARKING_GRAPH["callbacks"]]
    return {
        "callbacks": [{"id": i, "type": t, "outputs": o} for i, t, o in PARKING_GRAPH["callbacks"]],
        "edges": [{"from": ids[a], "to": ids[b], "topic": t} for a, b, t in PARKING_GRAPH["edges"]],
        "junctions": [{"callback": ids[6], "kind": "and", "inputs": [ids[4], ids[5]]}],
        "chains": [{"callbacks": [ids[0], ids[2], ids[4], ids[6], ids[7], ids[8]]},
                   {"callbacks": [ids[1], ids[3], ids[5], ids[6], ids[7], ids[8]]}],
    }


@test
def the_parking_graph_equals_figure_3_8b_of_the_thesis(harness):
    """The parking demo's graph equals Figure 3.8b, and its latency the one it carries in-band."""
    log = harness.file("parking.csv")
    trace = harness.record("parking", [harness.python("kilted"), PARKING, "--duration", "10",
                                     "--latency-log", log])
    model = harness.model("parking", trace)
    wrong = lost(model) + compare_graph(parking_truth(), model)
    with open(log, encoding="utf-8") as file:
        own = median([int(line.split(",")[1]) for line in file.readlines()[1:]])
    # The pose carries the older of two stamps that are taken together, so either chain will do.
    off = min((abs(c["latency_ns"]["p50"] - own) for c in model["chains"]), default=None)
    if off is None or off > 1_000_000:
        wrong.append(f"no chain's median latency is within 1 ms of {own / 1e6:.2f} ms: {off}")
    expect(wrong)
