"""A monitor of the application's domain: what rclpy hears on /diagnostics, field by field, and the latencies of chains.

usage: diagnostics.py FILE: writes a line of JSON for each message until SIGTERM, the first one when it listens.
       diagnostics.py FILE values: does so for each std_msgs/Float64 on the topics below /onbeat.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys

from chain import wait_until
from registry import Mismatch

# Bytes and numbers as diagnostic_msgs/msg/DiagnosticStatus has them.
OK, LEVELS = 0, range(4)


@contextlib.contextmanager
def monitor(chain, *words):
    """Listens; yields a function that returns the statuses heard so far, in order; with `values`, topics and values."""
    path = chain.harness.new_file(".".join([chain.name, "diagnostics", *words]))
    with subprocess.Popen([chain.python, os.path.abspath(__file__), path, *words]) as process:
        def heard():
            if process.poll() is not None:
                raise Mismatch(f"the monitor ended with {process.returncode}")
            with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
                lines = [line for line in file if line.endswith("\n")]
                return [status for line in lines[1:] for status in json.loads(line)]
            return []

        try:
            wait_until("the monitor listens", lambda: os.path.exists(path) or heard())
            yield heard
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


def check_told(statuses, chain):
    """Fails if what was heard of a session that has ended is not what a monitor is to hear of it."""
    wrong = [s for s in statuses if s["name"] != f"onbeat: {chain.chain_id}"
             or s["hardware_id"] != socket.gethostname() or s["level"] not in LEVELS]
    if wrong or not statuses:
        raise Mismatch(f"of {len(statuses)} statuses these are wrong: {wrong[:3]}")
    last = statuses[-1]
    if last["values"]["state"] != "stopped" or last["level"] == OK:
        raise Mismatch(f"the last status says nothing of the end: {last}")
    shaping = [s for s in statuses if s["values"].get("state") == "shaping"]
    counts = [int(s["values"]["executions"]) for s in shaping]
    if len(counts) < 3 or counts != sorted(counts) or counts[-1] < 40:
        raise Mismatch(f"the executions are {counts}")
    for status in shaping:
        if (status["level"] == OK) != status["message"].endswith(" in time"):
            raise Mismatch(f"level and reason differ: {status}")


def listen(path):
    """The monitor itself."""
    import rclpy
    from diagnostic_msgs.msg import DiagnosticArray

    def fields(message):
        return [{"level": status.level[0], "name": status.name, "message": status.message,
                 "hardware_id": status.hardware_id, "stamp": message.header.stamp.sec,
                 "values": {v.key: v.value for v in status.values}} for status in message.status]

    rclpy.init()
    node = rclpy.create_node("monitor")
    with open(path, "w", encoding="utf-8", buffering=1) as file:
        node.create_subscription(DiagnosticArray, "/diagnostics",
                                 lambda m: print(json.dumps(fields(m)), file=file), 10)
        print("[]", file=file)
        rclpy.spin(node)


def listen_to_values(path):
    """Subscribes to each topic of latencies when it appears."""
    import rclpy
    from std_msgs.msg import Float64

    rclpy.init()
    node, topics = rclpy.create_node("monitor_of_values"), set()
    with open(path, "w", encoding="utf-8", buffering=1) as file:
        print("[]", file=file)
        while rclpy.ok():
            for topic, types in node.get_topic_names_and_types():
                if topic.startswith("/onbeat/") and topic not in topics:
                    topics.add(topic)
                    node.create_subscription(Float64, topic, lambda m, topic=topic, types=tuple(types): print(
                        json.dumps([{"topic": topic, "types": types, "value": m.data}]), file=file), 10)
            rclpy.spin_once(node, timeout_sec=0.1)


if __name__ == "__main__":
    (listen_to_values if sys.argv[2:] == ["values"] else listen)(sys.argv[1])
