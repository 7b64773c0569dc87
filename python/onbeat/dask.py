"""Merging on Dask."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dask

from onbeat import _tree
from onbeat._command import StrPath


def merge(
    paths: Iterable[StrPath], output: StrPath = "merged.json", *, fan_in: int = _tree.FAN_IN, **options: Any
) -> Path:
    """Merges models that all workers can read, and returns the path of the merged model on this machine.

    Runs on the active `distributed.Client`, else on Dask's own threads. `options` go to `dask.compute`.
    """
    task = dask.delayed(_tree.task, pure=False, traverse=False)
    groups = _tree.first_parts(paths, fan_in)
    while len(groups) > 1:
        groups = _tree.groups([task(*group, last=False) for group in groups], fan_in)
    return _tree.write(dask.compute(task(*groups[0], last=True), **options)[0], output)
