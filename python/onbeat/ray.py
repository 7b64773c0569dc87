"""Merging on Ray."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ray

from onbeat import _tree
from onbeat._command import StrPath


def merge(
    paths: Iterable[StrPath], output: StrPath = "merged.json", *, fan_in: int = _tree.FAN_IN, **options: Any
) -> Path:
    """Merges models that all workers can read, and returns the path of the merged model on this machine.

    Runs on the Ray that was initialised, or else starts a local one. `options` are those of `ray.remote`.
    """
    task = ray.remote(**options)(_tree.task) if options else ray.remote(_tree.task)
    groups = _tree.first_parts(paths, fan_in)
    while len(groups) > 1:
        groups = _tree.groups([task.remote(*group, last=False) for group in groups], fan_in)
    return _tree.write(ray.get(task.remote(*groups[0], last=True)), output)
