"""The parts of a model, as `model.json` has them (docs/model-format.md). All times are whole nanoseconds.

scripts/python_schema.py writes this file from docs/model.schema.json: change the schema, not this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from onbeat._decode import Decimal, FrozenMap
from onbeat._figures import DistMethods

__all__ = ["Action", "ActionFigures", "Callback", "CallbackFigures", "Cause", "Chain", "ChainFigures", "Dist",
           "Edge", "EdgeFigures", "EndToEnd", "EndToEndFigures", "Endpoint", "Executor", "Helper", "HelperFigures",
           "Junction", "Qos", "Reading", "Run", "RunExtremes", "Share", "Thread", "Typical", "TypicalFigures"]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A component that made a callback wait, and for how long."""

    kind: Literal["thread", "kernel", "idle", "host", "others", "unnamed", "untold"]
    nodes: tuple[str, ...] = ()
    """Nodes of its process, sorted."""
    process: str | None = None
    """The name of its process. Only for a process without nodes."""
    thread: str | None = None
    """Name of the thread."""
    preempted_ns: int = 0
    """Time for which it had the CPU while an execution was ready to run, ns."""
    preempted: int = 0
    """How often."""
    delayed_ns: int = 0
    """Time for which it had the CPU while a thread was ready to begin an execution, ns."""
    delayed: int = 0
    """How often."""
    blocked_ns: int = 0
    """Time for which executions slept until it woke them up, ns."""
    blocked: int = 0
    """How often."""


@dataclass(frozen=True, kw_only=True)
class Dist(DistMethods):
    """A distribution of times. Exact: count, min, mean, max, sum; quantiles to 0.006 %, where bits is fewer than 14
    to twice that for each one."""

    count: int
    """Number of values."""
    min: int
    """Smallest value, ns (0 when empty)."""
    mean: float
    """Mean, ns (0 when empty)."""
    max: int
    """Largest value, ns (0 when empty)."""
    p50: int
    """Median, ns."""
    p90: int
    """90th percentile, ns."""
    p99: int
    """99th percentile, ns."""
    sum: Decimal
    """Sum of all values, ns, as decimal text, since it can exceed what JSON numbers hold exactly."""
    bits: int = 14
    """Bits that a bucket keeps of a value: 14 if left out; fewer where the values would fill more than 4096
    buckets."""
    buckets: str | tuple[tuple[int, int], ...]
    """The filled buckets, ascending. As text: the difference to the number of the bucket before, and xCOUNT if it
    holds more than one value. In older files: [lowest value in ns, values in it]."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A recording that went into the model."""

    id: str
    """Unique id of the recording; the parts of a run whose mode switched have `#1`, `#2` ... after it."""
    host: str | None = None
    """Name of the host. Left out where it is not known."""
    boot: str | None = None
    """Id of the machine's boot. Left out where it is not known."""
    mode: str
    """Mode of operation (urban, highway ...); `default` where none was given."""
    distribution: tuple[str, ...]
    """ROS 2 distributions seen, sorted."""
    start: int
    """Start, ns since 1970 (CLOCK_REALTIME)."""
    duration_ns: int
    """Length of the recording."""
    lost: Mapping[str, int]
    """Events lost, by kind of event."""
    events: int
    """Events read."""


@dataclass(frozen=True, kw_only=True)
class CallbackFigures:
    """Measured figures of a callback."""

    exec_ns: Dist
    """Time on the CPU between start and end."""
    response_ns: Dist
    """End minus start of waiting."""
    interarrival_ns: Dist
    """Start to start."""
    release_jitter_ns: Dist
    """Timers: distance of the release from the ideal one; empty for others."""
    preempted_ns: Dist
    """Time ready but not running inside the callback, per instance."""
    blocked_ns: Dist
    """Time asleep inside the callback, per instance."""
    preemptions: int
    """Preemptions inside the callback."""
    blockings: int
    """Times it blocked."""
    untimed: int = 0
    """Executions whose CPU time is unknown. Missing: 0."""
    causes: tuple[Cause, ...] = ()
    """Causes of its waiting times. Left out if the recording has no data on them."""
    load: float
    """Exec_ns.sum / observed_ns: share of one CPU."""
    observed_ns: int
    """Length of the runs that load refers to."""


@dataclass(frozen=True, kw_only=True)
class RunExtremes:
    """The execution times of a callback in one run."""

    start: int
    """Start of the run, ns since 1970."""
    count: int
    """Instances."""
    min_ns: int
    """MBCET."""
    mean_ns: float
    """MACET."""
    max_ns: int
    """MWCET."""
    typical: TypicalFigures | None = None


@dataclass(frozen=True, kw_only=True)
class Thread:
    """A thread that ran a callback."""

    comm: str
    """Thread name."""
    policy: str
    """Other, fifo, rr, batch, idle, deadline or ext."""
    priority: int
    """The kernel's priority: 0-99 real-time (0 highest), 100-139 normal."""
    cpus: tuple[int, ...]
    """CPUs it was seen on, sorted."""


@dataclass(frozen=True, kw_only=True)
class EdgeFigures:
    """Measured figures of an edge."""

    latency_ns: Dist
    """Publication to the start of the callback that takes the item."""
    transport_ns: Dist
    """Publication until the executor was woken for it, where the executor was idle."""
    waiting_ns: Dist
    """From the executor's wake-up to the start of the callback."""
    published: int
    """Items published while the taker existed."""
    taken: int
    """Items taken."""
    lost: int
    """Items never taken though a later one was, or the recording went on long enough, for a reason that is not
    known."""
    overwritten: int
    """Items that gave way to later ones in a queue that keeps the last. Not in 'lost'."""
    unselected: int = 0
    """Items that a synchroniser skipped in favour of others. Not in 'lost'."""


@dataclass(frozen=True, kw_only=True)
class Junction:
    """A callback at which several inputs meet."""

    callback: str
    """A sync vertex for and, the triggered callback for or."""
    kind: Literal["and", "or"]
    inputs: tuple[str, ...]
    """Ids of the callbacks that feed it, sorted."""
    criterion: str
    """The evidence for the junction: message_filters, data_flow, several_publishers, stated."""
    confidence: float
    state: Literal["decided", "ambiguous", "stated"] = "decided"
    """Decided: the data decide; ambiguous: they allow the readings; stated: --junction. Left out by older versions:
    decided."""
    readings: tuple[Reading, ...] = ()
    """What an ambiguous junction can be. Edges and chains follow the first reading."""
    matching: Literal["in_turn", "nearest"] | None = None
    """Which items are taken to be joined, at 'and': the publishing callback's own and those that usually go with it
    (when absent), or those whose chains began nearest to one another."""
    settle: str | None = None
    """The statement (--junction) that settles an ambiguous junction for the first reading."""


@dataclass(frozen=True, kw_only=True)
class ActionFigures:
    """Measured figures of an action."""

    goals: int
    """Goals that recorded clients sent."""
    served: int
    """Goals that recorded servers took, accepted or not."""
    cancels: int
    """Cancellations that recorded clients asked for."""
    feedback: int
    """Pieces of feedback that recorded servers published."""
    results: int
    """Results that recorded clients got."""
    untimed: int
    """Results whose goal is unknown."""
    goal_to_result_ns: Dist
    """From the sending of a goal to the taking of its result."""


@dataclass(frozen=True, kw_only=True)
class Executor:
    """Callbacks that ran on the same threads: those of an executor, or of several that one thread spins in turn."""

    callbacks: tuple[str, ...]
    """Their ids, sorted. Each callback that ran is in exactly one executor."""
    threads: int
    """Most threads of which one run saw that they run any of them: more than one for a multi-threaded executor, and
    for a process that was started anew."""


@dataclass(frozen=True, kw_only=True)
class ChainFigures:
    """Measured figures of a chain."""

    executions: int
    """Executions followed from source to output."""
    latency_ns: Dist
    """Start of the first callback to the publication of the chain's output (Algorithm 1)."""
    reaction_ns: Dist | None = None
    """Reaction time: from the start that one output stood on to the next output."""
    age_ns: Dist | None = None
    """Data age: as the latency, also of outputs on data that were stored and read once more. Left out where none
    were."""
    jitter_ns: int
    """(max - min) / 2."""
    lost: int
    """Executions that started but whose item was lost on the way."""
    dropped: int = 0
    """Executions that were not followed to the end, because too many paths met on the way."""
    crossed: int = 0
    """Executions that ended in another mode than they began in; each counts where it began. Left out where there
    were none."""
    shares: tuple[Share, ...]
    """The share of each callback and edge in the latency, in the order of the chain."""


@dataclass(frozen=True, kw_only=True)
class EndToEndFigures:
    """Measured figures over all paths between a source and a sink."""

    outputs: int
    """Outputs that depend on an execution of the source."""
    latency_ns: Dist
    """Start of the newest execution of the source on which an output depends to its publication."""
    reaction_ns: Dist | None = None
    """Reaction time: from a start on which one output depends to the first output that depends on a later start."""
    age_ns: Dist | None = None
    """Data age: start of the oldest execution on which an output depends to its publication. Left out if it equals
    the latency."""
    crossed: int = 0
    """Outputs in another mode than that of the newest start. Left out if there are none."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """The share of a callback or an edge in a chain's latency."""

    element: Literal["callback", "edge"]
    name: str
    """Callback id, or topic."""
    sum_ns: Decimal
    """Sum over the executions, ns, as decimal text."""
    mean_ns: float
    """Mean per execution, ns."""
    fraction: float
    """Part of the chain's mean latency."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """The QoS settings of a node's publishers or subscriptions on a topic."""

    node: str
    topic: str
    kind: Literal["publisher", "subscription"]
    qos: tuple[Qos, ...]
    """Sorted, each once."""


@dataclass(frozen=True, kw_only=True)
class Qos:
    """QoS settings. A time that is None is unlimited."""

    history: Literal["system_default", "keep_last", "keep_all"]
    depth: int
    reliability: Literal["system_default", "reliable", "best_effort", "best_available"]
    durability: Literal["system_default", "transient_local", "volatile", "best_available"]
    deadline_ns: int | None = None
    lifespan_ns: int | None = None
    liveliness: Literal["system_default", "automatic", "manual_by_node", "manual_by_topic", "best_available"]
    lease_ns: int | None = None


@dataclass(frozen=True, kw_only=True)
class TypicalFigures:
    """Figures by which `onbeat diff` compares runs."""

    exec_ns: Typical
    response_ns: Typical
    interarrival_ns: Typical


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One way to read an ambiguous junction."""

    kind: Literal["and", "or"]
    """And: waits for all inputs; or: runs on one alone."""
    inputs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class HelperFigures:
    """Measured figures of threads that run no callback."""

    ready_ns: Dist
    exec_ns: int
    observed_ns: int


@dataclass(frozen=True, kw_only=True)
class Callback(CallbackFigures):
    """A callback: a vertex of the graph."""

    id: str
    """Stable across runs: node, type and what it waits for; #2, #3 ... where these are equal."""
    node: str
    """Node's full name."""
    type: Literal["timer", "subscription", "service", "client", "sync", "task", "thread"]
    input: str
    """Topic or service; empty for timers."""
    caller: str | None = None
    """For a service: the node whose requests this vertex serves."""
    period_ns: int | None
    """A timer's period; for others the median inter-arrival time where it is steady, else null."""
    outputs: tuple[str, ...]
    """Topics (and service/request, service/response) it publishes, sorted."""
    bracket: Literal["exact", "inferred"]
    """Whether start and end come from tracepoints or from the executor's calls around it."""
    identity: Literal["known", "guessed"] = "known"
    """Whether the node's name is its own, or that of its process; left out when it is known."""
    symbol: str | None = None
    """The function's symbol, where known."""
    modes: Mapping[str, CallbackFigures] = field(default_factory=FrozenMap)
    """Figures per mode, where there is more than one."""
    threads: tuple[Thread, ...]
    per_run: Mapping[str, RunExtremes]
    """Execution time in each run, by run id."""


@dataclass(frozen=True, kw_only=True)
class Typical:
    """Figures of one run by which runs are compared."""

    count: int
    """Values."""
    median_ns: int
    p99_ns: int | None = None
    """99th percentile, of 200 values and more."""
    effective: int
    """The number of independent values with the same standard error. 0 if there are too few values to estimate
    it."""


@dataclass(frozen=True, kw_only=True)
class Edge(EdgeFigures):
    """Communication from one callback to another."""

    from_: str
    """Publishing callback's id."""
    to: str
    """Taking callback's id."""
    topic: str
    """Topic, service/request or service/response; into a synchroniser: the input's topic."""
    assumed: Literal["handed_over", "stated", "waited", "made", True, False] = False
    """Why it is assumed: a --link, a callback that waited for a response (waited), one that woke up the thread
    (handed_over), or one that made the task (made). A flag in older models."""
    intra_process: bool = False
    modes: Mapping[str, EdgeFigures] = field(default_factory=FrozenMap)


@dataclass(frozen=True, kw_only=True)
class Action(ActionFigures):
    """An action, with the callbacks that serve and use it."""

    name: str
    """Its services and topics are below {name}/_action/."""
    servers: tuple[str, ...]
    """Nodes that serve it, sorted."""
    clients: tuple[str, ...]
    """Nodes that use it, sorted."""
    callbacks: tuple[str, ...]
    """Ids of the callbacks on its services and topics, sorted."""
    modes: Mapping[str, ActionFigures] = field(default_factory=FrozenMap)
    """The same figures per mode, when there is more than one."""


@dataclass(frozen=True, kw_only=True)
class Chain(ChainFigures):
    """A path from a source to a sink."""

    id: str
    """Stable: chain- and a short hash of the callbacks' ids."""
    callbacks: tuple[str, ...]
    """From source to sink."""
    topics: tuple[str, ...]
    """Between them, then the sink's output where it has one."""
    assumed: bool = False
    ambiguous: bool = False
    """Exists only in one reading of an ambiguous junction."""
    from_input: bool = False
    """Begins with a named input: the latency counts from its publication."""
    cut: bool = False
    """A part of other chains, between ends that the user named."""
    modes: Mapping[str, ChainFigures] = field(default_factory=FrozenMap)
    per_run: Mapping[str, Dist] = field(default_factory=FrozenMap)
    """Latency by run id; only there when there is more than one run."""


@dataclass(frozen=True, kw_only=True)
class EndToEnd(EndToEndFigures):
    """All paths from a source to a sink."""

    from_: str
    """Id of the callback with which the paths begin."""
    to: str
    """Id of the vertex with which the paths end."""
    topic: str | None = None
    """Topic of the outputs. Left out if the last callback publishes nothing."""
    ambiguous: bool = False
    """Some of the paths exist only in one reading of an ambiguous junction."""
    from_input: bool = False
    """Begins with a named input: the times count from its publication."""
    cut: bool = False
    """Between ends that the user named."""
    paths: int | None = None
    """Paths between the ends in the graph. Left out if a loop lies between them."""
    listed: int
    """Chains of the model between the ends."""
    modes: Mapping[str, EndToEndFigures] = field(default_factory=FrozenMap)


@dataclass(frozen=True, kw_only=True)
class Helper:
    """Threads of one name that run no callback, as those of the middleware."""

    nodes: tuple[str, ...]
    """Nodes of the process whose callbacks ran, sorted."""
    name: str
    """The thread's name without the numbers at its end."""
    figures: HelperFigures
    threads: tuple[Thread, ...]
