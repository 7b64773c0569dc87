"""Harms an rclpy publisher that holds its messages back, and looks at what a subscriber gets.

usage: ./dev check hold [--seed N] [--count N]     1000 random faults (root; 15 minutes)

A program in place of `onbeat shape` owns the table of slots. Faults: the owner is killed, is stopped, ends shaping or
moves the cycles; the library's thread gets no CPU (it is frozen); the reserve is full; a message is too large; the
publisher forks, ends its publisher, ends its context, or ends and starts again. Afterwards every message must have
come once and in order, none later than two cycles after it was published or after the last fault before it came.
"""

import argparse
import bisect
import collections
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../watch"))

import service  # noqa: E402
from page import PASS, SHAPE, STATE, Page  # noqa: E402
from service import ROOT, say, wait_until  # noqa: E402

CYCLE_NS = 100_000_000
SLOT_NS = (70_000_000, 72_000_000)
# The subscriber is a Python program on a machine that others use, too.
MARGIN_NS = 60_000_000
FREEZER = "/sys/fs/cgroup/freezer"
WEIGHTS = {"kill": 20, "stop": 15, "end_shaping": 10, "move": 10, "starve": 15, "fill": 8, "large": 7, "fork": 7,
           "recreate": 4, "context": 2, "restart": 2}
INSIDE = ("fill", "large", "fork", "recreate", "context")


class Bench:
    """The owner, the publisher and the subscriber."""

    def __init__(self, folder, seed):
        self.folder, self.random = folder, random.Random(seed)
        self.python, self.held = service.ros_python(), os.path.join(folder, "held")
        self.published, self.received = (os.path.join(folder, name) for name in ("published", "received"))
        # Times of faults, ns.
        self.faults, self.took = [], collections.Counter()
        os.mkdir(self.held)
        os.mkfifo(os.path.join(self.held, "reports"))
        with open(os.path.join(self.held, "outputs"), "w", encoding="ascii") as file:
            file.write("0 output carry /talker /held\n")
        self.page = Page(os.path.join(self.held, "page"), CYCLE_NS, SLOT_NS)
        self.library = os.path.join(folder, "hold.so")
        source = os.path.join(ROOT, "crates/enforce/ros/src/inside/library.c")
        subprocess.run([os.environ.get("CLANG", "clang"), "-shared", "-fPIC", "-O2", "-fvisibility=hidden", source,
                        "-pthread", "-ldl", "-o", self.library], check=True)
        self.group = os.path.join(FREEZER, f"onbeat-check-{os.getpid()}")
        os.mkdir(self.group)
        self.environment = dict(os.environ, ROS_DOMAIN_ID=str(service.free_domain()))
        self.owner = self.talker = None
        self.listener = subprocess.Popen([*self.script("listen"), self.received], env=self.environment)
        self.number = 0

    def script(self, role):
        """The words that run a node at a real-time priority, so that other programs do not count."""
        return ["chrt", "-f", "10", self.python, os.path.join(HERE, "talker.py"), role]

    def begin(self):
        """Starts owner and publisher."""
        self.start_owner()
        self.start_talker()

    def start_owner(self):
        """Starts the owner, which goes on with the table."""
        self.owner = subprocess.Popen([sys.executable, os.path.join(HERE, "owner.py"), self.held, str(CYCLE_NS)])

    def start_talker(self):
        """Starts the publisher, and waits until it publishes."""
        environment = dict(self.environment, LD_PRELOAD=self.library, ONBEAT_HOLD=self.held)
        seed = self.random.randrange(1 << 30)
        self.talker = subprocess.Popen([*self.script("talk"), self.published, str(self.number), str(seed)],
                                       env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.hear("ready")

    def hear(self, word):
        """Reads the publisher's next line."""
        line = self.talker.stdout.readline().split()
        if not line or line[0] != word:
            raise RuntimeError(f"the publisher said {line}, not {word}")
        return line[1:]

    def tell(self, word, answer="done"):
        """Makes the publisher do something; returns the rest of its answer."""
        self.talker.stdin.write(word + "\n")
        self.talker.stdin.flush()
        return self.hear(answer)

    def cycles(self, least, most):
        """Sleeps for a random time in cycles."""
        time.sleep(self.random.uniform(least, most) * CYCLE_NS / 1e9)

    def fault(self):
        """Does one fault, and repairs it."""
        kind = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        self.faults.append(time.monotonic_ns())
        with open(os.path.join(self.folder, "faults"), "a", encoding="ascii") as file:
            print(self.faults[-1], kind, file=file)
        if kind in INSIDE:
            self.tell(kind)
        else:
            getattr(self, kind)()
        self.took[kind] += 1
        self.faults.append(time.monotonic_ns())
        self.cycles(0.5, 4)

    def kill(self):
        """Kills the owner."""
        self.owner.kill()
        self.owner.wait()
        self.cycles(0, 5)
        self.start_owner()

    def stop(self):
        """Stops the owner for a while."""
        self.owner.send_signal(signal.SIGSTOP)
        self.cycles(0.5, 5)
        self.owner.send_signal(signal.SIGCONT)

    def end_shaping(self):
        """The owner lets all messages pass."""
        self.page.set(STATE, PASS)
        self.cycles(0.2, 3)
        self.page.set(STATE, SHAPE)

    def move(self):
        """The cycles begin at another time."""
        self.page.move_origin(self.random.randrange(CYCLE_NS // 2))

    def starve(self):
        """The library's thread gets no CPU."""
        for tid in os.listdir(f"/proc/{self.talker.pid}/task"):
            with open(f"/proc/{self.talker.pid}/task/{tid}/comm", encoding="ascii") as file:
                if file.read().strip() != "onbeat-hold":
                    continue
            write(os.path.join(self.group, "tasks"), tid)
            write(os.path.join(self.group, "freezer.state"), "FROZEN")
            self.cycles(0.5, 5)
            write(os.path.join(self.group, "freezer.state"), "THAWED")
            write(os.path.join(FREEZER, "tasks"), tid)

    def restart(self):
        """The publisher's process ends, and another one starts."""
        self.number = int(self.tell("end", "ended")[0])
        self.talker.wait()
        self.start_talker()

    def finish(self):
        """Ends the publisher, and waits until all has come."""
        self.number = int(self.tell("end", "ended")[0])
        time.sleep(1)

    def close(self):
        """Ends everything."""
        write(os.path.join(self.group, "freezer.state"), "THAWED")
        for process in (self.owner, self.talker, self.listener):
            if process:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        wait_until("the freezer's group is empty", lambda: remove(self.group))


def write(path, text):
    """Writes a word to a file of the kernel."""
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def remove(group):
    """Removes a group; whether it is gone."""
    try:
        os.rmdir(group)
    except OSError:
        return False
    return True


def read(path):
    """The numbers of a log, and their times."""
    with open(path, encoding="ascii") as file:
        return [tuple(map(int, line.split())) for line in file if line.endswith("\n")]


def judge(bench):
    """What is wrong with the messages that came."""
    published, received = dict(read(bench.published)), read(bench.received)
    wrong, numbers = [], [number for number, _ in received]
    lost = sorted(set(published) - set(numbers))
    if lost:
        wrong.append(f"{len(lost)} of {len(published)} messages are lost: {lost[:10]}")
    if len(set(numbers)) != len(numbers):
        wrong.append(f"{len(numbers) - len(set(numbers))} messages came twice")
    back = [(a, b) for a, b in zip(numbers, numbers[1:]) if b < a]
    if back:
        wrong.append(f"{len(back)} messages came behind later ones: {back[:10]}")
    waited, lateness = 0, []
    for number, at in received:
        before = bisect.bisect_right(bench.faults, at)
        since = max(published[number], bench.faults[before - 1] if before else 0)
        lateness.append(at - since - 2 * CYCLE_NS)
        waited += at - published[number] > 20_000_000
    late = [number for (number, _), by in zip(received, lateness) if by > MARGIN_NS]
    if late:
        wrong.append(f"{len(late)} messages came more than two cycles late, by up to {max(lateness) / 1e6:.0f} ms: "
                     f"{late[:10]}")
    say(f"{len(published)} messages, {waited} of them waited; the latest came "
        f"{max(lateness) / CYCLE_NS + 2:.2f} cycles after its publication or the last fault")
    if waited < len(published) / 4:
        wrong.append(f"only {waited} of {len(published)} messages waited for a slot")
    return wrong


def main():
    """Makes the faults; prints what is wrong."""
    parser = argparse.ArgumentParser(prog="./dev check hold", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--keep", metavar="DIR", help="keep all files in this new directory")
    args = parser.parse_args()
    service.need_root()
    if args.keep:
        os.mkdir(args.keep)
    # A busy disk would keep the publisher waiting.
    folder = args.keep or tempfile.mkdtemp(prefix="onbeat-hold-check-", dir="/dev/shm")
    bench = Bench(folder, args.seed)
    try:
        bench.begin()
        for number in range(args.count):
            bench.fault()
            if (number + 1) % 100 == 0:
                say(f"{number + 1} faults")
        bench.finish()
        wrong = judge(bench)
    finally:
        bench.close()
        if not args.keep:
            shutil.rmtree(folder, ignore_errors=True)
    say(f"{sum(bench.took.values())} faults: " + ", ".join(f"{n} {kind}" for kind, n in bench.took.most_common()))
    for line in wrong:
        print(f"WRONG {line}")
    return f"hold: {len(wrong)} complaints" if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
