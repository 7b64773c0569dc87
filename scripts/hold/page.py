"""The page that the owner of a table of slots writes: see crates/enforce/ros/src/page.rs."""

import mmap
import os
import struct
import time

BYTES = 16384
MAGIC = int.from_bytes(b"onbeat\0\x04", "little")
MAGIC_WORD, GENERATION, STATE, HEARTBEAT, CYCLE, ORIGIN, _, ORIGIN_FROM, _, OUTPUTS = range(10)
SHAPE, PASS = 0, 1


class Page:
    """The words of a page. A new file gets a table with one output and one slot."""

    def __init__(self, path, cycle_ns=None, slot_ns=None):
        if cycle_ns:
            with open(path, "wb") as file:
                file.write(bytes(BYTES))
        self.fd = os.open(path, os.O_RDWR)
        self.words = mmap.mmap(self.fd, BYTES)
        if cycle_ns:
            self.cycle_ns, self.origin_ns = cycle_ns, time.monotonic_ns()
            for word, value in ((MAGIC_WORD, MAGIC), (CYCLE, cycle_ns), (ORIGIN, self.origin_ns),
                                (OUTPUTS + 1, 1), (OUTPUTS + 2, slot_ns[0]), (OUTPUTS + 3, slot_ns[1])):
                self.set(word, value)
            self.beat()

    def set(self, word, value):
        """Writes a word."""
        struct.pack_into("=Q", self.words, 8 * word, value)

    def get(self, word):
        """Reads a word."""
        return struct.unpack_from("=Q", self.words, 8 * word)[0]

    def beat(self):
        """Shows that the owner is alive."""
        self.set(HEARTBEAT, time.monotonic_ns())

    def move_origin(self, by_ns):
        """Moves the beginnings of cycles."""
        generation = self.get(GENERATION)
        self.set(GENERATION, generation | 1)
        self.origin_ns += by_ns
        self.set(ORIGIN, self.origin_ns)
        self.set(GENERATION, (generation | 1) + 1)
