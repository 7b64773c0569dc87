"""The answer of onbeat, in pandas."""

import onbeat


def answer(session):
    """The durations of each callback, and the latencies of the chain."""
    trace = onbeat.import_trace(session, session + ".imported")
    executions, chain_executions = (table.to_pandas() for table in trace.read("executions", "chain_executions"))
    durations = executions.end_ns - executions.start_ns
    latencies = chain_executions.latency_ns
    return [group for _, group in durations.groupby(executions.callback, observed=True)], latencies
