"""The time from the end of a late execution until its violation shows in the journal, the metrics and on /diagnostics.

usage: delay.py FILE: writes a line for each message on /diagnostics: its arrival on CLOCK_MONOTONIC in ns, and the
chains whose requirement is violated.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import plants
import service
from service import say

LIMIT_S = 1
POLL_S = 0.01
CHAIN = re.compile(r"/watched/out_(\d+)\b")
ERROR = 2
PLACES = ["journal", "metrics", "diagnostics"]


def listen(path):
    """Writes what arrives on /diagnostics."""
    import rclpy
    from diagnostic_msgs.msg import DiagnosticArray

    def on_message(message):
        now = time.monotonic_ns()
        bad = [status.name for status in message.status if status.level[0] == ERROR]
        print(json.dumps([now, [int(chain) for name in bad for chain in CHAIN.findall(name)]]), file=file)

    rclpy.init()
    node = rclpy.create_node("delay")
    with open(path, "w", encoding="utf-8", buffering=1) as file:
        node.create_subscription(DiagnosticArray, "/diagnostics", on_message, 10)
        rclpy.spin(node)


class Seen:
    """For each place: times, and the chains that the place showed as violated then."""

    def __init__(self, folder, port):
        self.seen, self.is_over = {place: [] for place in PLACES}, False
        self.journal, self.port = os.path.join(folder, "journal"), port
        self.threads = [threading.Thread(target=follow) for follow in (self.follow_journal, self.follow_metrics)]
        for thread in self.threads:
            thread.start()

    def follow_journal(self):
        """Takes lines of the journal soon after they were written."""
        with open(self.journal, encoding="utf-8") as file:
            rest = ""
            while not self.is_over:
                *lines, rest = (rest + file.read()).split("\n")
                now = time.monotonic_ns()
                for line in lines:
                    if " begins: " in line or ", too: " in line:
                        self.seen["journal"].append((now, set(map(int, CHAIN.findall(line)))))
                time.sleep(POLL_S)

    def follow_metrics(self):
        """Reads the metrics as often as a very impatient collector."""
        while not self.is_over:
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
                    text = answer.read().decode()
                bad = [line for line in text.splitlines()
                       if line.startswith("onbeat_requirement_violated{") and line.endswith(" 1")]
                chains = {int(chain) for line in bad for chain in CHAIN.findall(line)}
                self.seen["metrics"].append((time.monotonic_ns(), chains))
            time.sleep(5 * POLL_S)

    def end(self, diagnostics):
        """Stops. Adds what was heard on /diagnostics."""
        self.is_over = True
        for thread in self.threads:
            thread.join()
        self.seen["diagnostics"] = [(at, set(chains)) for at, chains in service.read_lines(diagnostics)]


def judge(rows, seen):
    """Prints the delays of each place. Returns complaints."""
    wrong = []
    # A chain that was late because of other programs may be violated already.
    planted = [row for row in rows if row["cause"]]
    others = {row["chain"] for row in rows if not row["cause"] and plants.latency_ms(row) > service.LIMIT_MS}
    planted = [row for row in planted if row["chain"] not in others and plants.latency_ms(row) > service.LIMIT_MS]
    for place in PLACES:
        delays = []
        for row in planted:
            end = row["out"][1]
            # Before, the chain must not have been seen as violated, or the delay would not be this violation's.
            before = [chains for at, chains in seen[place] if at < end]
            after = [at for at, chains in seen[place] if at >= end and row["chain"] in chains]
            if place != "journal" and before and row["chain"] in before[-1]:
                wrong.append(f"{place}: chain {row['chain']} was violated before the plant at {row['stamp']}")
            elif not after:
                wrong.append(f"{place}: the plant on chain {row['chain']} at {row['stamp']} was never seen")
            else:
                delays.append((after[0] - end) / 1e9)
        delays.sort()
        if delays:
            say(f"{place}: {len(delays)} violations seen after {delays[len(delays) // 2]:.2f} s at the median, "
                f"{delays[-1]:.2f} s at most")
            late = sum(delay > LIMIT_S for delay in delays)
            if late:
                wrong.append(f"{place}: {late} of {len(delays)} later than {LIMIT_S} s")
    return wrong


def run(folder, count):
    """Plants so many single violations. Returns complaints."""
    path, requirements = os.path.join(folder, "plan.json"), os.path.join(folder, "requirements.yaml")
    heard, domain, port = os.path.join(folder, "heard"), service.free_domain(), service.free_port()
    causes = plants.singles(count)
    last = max(causes) + 5 * plants.SLOTS_PER_S
    service.write_plan(path, last, causes)
    service.write_requirements(requirements)
    say(f"it takes {last // plants.SLOTS_PER_S} s")
    python, seen, application, listener = service.ros_python(), None, None, None
    monitor = service.Monitor(folder, [
        requirements, "--domain", str(domain), "--window", "10s", "--http", str(port), "--diagnostics",
        "--incidents", os.path.join(folder, "incidents"), "--saves-per-hour", "10000"], watchdog_s=30)
    try:
        monitor.watches()
        seen = Seen(folder, port)
        listener = subprocess.Popen([python, os.path.abspath(__file__), heard],
                                    env=dict(os.environ, ROS_DOMAIN_ID=str(domain)))
        application = service.start_application(python, os.path.join(folder, "application"), path, domain)
        application.wait(last / plants.SLOTS_PER_S + 120)
        # The last violation may still be on its way.
        time.sleep(2)
    finally:
        if listener:
            listener.send_signal(signal.SIGKILL)
            listener.wait()
        if seen:
            seen.end(heard)
        status = monitor.end()
        if application:
            service.end_application(application)
    wrong = judge(service.read_lines(os.path.join(folder, "application/victim.log")), seen.seen)
    if monitor.starts != 1 or status not in (0, 3):
        wrong.append(f"the monitor was started {monitor.starts} times, ended with {[*monitor.ends, status]}")
    return wrong


if __name__ == "__main__":
    listen(sys.argv[1])
