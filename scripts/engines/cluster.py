"""Merges models on the local form of an engine: cluster.py ENGINE OUTPUT FAN_IN [NUMBER ...] < list of models.

ENGINE: dask, ray or spark with two worker processes, or alone: one `onbeat merge`. Merges the first NUMBER models, one
NUMBER after the other, or all. Prints a JSON object for each: seconds and CPU seconds of the merge (of all
processes of the engine), the most memory that they had together, and the SHA-256 of the merged model.
"""

import contextlib
import hashlib
import json
import os
import sys
import threading
import time

WORKERS = 2
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
SAMPLE_S = 0.1


def processes():
    """This process and all below it: (CPU seconds with those of ended children, resident bytes)."""
    all_of, below = {}, {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                words = file.read().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        all_of[int(pid)] = sum(map(int, words[11:15])) / TICKS_PER_S, int(words[21]) * PAGE
        below.setdefault(int(words[1]), []).append(int(pid))
    found, waiting = [], [os.getpid()]
    while waiting:
        pid = waiting.pop()
        found.append(all_of.get(pid, (0, 0)))
        waiting += below.get(pid, [])
    return sum(cpu for cpu, _ in found), sum(resident for _, resident in found)


class Peak(threading.Thread):
    """The most memory so far, in bytes; pages that processes share count for each."""

    def __init__(self):
        super().__init__(daemon=True)
        self.bytes, self.ended = 0, threading.Event()

    def run(self):
        ended = False
        while not ended:
            self.bytes = max(self.bytes, processes()[1])
            ended = self.ended.wait(SAMPLE_S)


@contextlib.contextmanager
def dask():
    """A cluster of processes on this machine."""
    import distributed

    import onbeat.dask

    with distributed.LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None,
                                  host="127.0.0.1") as cluster, distributed.Client(cluster):
        yield onbeat.dask.merge


@contextlib.contextmanager
def ray():
    """A node on this machine."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray as engine

    import onbeat.ray

    engine.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
                object_store_memory=512 << 20, _node_ip_address="127.0.0.1")
    try:
        yield onbeat.ray.merge
    finally:
        engine.shutdown()


@contextlib.contextmanager
def spark():
    """Executors within one process, and Python workers below it; a task is tried four times."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    import pyspark

    import onbeat.spark

    settings = pyspark.SparkConf().setMaster(f"local[{WORKERS},4]").setAppName("onbeat")
    settings = settings.set("spark.ui.enabled", "false").set("spark.driver.host", "127.0.0.1")
    settings = settings.set("spark.driver.bindAddress", "127.0.0.1").set("spark.driver.memory", "2g")
    settings = settings.set("spark.driver.maxResultSize", "0")
    context = pyspark.SparkContext(conf=settings)
    context.setLogLevel("OFF")
    try:
        yield onbeat.spark.merge
    finally:
        context.stop()


@contextlib.contextmanager
def alone():
    """No engine."""
    import onbeat

    yield lambda paths, output, fan_in: onbeat.merge(paths, output)


def measured(merge, paths, output, fan_in):
    """One merge, and what it took."""
    peak = Peak()
    peak.start()
    before, began = processes()[0], time.monotonic()
    merge(paths, output, fan_in=fan_in)
    seconds, cpu = time.monotonic() - began, processes()[0] - before
    peak.ended.set()
    peak.join()
    with open(output, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"models": len(paths), "seconds": seconds, "cpu_s": cpu, "peak_bytes": peak.bytes, "sha256": digest}


def main():
    """Merges what the standard input lists."""
    engine, output, fan_in = sys.argv[1], sys.argv[2], int(sys.argv[3])
    paths = sys.stdin.read().split("\n")[:-1]
    with {"dask": dask, "ray": ray, "spark": spark, "alone": alone}[engine]() as merge:
        for number in map(int, sys.argv[4:] or [len(paths)]):
            print(json.dumps(measured(merge, paths[:number], output, fan_in)), flush=True)


if __name__ == "__main__":
    main()
