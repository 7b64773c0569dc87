"""Harms a monitor that watches the small application, and looks at what it has saved and left behind.

A step of the clock is not among the faults: a time namespace cannot step the clock of a running process, and a step of
the machine's clock would harm other programs.
"""

import collections
import contextlib
import ctypes
import glob
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from statistics import median

import service
from service import say

DISK_MB = 32
PLANT_STEP = 41
CAUSES = ["neighbour", "lock", "callback"]
WEIGHTS = {"kill": 20, "stop": 15, "hang": 3, "full_disk": 15, "link": 10, "immutable": 8, "garbage": 15, "client": 15,
           "kill_application": 8, "stop_application": 8, "remove_recording": 5, "second_monitor": 5, "restart": 5}
GARBAGE = [b"", b"\x00" * 3000, b"chains: [", b"chains:\n  - {from: /sensor}\n", b"a" * (2 << 20), b"{" * 100_000,
           b"chains: &a [*a]\n", b"\xff\xfe"]
# Files that each saved incident has.
WHOLE = ["incident.json", "model.json", "why.txt"]
# After the application was killed, stopped or started: its own delay.
SETTLE_NS = 3_000_000_000
MARGIN_NS = 200_000_000


class Bench:
    """The monitor, its small disk, and the application."""

    def __init__(self, folder, seed):
        self.folder, self.random = folder, random.Random(seed)
        self.disk, self.tmp = os.path.join(folder, "disk"), os.path.join(folder, "tmp")
        self.kept, self.requirements = os.path.join(self.disk, "incidents"), os.path.join(folder, "requirements.yaml")
        self.plan = os.path.join(folder, "plan.json")
        self.python, self.domain, self.port = service.ros_python(), service.free_domain(), service.free_port()
        # Each run of the application logs into a folder of its own.
        self.runs, self.application = 0, None
        # Times at which the application was disturbed by the check itself, ns.
        self.disturbed = []
        self.checked, self.readable, self.wrong = set(), 0, []
        os.makedirs(self.disk)
        os.makedirs(self.tmp)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}M,mode=700", "tmpfs", self.disk], check=True)
        service.write_requirements(self.requirements)
        causes = {60 + number * PLANT_STEP: CAUSES[number % 3] for number in range(2000)}
        service.write_plan(self.plan, None, causes)
        self.monitor, self.took = None, collections.Counter()

    def begin(self):
        """Starts the monitor."""
        os.environ["TMPDIR"] = self.tmp
        self.monitor = service.Monitor(self.folder, self.words())
        self.monitor.watches()

    def words(self):
        """The options of the monitor."""
        return [self.requirements, "--incidents", self.kept, "--domain", str(self.domain), "--http", str(self.port),
                "--recording", "4M", "--max-size", "12M", "--window", "10s", "--after", "500ms", "--before", "5s",
                "--saves-per-hour", "100000", "--textfile", os.path.join(self.disk, "onbeat.prom")]

    def start_application(self):
        """Starts the application, and waits until it works."""
        begin = time.monotonic_ns()
        self.runs += 1
        folder = os.path.join(self.folder, f"application-{self.runs}")
        self.application = service.start_application(self.python, folder, self.plan, self.domain)
        log = os.path.join(folder, "victim.log")
        service.wait_until("the application works", lambda: os.path.exists(log))
        self.disturbed.append((begin, time.monotonic_ns() + SETTLE_NS))

    def pause(self, least, most):
        """Sleeps for a random time in s."""
        time.sleep(self.random.uniform(least, most))

    def journal(self):
        """The lines of the monitor."""
        with open(os.path.join(self.folder, "journal"), encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()

    def end(self):
        """Ends everything; the monitor's exit code."""
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            restore(self)
        try:
            return self.monitor.end() if self.monitor else None
        finally:
            if self.application:
                service.end_application(self.application)

    def unmount(self):
        """Removes the small disk."""
        subprocess.run(["umount", "-l", self.disk], check=False)


def restore(bench):
    """Undoes whatever a fault may have left."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(os.path.join(bench.disk, "filler"))
    subprocess.run(["chattr", "-i", bench.kept], check=False, stderr=subprocess.DEVNULL)
    moved = os.path.join(bench.disk, "moved")
    if os.path.islink(bench.kept):
        os.remove(bench.kept)
    if os.path.isdir(moved) and not os.path.exists(bench.kept):
        os.rename(moved, bench.kept)
    service.signal_session(bench.application, signal.SIGCONT)
    service.write_requirements(bench.requirements)


def kill(bench):
    """SIGKILL of the monitor."""
    bench.monitor.send(signal.SIGKILL)
    time.sleep(service.RESTART_S + 0.1)


def stop(bench):
    """SIGSTOP and SIGCONT of the monitor."""
    bench.monitor.send(signal.SIGSTOP)
    bench.pause(0.1, 1.5)
    bench.monitor.send(signal.SIGCONT)


def hang(bench):
    """A monitor that gives no sign of life: the service manager ends it."""
    before = bench.monitor.aborts
    bench.monitor.send(signal.SIGSTOP)
    service.wait_until("the watchdog", lambda: bench.monitor.aborts > before, 20)
    time.sleep(service.RESTART_S + 0.1)


def full_disk(bench):
    """A full disk under the directory of incidents."""
    with contextlib.suppress(OSError), open(os.path.join(bench.disk, "filler"), "wb", buffering=0) as file:
        while file.write(b"x" * 65536):
            pass
    bench.pause(0.3, 2.5)
    os.remove(os.path.join(bench.disk, "filler"))


def link(bench):
    """A link in place of the directory; now and then the monitor starts meanwhile."""
    moved, elsewhere = os.path.join(bench.disk, "moved"), os.path.join(bench.folder, "elsewhere")
    os.makedirs(elsewhere, exist_ok=True)
    os.rename(bench.kept, moved)
    os.symlink(elsewhere, bench.kept)
    if bench.random.random() < 0.3:
        bench.monitor.send(signal.SIGKILL)
    bench.pause(0.5, 1.5)
    if os.listdir(elsewhere):
        bench.wrong.append(f"the monitor has followed a link: {os.listdir(elsewhere)}")
    os.remove(bench.kept)
    os.rename(moved, bench.kept)


def immutable(bench):
    """A directory in which nothing can be made, renamed or removed."""
    subprocess.run(["chattr", "+i", bench.kept], check=True)
    if bench.random.random() < 0.3:
        bench.monitor.send(signal.SIGKILL)
    bench.pause(0.5, 2)
    subprocess.run(["chattr", "-i", bench.kept], check=True)


def garbage(bench):
    """Requirements that are garbage or missing, then the right ones again."""
    pid, aborts = bench.monitor.watches(), bench.monitor.aborts
    bytes_ = bench.random.choice([*GARBAGE, None, "directory"])
    os.remove(bench.requirements)
    if bytes_ == "directory":
        os.mkdir(bench.requirements)
    elif bytes_ is not None:
        with open(bench.requirements, "wb") as file:
            file.write(bytes_)
    before = sum("the requirements stay as they were" in line for line in bench.journal())
    bench.monitor.send(signal.SIGHUP)

    def is_refused():
        return (sum("the requirements stay as they were" in line for line in bench.journal()) > before
                or bench.monitor.process.pid != pid)
    service.wait_until("the monitor refuses the requirements", is_refused, 30)
    if bytes_ == "directory":
        os.rmdir(bench.requirements)
    service.write_requirements(bench.requirements)
    bench.monitor.send(signal.SIGHUP)
    # A removed recording can end it at any time, and a busy machine keeps it from giving signs of life.
    if bench.monitor.process.pid != pid and bench.monitor.aborts == aborts and not has_lost_recording(bench):
        bench.wrong.append("requirements that are garbage have ended the monitor")


def client(bench):
    """Clients of the metrics that hang, send nonsense, or never read; another one gets its answer."""
    request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    sent = [b"", request[:9], bench.random.randbytes(20_000), b"\r\n\r\n", request]
    before = len(bench.journal())
    with contextlib.ExitStack() as stack:
        for _ in range(bench.random.choice([1, 10, 200])):
            with contextlib.suppress(OSError):
                held = stack.enter_context(socket.create_connection(("127.0.0.1", bench.port), 5))
                held.settimeout(1)
                held.sendall(bench.random.choice(sent))
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", bench.port), 10) as asked:
            asked.settimeout(20)
            asked.sendall(request)
            said = asked.makefile("rb").read()
            if not said.startswith(b"HTTP/1.1 200 ") or b"onbeat_incidents_total" not in said:
                bench.wrong.append(f"the metrics are {said[:200]}")
            return
    time.sleep(1)
    # A monitor whose recording an earlier fault removed may end only now.
    if not any("/.recording/" in line for line in bench.journal()[before:]):
        bench.wrong.append("no client gets the metrics")


def kill_application(bench):
    """The application is killed and started again."""
    begin = time.monotonic_ns()
    service.end_application(bench.application)
    bench.disturbed.append((begin - MARGIN_NS, time.monotonic_ns()))
    bench.start_application()


def stop_application(bench):
    """The application stops for a while."""
    begin = time.monotonic_ns()
    service.signal_session(bench.application, signal.SIGSTOP)
    bench.pause(0.2, 1.5)
    service.signal_session(bench.application, signal.SIGCONT)
    bench.disturbed.append((begin - MARGIN_NS, time.monotonic_ns() + MARGIN_NS))


def remove_recording(bench):
    """The running recording disappears."""
    shutil.rmtree(os.path.join(bench.kept, ".recording"), ignore_errors=True)
    bench.pause(0.2, 1)


def second_monitor(bench):
    """A second monitor for the same directory."""
    words = [service.ONBEAT, "monitor", *bench.words()]
    words.remove("--http")
    words.remove(str(bench.port))
    bench.monitor.watches()
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 1 or "another monitor uses the directory" not in done.stderr:
        bench.wrong.append(f"a second monitor: {done.returncode}, {done.stderr[-300:]}")


def has_lost_recording(bench):
    """Whether the monitor has just ended because its recording was removed."""
    return any("/.recording/" in line for line in bench.journal()[-4:])


def restart(bench):
    """The service manager restarts the monitor."""
    status = bench.monitor.end()
    if status not in (0, 3) and not has_lost_recording(bench):
        bench.wrong.append(f"the monitor ended with {status} after SIGTERM")
    earlier = bench.monitor
    bench.monitor = service.Monitor(bench.folder, bench.words())
    bench.monitor.starts += earlier.starts
    bench.monitor.aborts += earlier.aborts
    bench.monitor.ends = earlier.ends


FAULTS = {function.__name__: function for function in (
    kill, stop, hang, full_disk, link, immutable, garbage, client, kill_application, stop_application,
    remove_recording, second_monitor, restart)}


def check_saved(bench):
    """Looks at the incidents that are new."""
    for path in service.incidents(bench.kept):
        if path in bench.checked:
            continue
        bench.checked.add(path)
        complaint = unreadable(path)
        # The monitor may have removed it meanwhile, to make room.
        if complaint and os.path.isdir(path):
            bench.wrong.append(f"{os.path.basename(path)}: {complaint}")
        bench.readable += not complaint
    strange = [name for name in os.listdir(bench.kept) if not name.startswith(("incident-", ".part-", ".recording"))]
    if strange:
        bench.wrong.append(f"strange names: {strange}")


def unreadable(path):
    """Why a saved incident cannot be read."""
    try:
        missing = [name for name in WHOLE if not os.path.getsize(os.path.join(path, name))]
        incident = service.read_json(os.path.join(path, "incident.json"))
        model = service.read_json(os.path.join(path, "model.json"))
    except (OSError, ValueError) as error:
        return str(error)
    if missing or not incident["violations"] or "chains" not in model:
        return f"empty files {missing}, {len(incident['violations'])} violations"
    trace = os.path.join(path, "trace")
    for words in (["model", trace, "-o", "/dev/null"], ["export", trace, "--to", "executions", "-o", "/dev/null"]):
        done = subprocess.run([service.ONBEAT, *words], capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            return f"onbeat {words[0]}: {done.returncode}, {done.stderr[-300:]}"
    return None


def bpf_programs():
    """The ids of all BPF programs of the kernel."""
    libc, found, attributes = ctypes.CDLL(None, use_errno=True), set(), (ctypes.c_uint32 * 32)()
    while libc.syscall(321, 11, attributes, ctypes.sizeof(attributes)) == 0:
        attributes[0] = attributes[1]
        found.add(attributes[1])
    return found


def held_programs():
    """The ids of BPF programs to which a process has a descriptor."""
    found = set()
    for path in glob.glob("/proc/[0-9]*/fdinfo/*"):
        with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
            found.update(int(line.split()[1]) for line in file if line.startswith("prog_id:"))
    return found


def remains(bench, before):
    """What the monitor has left on the machine."""
    found = []
    # The kernel removes programs shortly after their last descriptor is closed.
    with contextlib.suppress(TimeoutError):
        service.wait_until("no BPF program is left", lambda: not bpf_programs() - before - held_programs(), 10)
    left = bpf_programs() - before - held_programs()
    if left:
        found.append(f"BPF programs {sorted(left)}")
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            if bench.folder.encode() in (words := file.read()) and b"onbeat" in words.split(b"\0")[0]:
                found.append(f"a process: {words[:200]!r}")
    found += [f"{bench.tmp}/{name}" for name in os.listdir(bench.tmp)]
    found += [f"{bench.kept}/{name}" for name in os.listdir(bench.kept) if not name.startswith("incident-")]
    found += [f"{bench.disk}/{name}" for name in os.listdir(bench.disk) if name not in ("incidents", "onbeat.prom")]
    return found


def timing(bench, first, last):
    """The delays of the application in ms between two times in ns: of its timer, and from scan to output."""
    def is_clear(at):
        return first < at < last and not any(begin <= at <= end for begin, end in bench.disturbed)
    gaps, latencies = [], []
    for run in range(1, bench.runs + 1):
        folder = os.path.join(bench.folder, f"application-{run}")
        if not all(os.path.exists(os.path.join(folder, name)) for name in ("sensor.log", "victim.log")):
            continue  # It was killed before it had begun.
        starts = service.read_lines(os.path.join(folder, "sensor.log"))
        gaps += [(b - a) / 1e6 - 50 for a, b in zip(starts, starts[1:]) if is_clear(a) and is_clear(b)]
        rows = service.read_lines(os.path.join(folder, "victim.log"))
        latencies += [(row["out"][1] - row["stamp"]) / 1e6 for row in rows
                      if not row["cause"] and is_clear(row["stamp"]) and is_clear(row["out"][1])]
    return {"timer": [abs(gap) for gap in gaps], "latency": latencies}


def percentiles(values):
    """Median, 99th percentile and largest value."""
    values = sorted(values)
    return median(values), values[int(len(values) * 0.99)], values[-1]


def compare_timing(bench, begin, end):
    """Compares the application beside the monitor with its first seconds, without one. Returns complaints."""
    wrong = []
    without, beside = timing(bench, 0, begin), timing(bench, begin, end)
    for key in without:
        was, now = percentiles(without[key]), percentiles(beside[key])
        text = ", ".join(f"{name} {a:.2f} -> {b:.2f} ms" for name, a, b in zip(("median", "p99", "max"), was, now))
        say(f"{key} of the application, without -> beside the harmed monitor: {text} ({len(beside[key])} values)")
        if now[0] > 2 * was[0] + 0.5 or now[1] > 3 * was[1] + 2:
            wrong.append(f"the application waits: {key} {was} -> {now}")
    return wrong


def harm(bench, count):
    """Does so many faults, and checks after each."""
    chosen = bench.random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count)
    # A short run has each kind, too.
    chosen[:len(WEIGHTS)] = bench.random.sample(list(WEIGHTS), min(count, len(WEIGHTS)))
    for number, name in enumerate(chosen, 1):
        before, begin = len(bench.wrong), time.monotonic()
        try:
            FAULTS[name](bench)
            bench.monitor.watches()
        except (TimeoutError, OSError, subprocess.SubprocessError) as error:
            bench.wrong.append(str(error))
            restore(bench)
        bench.took[name] += time.monotonic() - begin
        check_saved(bench)
        bench.wrong[before:] = [f"fault {number}, {name}: {text}" for text in bench.wrong[before:]]
        for text in bench.wrong[before:]:
            say(text)
        if number % 25 == 0:
            say(f"{number} faults, {bench.monitor.starts} starts, {bench.readable} readable incidents")
        if bench.application.poll() is not None:
            bench.wrong.append(f"fault {number}, {name}: the application has ended")
            bench.start_application()
    return collections.Counter(chosen)


def run(folder, seed, count, baseline_s):
    """Harms the monitor so many times. Returns complaints."""
    say(f"{count} faults, seed {seed}")
    programs, bench, begin = bpf_programs(), Bench(folder, seed), time.monotonic()
    try:
        bench.start_application()
        time.sleep(baseline_s + SETTLE_NS / 1e9)
        watched = time.monotonic_ns()
        bench.begin()
        done = harm(bench, count)
        watched_end = time.monotonic_ns()
        # The last monitor has its recording, and saves an incident.
        restart(bench)
        bench.monitor.watches()
        known = bench.readable

        def saves():
            check_saved(bench)
            return bench.readable > known

        with contextlib.suppress(TimeoutError):
            service.wait_until("an incident is saved", saves, 20)
    finally:
        try:
            status = bench.end()
            left = remains(bench, programs)
        finally:
            bench.unmount()
    say(f"{sum(done.values())} faults in {time.monotonic() - begin:.0f} s: {dict(done)}")
    mean_s = {name: round(bench.took[name] / number, 1) for name, number in done.items()}
    say(f"until the monitor watches again, in s on average: {mean_s}")
    ends = dict(collections.Counter(bench.monitor.ends))
    say(f"the monitor was started {bench.monitor.starts} times (ends: {ends}, watchdog: {bench.monitor.aborts}); "
        f"{bench.readable} of {len(bench.checked)} saved incidents are readable")
    if status not in (0, 3):
        bench.wrong.append(f"the last exit code is {status}")
    if bench.readable == known:
        bench.wrong.append("the last monitor saved no incident")
    return bench.wrong + [f"left behind: {what}" for what in left] + compare_timing(bench, watched, watched_end)
