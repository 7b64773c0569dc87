"""Tables as pyarrow: they have the model's figures, and a trace that cannot be read says why."""

import os
import shutil
import subprocess
import sys

import pandas
import polars
import pyarrow
import pyarrow.compute as compute
import pytest
from conftest import ROOT, TRACE

import onbeat
from onbeat._tables import TABLES


@pytest.fixture(scope="module")
def trace():
    return onbeat.open(os.path.join(ROOT, TRACE))


def test_tables_have_the_figures_of_the_model(trace):
    model = trace.model
    for callback in model.callbacks:
        rows = trace.executions.filter(compute.equal(trace.executions["callback"], callback.id))
        times = rows["exec_ns"].drop_null().to_pylist()
        assert (len(times), sum(times)) == (callback.exec_ns.count, callback.exec_ns.sum), callback.id
    for chain in model.chains:
        rows = trace.chain_executions.filter(compute.equal(trace.chain_executions["chain"], chain.id))
        times = rows["latency_ns"].drop_null().to_pylist()
        assert (len(times), max(times)) == (chain.latency_ns.count, chain.latency_ns.max)


def test_streamed_tables_are_those_of_the_files(trace):
    tables = onbeat.open("tables")
    assert isinstance(tables, onbeat.Tables)
    for name in TABLES:
        streamed, stored = getattr(trace, name), getattr(tables, name)
        assert streamed.column_names == stored.column_names, name
        assert streamed.to_pylist() == stored.to_pylist(), name
    assert trace.executions is trace.table("executions")


def test_tables_of_one_pass_are_those_of_single_passes(trace):
    fresh = onbeat.open(TRACE)
    both = fresh.read("chain_executions", "executions")
    assert both == (trace.chain_executions, trace.executions)
    assert fresh.read("executions", "runs") == (fresh.executions, trace.runs)
    assert fresh.executions is both[1]
    with pytest.raises(onbeat.UsageError, match="there is no table 'execution'"):
        fresh.read("execution")


def test_the_documented_columns_are_there(trace):
    with open(os.path.join(ROOT, "docs/tables.md"), encoding="utf-8") as file:
        sections = file.read().split("\n### `")[1:]
    for section in sections:
        name = section.partition("`")[0]
        lines = section.partition("| column |")[2].partition("\n\n")[0].splitlines()[2:]
        assert trace.table(name).column_names[2:] == [line.split("`")[1] for line in lines], name


def test_pandas_and_polars_take_tables(trace):
    frame = trace.executions.to_pandas(types_mapper=pandas.ArrowDtype)
    assert frame.exec_ns.sum() == polars.from_arrow(trace.executions)["exec_ns"].sum() == compute.sum(trace.executions["exec_ns"]).as_py()
    assert str(frame.dtypes["input_published_ns"]) == "int64[pyarrow]"


def test_polars_reads_tables_without_pyarrow(trace):
    for made in (trace, onbeat.open("tables")):
        executions, runs = made.read_polars("executions", "runs")
        assert executions.equals(polars.from_arrow(made.executions)) and runs.equals(polars.from_arrow(made.runs))
        assert made.read_polars("chains")[0].equals(polars.from_arrow(made.chains))
        assert made.read_polars() == ()
        with pytest.raises(onbeat.UsageError, match="there is no table 'execution'"):
            made.read_polars("execution")
    script = ("import sys, onbeat; frames = [onbeat.open(p).read_polars('executions', 'runs') for p in sys.argv[1:]];"
              "assert len(frames) == 2 and 'pyarrow' not in sys.modules, 'pyarrow was imported'")
    subprocess.run([sys.executable, "-c", script, TRACE, "tables"], check=True)


def test_chosen_columns_equal_those_of_whole_tables(trace):
    for made in (trace, onbeat.open("tables")):
        # Each table gets the columns that it has, in its own order.
        executions, chains = made.read_polars("executions", "chain_executions", columns=["latency_ns", "end_ns", "callback"])
        assert executions.equals(made.read_polars("executions")[0].select("callback", "end_ns"))
        assert chains.equals(made.read_polars("chain_executions")[0].select("end_ns", "latency_ns"))
        with pytest.raises(onbeat.UsageError, match="there is no column 'end' in these tables"):
            made.read_polars("executions", "runs", columns=["run", "end"])
        with pytest.raises(onbeat.UsageError, match=r"Write columns=\['run'\]"):
            made.read_polars("runs", columns="run")
        with pytest.raises(onbeat.UsageError, match="none of the columns is in the table runs"):
            made.read_polars("executions", "runs", columns=["end_ns"])
    with trace.stream("switches", columns=["cpu", "run"]) as batches:
        assert batches.read_all().equals(trace.switches.select(["run", "cpu"]))
    with pytest.raises(onbeat.UsageError, match="there is no column 'end'"):
        with trace.stream("executions", columns=["end"]) as batches:
            pass


def test_a_stream_that_is_left_early_leaves_no_process(trace):
    with trace.stream("switches") as batches:
        next(iter(batches))
    with pytest.raises(ZeroDivisionError):
        with trace.stream("executions") as batches:
            _ = 1 / 0
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_what_cannot_be_read_says_why(tmp_path):
    with pytest.raises(onbeat.OnbeatError, match="does not exist"):
        onbeat.open(tmp_path / "nowhere")
    with pytest.raises(onbeat.BadFile, match="neither a trace directory"):
        onbeat.open(tmp_path)
    with pytest.raises(onbeat.UsageError, match="there is no table 'execution'"):
        onbeat.open(TRACE).table("execution")
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(onbeat.CommandFailed) as caught:
        _ = onbeat.open(tmp_path).executions
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_trace_that_is_cut_off_has_tables_and_a_warning(tmp_path):
    cut = tmp_path / "cut"
    shutil.copytree(os.path.join(ROOT, TRACE), cut)
    segment = cut / "segment-000000.obt"
    segment.write_bytes(segment.read_bytes()[:100_000])
    with pytest.warns(onbeat.OnbeatWarning):
        table = onbeat.open(cut).executions
    assert 0 < table.num_rows < onbeat.open(TRACE).executions.num_rows


def test_damaged_parquet_is_refused(tmp_path):
    shutil.copytree("tables", tmp_path / "tables")
    tables = onbeat.open_tables(tmp_path / "tables")
    path = tables.files("executions")[0]
    with open(path, "r+b") as file:
        file.truncate(100)
    with pytest.raises(onbeat.OnbeatError, match="cannot read the table executions"):
        _ = tables.executions
    with pytest.raises(onbeat.OnbeatError, match="cannot read the tables executions"):
        tables.read_polars("executions")
    os.unlink(path)
    with pytest.raises(onbeat.NothingFound, match="has no table executions"):
        _ = tables.executions
    with pytest.raises(onbeat.NothingFound, match="has no table executions"):
        tables.read_polars("executions")
    assert isinstance(tables.items, pyarrow.Table)
