"""What end-to-end tests share: environments, recordings, models, and how a test says what it found."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ONBEAT = os.environ.get("ONBEAT", os.path.join(ROOT, "target/release/onbeat"))
SYN = os.path.join(ROOT, "demos/syn/syn.py")
CASES = os.path.join(ROOT, "demos/syn/cases.py")
# No command of a test takes that long.
WATCHDOG_S = 180

# A machine that was busy for more than this share of the time counts as busy.
BUSY = 0.5

TESTS = []

# What the running test measured, to be printed beside its name.
FIGURES = []


def cpu_ticks():
    """What the hypervisor has taken from this machine, what was idle, and all time, so far."""
    with open("/proc/stat", encoding="ascii") as file:
        numbers = [int(word) for word in file.readline().split()[1:9]]
    return numbers[7], numbers[3] + numbers[4], sum(numbers)


class Skip(Exception):
    """The test cannot be done here; says why."""


class Mismatch(Exception):
    """The model is not what the application knows."""


def test(function):
    """Registers a test."""
    TESTS.append(function)
    return function


class Stand:
    """What tests share: environments, compiled programs, a place for files."""

    def __init__(self, work):
        self.work = work
        self.built = {}
        self.refused = None
        # Share of the machine that its host took during the last recording, and that was not idle.
        self.stolen, self.busy = 0, 0

    def python(self, distro):
        """The interpreter of a ROS 2 environment."""
        done = subprocess.run([os.path.join(ROOT, "dev"), "ros-env", distro], check=True,
                              stdout=subprocess.PIPE, text=True)
        return os.path.join(done.stdout.strip(), "bin/python")

    def native(self, distro):
        """Folder with the compiled SYN clients of a distribution."""
        if distro not in self.built:
            out = os.path.join(self.work, "native-" + distro)
            env = os.path.dirname(os.path.dirname(self.python(distro)))
            subprocess.run([os.path.join(ROOT, "demos/syn/native/build.sh"), env, out], check=True,
                           stdout=subprocess.DEVNULL)
            self.built[distro] = out
        return self.built[distro]

    def pipeline(self):
        """The pipeline of onbeat-flow that knows its own timing."""
        subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "-p", "onbeat-flow",
                        "--example", "pipeline"], check=True, cwd=ROOT)
        target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
        return os.path.join(target, "release/examples/pipeline")

    def file(self, name):
        """A path for a file of the running test."""
        return os.path.join(self.work, name)

    def privileged(self):
        """The words before a command that records."""
        if self.refused:
            raise Skip(self.refused)
        if os.geteuid() == 0:
            return []
        if shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], check=False,
                                                   capture_output=True).returncode == 0:
            return ["sudo", "-n", "-E"]
        raise Skip("recording needs root: run as root or with a sudo that asks for no password")

    def onbeat(self, *words, before=(), accept=(0,), **options):
        """Runs onbeat; its standard output."""
        process = subprocess.Popen([*before, ONBEAT, *words], text=True, start_new_session=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        try:
            out, said = process.communicate(timeout=WATCHDOG_S)
        except subprocess.TimeoutExpired:
            # The whole session: an application that hangs must not outlive its test.
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise Mismatch(f"onbeat {words[0]}: still running after {WATCHDOG_S} s") from None
        if process.returncode == 4:
            self.refused = said.strip().splitlines()[-1]
            raise Skip(self.refused)
        if process.returncode not in accept:
            raise Mismatch(f"onbeat {words[0]}: exit code {process.returncode}: {said[-2000:]}")
        return out

    def record(self, name, command, **options):
        """Records a command; the trace's path."""
        trace = self.file(name + ".trace")
        shutil.rmtree(trace, ignore_errors=True)
        before = cpu_ticks()
        self.onbeat("record", "-o", trace, "--", *command, before=self.privileged(), **options)
        self.note_machine(before)
        return trace

    def note_machine(self, before):
        """What the machine did since `before`, where it is worth mentioning."""
        stolen, idle, total = (now - then for now, then in zip(cpu_ticks(), before))
        self.stolen, self.busy = stolen / max(1, total), 1 - idle / max(1, total)
        if self.stolen > 0.01:
            FIGURES.append(f"{self.stolen * 100:.0f} % of the machine was stolen")
        if self.busy > BUSY:
            FIGURES.append(f"{self.busy * 100:.0f} % of the machine was busy")

    @contextlib.contextmanager
    def recording(self, name, *words):
        """Records everything that runs meanwhile; yields the trace's path."""
        trace = self.file(name + ".trace")
        shutil.rmtree(trace, ignore_errors=True)
        process = subprocess.Popen([*self.privileged(), ONBEAT, "record", "-o", trace, *words],
                                   stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 30
        while not os.path.exists(os.path.join(trace, "manifest.json")):
            if process.poll() is not None:
                raise Mismatch("onbeat record ended: " + process.stderr.read()[-2000:])
            if time.monotonic() > deadline:
                raise Mismatch("onbeat record did not begin within 30 s")
            time.sleep(0.1)
        time.sleep(1)
        before = cpu_ticks()
        try:
            yield trace
        finally:
            self.note_machine(before)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        if process.returncode not in (0, 130):
            raise Mismatch(f"onbeat record: exit code {process.returncode}: {said[-2000:]}")

    def model(self, name, *traces):
        """The model of traces."""
        path = self.file(name + ".json")
        self.onbeat("model", *traces, "-o", path)
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def truth(self, path):
        """What an application knows, and what the machine did while it was recorded."""
        return {**load(path), "stolen": self.stolen, "busy": self.busy}

    def syn(self, name, distro, *words, prefix=(), **options):
        """Records and models SYN; (its own truth, the model)."""
        truth = self.file(name + ".truth.json")
        trace = self.record(name, [*prefix, self.python(distro), SYN, "--quiet", "--truth", truth,
                                   *words], **options)
        return self.truth(truth), self.model(name, trace)

    def case(self, name, distro, *words, **options):
        """The same for one of the small cases."""
        truth = self.file(name + ".truth.json")
        trace = self.record(name, [self.python(distro), CASES, *words, "--quiet", "--truth",
                                   truth], **options)
        return self.truth(truth), self.model(name, trace)


def load(path):
    """A JSON document."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)
