"""Shaping from inside: the application's own processes hold their outputs back."""

from chain import Chain, figure, middle, shaped
from registry import TIMED_TEST, Mismatch, test

SECONDS = 8


def outcome(chain, plan, *words):
    """Shapes the chain; onbeat's report, and the numbers and latencies that a listener heard."""
    with chain.listener() as heard:
        report = shaped(chain, plan, SECONDS, *words)
        heard = heard()
    end = max(at for at, _ in heard)
    return report, [latency for at, latency in heard if end - SECONDS + 2 < at < end - 0.5]


@test(places=TIMED_TEST)
def shape_inside_keeps_outputs_in_their_slots_without_remapping(harness):
    """Processes that hold their outputs back themselves keep them in their slots, as a shaper does."""
    chain = Chain(harness, "shape_inside")
    plan = chain.plan("--strategy", "bands", "--bands", "1")
    for place in ("outside", "inside"):
        report, latency = outcome(chain, plan, "--hold", place)
        print(place, len(latency), middle(latency) * 1e3, report["figures"], report["notes"],
              [t for t in report["threads"] if "onbeat" in str(t)])
