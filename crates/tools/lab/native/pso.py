"""Places slots as the thesis does: particle swarm optimisation with PySwarms (section 4.4.1).

Reads JSON from standard input: samples_ms (sorted), bands, first_ms (earliest end of the first slot),
last_ms (end of the last slot), least_ms (least distance between ends), particles, iterations, seeds.
Writes one line of JSON per seed: ends_ms, and the seconds that the optimisation alone took.
"""
import json
import logging
import sys
import time

import numpy as np
import pyswarms as ps

logging.disable(logging.CRITICAL)
ask = json.load(sys.stdin)
samples = np.asarray(ask["samples_ms"])
last, least, first = ask["last_ms"], ask["least_ms"], ask["first_ms"]
free = ask["bands"] - 1


def averages(particles):
    """Computes equation 4.1 for all particles. A broken constraint costs more than any placement."""
    ends = np.sort(particles, axis=1)
    ends = np.hstack([ends, np.full((len(ends), 1), last)])
    until = np.searchsorted(samples, ends, side="right") / len(samples)
    until[:, -1] = 1.0
    shares = np.diff(until, axis=1, prepend=0.0)
    short = np.clip(least - np.diff(ends, axis=1), 0.0, None).sum(axis=1)
    return (shares * ends).sum(axis=1) + (short > 0) * last + short


for seed in ask["seeds"]:
    np.random.seed(seed)
    bounds = (np.full(free, first), np.full(free, last - least))
    swarm = ps.single.GlobalBestPSO(
        n_particles=ask["particles"],
        dimensions=free,
        options={"c1": 0.5, "c2": 0.3, "w": 0.9},  # the values of the library's own examples
        bounds=bounds,
    )
    begin = time.perf_counter()
    _, best = swarm.optimize(averages, iters=ask["iterations"], verbose=False)
    seconds = time.perf_counter() - begin
    ends = sorted(float(x) for x in best) + [last]
    print(json.dumps({"seed": seed, "ends_ms": ends, "seconds": seconds}), flush=True)
