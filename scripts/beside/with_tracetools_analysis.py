"""The answer of tracetools_analysis. Publications, takes and callbacks are joined by their times."""

import pandas as pd
from tracetools_analysis.loading import load_file
from tracetools_analysis.processor.ros2 import Ros2Handler
from tracetools_analysis.utils.ros2 import Ros2DataModelUtil


def answer(session):
    """The durations of each callback, and the latencies of the chain."""
    util = Ros2DataModelUtil(Ros2Handler.process(load_file(session, force_conversion=True)))
    owners = {callback: util.get_callback_owner_info(callback) or "" for callback in util.get_callback_symbols()}
    durations = {callback: util.get_callback_durations(callback) for callback in owners}
    timer = next(callback for callback, owner in owners.items() if owner.startswith("Timer"))
    heard = next(callback for callback, owner in owners.items() if owner.startswith("Subscription"))
    starts = durations[timer].rename(columns={"timestamp": "start"}).sort_values("start")
    ends = durations[heard].rename(columns={"timestamp": "heard", "duration": "last"}).sort_values("heard")
    sent = util.get_rcl_publish_instances("/t")[["timestamp"]].rename(columns={"timestamp": "sent"})
    sent = pd.merge_asof(sent, starts, left_on="sent", right_on="start")
    takes = util.get_take_instances()
    takes = takes[(takes.layer == "rmw") & takes.taken][["timestamp", "source_timestamp"]]
    chain = pd.merge_asof(takes, sent, left_on="source_timestamp", right_on="sent")
    chain = pd.merge_asof(chain, ends[["heard", "last"]], left_on="timestamp", right_on="heard", direction="forward")
    latencies = chain.heard + chain["last"] - chain.start
    return [one.duration.astype("int64") for one in durations.values()], latencies.astype("int64")
