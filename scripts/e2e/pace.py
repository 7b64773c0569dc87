"""How slow Python is on this machine while a test runs, as a bystander sees it that works seldom."""

import json
import re
import statistics
import threading
import time

# Seldom, so that its caches are as cold as those of a callback that waits for its message.
EVERY_S = 0.05
# What one round takes in the median on the quiet machine on which the tolerances of the tests were found: with
# warm caches it is a tenth of this.
QUIET_NS = 200_000
# What the work is done on: as various as the way of a message through a client library.
MESSAGE = {"header": {"frame": "map", "stamp": [17, 250_000_000]}, "points": list(range(64)), "names": ["a", "b"] * 8}
FRAME = re.compile(r'"frame": "(\w+)"')


def round_ns():
    """Returns the CPU time of one round: Python code, memory, two calls of the kernel."""
    begin = time.thread_time_ns()
    text = json.dumps(MESSAGE)
    frame = FRAME.search(text).group(1)
    copy = json.loads(text)
    copy["names"] = sorted(f"{frame}/{name}{number}" for number, name in enumerate(copy["names"]))
    return time.thread_time_ns() - begin


class Pace:
    """Rounds of the bystander since the beginning of a recording."""

    def __init__(self):
        self.rounds = []
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self):
        while True:
            time.sleep(EVERY_S)
            self.rounds.append(round_ns())

    def begin(self):
        """Forgets the rounds so far."""
        self.rounds = []

    def factor(self):
        """How many times slower than on the quiet machine a round was, in the median; at least 1."""
        return max(1, statistics.median(self.rounds or [0]) / QUIET_NS)
