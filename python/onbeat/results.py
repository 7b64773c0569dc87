"""What `check`, `diff`, `why` and `plan` return. Times with `_ns` are nanoseconds, those with `_ms` milliseconds.

Names and sentences come from the recorded processes: escape them where they are shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from onbeat._decode import FrozenMap
from onbeat._errors import Changed, NotKnown, PromiseBroken

Verdict = Literal["passed", "not_known", "violated"]
Kind = Literal["runs", "library", "preempted", "queued", "throttled", "sleeps", "executor", "transport",
               "inputs", "timer", "held", "stolen", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one requirement for one chain, callback, topic or CPU."""

    requirement: str
    """The requirement's place in the file, such as `chains[0].latency.p99`."""
    subject: str
    """The readable name of the chain, callback, topic or CPU."""
    id: str
    """The subject's id in the model. Empty if the model does not have it."""
    limit: str
    """The limit that the requirement sets, in words."""
    measured: str
    """The measured value in words. Empty if nothing was measured."""
    verdict: Verdict
    why: str
    """The reason in words. Empty if the verdict needs none."""
    late: str | None = None
    """What the late executions have in common. Only with a trace."""
    lost: str | None = None
    """The causes of losses. Only with a trace."""

    def __str__(self) -> str:
        """Returns the finding as a sentence."""
        words = {"passed": "passed", "not_known": "is not known", "violated": "is violated"}[self.verdict]
        text = f"{self.subject}: {self.requirement} {words}"
        text += f", required {self.limit}" if self.limit else ""
        text += f", measured {self.measured}" if self.measured else ""
        text += f" ({self.why})" if self.why else ""
        return ". ".join([text, *(said for said in (self.late, self.lost) if said)])


@dataclass(frozen=True, kw_only=True)
class Check:
    """The verdicts of a model's requirements."""

    verdict: Verdict
    """The worst verdict of all findings."""
    passed: int
    """Number of requirements that the model shows to hold."""
    not_known: int
    """Number of requirements that the model cannot decide."""
    violated: int
    """Number of requirements that the model shows not to hold."""
    findings: tuple[Finding, ...]

    def require(self, *, accept_not_known: bool = False) -> Check:
        """Raises PromiseBroken if a requirement is violated, and NotKnown if one is not known. Returns itself.

        >>> import onbeat
        >>> onbeat.check("model.json", {"chains": [{"chain": "664e", "latency": {"max": "10ms"}}]}).require()
        Traceback (most recent call last):
        ...
        onbeat.PromiseBroken: lidar_rear -> p2d_ndt_localizer_node: chains[0].latency.max is violated...
        """
        for verdict, error, exit_code in (("violated", PromiseBroken, 5), ("not_known", NotKnown, 6)):
            found = [str(one) for one in self.findings if one.verdict == verdict]
            if found and not (accept_not_known and verdict == "not_known"):
                raise error("\n".join(found), exit_code)
        return self


@dataclass(frozen=True, kw_only=True)
class Change:
    """The change of a figure from the first to the second model."""

    shift: float
    """The change as a share of the first value: 0.1 means a tenth more."""
    low: float
    """Lower end of the 95 % confidence interval of `shift`."""
    high: float
    """Upper end of the 95 % confidence interval of `shift`."""
    p: float
    """Probability of such a change by chance, not corrected for the number of comparisons."""
    delta: float
    """Cliff's delta of all executions as measured, from -1 to 1."""
    method: str
    """The test by which the change was found."""


@dataclass(frozen=True, kw_only=True)
class ChangedFigure:
    """A figure that changed."""

    figure: str
    """Name of the figure, such as `execution_time`. `speed`: all callbacks together. `loss`: an edge's items."""
    id: str
    """Id of the callback, chain or edge. Empty for all callbacks together."""
    title: str
    """The readable name."""
    a: float
    """Median in the first model, ns. For losses: share of items."""
    b: float
    """Median in the second model, ns. For losses: share of items."""
    change: Change
    p_corrected: float
    """Probability of the change by chance, corrected for all comparisons (Holm)."""
    of_chain: tuple[float, str] | None = None
    """The change as a share of a chain's latency, and the chain's name."""
    follows: str | None = None
    """Id of the callback whose execution time explains this change."""
    mostly: str | None = None
    """The part of the chain that has most of the change."""
    late: str | None = None
    """What the chain's late executions have in common. Only with a trace."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A difference in the structure of two models."""

    part: Literal["callback", "edge", "junction", "chain", "qos"]
    what: Literal["added", "removed", "changed"]
    id: str
    title: str
    """The readable name."""
    why: str
    """The properties that differ, in words."""
    follows: str | None = None
    """The callback or edge whose addition or removal explains this difference."""


@dataclass(frozen=True, kw_only=True)
class Diff:
    """The changes between two models."""

    changed: bool
    """True if anything changed."""
    causes: int
    """Number of changes that do not follow from others."""
    structure: tuple[Difference, ...]
    """Differences in structure, causes first."""
    figures: tuple[ChangedFigure, ...]
    """Changed figures, those with the largest share of a chain first."""
    compared: int
    """Number of figures that were compared."""
    significant_but_small: int
    """Number of significant changes that are too small to matter."""
    not_compared: int
    """Number of figures with too little data."""
    runs: Mapping[str, int]
    """Number of runs of each model (`a`, `b`)."""
    resolution: float | None = None
    """Smallest change of an execution time that could be found, as a share (median)."""
    notes: tuple[str, ...] = ()
    """Sentences on assumptions and limits."""

    def require_unchanged(self) -> Diff:
        """Raises Changed if something changed, and NotKnown if nothing could be compared. Returns itself.

        >>> import onbeat
        >>> onbeat.diff("model.json", "model.json").require_unchanged().changed
        False
        """
        if self.changed:
            parts = [f"{one.part} {one.what}: {one.title}" for one in self.structure]
            parts += [f"{one.figure} of {one.title}: {one.change.shift:+.1%}" for one in self.figures]
            raise Changed("\n".join(parts), 7)
        if not self.compared:
            raise NotKnown("nothing could be compared: the models have no figure in common.", 6)
        return self


@dataclass(frozen=True, kw_only=True)
class Component:
    """A process and one of its threads; also the kernel and the host."""

    kind: Literal["thread", "kernel", "idle", "host", "others", "unnamed", "untold"]
    nodes: tuple[str, ...] = ()
    process: str = ""
    thread: str = ""


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """The cause of a stretch: exactly one field is set."""

    callback: str | None = None
    """Id of the callback that ran meanwhile."""
    thread: Component | None = None
    """The component that had the CPU."""
    mutex_of: Component | None = None
    """The component that held the mutex."""
    woken_by: Component | None = None
    """The component that woke up the sleeping thread."""
    call: str | None = None
    """Kind of the call in which the thread slept, such as `sync`. None if the culprit is not a call."""
    socket: int | None = None
    """Port of a full socket of the receiver, which dropped datagrams. None if the culprit is not a socket."""


@dataclass(frozen=True, kw_only=True)
class During:
    """The state of a culprit's thread."""

    kind: Kind
    by: Culprit | None = None


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """A part of an execution's latency with one cause."""

    begin_ns: int
    """Start, in ns from the start of the execution."""
    ns: int
    """Length, ns."""
    place: str
    """Id of the callback in whose share the stretch lies."""
    kind: Kind
    by: Culprit | None = None
    """The culprit. None if the kind has none, or it is unknown."""
    during: During | None = None
    """What the culprit's thread did meanwhile. None if it simply ran."""
    reason: str | None = None
    """Why the kind is unknown."""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """An execution of a chain, or of a callback with the wait before it."""

    start_ns: int
    """Start, CLOCK_MONOTONIC."""
    since_start_ns: int | None = None
    """Start, since the recording began. None if the recording does not know its own begin."""
    latency_ns: int
    """Latency: the sum of all stretches."""
    late: bool
    """True if the latency is above the limit."""
    stretches: tuple[Stretch, ...]
    """Stretches in order of time, without gaps."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A cause on which late executions spend more time than others."""

    kind: Kind
    place: str
    """Id of the callback in whose share the stretches lie."""
    by: Culprit | None = None
    reason: str | None = None
    explained_ns: float
    """Mean time per late execution minus mean time per other execution, ns."""
    present_ns: float
    """The cause is present in an execution that spends at least this time on it, ns."""
    late_with: int
    """Number of late executions in which the cause is present."""
    others_with: int
    """Number of other executions in which the cause is present."""
    chance: float
    """Probability that chance alone gives such numbers."""
    during: tuple[tuple[During, float], ...] = ()
    """What the culprit's thread did meanwhile, and the difference of the mean times, ns."""


@dataclass(frozen=True, kw_only=True)
class Together:
    """Two causes that make executions late only together. The counts can be those of a sample."""

    findings: tuple[int, ...]
    """Indices of the two causes in the comparison's `findings`."""
    late: int
    """Number of late executions that were looked at."""
    others: int
    """Number of other executions that were looked at."""
    late_with_both: int
    """Number of late executions in which both causes are present."""
    others_with_both: int
    """Number of other executions in which both causes are present."""
    late_with_one: int
    """Number of late executions in which exactly one of the causes is present."""
    others_with_one: int
    """Number of other executions in which exactly one of the causes is present."""
    chance: float
    """Probability that chance alone gives such numbers."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The late executions beside the others."""

    late: int
    others: int
    late_mean_ns: float
    """Mean latency of the late executions, ns."""
    others_mean_ns: float
    """Mean latency of the others, ns."""
    findings: tuple[Cause, ...]
    """Causes, the largest first."""
    together: tuple[Together, ...] = ()
    """Pairs of causes that make executions late only together, the surest first."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The chain or callback that was explained."""

    chain: str | None = None
    title: str | None = None
    callbacks: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    callback: str | None = None


@dataclass(frozen=True, kw_only=True)
class Why:
    """What executions of a chain or callback spent their time on."""

    of: Subject
    limit_ns: int
    """Latency above which an execution is late, ns."""
    count: int
    """Number of all executions."""
    longest_ns: int
    """Largest latency of all executions, ns."""
    unknown_share: float
    """Part of all latency whose cause is unknown, 0 to 1."""
    scheduling: str
    """Source of CPU times: `bpf`, `perf`, `clocks` or `lttng`; `none` without CPU times."""
    sentence: str | None = None
    """What the late executions have in common."""
    comparison: Comparison | None = None
    """The late executions beside the others. None if none or all are late."""
    left_out: int = 0
    """Number of executions that were chosen, but exceed what one answer holds (10,000)."""
    executions: tuple[Execution, ...]
    """The executions that were chosen, the longest first; for a time or all, in order of time."""


@dataclass(frozen=True, kw_only=True)
class PlannedChain:
    """A chain that a plan shapes."""

    id: str
    title: str = ""
    callbacks: tuple[str, ...]
    """Callbacks from source to sink."""
    output: str | None = None
    """Topic whose publication ends an execution."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """A reservation server: threads that run only within its slots."""

    name: str
    cpu: int
    priority: int
    """1 to 90: real-time. 0: normal threads."""
    slots_ms: tuple[tuple[float, float], ...] = ()
    """Start and end within the cycle, ms. Without slots, the threads run at any time."""
    callbacks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Band:
    """A latency band."""

    latency_ms: tuple[float, float]
    """Shortest and longest latency, ms."""
    share: float
    """Expected share of executions, 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class Promises:
    """The figures that shaping will keep if the plan's assumptions are met."""

    average_ms: float
    """Mean latency, ms."""
    worst_ms: float
    """Longest latency, ms."""
    jitter_ms: float
    """(longest - shortest) / 2, ms. With bands: within each band."""
    bands: tuple[Band, ...] = ()
    utilisation: Mapping[str, float] = field(default_factory=FrozenMap)
    """By CPU: the share that the servers use in the worst case, 0 to 1."""
    liveliness_ms: float | None = None
    miss: Mapping[str, Any] | None = None
    """The promised miss rate and its profile, as docs/plan-format.md lists it."""
    left_out: Mapping[str, Any] | None = None
    """The slowest executions that the plan leaves out."""
    cost: Mapping[str, Any] | None = None
    """The growth of the average latency through the bands."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A plan. The whole plan is in its file, `path`."""

    path: Path = field(default_factory=Path, init=False)
    """The file that `onbeat shape` reads."""
    strategy: str
    chains: tuple[PlannedChain, ...]
    cycle_ms: float
    """Cycle of all servers, ms."""
    origin: str
    """Id of the callback whose release is the instant 0 of a cycle."""
    servers: tuple[Server, ...]
    promises: Promises
    assumes: tuple[str, ...] = ()
    """Assumptions under which the promises hold, as sentences."""

    def __fspath__(self) -> str:
        return str(self.path)
