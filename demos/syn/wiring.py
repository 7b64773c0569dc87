"""The wiring of SYN: which callbacks there are, what triggers them and what they trigger.

The nodes are built from this table, and so is the ground truth that a model is compared with.
Nothing in it comes from a recording.
"""

import json
from dataclasses import asdict, dataclass, field


@dataclass
class Callback:
    """A callback: its node, what triggers it and what it does at its end."""

    name: str
    node: str
    kind: str  # timer, subscription, service, client, sync
    input: str = ""  # topic or service; for the synchroniser the topic it publishes
    publishes: list = field(default_factory=list)
    calls: str = ""  # name of the client callback that gets the response
    joins: str = ""  # name of the synchroniser that this subscription feeds
    slowdown: int = 1  # a timer's period in multiples of the base period
    exec_ms: float = 0.0


def wiring(twin=False):
    """All callbacks of SYN, in the order in which their nodes create them."""
    return [
        # n1: several subscriptions and clients; a client callback that calls another service.
        Callback("sc1", "n1", "subscription", "/t1", calls="cl1", exec_ms=6),
        Callback("sc7", "n1", "subscription", "/f4", exec_ms=5),
        Callback("cl1", "n1", "client", "/sv1", calls="cl5", exec_ms=5),
        Callback("cl5", "n1", "client", "/sv2", publishes=["/f1"], exec_ms=6),
        # n2: two timers (of equal period on demand) and two clients.
        Callback("T2", "n2", "timer", calls="cl2", exec_ms=6),
        Callback("T3", "n2", "timer", calls="cl4", exec_ms=9, slowdown=1 if twin else 2),
        Callback("cl2", "n2", "client", "/sv3", publishes=["/f2"], exec_ms=5),
        Callback("cl4", "n2", "client", "/sv4", publishes=["/f3"], exec_ms=7),
        # n3: calls a service that n2 calls too; its client callback diverges.
        Callback("sc3", "n3", "subscription", "/f2", calls="cl3", exec_ms=8),
        Callback("cl3", "n3", "client", "/sv3", publishes=["/f3", "/f4"], exec_ms=7),
        # n4: several services.
        Callback("sv1", "n4", "service", "/sv1", exec_ms=6),
        Callback("sv2", "n4", "service", "/sv2", exec_ms=8),
        # n5: timer, subscription and services in one node.
        Callback("T1", "n5", "timer", publishes=["/t1"], exec_ms=5),
        Callback("sc5", "n5", "subscription", "/fused", publishes=["/out"], exec_ms=6),
        Callback("sv3", "n5", "service", "/sv3", exec_ms=7),
        Callback("sv4", "n5", "service", "/sv4", exec_ms=5),
        # n6: several subscriptions, two of which are synchronised; /f3 has two publishers.
        Callback("sc2", "n6", "subscription", "/f1", joins="sync", exec_ms=5),
        Callback("sc6", "n6", "subscription", "/f4", joins="sync", exec_ms=6),
        Callback("sc4", "n6", "subscription", "/f3", exec_ms=6),
        Callback("sync", "n6", "sync", "/fused", publishes=["/fused"]),
    ]


def read_wiring(path):
    """The callbacks of a file."""
    with open(path, encoding="utf-8") as file:
        return [Callback(**callback) for callback in json.load(file)]


def write_wiring(path, table):
    """The inverse of read_wiring."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump([asdict(callback) for callback in table], file, indent=1)


def period_ms(base_ms, callback):
    """A timer's period, as its id states it."""
    return base_ms * callback.slowdown


def shortest(number):
    """A number as short as it can be written: 100, 12.5."""
    return f"{number:.6f}".rstrip("0").rstrip(".")


class Graph:
    """The ground truth's graph, for the nodes that run."""

    def __init__(self, table, base_ms, nodes, namespace=""):
        self.namespace = namespace
        self.table = [cb for cb in table if cb.node in nodes]
        self.base_ms = base_ms
        self.by_name = {cb.name: cb for cb in self.table}
        taken = {}
        # Vertex ids by (callback name, caller's node or None).
        self.ids = {}
        for cb in self.table:
            for caller in self.callers(cb) if cb.kind == "service" else [None]:
                what = shortest(period_ms(base_ms, cb)) + "ms" if cb.kind == "timer" else cb.input
                vertex = f"{self.full_name(cb.node)}:{cb.kind}({what})"
                if caller:
                    vertex += "@" + self.full_name(caller)
                taken[vertex] = taken.get(vertex, 0) + 1
                if taken[vertex] > 1:
                    vertex += f"#{taken[vertex]}"
                self.ids[cb.name, caller] = vertex

    def full_name(self, node):
        """A node's name with its namespace."""
        return f"{self.namespace}/{node}"

    def client(self, cb):
        """The client callback that a callback's request is answered to."""
        return self.by_name.get(cb.calls)

    def service(self, client):
        """The service callback behind a client callback."""
        for cb in self.table:
            if cb.kind == "service" and cb.input == client.input:
                return cb
        return None

    def callers(self, service):
        """Nodes with a client of a service."""
        return [
            cb.node for cb in self.table if cb.kind == "client" and cb.input == service.input
        ]

    def subscribers(self, topic):
        """Subscription callbacks of a topic."""
        return [cb for cb in self.table if cb.kind == "subscription" and cb.input == topic]

    def outputs(self, cb):
        """Topics, requests and responses that a callback sends."""
        out = list(cb.publishes)
        if cb.calls:
            out.append(self.by_name[cb.calls].input + "/request")
        if cb.kind == "service":
            out.append(cb.input + "/response")
        return sorted(out)

    def successors(self, cb, caller=None):
        """(callback, caller, topic) of everything that a callback triggers."""
        found = []
        if cb.joins:
            found.append((self.by_name[cb.joins], None, cb.input))
        for topic in cb.publishes:
            found += [(sub, None, topic) for sub in self.subscribers(topic)]
        if cb.calls:
            client = self.by_name[cb.calls]
            service = self.service(client)
            if service:
                found.append((service, client.node, client.input + "/request"))
        if cb.kind == "service":
            client = next(
                c
                for c in self.table
                if c.kind == "client" and c.input == cb.input and c.node == caller
            )
            found.append((client, None, cb.input + "/response"))
        return found

    def vertices(self):
        """(callback, caller's node or None, id)."""
        return [(self.by_name[name], caller, vid) for (name, caller), vid in self.ids.items()]

    def edges(self):
        """Edges as dictionaries, sorted."""
        found = [
            {"from": vid, "to": self.ids[to.name, to_caller], "topic": topic}
            for cb, caller, vid in self.vertices()
            for to, to_caller, topic in self.successors(cb, caller)
        ]
        return sorted(found, key=lambda e: (e["from"], e["to"], e["topic"]))

    def junctions(self):
        """Junctions as dictionaries: AND at synchronisers, OR where several edges end."""
        feeders = {}
        for edge in self.edges():
            feeders.setdefault(edge["to"], set()).add(edge["from"])
        found = []
        for cb, _, vid in self.vertices():
            inputs = sorted(feeders.get(vid, ()))
            if len(inputs) > 1:
                kind = "and" if cb.kind == "sync" else "or"
                found.append({"callback": vid, "kind": kind, "inputs": inputs})
        return sorted(found, key=lambda j: j["callback"])
