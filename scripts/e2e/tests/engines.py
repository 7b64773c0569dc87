"""Models merged on an engine, on its local form, while a worker is killed: the same bytes as of one process."""

import json
import os
import subprocess

from harness import ONBEAT, ROOT, WATCHDOG_S
from registry import Mismatch, Skip, need, register

RECORDED = os.path.join(ROOT, "demos/recorded/parking")
CLUSTER = os.path.join(ROOT, "scripts/engines/cluster.py")
MODELS = 50
FAN_IN = 8
# Its first caller, a worker in the midst of a task, is killed.
KILLER = """#!/bin/sh
if mkdir '{once}' 2>/dev/null; then kill -9 $PPID; exit 1; fi
exec '{onbeat}' "$@"
"""
# A model that is there twice is refused by the part of the tree in which both meet.
TWICE = """
import sys, onbeat, onbeat.{engine}
paths = sys.stdin.read().split()
onbeat.{engine}.merge([*paths, paths[0]], "twice.json", fan_in={fan_in})
"""


def models(harness):
    """A folder of models: the recorded run under many ids, in three modes."""
    def make(folder):
        os.makedirs(folder, exist_ok=True)
        recorded = harness.file("engines_recorded.json")
        harness.onbeat("model", RECORDED, "-o", recorded, "--mode", "mode")
        with open(recorded, encoding="utf-8") as file:
            text = file.read()
        run = json.loads(text)["runs"][0]["id"]
        for number in range(MODELS):
            one = text.replace(run, f"run{number}").replace('"mode":"mode"', f'"mode":"mode{number % 3}"')
            with open(os.path.join(folder, f"{number}.json"), "w", encoding="utf-8") as file:
                file.write(one)
    folder = harness.once("engines_models", make)
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder))]


def python_of(engine):
    """The interpreter of an environment with the engine and the wheel of this onbeat."""
    done = subprocess.run([os.path.join(ROOT, "dev"), "engine-env", engine], check=False, text=True,
                          capture_output=True, env={**os.environ, "ONBEAT": ONBEAT})
    if done.returncode:
        raise Skip(f"{engine} and the wheel cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    return os.path.join(done.stdout.strip(), "bin/python")


def python(harness, program, words, paths, **variables):
    """Runs a program of an engine's Python with the models' paths on its standard input."""
    environment = {k: v for k, v in os.environ.items() if k != "ONBEAT"}
    return subprocess.run([program, *words], input="".join(p + "\n" for p in paths), text=True, check=False,
                          capture_output=True, timeout=WATCHDOG_S, cwd=harness.work,
                          env={**environment, **variables})


def merge_while_a_worker_dies(harness, engine):
    """Merges on the engine; compares."""
    program, paths = python_of(engine), models(harness)
    alone, output = harness.new_file(f"{engine}_alone.json"), harness.new_file(f"{engine}.json")
    harness.onbeat("merge", *paths, "-o", alone)
    # A folder of this attempt.
    once = harness.file(f"{engine}_killed_{os.getpid()}")
    killer = harness.new_file(f"{engine}_killer")
    with open(killer, "w", encoding="utf-8") as file:
        file.write(KILLER.format(once=once, onbeat=ONBEAT))
    os.chmod(killer, 0o755)
    done = python(harness, program, [CLUSTER, engine, output, str(FAN_IN)], paths[::-1], ONBEAT=killer)
    if done.returncode:
        raise Mismatch(f"{engine}: {done.stderr[-2000:]}")
    need(os.path.isdir(once), "no worker was killed")
    with open(alone, "rb") as one, open(output, "rb") as other:
        need(one.read() == other.read(), f"{engine} merged to other bytes")


def dask(harness):
    """Merging on Dask while a worker is killed gives the bytes of one process; a run twice is an error."""
    merge_while_a_worker_dies(harness, "dask")
    code = TWICE.format(engine="dask", fan_in=FAN_IN)
    done = python(harness, python_of("dask"), ["-c", code], models(harness))
    need(done.returncode and "onbeat.CommandFailed" in done.stderr and "is in more than one of the models" in done.stderr,
         f"a run that was there twice: {done.stderr[-1000:]}")
    need(not any("twice.json" in name for name in os.listdir(harness.work)), "half a merge was written")


def ray(harness):
    """Merging on Ray while a worker is killed gives the bytes of one process."""
    merge_while_a_worker_dies(harness, "ray")


def spark(harness):
    """Merging on Spark while a worker is killed gives the bytes of one process."""
    merge_while_a_worker_dies(harness, "spark")


register(dask, name="engines_dask")
register(ray, name="engines_ray", left_out="it downloads 300 MB")
register(spark, name="engines_spark", left_out="it downloads 500 MB and needs Java")
