"""The answer of onbeat, in polars."""

import onbeat
import polars


def answer(session):
    """The durations of each callback, and the latencies of the chain."""
    trace = onbeat.import_trace(session, session + ".imported")
    executions, chain_executions = trace.read_polars(
        "executions", "chain_executions", columns=["callback", "start_ns", "end_ns", "latency_ns"])
    durations = executions.select("callback", ns=polars.col("end_ns") - polars.col("start_ns"))
    latencies = chain_executions["latency_ns"]
    return [group["ns"] for group in durations.partition_by("callback")], latencies
