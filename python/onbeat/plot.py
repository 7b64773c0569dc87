"""Plots of timing, with matplotlib and the colours of onbeat's report. Every function returns its axes.

    import onbeat
    import onbeat.plot

    trace = onbeat.open("demos/recorded/parking")
    onbeat.plot.latency(trace, "664e").figure.savefig("latency.png")

Each function draws into `ax`, else into a figure of its own. Times are in ms, the horizontal time in s since the
recording began. `pip install 'onbeat[plots]'` installs matplotlib and pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from onbeat._errors import NothingFound, OnbeatError
from onbeat._model import Model
from onbeat._tables import HasTables, need
from onbeat.schema import Callback, Chain, Dist

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

# Colours of crates/observe/views/src/report/style.css and crates/observe/why/src/page/page.css. A test compares them.
COLOURS = {
    "ink": "#1b2027", "soft": "#5d6773", "line": "#dfe4e9", "grid": "#e8ecf0", "panel": "#f7f9fa", "bar": "#5b93c9",
    "mark": "#c2255c", "late": "#c2255c", "point": "#5b93c9", "sedge": "#b9c1c9",
    "s0": "#2f6fb3", "s1": "#d9822b", "s2": "#3f9a6b", "s3": "#8a5cc2", "s4": "#c2476a", "s5": "#2a9aa5",
    "s6": "#8c7a2e", "s7": "#6b7fd6",
    "timer": "#b45a06", "subscription": "#0f62ae", "service": "#7b42b3", "client": "#0b7a69", "sync": "#3c4652",
}
_SERIES = [f"s{number}" for number in range(8)]
_NS_PER_MS, _NS_PER_S = 1e6, 1e9
_BINS = 70
_NAME_MAX = 44

Figure = Literal["exec_ns", "response_ns", "interarrival_ns", "release_jitter_ns", "preempted_ns", "blocked_ns"]
_FIGURES = {"exec_ns": "execution time", "response_ns": "response time", "interarrival_ns": "time from start to start",
            "release_jitter_ns": "release jitter", "preempted_ns": "preempted", "blocked_ns": "blocked"}


def latency(
    source: HasTables, chain: str | None = None, *, limit_ns: int | None = None, ax: Axes | None = None
) -> Axes:
    """Draws the latency of each execution of a chain over time.

    `chain` is an id or its beginning; without it, the chain with the longest latency. Executions above `limit_ns` are
    late, else those above the 99th percentile (of fewer than 1000, the ten longest, but at most 5 %). Each run has a
    colour of its own.

    >>> import onbeat, onbeat.plot
    >>> axes = onbeat.plot.latency(onbeat.open("demos/recorded/parking"), "664e")
    >>> axes.get_xlabel(), axes.get_ylabel()
    ('time since the recording began (s)', 'latency (ms)')
    """
    compute = need("pyarrow.compute", "plots of tables")
    axes, row = _axes(ax), _chain(source, chain)
    table = source.chain_executions
    table = table.filter(compute.and_(compute.equal(table["chain"], row["chain"]), table["latency_ns"].is_valid()))
    if not table.num_rows:
        raise NothingFound(f"{source} has no execution of {row['chain']} with a latency.", 3)
    begins = _begins(source)
    limit = _late_limit(table["latency_ns"].to_pylist()) if limit_ns is None else limit_ns
    late_x: list[float] = []
    late_y: list[float] = []
    several = len(begins) > 1
    for number, (run, begin) in enumerate(begins.items()):
        of = table.filter(compute.equal(table["run"], run))
        x = [(start - begin) / _NS_PER_S for start in of["start_ns"].to_pylist()]
        y = [ns / _NS_PER_MS for ns in of["latency_ns"].to_pylist()]
        late_x += [a for a, b in zip(x, y) if b * _NS_PER_MS > limit]
        late_y += [b for b in y if b * _NS_PER_MS > limit]
        colour = COLOURS[_SERIES[number % len(_SERIES)]] if several else COLOURS["point"]
        axes.plot(x, y, linestyle="none", marker="o", markersize=3, color=colour, label=_name(run) if several else None)
    axes.plot(late_x, late_y, linestyle="none", marker="o", markersize=4.5, color=COLOURS["late"], label="late")
    axes.axhline(limit / _NS_PER_MS, color=COLOURS["mark"], linewidth=1, linestyle=(0, (3, 2)))
    share = f"{len(late_y)} of {table.num_rows} above {_duration(limit)}"
    axes.text(1, 1.01, share, transform=axes.transAxes, ha="right", va="bottom", fontsize=9, color=COLOURS["mark"])
    if several:
        _plain(axes.legend(fontsize=8, frameon=False).get_texts())
    _title(axes, _title_of(row))
    axes.set_xlabel("time since the recording began (s)")
    axes.set_ylabel("latency (ms)")
    axes.set_ylim(bottom=0)
    return axes


def distribution(of: Dist | Chain | Callback, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """Draws a distribution as a histogram with median, 99th percentile and maximum.

    Of a chain of a model it is the latency, of a callback the execution time. A Dist can be any other figure. The
    axis is logarithmic if the longest value is more than five times the 99th percentile.

    >>> import onbeat, onbeat.plot
    >>> axes = onbeat.plot.distribution(onbeat.open("model.json").chain("664e"))
    >>> axes.get_xlabel(), len(axes.patches)
    ('latency (ms)', 70)
    """
    dist, label, name = _dist_of(of)
    if not dist.count:
        raise NothingFound(f"there is nothing to draw: the distribution{' of ' + name if name else ''} has no values.", 3)
    axes = _axes(ax)
    is_log = dist.max > 5 * max(dist.p99, 1) and dist.min > 0
    edges = _edges(dist, is_log)
    heights = _heights(dist, edges)
    widths = [b - a for a, b in zip(edges, edges[1:])]
    lefts = [edge / _NS_PER_MS for edge in edges[:-1]]
    axes.bar(lefts, heights, [width / _NS_PER_MS for width in widths], align="edge", color=COLOURS["bar"], linewidth=0)
    if is_log:
        axes.set_xscale("log")
    top = max(heights)
    for number, (said, value) in enumerate((("median", dist.p50), ("99 %", dist.p99), ("max", dist.max))):
        at, height = value / _NS_PER_MS, top * (1.16 - 0.07 * number)
        axes.plot([at, at], [0, height], color=COLOURS["mark"], linewidth=1, linestyle=(0, (3, 2)))
        is_right = at > (edges[0] + edges[-1]) / 2 / _NS_PER_MS
        axes.annotate(f"{said} {_duration(value)}", (at, height), xytext=(-4 if is_right else 4, 0), va="top",
                      textcoords="offset points", ha="right" if is_right else "left", fontsize=9, color=COLOURS["mark"],
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 1}, zorder=3)
    axes.set_ylim(0, top * 1.2)
    axes.set_xlabel(f"{label} (ms)")
    axes.set_ylabel("executions")
    _title(axes, name if title is None else title)
    return axes


def boxes(of: Model | Iterable[Callback], *, figure: Figure = "exec_ns", ax: Axes | None = None) -> Axes:
    """Draws a box plot for each callback, on a logarithmic axis.

    The box reaches from the first to the third quartile, with the median in it; the whiskers from the smallest to the
    largest value; the point is the mean. `figure` is the figure of the callbacks. Callbacks without values are left
    out, and so are those whose largest value is 0.

    >>> import onbeat, onbeat.plot
    >>> axes = onbeat.plot.boxes(onbeat.open("model.json"), figure="response_ns")
    >>> axes.get_xlabel(), len(axes.get_yticks())
    ('response time (ms)', 8)
    """
    if figure not in _FIGURES:
        raise OnbeatError(f"there is no figure {figure!r} of callbacks. Choose one of {', '.join(_FIGURES)}.")
    callbacks = of.callbacks if isinstance(of, Model) else of
    rows = [(one, getattr(one, figure)) for one in callbacks]
    rows = [(one, dist) for one, dist in rows if dist.count and dist.max]
    if not rows:
        raise NothingFound(f"there is nothing to draw: no callback has a {_FIGURES[figure]}.", 3)
    axes = _axes(ax, height=1.1 + 0.3 * len(rows))
    low = min(max(dist.min, 1) for _, dist in rows)
    for place, (callback, dist) in enumerate(rows):
        ends = [max(ns, low) / _NS_PER_MS for ns in
                (dist.min, dist.quantile(0.25), dist.p50, dist.quantile(0.75), dist.max, dist.mean)]
        colour = COLOURS.get(callback.type, COLOURS["soft"])
        axes.hlines(place, ends[0], ends[4], color=COLOURS["soft"], linewidth=1)
        axes.vlines([ends[0], ends[4]], place - 0.2, place + 0.2, color=COLOURS["soft"], linewidth=1)
        axes.barh(place, ends[3] - ends[1], 0.56, left=ends[1], color=_pale(colour), edgecolor=colour, linewidth=1, zorder=3)
        axes.vlines(ends[2], place - 0.28, place + 0.28, color=COLOURS["ink"], linewidth=2, zorder=4)
        axes.plot(ends[5], place, marker="o", markersize=3.5, color=COLOURS["mark"], zorder=5)
    axes.set_xscale("log")
    _rows(axes, [_name(one.id) for one, _ in rows])
    axes.set_xlabel(f"{_FIGURES[figure]} (ms)")
    _ticks_in_ms(axes)
    return axes


def message_flow(
    source: HasTables,
    chain: str | None = None,
    *,
    start_s: float | None = None,
    length_s: float = 0.5,
    run: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draws how messages flow through a chain: executions as bars, messages as lines from callback to callback.

    `start_s` is the begin of the shown time, in s since the recording began; without it, the time around the longest
    execution of the chain. A cross is a message that was lost. A pale bar is the time in which a callback was ready
    and had not started, or in which a synchroniser waited for its other inputs. Of tables with several runs, `run` chooses one; without it, the run of the longest execution.

    >>> import onbeat, onbeat.plot
    >>> axes = onbeat.plot.message_flow(onbeat.open("demos/recorded/parking"), "664e", length_s=0.3)
    >>> [label.get_text() for label in axes.get_yticklabels()][0]
    '/lidar_rear/lidar_rear:timer(100ms)'
    """
    row = _chain(source, chain)
    run, begin, start = _window(source, row["chain"], run, start_s, length_s)
    end = start + int(length_s * _NS_PER_S)
    ids: Sequence[str] = row["callbacks"]
    places = {callback: place for place, callback in enumerate(ids)}
    axes = _axes(ax, height=1.2 + 0.42 * len(ids))

    def at(ns: int) -> float:
        return (ns - begin) / _NS_PER_S

    kinds: dict[str, str] = {}
    # A synchroniser publishes what its inputs' callbacks publish; the row is by topic.
    of_sync: dict[str, int] = {}
    for one in source.callbacks.select(["callback", "type", "outputs"]).to_pylist():
        kinds[one["callback"]] = one["type"]
        if one["type"] == "sync" and one["callback"] in places:
            of_sync.update(dict.fromkeys(one["outputs"] or [], places[one["callback"]]))
    for one in _within(source.executions, "callback", ids, run, "start_ns", start - 10 * (end - start), end):
        finish = one["end_ns"] if one["end_ns"] is not None else one["start_ns"]
        if finish < start:
            continue
        place, colour = places[one["callback"]], COLOURS.get(kinds.get(one["callback"]) or "", COLOURS["soft"])
        if one["queued_ns"]:
            axes.barh(place, one["queued_ns"] / _NS_PER_S, 0.2, left=at(one["start_ns"] - one["queued_ns"]),
                      color=COLOURS["sedge"], zorder=2)
        axes.barh(place, (finish - one["start_ns"]) / _NS_PER_S, 0.5, left=at(one["start_ns"]), color=colour, zorder=3)
    for one in _within(source.items, "subscription", ids, run, "published_ns", start - 10 * (end - start), end):
        there, here = of_sync.get(one["topic"], places.get(one["publisher"])), places[one["subscription"]]
        if there is None:
            continue
        if one["taken_ns"] is None:
            if one["published_ns"] >= start:
                axes.plot(at(one["published_ns"]), there, marker="x", markersize=6, color=COLOURS["mark"], zorder=5)
        elif one["taken_ns"] >= start:
            axes.plot([at(one["published_ns"]), at(one["taken_ns"])], [there, here], color=COLOURS["soft"], linewidth=0.9,
                      zorder=4)
    for place in sorted(set(of_sync.values())):
        for first, joined, last in _at_sync(source, row["chain"], ids[place], run, start, end):
            axes.plot([at(first)] * 2, [place - 1, place], color=COLOURS["soft"], linewidth=0.9, zorder=4)
            axes.barh(place, (joined - first) / _NS_PER_S, 0.2, left=at(first), color=COLOURS["sedge"], zorder=2)
            axes.barh(place, (last - joined) / _NS_PER_S, 0.5, left=at(joined), color=COLOURS["sync"], zorder=3)
    axes.set_xlim(at(start), at(end))
    _rows(axes, [_name(one) for one in ids])
    axes.set_xlabel("time since the recording began (s)")
    _title(axes, _title_of(row))
    return axes


def _axes(ax: Axes | None, height: float = 4.2) -> Axes:
    """Returns the axes to draw into, in the report's style."""
    pyplot = need("matplotlib.pyplot", "plots")
    axes: Axes = pyplot.subplots(figsize=(9, height), layout="constrained")[1] if ax is None else ax
    axes.set_axisbelow(True)
    axes.grid(True, color=COLOURS["grid"], linewidth=0.8)
    axes.tick_params(colors=COLOURS["soft"], labelsize=9, length=0)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(COLOURS["line"])
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(COLOURS["soft"])
    return axes


def _plain(texts: Iterable[Any]) -> None:
    """Switches formulas off: names come from the recorded programs and can contain a `$`."""
    for text in texts:
        text.set_parse_math(False)


def _title(axes: Axes, text: str) -> None:
    _plain([axes.set_title(_name(text, 80), loc="left", fontsize=10, color=COLOURS["ink"])])


def _rows(axes: Axes, names: list[str]) -> None:
    """Names the rows, the first one at the top."""
    axes.set_yticks(range(len(names)), names)
    _plain(axes.get_yticklabels())
    for label in axes.get_yticklabels():
        label.set_color(COLOURS["ink"])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)


def _ticks_in_ms(axes: Axes) -> None:
    ticker = need("matplotlib.ticker", "plots")
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda ms, _: f"{ms:g}"))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())


def _name(text: str, most: int = _NAME_MAX) -> str:
    """Returns a name on one line, with escapes for characters that do not print. Shortens long names in the middle."""
    shown = "".join(c if c.isprintable() else f"\\u{{{ord(c):x}}}" for c in text)
    if len(shown) <= most:
        return shown
    half = (most - 1) // 2
    return shown[:half] + "…" + shown[-(most - 1 - half):]


def _duration(ns: float) -> str:
    """Returns a time in words, with three digits and its unit."""
    for length, unit in ((_NS_PER_S, "s"), (_NS_PER_MS, "ms"), (1e3, "us")):
        if ns >= length:
            return f"{ns / length:.3g} {unit}"
    return f"{ns:.3g} ns"


def _pale(colour: str) -> tuple[float, float, float]:
    """Returns a colour with an opacity of 35 % on white."""
    parts = (int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (1 - 0.35 * (1 - part) for part in parts)
    return red, green, blue


def _title_of(row: dict[str, Any]) -> str:
    return str(row["title"] or row["chain"])


def _chain(source: HasTables, name: str | None) -> dict[str, Any]:
    """Returns the row of `chains` that a name means."""
    rows: dict[str, dict[str, Any]] = {row["chain"]: row for row in source.chains.to_pylist()}
    if name is None:
        best, most = None, -1
        executions = source.chain_executions
        for chain, ns in zip(executions["chain"].to_pylist(), executions["latency_ns"].to_pylist()):
            if ns is not None and ns > most:
                best, most = chain, ns
        if best is None:
            raise NothingFound(f"{source} has no execution of a chain. onbeat.plot.boxes draws callbacks.", 3)
        return rows[best]
    found = [rows[name]] if name in rows else [row for chain, row in rows.items() if chain.startswith((name, f"chain-{name}"))]
    if len(found) != 1:
        some = ", ".join(row["chain"] for row in (found or list(rows.values()))[:3])
        raise OnbeatError(f"{len(found) or 'no'} chain{'s' if len(found) > 1 else ''} of {source} begin{'' if len(found) > 1 else 's'}"
                          f" with {name!r}. Choose one{', for example ' + some if some else ''}.")
    return found[0]


def _begins(source: HasTables) -> dict[str, int]:
    """Returns the begin of each run's recording (CLOCK_MONOTONIC), or the first start in it if that is unknown."""
    runs = source.runs
    begins = dict(zip(runs["run"].to_pylist(), runs["start_ns"].to_pylist()))
    if None in begins.values():
        executions = source.executions
        for run, ns in zip(executions["run"].to_pylist(), executions["start_ns"].to_pylist()):
            if begins.get(run) is None:
                begins[run] = ns
    return {run: begin or 0 for run, begin in begins.items()}


def _late_limit(latencies: list[int]) -> int:
    """Returns the latency above which executions are late, as `onbeat why` does."""
    share = min(max(10 / len(latencies), 0.01), 0.05)
    return sorted(latencies)[-max(1, int(share * len(latencies)))] - 1


def _dist_of(of: Dist | Chain | Callback) -> tuple[Dist, str, str]:
    """Returns a distribution, the name of its figure, and the name of its chain or callback."""
    if isinstance(of, Chain):
        return of.latency_ns, "latency", f"{of.callbacks[0]} -> {of.callbacks[-1]}"
    if isinstance(of, Callback):
        return of.exec_ns, "execution time", of.id
    return of, "time", ""


def _edges(dist: Dist, is_log: bool) -> list[float]:
    """Returns the edges of the bars, in ns."""
    low, high = float(dist.min), float(dist.max)
    if is_log:
        low, high = low * 0.95, high * 1.05
        return [low * (high / low) ** (i / _BINS) for i in range(_BINS + 1)]
    pad = (high - low) * 0.02 if high > low else max(low * 0.05, 1.0)
    low, high = max(low - pad, 0.0), high + pad
    return [low + (high - low) * i / _BINS for i in range(_BINS + 1)]


def _heights(dist: Dist, edges: list[float]) -> list[float]:
    """Returns the number of values in each bar. Divides a bucket that is wider than a bar evenly."""
    from bisect import bisect_right

    heights = [0.0] * _BINS

    def bar(value: float) -> int:
        return min(max(bisect_right(edges, value) - 1, 0), _BINS - 1)

    for low, width, count in dist.filled():
        first = max(low, dist.min)
        a, b = bar(first), bar(max(min(low + width, dist.max), first))
        for place in range(a, b + 1):
            heights[place] += count / (b - a + 1)
    return heights


def _window(
    source: HasTables, chain: str, run: str | None, start_s: float | None, length_s: float
) -> tuple[str, int, int]:
    """Returns the run to show, the begin of its recording, and the begin of the shown time (CLOCK_MONOTONIC)."""
    compute = need("pyarrow.compute", "plots of tables")
    begins = _begins(source)
    table = source.chain_executions
    of = compute.and_(compute.equal(table["chain"], chain), table["latency_ns"].is_valid())
    table = table.filter(of if run is None else compute.and_(of, compute.equal(table["run"], run)))
    longest = max(table.select(["run", "start_ns", "latency_ns"]).to_pylist(), key=lambda one: one["latency_ns"], default=None)
    run = run or (longest["run"] if longest else next(iter(begins), None))
    if run not in begins:
        raise NothingFound(f"{source} has no run {run!r}. Choose one of {', '.join(list(begins)[:3])}.", 3)
    begin = begins[run]
    if start_s is not None:
        return run, begin, begin + int(start_s * _NS_PER_S)
    if longest is None:
        raise NothingFound(f"{source} has no execution of {chain} with a latency. Choose a time with start_s.", 3)
    middle = longest["start_ns"] + longest["latency_ns"] // 2
    return run, begin, max(begin, middle - int(length_s * _NS_PER_S / 2))


def _at_sync(
    source: HasTables, chain: str, sync: str, run: str, start: int, end: int
) -> Iterable[tuple[int, int, int]]:
    """Returns when executions of a chain reached a synchroniser, had all its inputs, and left it (CLOCK_MONOTONIC)."""
    compute = need("pyarrow.compute", "plots of tables")
    begins = {row["execution"]: row["start_ns"] for row in
              _within(source.chain_executions, "chain", [chain], run, "start_ns", start - 10 * (end - start), end)}
    table = source.stretches
    of = compute.and_(compute.equal(table["chain"], chain), compute.equal(table["run"], run))
    stretches = table.filter(of).select(["execution", "number", "ns", "place", "kind"]).to_pylist()
    at: dict[int, int] = {}
    found: dict[int, tuple[int, int, int]] = {}
    for one in sorted(stretches, key=lambda one: (one["execution"], one["number"])):
        execution = one["execution"]
        if execution not in begins:
            continue
        begin = at.get(execution, begins[execution])
        finish = at[execution] = begin + (one["ns"] or 0)
        if one["place"] == sync:
            first, joined, _ = found.get(execution, (begin, begin, begin))
            found[execution] = first, finish if one["kind"] == "inputs" else joined, finish
    return [times for times in found.values() if times[2] >= start and times[0] < end]


def _within(
    table: pa.Table, column: str, ids: Sequence[str], run: str, time: str, start: int, end: int
) -> Iterable[dict[str, Any]]:
    """Returns the rows of some callbacks of a run within a time."""
    compute, pyarrow = need("pyarrow.compute", "plots of tables"), need("pyarrow", "plots of tables")
    chosen = compute.and_(compute.equal(table["run"], run), compute.is_in(table[column], pyarrow.array(list(ids))))
    chosen = compute.and_(chosen, compute.and_(compute.greater_equal(table[time], start), compute.less(table[time], end)))
    rows: Iterable[dict[str, Any]] = table.filter(chosen).to_pylist()
    return rows
