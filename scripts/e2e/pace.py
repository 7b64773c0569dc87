"""Measures how slow Python is while a test records: a thread does the same small work twenty times a second."""

import json
import re
import statistics
import threading
import time

# The pause between two rounds. After it, caches are as cold as those of a callback that waited for its message.
EVERY_S = 0.05
# What one round takes in the median on the quiet machine on which the tolerances of the tests were found: with
# warm caches it is a tenth of this.
QUIET_NS = 200_000
# A slower machine is not allowed more time than this.
FACTOR_MAX = 3
# On a machine that is so many times slower than usual, timing tests may fail.
SLOW = 1.6
# The work converts this to text and back.
MESSAGE = {"header": {"frame": "map", "stamp": [17, 250_000_000]}, "points": list(range(64)), "names": ["a", "b"] * 8}
FRAME = re.compile(r'"frame": "(\w+)"')


def round_ns():
    """Does the work once. Returns the CPU time that it took."""
    begin = time.thread_time_ns()
    text = json.dumps(MESSAGE)
    frame = FRAME.search(text).group(1)
    copy = json.loads(text)
    copy["names"] = sorted(f"{frame}/{name}{number}" for number, name in enumerate(copy["names"]))
    return time.thread_time_ns() - begin


def wait_until_usual(limit_s):
    """Waits until Python is not much slower than usual, at most `limit_s` seconds."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        rounds = []
        for _ in range(20):
            time.sleep(EVERY_S)
            rounds.append(round_ns())
        if statistics.median(rounds) <= SLOW * QUIET_NS:
            return


class Pace:
    """The CPU times of all rounds since the beginning of a recording."""

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
        """Returns the median time of a round in units of QUIET_NS, from 1 to FACTOR_MAX."""
        return min(max(1, statistics.median(self.rounds or [0]) / QUIET_NS), FACTOR_MAX)
