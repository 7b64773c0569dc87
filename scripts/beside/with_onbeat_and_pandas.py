"""The answer of onbeat, in pandas."""

import onbeat


def answer(session):
    """The durations of each callback, and the latencies of the chain."""
    onbeat.run("import", session, "-o", session + ".imported")
    trace = onbeat.open_trace(session + ".imported")
    executions = trace.executions.to_pandas()
    durations = executions.end_ns - executions.start_ns
    latencies = trace.chain_executions.to_pandas().latency_ns
    return [group for _, group in durations.groupby(executions.callback, observed=True)], latencies
