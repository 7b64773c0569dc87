"""Gives a running test its environments, compiled programs, recordings and models."""

import contextlib
import csv
import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time

from pace import Pace
from registry import Mismatch, Skip

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ONBEAT = os.path.abspath(os.environ.get("ONBEAT", os.path.join(ROOT, "target/release/onbeat")))
SYN = os.path.join(ROOT, "demos/syn/syn.py")
CASES = os.path.join(ROOT, "demos/syn/cases.py")
BLOB = os.path.join(ROOT, "scripts/e2e/blob")
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
# Compiled ROS 2 programs of tests; later runs use them again.
COMPILED = os.path.join(TARGET, "e2e")
# No command of a test takes that long.
WATCHDOG_S = 180
# A machine that was busy for more than this share of the time counts as busy. Tests that run side by
# side stay below it; what takes a machine above it are others.
BUSY = 0.9
# Domain ids whose ports are outside the range that Linux gives to clients.
DOMAINS = range(1, 101)


def cpu_ticks():
    """Time so far that the hypervisor has taken from this machine, that was idle, and in all."""
    with open("/proc/stat", encoding="ascii") as file:
        numbers = [int(word) for word in file.readline().split()[1:9]]
    return numbers[7], numbers[3] + numbers[4], sum(numbers)


def domain_is_free(domain):
    """Whether no participant on this machine uses a ROS domain: none has its discovery port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("", 7400 + 250 * domain))
        except OSError:
            return False
    return True


def free_domain(number):
    """A ROS domain that nobody uses; tests with different numbers get different ones."""
    for i in range(len(DOMAINS)):
        domain = DOMAINS[(number + i * 7) % len(DOMAINS)]
        if domain_is_free(domain):
            return domain
    raise Skip("every ROS domain from 1 to 100 is in use")


def once(path, make):
    """Calls make(path) unless an earlier call has succeeded; returns the path. Other processes wait meanwhile."""
    with open(path + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path + ".made"):
            make(path)
            with open(path + ".made", "w", encoding="utf-8"):
                pass
    return path


def session_states(session):
    """Returns the processes of a session, a line each: their states, and what each waits for in the kernel."""
    words = ["ps", "-ww", "-L", "-s", str(session), "-o", "pid,tid,ppid,stat,wchan:24,args"]
    return subprocess.run(words, check=False, capture_output=True, text=True).stdout


def tracked(path):
    """Returns a file, or the files below a folder without those that Python makes."""
    if os.path.isfile(path):
        return [path]
    return sorted(os.path.join(where, name) for where, _, names in os.walk(path) for name in names
                  if "__pycache__" not in where)


def load(path):
    """A JSON document."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)


class Harness:
    """The environment of one attempt of a test. Each attempt has a process of its own.

    Files stay in `work`, which tests that run side by side share; the harness's environment and
    its ROS domains are its own. Whatever the test starts is ended after it (see supervise.py).
    """

    def __init__(self, work, number):
        self.work, self.number = work, number
        # Figures of the test, printed beside its name.
        self.figures = []
        # Share of the machine that its host took during the last recording, and that was not idle.
        self.stolen, self.busy = 0, 0
        self.pace = Pace()
        # Before the names of nodes and topics of an application that is not recorded alone.
        self.namespace = f"/e2e_{os.getpid()}"
        os.environ["ROS_DOMAIN_ID"] = str(free_domain(number))

    def other_domain(self):
        """A ROS domain for a second application of the test."""
        return str(free_domain(self.number + len(DOMAINS) // 2))

    def begun(self, path, process):
        """Waits until an application has created a file: to import rclpy takes many seconds where
        nobody has done so before."""
        deadline = time.monotonic() + WATCHDOG_S
        while not os.path.exists(path):
            if process.poll() is not None:
                raise Mismatch(f"the application ended with {process.returncode} before it began")
            if time.monotonic() > deadline:
                raise Mismatch(f"the application did not begin within {WATCHDOG_S} s")
            time.sleep(0.1)

    def env(self, distro):
        """The folder of a ROS 2 environment."""
        done = subprocess.run([os.path.join(ROOT, "dev"), "ros-env", distro], check=True,
                              stdout=subprocess.PIPE, text=True)
        return done.stdout.strip()

    def python(self, distro):
        """The interpreter of a ROS 2 environment."""
        return os.path.join(self.env(distro), "bin/python")

    def file(self, name):
        """A path for a file of the test."""
        return os.path.join(self.work, name)

    def new_file(self, name):
        """A path at which there is nothing, also where the test is tried again."""
        path = self.file(name)
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
        return path

    def once(self, name, make):
        """Calls make(path) for the first test that wants `work/name`; all get the path.

        Others wait meanwhile; where it fails the next one tries again.
        """
        return once(self.file(name), make)

    def compiled(self, name, inputs, command):
        """Returns a folder with programs. `command(folder)` are the words that compile them into a folder.

        They are compiled again only when the contents of `inputs`, files and folders, have changed.
        """
        digest = hashlib.sha256()
        for path in [path for one in inputs for path in tracked(one)]:
            with open(path, "rb") as file:
                digest.update(f"{os.path.relpath(path, ROOT)}\n".encode() + file.read())

        def build(out):
            subprocess.run(command(out), check=True, stdout=subprocess.DEVNULL)

        os.makedirs(COMPILED, exist_ok=True)
        return once(os.path.join(COMPILED, f"{name}-{digest.hexdigest()[:16]}"), build)

    def compiled_for(self, distro, name, sources):
        """The same for programs of ROS 2, made by `sources/build.sh`."""
        env = self.env(distro)
        inputs = [sources, os.path.join(env, ".onbeat-packages")]
        return self.compiled(f"{name}-{distro}", inputs, lambda out: [os.path.join(sources, "build.sh"), env, out])

    def native(self, distro):
        """Folder with the compiled SYN clients of a distribution."""
        return self.compiled_for(distro, "native", os.path.join(ROOT, "demos/syn/native"))

    def stage(self, distro):
        """The program of the demo chain's stages."""
        return os.path.join(self.compiled_for(distro, "chain", os.path.join(ROOT, "demos/chain")), "stage")

    def blob(self, distro):
        """Folder with a message package that no other program knows, and programs that use it."""
        if not shutil.which("gcc") or not shutil.which("g++"):
            raise Skip("gcc and g++ are needed to build a message package")
        return self.compiled_for(distro, "blob", BLOB)

    def pipeline(self):
        """The pipeline of onbeat-flow that knows its own timing."""
        return self.example("onbeat-flow", "pipeline")

    def example(self, crate, name):
        """An example program of a crate."""
        def build(_):
            subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "-p", crate,
                            "--example", name], check=True, cwd=ROOT)
        self.once(f"{crate}-{name}", build)
        return os.path.join(TARGET, "release/examples", name)

    def privileged(self):
        """The words before a command that records."""
        if os.geteuid() == 0:
            return []
        if shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], check=False,
                                                   capture_output=True).returncode == 0:
            return ["sudo", "-n", "-E"]
        raise Skip("recording needs root: run as root or with a sudo that asks for no password")

    def onbeat(self, *words, before=(), accept=(0,), may_be_refused=True, **options):
        """Runs onbeat; its standard output."""
        process = subprocess.Popen([*before, ONBEAT, *words], text=True, start_new_session=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        try:
            out, errors = process.communicate(timeout=WATCHDOG_S)
        except subprocess.TimeoutExpired:
            states = session_states(process.pid)
            # The whole session: a later attempt shall not meet an application that hangs.
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise Mismatch(f"onbeat {words[0]}: still running after {WATCHDOG_S} s\n{states}") from None
        if process.returncode == 4 and may_be_refused:
            raise Skip(errors.strip().splitlines()[-1])
        if process.returncode not in accept:
            raise Mismatch(f"onbeat {words[0]}: exit code {process.returncode}: {errors[-2000:]}")
        return out

    def record(self, name, command, *, how=(), before=None, **options):
        """Records a command and nothing else; the trace's path. `how` are more words of onbeat; what is
        `before` it starts it instead of root."""
        trace = self.file(name + ".trace")
        shutil.rmtree(trace, ignore_errors=True)
        ticks = self.begin_watch()
        self.onbeat("record", "-o", trace, *how, "--", *command,
                    before=self.privileged() if before is None else before,
                    may_be_refused=before is None, **options)
        self.note_machine(ticks)
        return trace

    def begin_watch(self):
        """Begins to watch how stolen, busy and slow the machine is; for `note_machine`."""
        self.pace.begin()
        return cpu_ticks()

    def note_machine(self, before):
        """Notes how stolen, busy and slow the machine was since `before`, and mentions it if much."""
        stolen, idle, total = (now - then for now, then in zip(cpu_ticks(), before))
        self.stolen, self.busy = stolen / max(1, total), 1 - idle / max(1, total)
        if self.stolen > 0.01:
            self.figures.append(f"{self.stolen * 100:.0f} % of the machine was stolen")
        if self.busy > BUSY:
            self.figures.append(f"{self.busy * 100:.0f} % of the machine was busy")
        if self.pace.factor() > 1.1:
            self.figures.append(f"Python was {self.pace.factor():.1f} times as slow as usual")

    @contextlib.contextmanager
    def recording(self, name, *words):
        """Records everything that runs on the machine meanwhile; yields the trace's path.

        Applications of others are in the trace too: compare with `own(model)`.
        """
        trace = self.file(name + ".trace")
        shutil.rmtree(trace, ignore_errors=True)
        process = subprocess.Popen([*self.privileged(), ONBEAT, "record", "-o", trace, *words],
                                   stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + WATCHDOG_S
        # With its first probes: to attach them takes seconds on a busy machine.
        while not self.probed(trace):
            if process.poll() == 4:
                raise Skip(process.stderr.read().strip().splitlines()[-1])
            if process.poll() is not None:
                raise Mismatch("onbeat record ended: " + process.stderr.read()[-2000:])
            if time.monotonic() > deadline:
                raise Mismatch(f"onbeat record did not begin within {WATCHDOG_S} s")
            time.sleep(0.1)
        time.sleep(1)
        before = self.begin_watch()
        try:
            yield trace
        finally:
            self.note_machine(before)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=WATCHDOG_S)
        if process.returncode not in (0, 130):
            raise Mismatch(f"onbeat record: exit code {process.returncode}: {errors[-2000:]}")

    @staticmethod
    def probed(trace):
        """Whether the recorder of a trace has attached its probes."""
        manifest = os.path.join(trace, "manifest.json")
        return os.path.exists(manifest) and bool(load(manifest)["probes"])

    def model(self, name, *traces):
        """The model of traces."""
        path = self.file(name + ".json")
        self.onbeat("model", *traces, "-o", path)
        return load(path)

    def truth(self, path):
        """Returns the ground truth of an application, and the load of the machine during the recording."""
        return {**load(path), **self.machine()}

    def machine(self):
        """Returns the load of the machine during the last recording."""
        return {"stolen": self.stolen, "busy": self.busy, "pace": self.pace.factor()}

    def syn_command(self, distro, truth, *words):
        """The words that run SYN."""
        return [self.python(distro), SYN, "--quiet", "--truth", truth, *words]

    def syn(self, name, distro, *words, prefix=(), **options):
        """Records and models SYN; (its own truth, the model)."""
        truth = self.file(name + ".truth.json")
        trace = self.record(name, [*prefix, *self.syn_command(distro, truth, *words)], **options)
        return {**self.truth(truth), "executions": self.executions(trace)}, self.model(name, trace)

    def executions(self, trace):
        """Returns the execution times of each callback in ns, in order of their starts. None: without a time."""
        times = {}
        for row in csv.DictReader(self.onbeat("export", trace, "--to", "executions").splitlines()):
            exec_ns = int(row["exec_ns"]) if row["exec_ns"] else None
            times.setdefault(row["callback"], []).append((int(row["start_ns"]), exec_ns))
        return {callback: [exec_ns for _, exec_ns in sorted(rows, key=lambda row: row[0])]
                for callback, rows in times.items()}

    def case(self, name, distro, *words, **options):
        """The same for one of the small cases."""
        truth = self.file(name + ".truth.json")
        trace = self.record(name, [self.python(distro), CASES, *words, "--quiet", "--truth",
                                   truth], **options)
        return self.truth(truth), self.model(name, trace)
