"""Plots: axes are returned, they show what tables and models have, in the report's colours."""

import json
import os
import re

import matplotlib.pyplot
import pyarrow
import pyarrow.parquet as parquet
import pytest
from conftest import ROOT, TRACE

import onbeat
import onbeat.plot
from onbeat._tables import TABLES

CHAIN = "664e"


def offsets(axes, label):
    """The points of a series."""
    return next(line for line in axes.lines if line.get_label() == label).get_xydata()


def test_colours_are_those_of_the_report():
    found = {}
    for path in ("views/src/report/style.css", "why/src/page/page.css"):
        with open(os.path.join(ROOT, "crates/observe", path), encoding="utf-8") as file:
            # The colours of a light screen come first.
            light = file.read().partition("@media (prefers-color-scheme:dark)")[0]
            found.update(re.findall(r"--([\w-]+):(#[0-9a-f]{6})", light))
    assert {name: found[name] for name in onbeat.plot.COLOURS} == onbeat.plot.COLOURS


def test_latency_shows_every_execution_and_marks_the_late_ones():
    trace = onbeat.open(TRACE)
    _, given = matplotlib.pyplot.subplots()
    axes = onbeat.plot.latency(trace, CHAIN, ax=given)
    assert axes is given
    points = axes.lines[0].get_xydata()
    dist = trace.model.chain(CHAIN).latency_ns
    assert len(points) == dist.count == 200 and points[:, 1].max() == pytest.approx(dist.max / 1e6)
    assert 0 < points[0, 0] < 10 and points[-1, 0] == pytest.approx(points[0, 0] + 20, abs=1)
    why = onbeat.why(TRACE, chain=CHAIN)
    assert why.comparison and len(offsets(axes, "late")) == why.comparison.late
    axes = onbeat.plot.latency(trace, CHAIN, limit_ns=70_000_000)
    assert len(offsets(axes, "late")) == (points[:, 1] > 70).sum()
    assert axes.texts[0].get_text().endswith("above 70 ms")


def test_without_a_name_the_longest_chain_is_drawn():
    trace = onbeat.open(TRACE)
    longest = max(trace.model.chains, key=lambda chain: chain.latency_ns.max)
    assert onbeat.plot.latency(trace).get_title("left") == onbeat.plot.latency(trace, longest.id).get_title("left")


def test_runs_have_colours_of_their_own(tmp_path):
    trace = onbeat.open(TRACE)
    tables = trace.export(tmp_path / "two")
    run = trace.runs["run"][0].as_py()
    for name in TABLES:
        table = tables.table(name)
        second = table.set_column(0, "run", pyarrow.array(["second"] * table.num_rows)).cast(table.schema)
        parquet.write_table(second, tmp_path / "two" / name / "second.parquet")
    axes = onbeat.plot.latency(onbeat.open(tables), CHAIN)
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == [run, "second", "late"]
    assert axes.lines[0].get_color() != axes.lines[1].get_color()
    assert len(offsets(axes, "late")) == 10


def test_a_distribution_has_all_values_in_its_bars():
    model = onbeat.open("model.json")
    for of, dist in [(model.chain(CHAIN), model.chain(CHAIN).latency_ns), (model.callbacks[0], model.callbacks[0].exec_ns),
                     (model.edges[0].latency_ns, model.edges[0].latency_ns)]:
        axes = onbeat.plot.distribution(of)
        assert sum(bar.get_height() for bar in axes.patches) == pytest.approx(dist.count)
        marks = [line.get_xdata()[0] for line in axes.lines]
        assert marks == pytest.approx([dist.p50 / 1e6, dist.p99 / 1e6, dist.max / 1e6])


def test_boxes_are_the_quartiles():
    model = onbeat.open("model.json")
    axes = onbeat.plot.boxes(model)
    named = [one for one in model.callbacks if one.exec_ns.max]
    assert len(axes.patches) == len(named) == len(axes.get_yticklabels())
    for box, one in zip(axes.patches, named):
        assert box.get_x() == pytest.approx(one.exec_ns.quantile(0.25) / 1e6)
        assert box.get_x() + box.get_width() == pytest.approx(one.exec_ns.quantile(0.75) / 1e6)
    with pytest.raises(onbeat.OnbeatError, match="no figure 'latency'"):
        onbeat.plot.boxes(model, figure="latency")


def test_message_flow_shows_the_executions_and_messages_of_its_time():
    trace = onbeat.open(TRACE)
    axes = onbeat.plot.message_flow(trace, CHAIN, start_s=10, length_s=1)
    chain = trace.model.chain(CHAIN)
    assert [label.get_text() for label in axes.get_yticklabels()] == [onbeat.plot._name(one) for one in chain.callbacks]
    assert axes.get_xlim() == pytest.approx((10, 11))
    begin = trace.runs["start_ns"][0].as_py()
    first, last = begin + 10 * 10**9, begin + 11 * 10**9
    shown = [row for row in trace.executions.to_pylist()
             if row["callback"] in chain.callbacks and row["end_ns"] >= first and row["start_ns"] < last]
    # The synchroniser's row, the fourth, has its own.
    bars = [bar for bar in axes.patches if bar.get_height() == pytest.approx(0.5) and round(bar.get_y() + 0.25) != 3]
    assert len(bars) == len(shown) > 30
    messages = [row for row in trace.items.to_pylist()
                if row["topic"] in chain.topics and row["subscription"] in chain.callbacks
                and (row["taken_ns"] or row["published_ns"]) >= first and row["published_ns"] < last]
    joined = [execution for execution in onbeat.why(TRACE, chain=CHAIN, all=True).executions
              if first <= execution.start_ns + stop_at_sync(execution) and execution.start_ns < last - 50_000_000]
    assert len(messages) > 38 and abs(len(axes.lines) - len(messages) - len(joined)) <= 1


def stop_at_sync(execution):
    """When an execution leaves the synchroniser, in ns from its start."""
    return max(stretch.begin_ns + stretch.ns for stretch in execution.stretches if ":sync(" in stretch.place)


def test_names_of_programs_are_shown_as_they_are():
    text = onbeat.open("model.json")._bytes().replace(b"/lidar_rear", rb"/$\\frac{a}$\u001b\n_rear")
    json.loads(text)
    model = onbeat.Model(content=text)
    for axes in (onbeat.plot.boxes(model), onbeat.plot.distribution(model.chain(model.chains[0].id), title="$\\x")):
        axes.figure.savefig(os.devnull, format="png")
    labels = [label.get_text() for label in onbeat.plot.boxes(model).get_yticklabels()]
    assert any("/$\\frac{a}$\\u{1b}" in label for label in labels)


def test_nothing_to_draw_is_said():
    model, trace = onbeat.open("model.json"), onbeat.open(TRACE)
    empty = next(one for one in model.callbacks if not one.exec_ns.count)
    with pytest.raises(onbeat.NothingFound, match="has no values"):
        onbeat.plot.distribution(empty)
    with pytest.raises(onbeat.OnbeatError, match="begins with 'x'"):
        onbeat.plot.latency(trace, "x")
    with pytest.raises(onbeat.NothingFound, match="no run 'x'"):
        onbeat.plot.message_flow(trace, CHAIN, run="x")
