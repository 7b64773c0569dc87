"""Runs `onbeat monitor` as its unit does: with a socket of the service manager, a watchdog, and restarts."""

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ONBEAT = os.path.abspath(os.environ.get("ONBEAT", os.path.join(ROOT, "target/release/onbeat")))
APPLICATION = os.path.join(os.path.dirname(os.path.abspath(__file__)), "application.py")
CHAINS = 10
LIMIT_MS = 15
# The unit waits for 5 s and 30 s. Here faults follow one another quickly.
RESTART_S = 0.2
WATCHDOG_S = 3
START_S = 60
WATCHED = "requirements hold"


def say(text):
    """Prints a line at once."""
    print(text, flush=True)


def wait_until(what, reached, seconds=START_S):
    """Waits until a function returns something true; returns it."""
    deadline = time.monotonic() + seconds
    while not (value := reached()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(0.02)
    return value


def free_domain():
    """Returns a ROS domain that no other program uses."""
    for domain in range(60, 100):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
            probe.bind(("", 7400 + 250 * domain))
            return domain
    raise RuntimeError("every ROS domain from 60 to 99 is in use")


def free_port():
    """Returns a TCP port of the loopback interface that no program uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def write_requirements(path):
    """Writes a limit of the latency of each chain of the application."""
    with open(path, "w", encoding="utf-8") as file:
        file.write("chains:\n")
        for chain in range(CHAINS):
            file.write(f"  - {{from: /sensor, to: /watched/out_{chain}, latency: {{max: {LIMIT_MS}ms}}}}\n")


def write_plan(path, slots, causes, chains=()):
    """Writes a plan of the application."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"slots": slots, "causes": dict(causes), "chains": dict(chains)}, file)


def ros_python():
    """Returns the interpreter of the environment of ROS 2."""
    done = subprocess.run([os.path.join(ROOT, "dev"), "ros-env", "kilted"], check=True, stdout=subprocess.PIPE,
                          text=True)
    return os.path.join(done.stdout.strip(), "bin/python")


def start_application(python, folder, plan, domain):
    """Starts the application in a session of its own."""
    os.makedirs(folder, exist_ok=True)
    return subprocess.Popen([python, APPLICATION, folder, plan], start_new_session=True,
                            env=dict(os.environ, ROS_DOMAIN_ID=str(domain)))


def signal_session(process, number):
    """Sends a signal to a process and to all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def end_application(process):
    """Ends the application."""
    signal_session(process, signal.SIGKILL)
    process.wait(60)


def confine():
    """Sets the priority of the unit, and keeps an aborted program from writing its memory to the disk."""
    os.nice(5)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Monitor:
    """A monitor that is restarted when it has failed."""

    def __init__(self, folder, words, watchdog_s=WATCHDOG_S):
        self.words, self.watchdog_s = [ONBEAT, "monitor", *words], watchdog_s
        self.socket_path = os.path.join(folder, "notify")
        self.log = open(os.path.join(folder, "journal"), "a", encoding="utf-8")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.socket_path)
        self.socket.settimeout(0.1)
        self.starts, self.aborts, self.ends, self.signs = 0, 0, [], 0
        self.is_ready, self.is_ending = False, False
        self.start()
        self.thread = threading.Thread(target=self.supervise, daemon=True)
        self.thread.start()

    def start(self):
        """Starts the program."""
        self.starts, self.is_ready, self.heard = self.starts + 1, False, time.monotonic()
        environment = dict(os.environ, NOTIFY_SOCKET=self.socket_path, WATCHDOG_USEC=str(self.watchdog_s * 1_000_000))
        self.process = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        start_new_session=True, env=environment, preexec_fn=confine)

    def supervise(self):
        """Takes what the program reports, aborts one that gives no sign of life, restarts one that has failed."""
        while True:
            with contextlib.suppress(TimeoutError):
                message = self.socket.recv(65536).decode()
                self.heard, self.signs = time.monotonic(), self.signs + 1
                self.is_ready |= WATCHED in message
            # Before its first sign of life, TimeoutStartSec counts in place of the watchdog.
            if self.is_ready and time.monotonic() - self.heard > self.watchdog_s:
                self.aborts += 1
                self.heard = time.monotonic()
                self.send(signal.SIGABRT)
                self.send(signal.SIGCONT)
            if self.process.poll() is None:
                continue
            if self.is_ending:
                return
            self.ends.append(self.process.returncode)
            time.sleep(RESTART_S)
            self.start()

    def send(self, number):
        """Sends a signal to the program."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def watches(self, seconds=START_S):
        """Waits until the program watches and gives signs of life; its process id."""
        before = self.signs
        wait_until("the monitor watches", lambda: self.is_ready and self.signs > before, seconds)
        return self.process.pid

    def end(self):
        """Ends the program as its unit does; its exit code."""
        self.is_ending = True
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)
        self.thread.join(60)
        if self.process.poll() is None:
            self.process.kill()
            raise TimeoutError("the monitor does not end within 60 s after SIGTERM")
        self.log.close()
        self.socket.close()
        os.unlink(self.socket_path)
        return self.process.returncode


def incidents(folder):
    """Returns the directories of saved incidents, in the order of their names."""
    names = sorted(name for name in os.listdir(folder) if name.startswith("incident-"))
    return [os.path.join(folder, name) for name in names]


def read_json(path):
    """A JSON document."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def read_lines(path):
    """The values of a log of the application; a last line that was cut off is left out."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def need_root():
    """Ends with a reason if this user cannot record."""
    if os.geteuid() != 0:
        print("SKIPPED watch: it needs root")
        sys.exit(0)
    if len(os.sched_getaffinity(0)) < 2:
        print("SKIPPED watch: it needs two CPUs")
        sys.exit(0)
