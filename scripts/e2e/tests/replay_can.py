"""Replay into a CAN interface: with a bag and a capture at once, beside canplayer, and into a controller.

Needs a kernel with virtual CAN interfaces; `./dev test replay-can` boots one in a guest. There time is emulated: what
arrives and in which order is looked at, and lateness is not.
"""

import contextlib
import hashlib
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time

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


def run(*words):
    """Runs a replay. Returns its exit code, its JSON and what it said."""
    done = subprocess.run([ONBEAT, "replay", *words], capture_output=True, text=True, timeout=WATCHDOG_S, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout.startswith("{") else {}, done.stderr


def controller():
    """The name of the guest's CAN controller. A real one of this machine is left alone."""
    if not os.environ.get("ONBEAT_EMULATED"):
        raise Skip("the CAN controller is that of the guest that ./dev test replay-can boots")
    for name in sorted(os.listdir("/sys/class/net")):
        if os.path.exists(f"/sys/class/net/{name}/device"):
            with open(f"/sys/class/net/{name}/type", encoding="ascii") as file:
                # ARPHRD_CAN
                if file.read().strip() == "280":
                    return name
    raise Skip("the guest has no CAN controller")


def ip(*words):
    """Runs `ip link set`."""
    done = subprocess.run(["ip", "link", "set", *words], capture_output=True, text=True, check=False)
    need(done.returncode == 0, f"ip link set {words}: {done.stderr}")


def ask(process, path, **order):
    """Sends an order to a running replay, as soon as it listens. Returns the state that it answers with."""
    end = time.monotonic() + WATCHDOG_S
    while True:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(WATCHDOG_S)
            try:
                link.connect(path)
            except OSError:
                need(process.poll() is None and time.monotonic() < end, "nobody listens at the socket")
                time.sleep(0.1)
                continue
            link.sendall(json.dumps(order).encode() + b"\n")
            reply = json.loads(link.makefile().readline())
            need(reply["ok"], f"{order}: {reply}")
            return reply["state"]


@test(places=TIMED_TEST)
def replay_reads_the_bitrate_and_refuses_a_can_controller_that_cannot_send(harness):
    """A controller's bitrate gives the bus load, listen-only and down are refused; orders step through frames"""
    name, path, count = controller(), harness.file("controller.log"), 1000
    candump(path, count)
    with open(path, encoding="ascii") as file:
        text = file.read()
    with open(path, "w", encoding="ascii") as file:
        file.write(text.replace(" can0 ", " can1 "))
    frames = candump(harness.file("same.log"), count)
    channel = [path, "--channel", f"1:={name}"]
    ip(name, "down")
    code, _, said = run(*channel)
    need(code == 1 and "is down" in said, f"down: {code} {said}")
    ip(name, "type", "can", "bitrate", "500000", "listen-only", "on")
    ip(name, "up")
    code, _, said = run(*channel)
    need(code == 1 and "listen-only" in said, f"listen-only: {code} {said}")
    ip(name, "down")
    ip(name, "type", "can", "bitrate", "500000", "listen-only", "off")
    ip(name, "up")
    try:
        code, plan, said = run(*channel, "--plan", "--json", "--rate", "20")
        bus = plan["buses"][0]
        need(bus["interface"] == name and bus["bitrate"] == 500_000 and bus["frames"] == count, f"{bus}")
        # Without and with the largest number of stuff bits, at 2 us a bit.
        least = sum(2000 * (47 + 8 * (n % 9)) for n in range(count))
        most = least + sum(2000 * ((33 + 8 * (n % 9)) // 4) for n in range(count))
        need(least <= bus["busy_ns"] <= most, f"the bus is busy for {bus['busy_ns']} ns, not {least} to {most}")
        need(bus["peak_load"] > 1, f"a load of {bus['peak_load']} at 20 times the rate")
        # In a folder of its own: the guest's shared folder has no sockets.
        control = os.path.join(tempfile.mkdtemp(), "control")
        listener = Bus(name)
        process = subprocess.Popen([ONBEAT, "replay", *channel, "--json", "--paused", "--control", control],
                                   stdout=subprocess.PIPE, text=True)
        try:
            ask(process, control, do="step", items=3)
            end = time.monotonic() + WATCHDOG_S
            while ask(process, control, do="state")["played"] < 3 and time.monotonic() < end:
                time.sleep(0.1)
            time.sleep(1)
            need(len(listener.got) == 3, f"{len(listener.got)} frames after 3 steps")
            ask(process, control, do="continue")
            seen = json.loads(process.communicate(timeout=WATCHDOG_S)[0])
        finally:
            process.kill()
            process.wait()
            shutil.rmtree(os.path.dirname(control))
        compare("frames", listener.close(), frames)
        figures = seen["buses"][0]
        need(figures["frames"] == count and figures["load"] > 0, f"{figures}")
        harness.figures.append(f"load {figures['load']:.3f}, at 20 times the rate {bus['peak_load']:.1f} at most")
    finally:
        ip(name, "down")
    with can_interface() as interface:
        code, seen, said = run(path, "--to", f"can:{interface}", "--json")
        need(code == 0 and seen["buses"] == [], f"a virtual interface has a bitrate: {seen.get('buses')} {said}")
        code, seen, said = run(path, "--to", f"can:{interface}", "--bitrate", "250k", "--json")
        need(code == 0 and seen["buses"][0]["frames"] == count, f"{seen.get('buses')} {said}")
