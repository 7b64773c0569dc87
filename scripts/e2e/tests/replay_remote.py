"""Replay between two hosts: a recording is read on one and played on the other, whole and on time."""

import hashlib
import json
import os
import re
import subprocess
import sys

from harness import ONBEAT
from registry import TIMED_TEST, Mismatch, need, test
from tests.hosts import two_hosts
from tests.replay import WATCHDOG_S, busy_neighbours, compare, pcap, times

# Some 10 MB: more than what is on its way (4 MiB) and the buffer together.
COUNT, RATE, MEMORY = 14_000, 4, "1M"
# Prints its port, then the hash of each datagram, then ends once nothing comes for two seconds.
COLLECTOR = """
import hashlib, socket
device = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
device.setsockopt(socket.SOL_SOCKET, 33, 32 << 20)
device.bind(("127.0.0.1", 0))
print(device.getsockname()[1], flush=True)
came = [device.recv(65536)]
device.settimeout(2)
try:
    while True:
        came.append(device.recv(65536))
except TimeoutError:
    print("\\n".join(hashlib.sha1(data).hexdigest() for data in came), flush=True)
"""


def ended(process, what):
    """Returns the output of a process, which must end with exit code 0."""
    out, errors = process.communicate(timeout=WATCHDOG_S)
    need(process.returncode == 0, f"{what}: exit code {process.returncode}: {errors}")
    return out


@test(places=TIMED_TEST)
def replay_from_another_host_is_whole_and_in_order(harness):
    """A capture on one host goes by UDP on another, all in order, with a buffer that holds a part of it"""
    path, report = harness.file("remote.pcap"), harness.new_file("remote.json")
    payloads = pcap(path, COUNT)
    key = harness.new_file("remote.key")
    harness.onbeat("link", "key", key)
    started = []

    def start(words, **options):
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, **options)
        started.append(process)
        return process

    with two_hosts(harness) as hosts, busy_neighbours():
        try:
            collector = start([*hosts[1], sys.executable, "-c", COLLECTOR])
            port = int(collector.stdout.readline())
            receiver = start([*hosts[1], ONBEAT, "replay", "link:10.77.0.2:0", "--key", key, "--rate", str(RATE),
                              "--memory", MEMORY, "--to", f"udp:127.0.0.1:{port}", "--report", report],
                             stderr=subprocess.PIPE)
            told = receiver.stderr.readline()
            place = re.search(r"link:10\.77\.0\.2:\d+", told)
            if not place:
                raise Mismatch(f"it does not say where it waits: {told}")
            sender = start([*hosts[0], ONBEAT, "replay", path, "--to", place[0], "--key", key, "--json"],
                           stderr=subprocess.PIPE)
            sent = json.loads(ended(sender, "sender"))
            ended(receiver, "receiver")
            came = ended(collector, "collector").split()
        finally:
            for process in started:
                process.kill()
                process.wait()
    need(sent["items"] == COUNT and not sent["damage"], f"{sent}")
    compare("payloads", came, [hashlib.sha1(payload).hexdigest() for payload in payloads])
    with open(report, encoding="utf-8") as file:
        seen = json.load(file)
    recorded = list(times(COUNT, 0.001))
    need(seen["machine"]["wall_ns"] >= (recorded[-1] - recorded[0]) // RATE, "it ended before its time")
    need(seen["machine"]["buffer_bytes"] < os.path.getsize(path) // 2, f"all of it was in the buffer: {seen['machine']}")
    late = seen["lateness_ns"]
    harness.figures.append(f"{seen['items']['played']} items, late p99 {(late['p99'] or 0) / 1000:.0f} us, "
                           f"max {late['extent']['max'] / 1000:.0f} us, {seen['items']['starved']} not in the buffer")
