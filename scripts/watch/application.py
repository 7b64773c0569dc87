"""A small application with ten chains whose executions are late when a plan says so. It logs its own timing.

usage: application.py FOLDER PLAN
/sensor publishes every 50 ms: each time on the next of ten topics /watched/scan_N. /victim takes the scans in an
executor of one thread at SCHED_FIFO 2, alone on the last CPU, and publishes on /watched/out_N. PLAN is a JSON file:
`slots` (null: endless), `causes` (slot -> cause) and `chains` (slot -> the chain in place of the next one, or null).
FOLDER gets two logs of the running program: `sensor.log` with the start of each slot, and `victim.log` with an object
per scan. All times are CLOCK_MONOTONIC, ns.
"""

import json
import os
import subprocess
import sys
import threading
import time

CHAINS = 10
PERIOD = 0.05
PRIORITY = int(os.environ.get("WATCHED_PRIORITY", "2"))
DELAY_MS = 25
CAUSES = ["neighbour", "lock", "callback"]
CPU = int(os.environ.setdefault("WATCHED_CPU", str(max(os.sched_getaffinity(0)))))
OTHERS = os.sched_getaffinity(0) - {CPU} or {CPU}


def busy(seconds):
    """Takes CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def schedule(cpus, priority):
    """Sets CPUs and real-time priority of the calling thread, and of the threads that it starts."""
    os.sched_setaffinity(0, cpus)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))


def log_to(folder, name):
    """Returns a function that appends a line to a log."""
    file = os.open(os.path.join(folder, name), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    return lambda line: os.write(file, (json.dumps(line) + "\n").encode())


def sensor(folder, plan):
    """Publishes the scans of the plan."""
    import rclpy
    from std_msgs.msg import Int64
    with open(plan, encoding="utf-8") as file:
        plan = json.load(file)
    rclpy.init()
    node = rclpy.create_node("sensor")
    scans = [node.create_publisher(Int64, f"/watched/scan_{n}", 10) for n in range(CHAINS)]
    slow = node.create_publisher(Int64, "/watched/slow", 10)
    while min(publisher.get_subscription_count() for publisher in [*scans, slow]) < 1:
        time.sleep(0.1)
    log, slot = log_to(folder, "sensor.log"), -1

    def on_time():
        nonlocal slot
        stamp, slot = time.monotonic_ns(), slot + 1
        log(stamp)
        if plan["slots"] is not None and slot >= plan["slots"]:
            rclpy.shutdown()
            return
        cause = plan["causes"].get(str(slot))
        chain = plan["chains"].get(str(slot), slot % CHAINS)
        if chain is None:
            return
        if cause == "callback":
            slow.publish(Int64(data=0))
            time.sleep(0.003)
        code = CAUSES.index(cause) + 1 if cause else 0
        scans[chain].publish(Int64(data=stamp * 16 + code))
    # The executor holds the timer weakly.
    timer = node.create_timer(PERIOD, on_time)
    try:
        rclpy.spin(node)
    finally:
        del timer
        os._exit(0)


def neighbour():
    """For each byte on stdin, uses the CPU for DELAY_MS. Then writes a byte to stdout."""
    with open("/proc/self/comm", "w", encoding="ascii") as comm:
        comm.write("neighbour")
    schedule({CPU}, PRIORITY + 1)
    while os.read(0, 1):
        busy(DELAY_MS / 1000)
        os.write(1, b"x")


class Victim:
    """The causes that a callback can meet."""

    def __init__(self):
        self.lock = threading.Lock()
        self.asked, self.held = os.pipe(), os.pipe()
        threading.Thread(target=self.hold, daemon=True).start()
        self.neighbour = subprocess.Popen([sys.executable, os.path.abspath(__file__), "neighbour"],
                                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        os.set_blocking(self.neighbour.stdout.fileno(), False)

    def hold(self):
        """Holds the lock, asleep, once for each byte in the pipe."""
        with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w", encoding="ascii") as comm:
            comm.write("holder")
        while os.read(self.asked[0], 1):
            with self.lock:
                os.write(self.held[1], b"x")
                time.sleep(DELAY_MS / 1000)

    def meet(self, cause):
        """Meets a cause. A slow callback has already kept the executor busy."""
        if cause == "neighbour":
            self.neighbour.stdin.write(b"x")
            while not self.neighbour.stdout.read(1):
                os.sched_yield()
        elif cause == "lock":
            os.write(self.asked[1], b"x")
            os.read(self.held[0], 1)
            with self.lock:
                pass


def run_victim(folder):
    """Takes the scans in one thread."""
    import rclpy
    from rclpy.executors import SingleThreadedExecutor
    from std_msgs.msg import Int64
    rclpy.init()
    node, victim, log = rclpy.create_node("victim"), Victim(), log_to(folder, "victim.log")

    def subscribe(chain):
        out = node.create_publisher(Int64, f"/watched/out_{chain}", 10)

        def on_scan(message):
            begin = time.monotonic_ns()
            stamp, code = divmod(message.data, 16)
            busy(0.0005)
            if code:
                victim.meet(CAUSES[code - 1])
            before = time.monotonic_ns()
            out.publish(message)
            after = time.monotonic_ns()
            log({"chain": chain, "cause": CAUSES[code - 1] if code else None, "stamp": stamp, "begin": begin,
                 "out": [before, after]})
        return node.create_subscription(Int64, f"/watched/scan_{chain}", on_scan, 10)
    subscriptions = [subscribe(chain) for chain in range(CHAINS)]
    subscriptions.append(node.create_subscription(
        Int64, "/watched/slow", lambda _: busy(DELAY_MS / 1000), 10))
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    schedule({CPU}, PRIORITY)
    while os.getppid() != 1:
        executor.spin_once(timeout_sec=0.2)


def main():
    """Runs the nodes, each in its process."""
    role, *rest = sys.argv[1:]
    if role == "neighbour":
        neighbour()
        return
    if role in ("sensor", "victim"):
        schedule(OTHERS, PRIORITY)
        {"sensor": sensor, "victim": run_victim}[role](*rest)
        os._exit(0)
    # This process stays without a priority: one that waits for children at a real-time priority can spin in the
    # kernel for ever, behind a program of lower priority that looks at the same child in /proc.
    folder, plan = role, rest[0]
    words = [sys.executable, os.path.abspath(__file__)]
    victim = subprocess.Popen([*words, "victim", folder])
    subprocess.run([*words, "sensor", folder, plan], check=True)
    # The last scan is on its way.
    time.sleep(0.5)
    victim.kill()
    victim.wait()


if __name__ == "__main__":
    main()
