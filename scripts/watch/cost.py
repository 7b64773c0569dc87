"""CPU time of `onbeat monitor` and `onbeat top` beside the probes, while the parking demo and SYN run together.

The kernel accounts what the threads of a program use (user and system time). The probes' own time is part of the
application's threads, so it does not count here. What `onbeat record` uses for the same system stands beside it.
"""

import os
import signal
import subprocess
import time

import service
from service import say

PARKING = os.path.join(service.ROOT, "demos/parking/run.py")
SYN = os.path.join(service.ROOT, "demos/syn/syn.py")
# Until the applications work, and the model knows their chains.
SETTLE_S = 20
ARMS = ["record", "monitor", "top"]


def ticks(pid):
    """User and system time of a process and of its children that have ended, in clock ticks."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return sum(map(int, file.read().rpartition(")")[2].split()[11:15]))


def tree(pid):
    """A process and all processes below it."""
    found = [pid]
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/children", encoding="ascii") as file:
            for child in file.read().split():
                found += tree(int(child))
    return found


def words_of(arm, folder, requirements):
    """The command of an arm."""
    return [service.ONBEAT, *{
        "record": ["record", "-o", os.path.join(folder, "trace")],
        "monitor": ["monitor", requirements, "--incidents", os.path.join(folder, "incidents"), "--http",
                    str(service.free_port())],
        # What a program reads once per second takes the same model and figures as the screen.
        "top": ["top", "--json"],
    }[arm], "--domain", str(os.environ["ROS_DOMAIN_ID"])]


def run(folder, seconds):
    """Measures each arm for so many seconds. Returns complaints."""
    os.environ["ROS_DOMAIN_ID"] = str(service.free_domain())
    python, requirements = service.ros_python(), os.path.join(folder, "requirements.yaml")
    with open(requirements, "w", encoding="utf-8") as file:
        # No execution takes that long: SYN's take more than 10 s, and an incident would be saved.
        file.write("chains:\n  - {to: /localization/ndt_pose, latency: {max: 100s}}\n"
                   "  - {to: /out, latency: {max: 100s}}\n")
    lasts = str(len(ARMS) * (SETTLE_S + seconds + 20))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    applications = [subprocess.Popen([python, PARKING, "--duration", lasts], **quiet),
                    subprocess.Popen([python, SYN, "--quiet", "--duration", lasts, "--truth",
                                      os.path.join(folder, "truth.json")], **quiet)]
    shares = {}
    try:
        for arm in ARMS:
            program = subprocess.Popen(words_of(arm, folder, requirements), **quiet)
            try:
                time.sleep(SETTLE_S)
                begin, before = time.monotonic(), sum(map(ticks, tree(program.pid)))
                time.sleep(seconds)
                used = sum(map(ticks, tree(program.pid))) - before
                shares[arm] = used / os.sysconf("SC_CLK_TCK") / (time.monotonic() - begin) * 100
            finally:
                program.send_signal(signal.SIGINT)
                program.wait(60)
            say(f"{arm}: {shares[arm]:.2f} % of a core")
    finally:
        for application in applications:
            application.send_signal(signal.SIGINT)
        for application in applications:
            service.end_application(application)
    return []
