"""Replay into a CAN interface: with a bag and a capture at once, and beside canplayer.

Needs a kernel with virtual CAN interfaces; `./dev test replay-can` boots one in a guest. There time is emulated: what
arrives and in which order is looked at, and lateness is not.
"""

import contextlib
import hashlib
import shutil
import socket
import struct
import subprocess
import threading

from harness import ONBEAT
from registry import TIMED_TEST, Skip, need, test
from tests.replay import (NODE, WATCHDOG_S, Device, busy_neighbours, candump, compare, mcap, pcap, read_lines, replay,
                          ros_variables, times)

COUNT = 400
INTERFACE = "vcan_e2e"


@contextlib.contextmanager
def can_interface():
    """A virtual CAN interface."""
    subprocess.run(["ip", "link", "del", INTERFACE], capture_output=True, check=False)
    made = subprocess.run(["ip", "link", "add", INTERFACE, "type", "vcan"], capture_output=True, text=True, check=False)
    if made.returncode:
        why = (made.stderr.strip().splitlines() or ["?"])[-1]
        raise Skip(f"no virtual CAN interface can be made ({why}); ./dev test replay-can boots a guest that has them")
    try:
        subprocess.run(["ip", "link", "set", INTERFACE, "up"], check=True)
        yield INTERFACE
    finally:
        subprocess.run(["ip", "link", "del", INTERFACE], check=False)


class Bus(Device):
    """A socket on a CAN interface that keeps the frames it gets."""

    def __init__(self, interface):
        # pylint: disable=super-init-not-called
        self.socket = socket.socket(socket.AF_CAN, socket.SOCK_RAW, socket.CAN_RAW)
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 32 << 20)
        self.socket.bind((interface,))
        self.socket.settimeout(0.5)
        self.got, self.over = [], False
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()


@test(places=TIMED_TEST)
def replay_into_ros_can_and_udp_is_whole_and_in_order(harness):
    """A bag, a candump and a capture on one axis: into ROS 2, a CAN interface and UDP, each whole and in order"""
    topic = f"{harness.namespace}/both"
    items = [(now, 0, b"\0\1\0\0" + struct.pack("<I8s", 8, f"{n:07}\0".encode()))
             for n, now in enumerate(times(COUNT, 0.002))]
    paths = [harness.file(f"can.{ending}") for ending in ("mcap", "log", "pcap")]
    mcap(paths[0], items, [topic])
    frames, payloads = candump(paths[1], COUNT), pcap(paths[2], COUNT)
    with can_interface() as interface:
        bus, device = Bus(interface), Device()
        node = subprocess.Popen([harness.python("kilted"), "-c", NODE, str(COUNT), topic], stdout=subprocess.PIPE,
                                text=True)
        try:
            need(node.stdout.readline().strip() == "ready", "the node did not start")
            with busy_neighbours():
                seen = replay(harness, "can", [*paths, "--wait", "60s", "--to", "ros", "--to", device.address, "--to",
                                               f"can:{interface}"], env=ros_variables(harness, "kilted"))
                lines = read_lines(node, COUNT)
        finally:
            node.kill()
            node.wait()
        need(seen["items"]["played"] == 3 * COUNT, f"{seen['items']}")
        compare("messages", [line.split()[1] for line in lines], [hashlib.sha1(i[2]).hexdigest() for i in items])
        compare("frames", bus.close(), frames)
        compare("payloads", device.close(), payloads)


def canplayer(path, interface):
    """Runs canplayer on a log of two interfaces."""
    return subprocess.run(["canplayer", "-I", path, f"{interface}=can0", f"{interface}=can1"], capture_output=True,
                          text=True, timeout=WATCHDOG_S, check=False)


@test(places=TIMED_TEST)
def replay_loses_no_can_frame_beside_busy_programs(harness):
    """Frames of a log on a CAN interface, beside busy neighbours: ours all and in order, canplayer's counted"""
    if not shutil.which("canplayer"):
        raise Skip("canplayer is missing: apt-get install can-utils")
    path = harness.file("canplayer.log")
    frames = candump(path, 4 * COUNT)
    with can_interface() as interface, busy_neighbours():
        bus = Bus(interface)
        done = subprocess.run([ONBEAT, "replay", path, "--to", f"can:{interface}"], capture_output=True, text=True,
                              timeout=WATCHDOG_S, check=False)
        need(done.returncode == 0, done.stderr)
        compare("frames", bus.close(), frames)
        bus = Bus(interface)
        done = canplayer(path, interface)
        need(done.returncode == 0, f"canplayer: {done.returncode} {done.stderr}")
        got = bus.close()
    turned = sum(got[i] != frame for i, frame in enumerate(frames[:len(got)]))
    harness.figures.append(f"{len(frames)} frames; canplayer: {len(frames) - len(got)} lost, {turned} at another place")
