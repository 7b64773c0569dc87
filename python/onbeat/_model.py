"""A model as typed objects."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from onbeat import schema
from onbeat._command import StrPath
from onbeat._decode import Rows, decode, parse
from onbeat._errors import BadFile, OnbeatError
from onbeat._files import write_whole

T = TypeVar("T")
SCHEMA = "onbeat-model/1"


class Model(os.PathLike[str]):
    """A timing model. The file is read when its first part is asked for, and each object is made when it is.

    A model is also the path of its file: functions and commands that take a model's path take it.

    >>> import onbeat
    >>> model = onbeat.open("model.json")
    >>> model
    <Model model.json>
    >>> chain = max(model.chains, key=lambda chain: chain.latency_ns.max)
    >>> f"{chain.id}: {chain.latency_ns.p50 / 1e6:.0f} ms, at most {chain.latency_ns.max / 1e6:.0f} ms"
    'chain-664e64ef4c8d: 61 ms, at most 88 ms'
    """

    def __init__(self, path: StrPath | None = None, content: bytes | None = None) -> None:
        """Takes a file, or the content of one."""
        self.path = None if path is None else Path(path)
        self._content = content

    def __fspath__(self) -> str:
        if self.path is None:
            raise OnbeatError("this model is not in a file. Write it with model.save(PATH).")
        return os.fspath(self.path)

    def __repr__(self) -> str:
        return f"<Model {self.path or 'in memory'}>"

    def save(self, path: StrPath) -> Model:
        """Writes the model to a file, and returns the model of this file.

        The file is written under another name and then renamed, so a reader never sees half a file.
        """
        write_whole(path, self._bytes())
        return Model(path)

    def _bytes(self) -> bytes:
        if self._content is None:
            try:
                return Path(self).read_bytes()
            except OSError as error:
                raise OnbeatError(f"cannot read {self.path}: {error.strerror}.") from error
        return self._content

    @property
    def _where(self) -> str:
        return str(self.path or "the model")

    @cached_property
    def _document(self) -> dict[str, Any]:
        value = parse(self._bytes(), self._where)
        name = value.get("schema") if isinstance(value, dict) else None
        if name != SCHEMA:
            said = f"its schema is {str(name)[:40]!r}" if name else "it names no schema"
            raise BadFile(f"{self._where} is not a model of this version ({SCHEMA}): {said}."
                          " Make it again with onbeat.model(TRACE).")
        return dict(value)

    def _rows(self, cls: type[T], name: str) -> Sequence[T]:
        return Rows(cls, self._document.get(name, []), self._where, name)

    def _sentences(self, name: str) -> tuple[str, ...]:
        return decode(tuple[str, ...], self._document.get(name, []), self._where, name)

    @cached_property
    def runs(self) -> Sequence[schema.Run]:
        """The recordings that the model contains, sorted by id."""
        return self._rows(schema.Run, "runs")

    @cached_property
    def callbacks(self) -> Sequence[schema.Callback]:
        """The vertices of the graph, sorted by id."""
        return self._rows(schema.Callback, "callbacks")

    @cached_property
    def edges(self) -> Sequence[schema.Edge]:
        """Communication between callbacks, sorted by `from_`, `to`, `topic`."""
        return self._rows(schema.Edge, "edges")

    @cached_property
    def junctions(self) -> Sequence[schema.Junction]:
        """Callbacks at which several inputs meet, sorted by callback."""
        return self._rows(schema.Junction, "junctions")

    @cached_property
    def chains(self) -> Sequence[schema.Chain]:
        """Paths from a source to a sink, sorted by id."""
        return self._rows(schema.Chain, "chains")

    @cached_property
    def end_to_end(self) -> Sequence[schema.EndToEnd]:
        """Pairs of a source and a sink with all paths between them."""
        return self._rows(schema.EndToEnd, "end_to_end")

    @cached_property
    def executors(self) -> Sequence[schema.Executor]:
        """Groups of callbacks that run on the same threads."""
        return self._rows(schema.Executor, "executors")

    @cached_property
    def endpoints(self) -> Sequence[schema.Endpoint]:
        """QoS settings of publishers and subscriptions."""
        return self._rows(schema.Endpoint, "endpoints")

    @cached_property
    def helpers(self) -> Sequence[schema.Helper]:
        """Threads that run no callback."""
        return self._rows(schema.Helper, "helpers")

    @cached_property
    def actions(self) -> Sequence[schema.Action]:
        """Actions, sorted by name."""
        return self._rows(schema.Action, "actions")

    @cached_property
    def assumptions(self) -> tuple[str, ...]:
        """Sentences: assumptions that no event shows."""
        return self._sentences("assumptions")

    @cached_property
    def coverage(self) -> tuple[str, ...]:
        """Sentences: limits of the recordings, and losses."""
        return self._sentences("coverage")

    def callback(self, name: str) -> schema.Callback:
        """Returns the callback with this id, or the only one whose id ends with `name`.

        >>> import onbeat
        >>> onbeat.open("model.json").callback("lidar_rear:timer(100ms)").period_ns
        100000000
        """
        ids = [str(raw.get("id")) if isinstance(raw, dict) else "" for raw in self._document.get("callbacks", [])]
        found = [i for i, one in enumerate(ids) if one == name] or [i for i, one in enumerate(ids) if one.endswith(name)]
        return self.callbacks[self._only(found, ids, name, "callback", "ends with")]

    def chain(self, name: str) -> schema.Chain:
        """Returns the chain with this id, or the only one whose id begins with `name` or `chain-` and `name`."""
        ids = [str(raw.get("id")) if isinstance(raw, dict) else "" for raw in self._document.get("chains", [])]
        found = [i for i, one in enumerate(ids) if one == name]
        found = found or [i for i, one in enumerate(ids) if one.startswith((name, f"chain-{name}"))]
        return self.chains[self._only(found, ids, name, "chain", "begins with")]

    def _only(self, found: list[int], ids: list[str], name: str, what: str, how: str) -> int:
        if len(found) == 1:
            return found[0]
        many = f"{len(found)} {what}s have an id that {how} {name!r}" if found else f"no {what} has an id that {how} {name!r}"
        some = ", ".join(ids[i] for i in (found or range(min(len(ids), 3))))
        raise OnbeatError(f"{self._where}: {many}. Choose one of model.{what}s{', for example ' + some if some else ''}.")


@contextmanager
def as_file(model: StrPath | Model) -> Iterator[str]:
    """Gives the path of a model. A model that is not in a file is written to one for the time of the block."""
    if not isinstance(model, Model) or model.path is not None:
        yield os.fspath(model)
        return
    with tempfile.TemporaryDirectory(prefix="onbeat-") as folder:
        yield os.fspath(model.save(os.path.join(folder, "model.json")))
