"""Turns JSON into frozen dataclasses, and names the place of a value that does not fit."""

from __future__ import annotations

import dataclasses
import functools
import json
import types
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints, overload

from onbeat._errors import BadFile

T = TypeVar("T")
V = TypeVar("V")

# A whole number that JSON has as decimal text, because it can exceed what JSON numbers keep.
Decimal = Annotated[int, "decimal"]
_DIGITS_MAX = 60
_Convert = Callable[[Any], Any]


class FrozenMap(Mapping[str, V]):
    """A mapping that does not change."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, V] | None = None) -> None:
        self._items = dict(items or {})

    def __getitem__(self, key: str) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return repr(self._items)


class _Misfit(Exception):
    """A value that does not fit. The path grows from the inside to the outside."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.path: list[str] = []

    def where(self) -> str:
        return "".join(reversed(self.path)).lstrip(".")


class Rows(Sequence[T]):
    """A sequence that makes each of its objects when it is first asked for."""

    def __init__(self, cls: type[T], raw: Any, where: str, name: str) -> None:
        if not isinstance(raw, list):
            raise BadFile(f"{where}: {name} is not a list. The file is damaged.")
        self._cls, self._raw, self._where, self._name = cls, raw, where, name
        self._made: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self._raw)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"{self._name} has {len(self)} entries, and none at {index}")
        if place not in self._made:
            self._made[place] = decode(self._cls, self._raw[place], self._where, f"{self._name}[{place}]")
        return self._made[place]

    def __repr__(self) -> str:
        return f"<{len(self)} {self._name}>"


def decode(cls: type[T], value: Any, where: str, name: str = "") -> T:
    """Makes an object of a dataclass. `where` names the file, `name` the place in it, both for errors."""
    try:
        made: T = _converter(cast(Hashable, cls))(value)
    except _Misfit as misfit:
        misfit.path.append(name)
        place = misfit.where()
        raise BadFile(f"{where}: {place + ' ' if place else 'it '}{misfit.why}. The file is damaged, or of another"
                      " version of onbeat.") from None
    return made


def parse(text: str | bytes, where: str) -> Any:
    """Parses JSON; a fault is a BadFile."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise BadFile(f"{where} is not valid: it is nested too deeply.") from None
    except ValueError as error:
        raise BadFile(f"{where} is not valid JSON: {error}.") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


@functools.cache
def _converter(kind: Any) -> _Convert:
    """Returns the function that converts a JSON value to a type."""
    if kind is Decimal:
        return _decimal
    if dataclasses.is_dataclass(kind):
        return _of_class(kind)
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return _of_literal(args)
    if origin in (Union, types.UnionType):
        return _of_union(args)
    if origin is tuple:
        return _of_array(args[0]) if args[-1] is Ellipsis else _of_pair(args)
    if origin is Mapping or origin is FrozenMap:
        return _of_mapping(args[-1])
    return _SCALARS[kind]


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise _Misfit("is not a whole number")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise _Misfit("is not a number")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _Misfit("is not a text")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Misfit("is not true or false")
    return value


def _nothing(value: Any) -> None:
    if value is not None:
        raise _Misfit("is not null")


def _decimal(value: Any) -> int:
    digits = value[1:] if isinstance(value, str) and value.startswith("-") else value
    if not isinstance(digits, str) or not (digits.isascii() and digits.isdigit()) or len(digits) > _DIGITS_MAX:
        raise _Misfit("is not a whole number as text")
    return int(value)


def _anything(value: Any) -> Any:
    return value


_SCALARS: dict[Any, _Convert] = {
    int: _whole, float: _number, str: _text, bool: _truth, type(None): _nothing, Any: _anything, object: _anything,
}


def _of_literal(values: tuple[Any, ...]) -> _Convert:
    known = {(type(value), value): value for value in values}

    def convert(value: Any) -> Any:
        found = known.get((type(value), value)) if isinstance(value, (str, bool, int)) else None
        if found is None:
            raise _Misfit(f"is {str(value)[:60]!r}, which this version of onbeat does not know")
        return found
    return convert


def _of_union(kinds: tuple[Any, ...]) -> _Convert:
    converters = [_converter(kind) for kind in kinds]

    def convert(value: Any) -> Any:
        first: _Misfit | None = None
        for one in converters:
            try:
                return one(value)
            except _Misfit as misfit:
                first = first or misfit
        raise first or _Misfit("does not fit")
    return convert


def _of_array(kind: Any) -> _Convert:
    one = _converter(kind)

    def convert(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise _Misfit("is not a list")
        made = []
        for place, item in enumerate(value):
            try:
                made.append(one(item))
            except _Misfit as misfit:
                misfit.path.append(f"[{place}]")
                raise
        return tuple(made)
    return convert


def _of_pair(kinds: tuple[Any, ...]) -> _Convert:
    converters = [_converter(kind) for kind in kinds]

    def convert(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) != len(converters):
            raise _Misfit(f"is not a list of {len(converters)} values")
        return tuple(one(item) for one, item in zip(converters, value))
    return convert


def _of_mapping(kind: Any) -> _Convert:
    one = _converter(kind)

    def convert(value: Any) -> FrozenMap[Any]:
        if not isinstance(value, dict):
            raise _Misfit("is not an object")
        made = {}
        for key, item in value.items():
            try:
                made[key] = one(item)
            except _Misfit as misfit:
                misfit.path.append(f"[{key[:60]!r}]")
                raise
        return FrozenMap(made)
    return convert


class _Field(Generic[T]):
    """A field of a dataclass: its names in JSON and in Python, and what it is made with."""

    def __init__(self, of: dataclasses.Field[T], hint: Any) -> None:
        self.attribute = of.name
        self.name = of.name.rstrip("_")
        self.convert = _converter(hint)
        self.is_required = of.default is dataclasses.MISSING and of.default_factory is dataclasses.MISSING


def _of_class(cls: Any) -> _Convert:
    hints = get_type_hints(cls, include_extras=True)
    # Filled at the first use: a class can contain itself.
    fields: list[_Field[Any]] = []

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Misfit("is not an object")
        if not fields:
            fields.extend(_Field(of, hints[of.name]) for of in dataclasses.fields(cls) if of.init)
        made = {}
        for of in fields:
            if of.name not in value:
                if of.is_required:
                    raise _Misfit(f"lacks {of.name}")
                continue
            try:
                made[of.attribute] = of.convert(value[of.name])
            except _Misfit as misfit:
                misfit.path.append(f".{of.name}")
                raise
        return cls(**made)
    return convert
