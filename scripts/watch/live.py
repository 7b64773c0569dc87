"""Watches the small application without plants for a long time, and samples what the monitor holds."""

import os
import time

import service
from service import say

SAMPLE_S = 10
GROWTH_MAX = 0.05


def size(folder):
    """The bytes that a directory takes on the disk."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return total


def sample(pid, folder):
    """What the monitor holds: KB of memory, descriptors, threads, KB on the disk, ms of CPU time."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        status = dict(line.split(":", 1) for line in file)
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        ticks = sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
    return {"rss_kb": int(status["VmRSS"].split()[0]), "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
            "threads": int(status["Threads"]), "disk_kb": size(folder) // 1024,
            "cpu_ms": ticks * 1000 // os.sysconf("SC_CLK_TCK")}


def mean(rows, key):
    """The mean of a column."""
    return sum(row[key] for row in rows) / len(rows)


def judge(samples, seconds):
    """Prints how each figure has grown after the first tenth. Returns complaints."""
    wrong, tenth = [], max(len(samples) // 10, 1)
    early, late = samples[tenth:2 * tenth] or samples, samples[-tenth:]
    for key in ("rss_kb", "descriptors", "threads", "disk_kb"):
        before, after = mean(early, key), mean(late, key)
        largest = max(row[key] for row in samples[tenth:])
        growth = after / max(before, 1) - 1
        say(f"{key}: {before:.0f} after the first tenth, {after:.0f} at the end ({growth * 100:+.1f} %), at most {largest}")
        # The recording and the incidents are below their limits, which options give.
        if growth > GROWTH_MAX and key != "disk_kb":
            wrong.append(f"{key} has grown by {growth * 100:.1f} %")
    say(f"CPU: {samples[-1]['cpu_ms'] / seconds / 10:.2f} % of a core, beside the probes")
    return wrong


def run(folder, minutes):
    """Watches for so many minutes. Returns complaints."""
    plan, requirements = os.path.join(folder, "plan.json"), os.path.join(folder, "requirements.yaml")
    kept = os.path.join(folder, "incidents")
    service.write_plan(plan, None, {})
    service.write_requirements(requirements)
    domain, port = service.free_domain(), service.free_port()
    application = service.start_application(service.ros_python(), os.path.join(folder, "application"), plan, domain)
    monitor = service.Monitor(folder, [requirements, "--incidents", kept, "--domain", str(domain), "--recording", "16M",
                                       "--http", str(port)], watchdog_s=30)
    samples, begin = [], time.monotonic()
    try:
        monitor.watches()
        due = begin
        while time.monotonic() - begin < minutes * 60:
            due += SAMPLE_S
            time.sleep(max(due - time.monotonic(), 0))
            samples.append(sample(monitor.process.pid, kept))
            if len(samples) % 30 == 1:
                say(f"{len(samples) * SAMPLE_S:6} s  {samples[-1]}, {len(service.incidents(kept))} incidents")
        saved = len(service.incidents(kept))
    finally:
        status = monitor.end()
        service.end_application(application)
    wrong = judge(samples, time.monotonic() - begin)
    with open(os.path.join(folder, "journal"), encoding="utf-8") as file:
        begun = sum(" begins: " in line for line in file)
    victim = service.read_lines(os.path.join(folder, "application/victim.log"))
    late = [row for row in victim if row["out"][0] - row["stamp"] > service.LIMIT_MS * 1e6]
    say(f"{len(victim)} executions, {len(late)} of them late by the application's own clock; "
        f"{begun} incidents, {saved} saved")
    if monitor.starts != 1 or status not in (0, 3):
        wrong.append(f"the monitor was started {monitor.starts} times, ended with {[*monitor.ends, status]}, "
                     f"{monitor.aborts} times by the watchdog")
    if begun > len(late):
        wrong.append(f"{begun} incidents, and {len(late)} late executions")
    return wrong
