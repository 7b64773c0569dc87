"""A session as a service manager runs it: told of its steps, asked for its status, given another plan.

systemd needs to be process 1; here a socket stands in for it, and the unit's own commands are called.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading

from chain import tree, wait_until
from harness import ONBEAT, ROOT, WATCHDOG_S
from registry import Mismatch

UNIT = os.path.join(ROOT, "packaging/systemd/onbeat-shape.service")
# Name, labels in braces, value.
SAMPLE = re.compile(r'[a-z_]+(\{[a-z]+="[^"\\\n]*"\})? -?[0-9.e+-]+')


def unit_words(key, pid):
    """The words of a command of the unit, for the program under test and the main process."""
    with open(UNIT, encoding="utf-8") as file:
        line = next(line for line in file if line.startswith(key + "="))
    words = line.split("=", 1)[1].split()
    return [{"$MAINPID": str(pid)}.get(word, word) for word in words[1:]]


class Manager:
    """A socket in the place of the service manager's."""

    def __init__(self, path):
        self.path, self.said = path, []
        with contextlib.suppress(FileNotFoundError):  # an earlier attempt's
            os.unlink(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        """Keeps what it is told."""
        while True:
            self.said += self.socket.recv(65536).decode().splitlines()


def samples(text):
    """Prometheus samples by their name and labels; fails where a line is none."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    wrong = [line for line in lines if not SAMPLE.fullmatch(line)]
    if wrong or not lines:
        raise Mismatch(f"no samples: {wrong[:3]}")
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


class Service:
    """A session of a chain under a plan, with the commands of the unit."""

    def __init__(self, chain, plan, seconds, *words):
        self.harness = chain.harness
        self.before = chain.harness.privileged()
        self.manager = Manager(chain.harness.file(chain.name + ".notify"))
        self.process = subprocess.Popen(
            [*self.before, ONBEAT, "shape", plan, "--verify", f"{seconds}s", "--json", *words, "--",
             *chain.command(0)], text=True, start_new_session=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=dict(os.environ, NOTIFY_SOCKET=self.manager.path))

    def ask(self, *words, accept=(0,)):
        """Asks it; what is printed."""
        return self.harness.onbeat(*words, before=self.before, accept=accept)

    def status(self):
        """Its status; nothing if it has none."""
        if self.process.poll() is not None:
            raise Mismatch(f"the session has ended: {self.process.stderr.read()[-2000:]}")
        found = json.loads(self.ask("shape", "--status", "--json", accept=(0, 3)))["sessions"]
        return next((s for s in found if s["pid"] in tree(self.process.pid)), None)

    def wait_for(self, what, is_so):
        """Waits for a status; returns it."""
        last = None

        def reached():
            nonlocal last
            last = self.status()
            return last is not None and is_so(last)

        wait_until(what, reached)
        return last

    def reload(self, plan, by, accept=(0,)):
        """Puts another file in the plan's place, and calls the unit's ExecReload."""
        pid = self.status()["pid"]
        shutil.copy(by, plan)
        return self.ask(*unit_words("ExecReload", pid), accept=accept)

    def end(self):
        """Waits until it has ended; its report. What it has left behind is put back by the unit."""
        try:
            out, errors = self.process.communicate(timeout=WATCHDOG_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise Mismatch(f"the session runs after {WATCHDOG_S} s") from None
        if self.process.returncode not in (0, 5):
            raise Mismatch(f"exit code {self.process.returncode}: {errors[-2000:]}")
        self.ask(*unit_words("ExecStopPost", 0), accept=(0, 3))
        return json.loads(out)

    def kill(self):
        """Ends it where a check has failed."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait(60)
