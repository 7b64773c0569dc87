"""Stamps of tests that passed: a test need not run again while its inputs are the same."""

import contextlib
import os
import re
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Stamp:
    """A file in `target` that says with which inputs a test has passed, and when."""

    def __init__(self, name, inputs):
        self.path = os.path.join(ROOT, "target/passed", re.sub(r"\W+", "-", name))
        self.inputs = inputs

    def read(self):
        """When the test passed with these inputs, or None."""
        with contextlib.suppress(OSError, ValueError), open(self.path, encoding="utf-8") as file:
            inputs, when = file.read().splitlines()
            return when if inputs == self.inputs else None
        return None

    def write(self):
        """Notes that the test has passed now."""
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(f"{self.path}.new", "w", encoding="utf-8") as file:
            file.write(f"{self.inputs}\n{time.strftime('%Y-%m-%d %H:%M')}\n")
        os.replace(f"{self.path}.new", self.path)
