"""Bags that another program wrote: those of rosbags, in every form it has, read message by message."""

import hashlib
import os
import shutil
import struct
import subprocess
import sys

from registry import Skip, need, test
from tests.replay import NODE, compare, read_lines, replay, ros_variables, times

PACKAGE = "rosbags==0.11.9"
COUNT = 100
# Arguments: a folder, a name before the topics, messages of each bag. Writes a bag of each form that there is, and
# prints its name.
WRITER = """
import struct, sys
from pathlib import Path
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore
folder, namespace, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
types = get_typestore(Stores.ROS2_JAZZY)
for version in (8, 9):
    for plugin in StoragePlugin:
        for mode in CompressionMode:
            if (plugin, mode) == (StoragePlugin.SQLITE3, CompressionMode.STORAGE):
                continue
            name = f"v{version}_{plugin.name}_{mode.name}".lower()
            writer = Writer(folder / name, version=version, storage_plugin=plugin)
            if mode != CompressionMode.NONE:
                writer.set_compression(mode, CompressionFormat.ZSTD)
            with writer:
                topic = writer.add_connection(f"{namespace}/{name}", "std_msgs/msg/String", typestore=types)
                for time_ns in map(int, sys.stdin.readline().split()):
                    text = f"{name} {time_ns}".encode() + bytes(1)
                    data = bytes([0, 1, 0, 0]) + struct.pack("<I", len(text)) + text
                    writer.write(topic, time_ns, data + bytes(-len(data) % 4))
            print(name, flush=True)
"""


def message(name, time_ns):
    """Returns a message as the writer puts it into a bag."""
    text = f"{name} {time_ns}".encode() + bytes(1)
    data = bytes([0, 1, 0, 0]) + struct.pack("<I", len(text)) + text
    return data + bytes(-len(data) % 4)


def interpreter():
    """A Python that has the package, in the folder of other downloads."""
    cache = os.environ.get("ONBEAT_CACHE", os.path.expanduser("~/.cache/onbeat"))
    folder = os.path.join(cache, "rosbags")
    python, stamp = os.path.join(folder, "bin/python"), os.path.join(folder, "." + PACKAGE)
    if os.path.exists(stamp):
        return python
    shutil.rmtree(folder, ignore_errors=True)
    for command in ([sys.executable, "-m", "venv", folder],
                    [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", PACKAGE]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Skip(f"{PACKAGE} cannot be installed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    with open(stamp, "w", encoding="utf-8"):
        return python


@test
def replay_reads_every_kind_of_bag_that_rosbags_writes(harness):
    """Bags written by rosbags, in both versions, storages and all compressions: each whole, in order, the same bytes"""
    folder = harness.file("rosbags")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    recorded = list(times(COUNT, 0.01))
    lines = (" ".join(map(str, recorded)) + "\n") * 100
    done = subprocess.run([interpreter(), "-c", WRITER, folder, harness.namespace, str(COUNT)], input=lines,
                          capture_output=True, text=True, check=False)
    need(done.returncode == 0, f"rosbags failed: {done.stderr[-1000:]}")
    names = done.stdout.split()
    need(len(names) == 14, f"only {names} were written")
    topics = [f"{harness.namespace}/{name}" for name in names]
    words = [harness.python("kilted"), "-c", NODE, str(COUNT * len(names)), *topics]
    node = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        need(node.stdout.readline().strip() == "ready", "the node did not start")
        replay(harness, "rosbags-played", [*(os.path.join(folder, name) for name in names), "--wait", "60s"],
               env=ros_variables(harness, "kilted"))
        got = read_lines(node, COUNT * len(names))
    finally:
        node.kill()
        node.wait()
    for name, topic in zip(names, topics):
        compare(name, [line.split()[1] for line in got if line.split()[0] == topic],
                [hashlib.sha1(message(name, time_ns)).hexdigest() for time_ns in recorded])
    harness.figures.append(f"{len(names)} bags")
