"""Imported traces: the model, the report and Python say what such a trace lacks, and unknown values are null."""

import html
import json
import os
import subprocess
import sys

import pandas
import polars
import pytest
from conftest import ROOT

import onbeat

CYCLES = 12_000
KEPT = 10_000


@pytest.fixture(scope="module")
def imported(workplace):
    return onbeat.import_trace(workplace / "session", workplace / "imported-session")


@pytest.fixture(scope="module")
def long(workplace):
    """A trace with more executions of a chain than one answer of `onbeat why` has."""
    script = "import sys; sys.path.insert(0, sys.argv[1]); import session; session.write(sys.argv[2], int(sys.argv[3]))"
    made = workplace / "long"
    subprocess.run([sys.executable, "-c", script, os.path.join(ROOT, "scripts/beside"), str(made / "ust"), str(CYCLES)], check=True)
    return onbeat.import_trace(made, workplace / "long-imported", mode="urban")


def test_model_report_tables_and_trace_say_what_an_imported_trace_lacks(imported, tmp_path):
    notes = imported.coverage
    assert "timers are unknown" in notes[0] and any("context switches" in note for note in notes), notes
    assert set(notes) <= set(imported.model.coverage)
    assert imported.runs["coverage"].to_pylist() == [list(imported.model.coverage)]
    model = onbeat.model(imported, tmp_path / "model.json")
    onbeat.run("report", model, "-o", tmp_path / "report.html")
    report = html.unescape((tmp_path / "report.html").read_text())
    assert all(note in report for note in notes)
    shown = onbeat.run("show", model).decode()
    assert all(note in shown for note in notes)


def test_a_damaged_manifest_is_refused(tmp_path):
    (tmp_path / "manifest.json").write_text("[")
    with pytest.raises(onbeat.BadFile, match="manifest.json"):
        _ = onbeat.open_trace(tmp_path).coverage
    (tmp_path / "manifest.json").write_text(json.dumps({"coverage": 1}))
    with pytest.raises(onbeat.BadFile, match="manifest.json"):
        _ = onbeat.open_trace(tmp_path).coverage


def test_a_session_that_cannot_be_imported_raises_an_error(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(onbeat.CommandFailed, match="no trace of LTTng"):
        onbeat.import_trace(tmp_path / "empty", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_times_that_the_recording_does_not_show_are_null_in_every_library(imported):
    table = imported.executions
    assert table.num_rows > 0
    for name in ("exec_ns", "preempted_ns", "blocked_ns", "queued_ns", "preemptions"):
        count = table[name].null_count
        assert 0 < count <= table.num_rows, name
        frame = table.to_pandas(types_mapper=pandas.ArrowDtype)[name]
        assert frame.isna().sum() == count and frame.dropna().map(lambda value: value == value).all(), name
        assert polars.from_arrow(table)[name].null_count() == count, name
        assert imported.read_polars("executions")[0][name].null_count() == count, name
    assert table["exec_ns"].null_count == table.num_rows, "without context switches no execution has a time"
    assert table["end_ns"].null_count == 0


def test_more_executions_than_one_answer_has_are_counted_and_said(long):
    with pytest.warns(onbeat.OnbeatWarning, match=f"{CYCLES - KEPT} of {CYCLES} chosen executions are left out"):
        found = onbeat.why(long, all=True)
    assert (found.count, len(found.executions), found.left_out) == (CYCLES, KEPT, CYCLES - KEPT)
    assert found.scheduling == "none" and found.comparison.late > 0
    stretches, runs = long.read_polars("stretches", "runs")
    assert stretches.select("chain", "execution").n_unique() == CYCLES
    assert runs["mode"].to_list() == ["urban"]


@pytest.mark.parametrize("zone", ["Asia/Kathmandu", "America/St_Johns", ":nowhere"])
def test_the_time_zone_changes_no_figure(zone, monkeypatch):
    def said():
        return [onbeat.run("why", "demos/recorded/parking", "--chain", "664e"), onbeat.run("show", "model.json"),
                onbeat.run("export", "demos/recorded/parking", "--to", "arrow", "--table", "runs"),
                onbeat.run("export", "demos/recorded/parking", "--to", "executions")]
    before = said()
    monkeypatch.setenv("TZ", zone)
    assert said() == before
