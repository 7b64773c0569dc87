"""The answer of CARET."""

from caret_analyze import Application, Architecture, Lttng


def answer(session):
    """The durations of each callback, and the latencies of the chain."""
    architecture = Architecture("lttng", session)
    architecture.add_path("chain", architecture.search_paths("/talker", "/listener")[0])
    application = Application(architecture, Lttng(session))
    executions = [callback.to_dataframe() for callback in application.callbacks]
    durations = [one.iloc[:, 1] - one.iloc[:, 0] for one in executions]
    path = application.get_path("chain")
    path.include_first_callback = path.include_last_callback = True
    chain = path.to_dataframe()
    latencies = chain.iloc[:, -1] - chain.iloc[:, 0]
    return durations, latencies
