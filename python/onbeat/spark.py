"""Merging on Spark."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from pyspark import SparkContext

from onbeat import _tree
from onbeat._command import StrPath


def _merge_group(numbered: tuple[int, Iterable[str | _tree.Result]], last: bool) -> tuple[int, _tree.Result]:
    number, parts = numbered
    return number, _tree.task(*parts, last=last)


def merge(
    paths: Iterable[StrPath],
    output: StrPath = "merged.json",
    *,
    fan_in: int = _tree.FAN_IN,
    context: SparkContext | None = None,
) -> Path:
    """Merges models that all executors can read, and returns the path of the merged model on this machine.

    Runs on `context`, else on the active context, else on a new one. Parts stay on the executors until one is left.
    """
    context = context or SparkContext.getOrCreate()
    first = _tree.first_parts(paths, fan_in)
    count = len(first)
    groups = context.parallelize(list(enumerate(first)), count)
    while count > 1:
        parts = groups.map(partial(_merge_group, last=False)).map(lambda part: (part[0] // fan_in, part[1]))
        count = -(-count // fan_in)
        groups = parts.groupByKey(count)
    return _tree.write(groups.map(partial(_merge_group, last=True)).collect()[0][1], output)
