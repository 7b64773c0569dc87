#!/usr/bin/env python3
"""Makes random applications with known truth: a wiring for syn.py, and how to run it.

    python3 zoo.py SEED FILE      writes the wiring of this seed, and prints the options for syn.py
"""

import random
import sys
from dataclasses import replace

from wiring import Callback, write_wiring

NODES = 5
CALLBACKS, CALLBACKS_MIN = 24, 6
# Synchronisers multiply the paths to a callback. Graphs with many paths have tests of their own.
JOINS = 2
# Executions of one second, and milliseconds of CPU time in one second, of the whole application.
RATE, LOAD_MS = 120, 350
BASE_HZ = 5
# The ways to run an application: options of syn.py, and whether it is a compiled client.
WAYS = [
    ([], None),
    (["--layout", "one"], None),
    (["--executor", "multi", "--threads", "3"], None),
    (["--as", "rclcpp"], "syn-rclcpp"),
    (["--as", "rclcpp", "--layout", "one", "--executor", "multi", "--threads", "3"], "syn-rclcpp"),
    (["--as", "rclcpp"], "syn"),
    ([], "syn"),
]


class Builder:
    """Builds one application callback by callback, from its timers on.

    Every callback knows how often it runs, so that the application leaves the machine some time. Callbacks
    trigger only callbacks that are made after them, so there is no circle.
    """

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.nodes = [f"z{i + 1}" for i in range(self.random.randint(2, NODES))]
        self.table, self.rates, self.open = [], {}, []
        self.topics, self.services = 0, {}

    def build(self):
        """The whole application."""
        for _ in range(self.random.randint(1, 3)):
            slowdown = self.random.choice([1, 1, 2])
            self.add(Callback(self.name("T"), self.node(), "timer", slowdown=slowdown), BASE_HZ / slowdown)
        while self.open and len(self.table) < CALLBACKS:
            self.extend(self.open.pop(self.random.randrange(len(self.open))))
        for callback in self.table:
            if callback.kind == "client" and not callback.publishes and not callback.calls:
                # On a thread of rclpy's pool, only what a client's callback sends shows the callback.
                self.topics += 1
                callback.publishes.append(f"/p{self.topics}")
        return self.table

    def name(self, kind):
        return f"{kind}{len(self.table) + 1}"

    def node(self, *besides):
        return self.random.choice([node for node in self.nodes if node not in besides])

    def add(self, callback, rate):
        """Adds a callback that runs so often, if there is room. Returns whether there is."""
        load = sum(self.rates[cb.name] * cb.exec_ms for cb in self.table)
        callback.exec_ms = round(self.random.uniform(0.5, 6), 1)
        if sum(self.rates.values()) + rate > RATE or load + rate * callback.exec_ms > LOAD_MS:
            return False
        self.table.append(callback)
        self.rates[callback.name] = rate
        self.open.append(callback)
        return True

    def extend(self, callback):
        """Chooses what a callback does at its end."""
        ends = 0 if callback.kind == "timer" else 2
        what = self.random.choices([self.publish, self.call, self.join, self.stop], [6, 3, 2, ends])[0]
        if callback.kind == "service" or callback.joins:
            return
        what(callback, self.rates[callback.name])

    def stop(self, callback, rate):
        """The callback ends a chain."""

    def publish(self, callback, rate):
        """A new topic with some subscribers, each in another node; or one that exists, if no circle comes of it."""
        if self.random.random() < 0.25:
            later = [cb for cb in self.open if cb.kind == "subscription" and not cb.joins and cb.input]
            others = [cb for cb in later if sum(c.input == cb.input for c in self.table) == 1
                      and cb.input not in callback.publishes]
            if others:
                self.rates[(other := self.random.choice(others)).name] += rate
                callback.publishes.append(other.input)
                return
        self.topics += 1
        topic = f"/p{self.topics}"
        nodes = self.random.sample(self.nodes, self.random.randint(0, min(3, len(self.nodes))))
        callback.publishes.append(topic)
        for node in nodes:
            self.add(Callback(self.name("s"), node, "subscription", topic), rate)

    def call(self, callback, rate):
        """A service that is new, or that one other node calls; the response runs a callback of its own."""
        free = [name for name, (node, callers) in self.services.items()
                if len(callers) == 1 and callback.node not in (node, *callers)]
        reuse = free and self.random.random() < 0.5
        name = self.random.choice(free) if reuse else f"/v{len(self.services) + 1}"
        if len(self.nodes) == 1:
            return
        if not reuse:
            server = self.node(callback.node)
            if not self.add(Callback(self.name("v"), server, "service", name), rate):
                return
            self.services[name] = (server, [])
        else:
            service = next(cb for cb in self.table if cb.kind == "service" and cb.input == name)
            self.rates[service.name] += rate
        client = Callback(self.name("c"), callback.node, "client", name)
        client.exec_ms = 1.0
        self.table.append(client)
        self.rates[client.name] = rate
        self.open.append(client)
        self.services[name][1].append(callback.node)
        callback.calls = client.name

    def join(self, callback, rate):
        """Two or three topics of this callback that one node synchronises."""
        node = self.node()
        count = self.random.randint(2, 3)
        if sum(cb.kind == "sync" for cb in self.table) >= JOINS:
            return
        if sum(self.rates.values()) + (count + 1) * rate > RATE:
            return
        sync = f"y{len(self.table) + count + 1}"
        for _ in range(count):
            self.topics += 1
            callback.publishes.append(f"/p{self.topics}")
            member = Callback(self.name("s"), node, "subscription", f"/p{self.topics}", joins=sync)
            member.exec_ms = round(self.random.uniform(0.5, 3), 1)
            self.table.append(member)
            self.rates[member.name] = rate
        self.topics += 1
        topic = f"/p{self.topics}"
        self.table.append(Callback(sync, node, "sync", topic, publishes=[topic]))
        self.rates[sync] = rate
        self.add(Callback(self.name("s"), self.node(), "subscription", topic), rate)


def application(seed):
    """Returns the callbacks of a seed, the options of syn.py, and the compiled client or None."""
    options, native = WAYS[seed % len(WAYS)]
    table = []
    while len(table) < CALLBACKS_MIN:
        # Another number, and not the next seed, makes another application.
        seed += 1_000_000
        table = Builder(seed).build()
    return table, ["--rate", str(BASE_HZ), "--turns", *options], native


def copied(callback, names):
    """A copy of a callback that triggers only callbacks with these names."""
    return replace(callback, publishes=list(callback.publishes), calls=callback.calls if callback.calls in names else "",
                   joins=callback.joins if callback.joins in names else "")


def main():
    """Writes the application of a seed."""
    if len(sys.argv) != 3 or not sys.argv[1].isdigit():
        sys.exit(__doc__)
    table, options, native = application(int(sys.argv[1]))
    write_wiring(sys.argv[2], table)
    print(*options, *(["--native", native] if native else []))


if __name__ == "__main__":
    main()
