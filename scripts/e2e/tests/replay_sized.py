"""Replay: the playback buffer is sized by measured curves, what is too small is told before; keys on a terminal."""

import json
import os
import pty
import subprocess
import time

from harness import ONBEAT
from registry import need, test
from tests.replay import WATCHDOG_S, Device, candump, compare, replay


def run(words, code):
    """Runs the command to its end: what it prints and what it tells."""
    done = subprocess.run([ONBEAT, "replay", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=WATCHDOG_S, check=False)
    need(done.returncode == code, f"exit code {done.returncode}, not {code}: {done.stderr}")
    return done.stdout, done.stderr


@test
def replay_chooses_the_buffer_size_that_a_recording_needs(harness):
    """The buffer takes what the recording needs, within its memory. One that is too small is reported before playing"""
    path = harness.file("sized.log")
    frames = candump(path, 20_000)
    plans = {rate: json.loads(run([path, "--plan", "--json", "--rate", str(rate), "--stall", "200ms"], 0)[0])
             for rate in (1, 4)}
    need(plans[1]["wanted_bytes"] < plans[4]["wanted_bytes"], f"faster needs more: {plans}")
    device = Device()
    words = [path, "--rate", "4", "--stall", "200ms", "--to", device.address]
    seen = replay(harness, "sized", words)
    compare("frames", device.close(), frames)
    sizing = seen["sizing"]
    need(sizing["buffer_bytes"] == seen["machine"]["buffer_bytes"] == sizing["wanted_bytes"], f"{sizing}")
    need(sizing["stall_ns"] == 200_000_000, f"{sizing}")
    # A thousand times as fast: 10 s of recording in 10 ms, and half a megabyte is not all of it.
    told = run([path, "--rate", "1000", "--buffer", "512K", "--to", "udp:127.0.0.1:9"], 0)[1]
    need("--stall" in told or "too small" in told or "will be late" in told, f"not told: {told}")


@test
def replay_steps_pauses_and_ends_by_keys(harness):
    """On a terminal, s plays one item of a paused replay, space continues, and q ends"""
    path, device = harness.file("keys.log"), Device()
    frames = candump(path, 200)
    terminal, inner = pty.openpty()
    words = [ONBEAT, "replay", path, "--paused", "--loop", "1000", "--to", device.address]
    # A terminal of its own session, in whose foreground the command is.
    process = subprocess.Popen(["setsid", "--ctty", "--wait", *words], stdin=inner, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, start_new_session=False)
    os.close(inner)
    try:
        for count in (1, 2, 3):
            press(terminal, b"s", device, count)
            time.sleep(0.2)
            need(len(device.got) == count, f"{len(device.got)} items after {count} steps")
        press(terminal, b" ", device, 500)
        os.write(terminal, b"q")
        out = process.communicate(timeout=WATCHDOG_S)[0].decode()
        need(process.returncode == 0, f"exit code {process.returncode}: {out}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(terminal)
    got = device.close()
    compare("frames", got, (frames * (len(got) // len(frames) + 1))[: len(got)])
    need("the replay was ended earlier" in out, f"it did not say that it was ended: {out}")


def press(terminal, key, device, least):
    """Presses a key once, and waits for so many items."""
    os.write(terminal, key)
    end = time.monotonic() + WATCHDOG_S
    while len(device.got) < least:
        need(time.monotonic() < end, f"{len(device.got)} of {least} items after {key}")
        time.sleep(0.01)
