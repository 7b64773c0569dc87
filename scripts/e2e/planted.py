"""Nodes whose executions are late for planted causes. They log the time of each cause by their own clocks.

usage: planted.py FOLDER
/sensor publishes a scan every 100 ms, on /planted/scan or /planted/group. Every second scan has a cause.
/victim takes the scans in an executor of one thread at SCHED_FIFO 5, alone on the last CPU. /member takes
/planted/group in a pool of threads, in one callback group with a slow callback. /fuse joins /planted/left with
/planted/right, which /source makes from /planted/left on the victim's CPU. FOLDER gets truth.json: for each planted
scan its cause, its stamp, and the times that the cause took, in ns (CLOCK_MONOTONIC).
"""

import array
import contextlib
import ctypes
import gc
import hashlib
import json
import mmap
import os
import subprocess
import sys
import threading
import time

import rclpy
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.executors import MultiThreadedExecutor, SingleThreadedExecutor
from std_msgs.msg import Int64, UInt8MultiArray
from std_srvs.srv import Trigger

CAUSES = ["neighbour", "equal", "lock", "callback", "sleep", "fsync", "faults", "quota", "garbage",
          "interpreter", "group", "service", "inversion", "together", "apart", "big", "join", "writeback"]
TIMES = 6
PERIOD = 0.1
PRIORITY = 5
DELAY_MS = 25
# Two callbacks of this length, one after the other, end after the scan. Each of them alone ends before the scan.
SHORT_MS = 14
LEAD = 0.017
BIG = 2 << 20
FILES = 1500
# Scans without a cause after each planted one. The disk needs time to write the files.
PAUSES = {"writeback": 9}
CODES = 32
CPU = int(os.environ.setdefault("PLANTED_CPU", str(max(os.sched_getaffinity(0)))))
OTHERS = os.sched_getaffinity(0) - {CPU} or {CPU}


LIBC = ctypes.CDLL(None)


def busy(seconds):
    """Takes CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def name_thread(name):
    """Names the calling thread, as recordings show it."""
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w", encoding="utf-8") as comm:
        comm.write(name)


def schedule(policy, priority):
    """Sets the scheduling of the calling thread."""
    os.sched_setscheduler(0, policy, os.sched_param(priority))


def plan():
    """The causes of all scans, in order; None: no cause. The pool starts its threads with the first scans."""
    planted = [[cause, *[None] * PAUSES.get(cause, 1)] * TIMES for cause in CAUSES]
    return ["start", None] * 3 + [None] * 4 + sum(planted, [])


def code(cause):
    """The number of a cause in the low five bits of a scan. The other bits are the scan's stamp."""
    return CAUSES.index(cause) + 1 if cause in CAUSES else 0


def sensor(folder):
    """Publishes all scans, then lets the other nodes end."""
    rclpy.init()
    node = rclpy.create_node("sensor")
    topics = ["scan", "slow", "short", "group", "slow_member", "left"]
    publishers = {topic: node.create_publisher(Int64, "/planted/" + topic, 10) for topic in topics}
    big = node.create_publisher(UInt8MultiArray, "/planted/big", 1)
    scan = UInt8MultiArray(data=array.array("B", bytes(BIG)))
    ahead = {"callback": {"slow": DELAY_MS}, "together": {"slow": SHORT_MS, "short": SHORT_MS},
             "apart": {"short": SHORT_MS}, "group": {"slow_member": DELAY_MS}, "start": {"slow_member": DELAY_MS}}
    topic_of = {"group": "group", "service": "group", "start": "group", "join": "left"}
    causes = iter(plan())
    before = None
    while min(publisher.get_subscription_count() for publisher in [*publishers.values(), big]) < 1:
        time.sleep(0.1)

    def on_time():
        nonlocal before
        cause = next(causes, "end")
        if cause == "end":
            time.sleep(1)
            with open(os.path.join(folder, "end"), "w", encoding="ascii"):
                pass
            timer.cancel()
            return
        for topic, milliseconds in ahead.get(cause, {}).items():
            publishers[topic].publish(Int64(data=milliseconds))
        if cause in ahead:
            time.sleep(LEAD if cause in ("together", "apart") else 0.004)
        data = time.monotonic_ns() * CODES + code(cause)
        if cause == "big":
            scan.data[0:16] = array.array("B", data.to_bytes(16, "little"))
            big.publish(scan)
        elif cause is None and before == "join":
            publishers["left"].publish(Int64(data=data))
        else:
            publishers[topic_of.get(cause, "scan")].publish(Int64(data=data))
        before = cause
    timer = node.create_timer(PERIOD, on_time)
    rclpy.spin(node)


def neighbour(name, priority, cpu):
    """For each byte on stdin, uses the CPU for DELAY_MS. Then writes the CPU time that it used, in ns, to stdout."""
    name_thread(name)
    os.sched_setaffinity(0, {cpu})
    schedule(os.SCHED_FIFO, priority)
    while os.read(0, 1):
        begin = time.thread_time_ns()
        busy(DELAY_MS / 1000)
        os.write(1, (time.thread_time_ns() - begin).to_bytes(8, "little"))


class Writeback:
    """The kernel threads that write files to the disk."""

    MASK = "/sys/devices/virtual/workqueue/writeback/cpumask"

    def __init__(self, folder):
        self.folder = os.path.join(folder, "written")
        os.makedirs(self.folder, exist_ok=True)
        self.number = 0

    def dirty(self):
        """Makes small files that are not on the disk yet."""
        for name in os.listdir(self.folder):
            os.unlink(os.path.join(self.folder, name))
        self.number += 1
        for i in range(FILES):
            with open(os.path.join(self.folder, f"{self.number}-{i}"), "wb") as file:
                file.write(b"x" * 4096)

    def write(self):
        """Has the kernel write the files on the victim's CPU. Returns the CPU time of its threads there, in ns."""
        with open(self.MASK, encoding="ascii") as mask:
            before = mask.read()
        try:
            Quota.write(self.MASK, f"{1 << CPU:x}")
            ran = workers_ns()
            os.sync()
            return sum(ns - ran.get(pid, 0) for pid, ns in workers_ns().items())
        finally:
            Quota.write(self.MASK, before)


def workers_ns():
    """The CPU time in ns of each worker thread of the kernel that ran on the victim's CPU last, by its id."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                comm, _, rest = file.read().partition(" (")[2].rpartition(") ")
            if comm.startswith("kworker/u") and int(rest.split()[36]) == CPU:
                with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
                    found[pid] = int(file.read().split()[0])
    return found


def write_back(folder):
    """For each byte on stdin, has the kernel write files. Then writes the kernel's CPU time to stdout, in ns."""
    writeback = Writeback(folder)
    while True:
        writeback.dirty()
        if not os.read(0, 1):
            return
        took = 0
        with contextlib.suppress(OSError):
            took = writeback.write()
        os.write(1, took.to_bytes(8, "little"))


def start(*role):
    """Starts a neighbour."""
    return subprocess.Popen([sys.executable, os.path.abspath(__file__), *role], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, bufsize=0)


def beside(process):
    """Computes until a neighbour has taken its time. Returns that time in ns."""
    os.set_blocking(process.stdout.fileno(), False)
    process.stdin.write(b"x")
    return took_of(process)


def took_of(process):
    """Waits for the end of a neighbour's work without a sleep. Returns its time in ns."""
    while not (took := process.stdout.read(8)):
        os.sched_yield()
    return int.from_bytes(took, "little")


def answer():
    """Answers each request after DELAY_MS, and joins the inputs of /fuse."""
    rclpy.init()
    node, fuse = rclpy.create_node("server"), rclpy.create_node("fuse")
    fused = fuse.create_publisher(Int64, "/planted/fused", 10)
    waiting = set()

    def on_request(_, response):
        time.sleep(DELAY_MS / 1000)
        return response
    def on_right(message):
        if message.data in waiting:
            waiting.remove(message.data)
            fused.publish(message)
    node.create_service(Trigger, "/planted/ask", on_request)
    fuse.create_subscription(Int64, "/planted/left", lambda message: waiting.add(message.data), 10)
    fuse.create_subscription(Int64, "/planted/right", on_right, 10)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    executor.add_node(fuse)
    executor.spin()


def run_source(folder):
    """Makes /planted/right from /planted/left. A neighbour preempts it if the scan is planted."""
    rclpy.init()
    node, log, upstream = rclpy.create_node("source"), [], start("upstream")
    right = node.create_publisher(Int64, "/planted/right", 10)

    def on_left(message):
        stamp, number = divmod(message.data, CODES)
        busy(0.001)
        if number:
            log.append((CAUSES[number - 1], stamp, beside(upstream)))
        right.publish(message)
    node.create_subscription(Int64, "/planted/left", on_left, 10)
    run_on_cpu(node, folder)
    upstream.kill()
    save(folder, "source", log)


class Helper(threading.Thread):
    """A thread of the victim's process that does its work once for each byte in its pipe."""

    def __init__(self, name, work, cpus=OTHERS):
        super().__init__(daemon=True)
        self.name_, self.work, self.cpus, self.busy = name, work, cpus, False
        self.receive, self.send = os.pipe()

    def run(self):
        name_thread(self.name_)
        os.sched_setaffinity(0, self.cpus)
        while os.read(self.receive, 1):
            self.work(self)

    def go(self):
        """Lets the thread work. Returns when the work has begun."""
        self.busy = False
        os.write(self.send, b"x")
        while not self.busy:
            time.sleep(0)


class Quota:
    """A control group of version 1 or 2 with a quota of CPU time."""

    def __init__(self):
        old = os.path.isdir("/sys/fs/cgroup/cpu")
        self.parent = "/sys/fs/cgroup/cpu" if old else "/sys/fs/cgroup"
        self.group = f"{self.parent}/onbeat-planted-{os.getpid()}"
        self.members = "tasks" if old else "cgroup.procs"
        os.mkdir(self.group)
        for name, value in ([("cpu.cfs_period_us", "40000"), ("cpu.cfs_quota_us", "4000")] if old
                            else [("cpu.max", "4000 40000")]):
            self.write(f"{self.group}/{name}", value)

    @staticmethod
    def write(path, value):
        """Writes one setting."""
        with open(path, "w", encoding="ascii") as file:
            file.write(value)

    def run(self, work):
        """Does some work within the group. Version 1 moves only the calling thread there, version 2 the process."""
        self.write(f"{self.group}/{self.members}", str(threading.get_native_id()))
        try:
            return work()
        finally:
            self.write(f"{self.parent}/{self.members}", str(threading.get_native_id()))

    def remove(self):
        """Removes the group."""
        os.rmdir(self.group)


class Mutex:
    """A mutex of the C library, whose owner the recording shows."""

    def __init__(self):
        self.memory = ctypes.create_string_buffer(64)
        LIBC.pthread_mutex_init(self.memory, None)

    def __enter__(self):
        LIBC.pthread_mutex_lock(self.memory)

    def __exit__(self, *_):
        LIBC.pthread_mutex_unlock(self.memory)


class Victim:
    """The causes that a callback in an executor of one thread can meet."""

    def __init__(self, folder):
        self.log, self.slow, self.released = [], [], 0
        self.mutex, self.work = Mutex(), bytes(16 << 20)
        self.inverted = Helper("inverted", self.compute, {min(OTHERS)})
        self.lock = threading.Lock()
        self.holder = Helper("holder", self.hold)
        self.greedy = Helper("greedy", self.sort)
        self.numbers = [i * 7919 % 1000003 for i in range(250_000)]
        self.memory = mmap.mmap(-1, 40 << 20)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.neighbours = {name: start(name) for name in ("neighbour", "equal", "spoiler")}
        self.neighbours["writeback"] = start("writeback", folder)
        try:
            self.quota = Quota()
        except OSError:
            self.quota = None
        self.file = os.open(os.path.join(folder, "synced"), os.O_CREAT | os.O_WRONLY)
        self.page = os.urandom(1 << 18)
        gc.disable()
        self.garbage = [[None] for _ in range(250_000)]
        for cell in self.garbage:
            cell[0] = cell
        self.holder.start()
        self.greedy.start()
        self.inverted.start()

    def hold(self, helper):
        """Holds the lock, asleep."""
        with self.lock:
            helper.busy = True
            time.sleep(DELAY_MS / 1000)
            self.released = time.monotonic_ns()

    def compute(self, helper):
        """Holds the mutex and computes, without the interpreter's lock."""
        with self.mutex:
            helper.busy = True
            hashlib.sha256(self.work)

    def sort(self, helper):
        """Holds the interpreter's lock in one call."""
        helper.busy = True
        sorted(self.numbers)

    def meet(self, cause):
        """Meets a cause. Returns the time in ns that it took by the threads' clocks; None: impossible here."""
        return getattr(self, "meet_" + cause)()

    def meet_neighbour(self):
        """A neighbour of higher priority."""
        return beside(self.neighbours["neighbour"])

    def meet_equal(self):
        """A neighbour of equal priority."""
        return beside(self.neighbours["equal"])

    def meet_inversion(self):
        """A mutex whose owner is preempted on another CPU."""
        spoiler = self.neighbours["spoiler"]
        os.set_blocking(spoiler.stdout.fileno(), False)
        self.inverted.go()
        spoiler.stdin.write(b"x")
        with self.mutex:
            return took_of(spoiler)

    def meet_writeback(self):
        """A thread of the kernel that writes files to the disk."""
        process = self.neighbours["writeback"]
        os.set_blocking(process.stdout.fileno(), False)
        process.stdout.read(16)

        schedule(os.SCHED_OTHER, 0)
        process.stdin.write(b"x")
        # Computes until the files are written, but not for too long.
        end, took = time.thread_time() + 0.5, b""
        while time.thread_time() < end and not took:
            took = process.stdout.read(8) or b""
        schedule(os.SCHED_FIFO, PRIORITY)
        return int.from_bytes(took, "little") if took else None

    def meet_lock(self):
        """A lock that a sleeping thread holds."""
        self.holder.go()
        begin = time.monotonic_ns()
        with self.lock:
            return self.released - begin

    def meet_sleep(self):
        """A sleep in the callback."""
        return lost_ns(lambda: time.sleep(DELAY_MS / 1000))

    def meet_fsync(self):
        """A write that waits for the disk."""
        def write():
            os.pwrite(self.file, self.page, 0)
            os.fsync(self.file)
        lost, until = 0, time.monotonic() + DELAY_MS / 1000
        while time.monotonic() < until:
            lost += lost_ns(write)
        return lost

    def meet_faults(self):
        """Page faults on memory that was given back."""
        def touch():
            self.memory.madvise(mmap.MADV_DONTNEED)
            ctypes.memset(self.address, 1, len(self.memory))
        return cpu_ns(touch)

    def meet_quota(self):
        """A quota of CPU time."""
        if not self.quota:
            return None
        schedule(os.SCHED_OTHER, 0)
        lost = self.quota.run(lambda: lost_ns(lambda: busy(0.009)))
        schedule(os.SCHED_FIFO, PRIORITY)
        return lost

    def meet_garbage(self):
        """Python's garbage collection."""
        return cpu_ns(gc.collect)

    def meet_interpreter(self):
        """The interpreter's lock, which another thread holds in one call."""
        def asleep():
            # This thread wakes up every 5 ms and asks for the lock. That takes CPU time.
            return time.monotonic_ns() - time.thread_time_ns()
        self.greedy.busy, before, longest = False, asleep(), 0
        os.write(self.greedy.send, b"x")
        while not self.greedy.busy or longest < 2_000_000:
            now = asleep()
            longest, before = max(longest, now - before), now
        return longest


def run_victim(folder):
    """Takes the scans in one thread."""
    rclpy.init()
    node, victim = rclpy.create_node("victim"), Victim(folder)
    out = node.create_publisher(Int64, "/planted/out", 10)

    idle_ns, between_ns = 0, []

    def on_scan(message):
        stamp, number = divmod(message.data, CODES)
        begin = time.monotonic_ns()
        between_ns.append(time.thread_time_ns() - idle_ns)
        busy(0.001)
        cause, took = None, None
        if number:
            cause = CAUSES[number - 1]
            behind = cause in ("callback", "together", "apart")
            took = overlap(victim.slow, stamp, begin) if behind else victim.meet(cause)
        out.publish(message)
        if cause:
            victim.log.append((cause, stamp, took))
        note_idle()

    def on_slow(message):
        victim.slow.append(timed(lambda: busy(message.data / 1000)))

    def on_big(message):
        # The executor's work is also there between small messages.
        took = time.thread_time_ns() - idle_ns - sorted(between_ns)[len(between_ns) // 2]
        stamp, number = divmod(int.from_bytes(message.data[0:16].tobytes(), "little"), CODES)
        victim.log.append((CAUSES[number - 1], stamp, took))
        note_idle()

    def note_idle():
        nonlocal idle_ns
        idle_ns = time.thread_time_ns()
    node.create_subscription(Int64, "/planted/scan", on_scan, 10)
    node.create_subscription(Int64, "/planted/slow", on_slow, 10)
    node.create_subscription(Int64, "/planted/short", on_slow, 10)
    node.create_subscription(UInt8MultiArray, "/planted/big", on_big, 1)
    run_on_cpu(node, folder)
    for process in victim.neighbours.values():
        process.kill()
    if victim.quota:
        victim.quota.remove()
    return victim.log


def cpu_ns(work):
    """Does some work. Returns the CPU time that it took, ns."""
    ran = time.thread_time_ns()
    work()
    return time.thread_time_ns() - ran


def lost_ns(work):
    """Does some work. Returns the time for which the thread had no CPU during the work, ns."""
    begin, ran = time.monotonic_ns(), time.thread_time_ns()
    work()
    return time.monotonic_ns() - begin - (time.thread_time_ns() - ran)


def timed(work):
    """Does some work. Returns its begin and end."""
    begin = time.monotonic_ns()
    work()
    return begin, time.monotonic_ns()


def overlap(bursts, begin, end):
    """The part of the time from begin to end that lies within bursts, ns."""
    return sum(max(0, min(end, burst[1]) - max(begin, burst[0])) for burst in bursts)


def run_on_cpu(node, folder):
    """Runs a node in an executor of one thread on the last CPU until the file `end` is there."""
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    os.sched_setaffinity(0, {CPU})
    schedule(os.SCHED_FIFO, PRIORITY)
    until(executor, folder)


def save(folder, name, truth):
    """Writes a part of the truth."""
    with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as file:
        json.dump(truth, file)


def until(executor, folder):
    """Runs an executor until the file `end` is there."""
    while not os.path.exists(os.path.join(folder, "end")):
        executor.spin_once(timeout_sec=0.2)


def run_member(folder):
    """Takes scans in a pool, in one group with a slow callback."""
    rclpy.init()
    node, log, slow = rclpy.create_node("member"), [], []
    group = MutuallyExclusiveCallbackGroup()
    client = node.create_client(Trigger, "/planted/ask", callback_group=MutuallyExclusiveCallbackGroup())
    out = node.create_publisher(Int64, "/planted/group_out", 10)

    def on_scan(message):
        stamp, number = divmod(message.data, CODES)
        begin = time.monotonic_ns()
        busy(0.001)
        if not number:
            return
        cause = CAUSES[number - 1]
        if cause == "group":
            took = overlap(slow, stamp, begin)
        else:
            client.call(Trigger.Request())
            took = DELAY_MS * 1_000_000
        out.publish(message)
        log.append((cause, stamp, took))
    node.create_subscription(Int64, "/planted/group", on_scan, 10, callback_group=group)
    node.create_subscription(Int64, "/planted/slow_member",
                             lambda _: slow.append(timed(lambda: busy(DELAY_MS / 1000))), 10,
                             callback_group=group)
    executor = MultiThreadedExecutor(3)
    executor.add_node(node)
    client.wait_for_service()
    until(executor, folder)
    save(folder, "member", log)


def main():
    """Runs all nodes, each in its process."""
    role, *rest = sys.argv[1:]
    roles = {"sensor": lambda: sensor(*rest), "answer": answer, "member": lambda: run_member(*rest),
             "source": lambda: run_source(*rest),
             "neighbour": lambda: neighbour(role, PRIORITY + 5, CPU), "equal": lambda: neighbour(role, PRIORITY, CPU),
             "writeback": lambda: write_back(*rest),
             "upstream": lambda: neighbour(role, PRIORITY + 5, CPU),
             "spoiler": lambda: neighbour(role, PRIORITY + 5, min(OTHERS))}
    if role in roles:
        roles[role]()
        os._exit(0)
    folder = role
    # The other nodes and the threads of the middleware keep off the victim's CPU.
    os.sched_setaffinity(0, OTHERS)
    others = [subprocess.Popen([sys.executable, os.path.abspath(__file__), *words])
              for words in (["answer"], ["member", folder], ["source", folder], ["sensor", folder])]
    log = run_victim(folder)
    for process in others[1:3]:
        process.wait()
    for process in others:
        process.kill()
        process.wait()
    for name in ("member", "source"):
        with open(os.path.join(folder, name + ".json"), encoding="utf-8") as file:
            log += json.load(file)
    save(folder, "truth", log)
    os._exit(0)


if __name__ == "__main__":
    main()
