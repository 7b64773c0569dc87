#!/usr/bin/env python3
"""Writes python/onbeat/schema.py, the Python classes of a model, from docs/model.schema.json.

usage: scripts/python_schema.py            writes the file
       scripts/python_schema.py --check    exit code 1 if the file is not as the schema says
"""

import json
import os
import sys
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SCHEMA = os.path.join(ROOT, "docs/model.schema.json")
OUTPUT = os.path.join(ROOT, "python/onbeat/schema.py")
WIDTH = 116

HEAD = '''"""The parts of a model, as `model.json` has them (docs/model-format.md). All times are whole nanoseconds.

scripts/python_schema.py writes this file from docs/model.schema.json: change the schema, not this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from onbeat._decode import Decimal, FrozenMap
from onbeat._figures import DistMethods
'''

# Classes that also have methods, and the class in onbeat._figures that has these.
METHODS = {"dist": "DistMethods"}
# Names of classes whose definition in the schema has no name of its own.
INNER = {("run_extremes", "typical"): "typical_figures", ("junction", "readings"): "reading",
         ("helper", "figures"): "helper_figures"}
# Names that are words of Python.
RESERVED = {"from": "from_"}


def class_name(name):
    """The name of the class of a definition: `end_to_end` becomes EndToEnd."""
    return "".join(word.capitalize() for word in name.split("_"))


def reference(prop):
    """The definition that a property refers to, or None."""
    return prop["$ref"].rsplit("/", 1)[1] if "$ref" in prop else None


def type_of(prop):
    """The Python type of a property."""
    if name := reference(prop):
        return {"ns": "int", "count": "int", "decimal": "Decimal"}.get(name) or class_name(name)
    if "anyOf" in prop:
        return " | ".join(type_of(one) for one in prop["anyOf"])
    if "enum" in prop:
        return "Literal[" + ", ".join(json.dumps(v) if isinstance(v, str) else repr(v) for v in prop["enum"]) + "]"
    kind = prop["type"]
    if kind == "array" and "prefixItems" in prop:
        return "tuple[" + ", ".join(type_of(one) for one in prop["prefixItems"]) + "]"
    if kind == "array":
        return f"tuple[{type_of(prop['items'])}, ...]"
    if kind == "object":
        return f"Mapping[str, {type_of(prop['additionalProperties'])}]"
    if kind == "string" and "0-9]+$" in prop.get("pattern", ""):
        return "Decimal"
    return {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}[kind]


def default_of(prop, kind):
    """The type and the default of a property that a file can leave out."""
    if "default" in prop:
        value = prop["default"]
        return kind, json.dumps(value) if isinstance(value, str) else repr(value)
    if kind.startswith("tuple["):
        return kind, "()"
    if kind.startswith("Mapping["):
        return kind, "field(default_factory=FrozenMap)"
    return f"{kind} | None", "None"


def named(definitions):
    """The definitions with a name for each object within another."""
    found = dict(definitions)
    for (outer, key), name in INNER.items():
        prop = found[outer]["properties"][key]
        within = prop["items"] if prop.get("type") == "array" else prop
        found[name] = dict(within)
        within.clear()
        within["$ref"] = f"#/$defs/{name}"
    return found


def in_order(definitions):
    """Names of the objects; a base class stands before its subclass."""
    names = [name for name, d in definitions.items() if d.get("type") == "object"]
    return sorted(names, key=lambda name: name + "_figures" in definitions)


def attribute_text(prop):
    """The description of a property as a string after the attribute."""
    text = prop.get("description", "")
    if not text:
        return []
    text = text[0].upper() + text[1:] + ("" if text.endswith((".", ")", "]")) else ".")
    lines = textwrap.wrap(f'"""{text}"""', WIDTH - 4)
    return ["    " + line for line in lines]


def class_text(name, definitions):
    """The source text of a class."""
    definition = definitions[name]
    base, inherited = METHODS.get(name, ""), {}
    if f"{name}_figures" in definitions and name != "run_extremes":
        inherited = definitions[f"{name}_figures"]["properties"]
        if set(inherited) <= set(definition["properties"]):
            base = class_name(f"{name}_figures")
        else:
            inherited = {}
    description = definition.get("description") or DESCRIPTIONS[name]
    lines = ["", "", "@dataclass(frozen=True, kw_only=True)", f"class {class_name(name)}{f'({base})' if base else ''}:"]
    lines += ["    " + line for line in textwrap.wrap(f'"""{description}"""', WIDTH - 4)] + [""]
    for key, prop in definition["properties"].items():
        if key in inherited:
            continue
        kind, default = type_of(prop), None
        if key not in definition.get("required", []):
            kind, default = default_of(prop, kind)
        lines.append(f"    {RESERVED.get(key, key)}: {kind}" + (f" = {default}" if default else ""))
        lines += attribute_text(prop)
    return "\n".join(lines)


DESCRIPTIONS = {
    "cause": "A component that made a callback wait, and for how long.",
    "typical": "Figures of one run by which runs are compared.",
    "typical_figures": "Figures by which `onbeat diff` compares runs.",
    "run_extremes": "The execution times of a callback in one run.",
    "thread": "A thread that ran a callback.",
    "junction": "A callback at which several inputs meet.",
    "reading": "One way to read an ambiguous junction.",
    "action": "An action, with the callbacks that serve and use it.",
    "end_to_end_figures": "Measured figures over all paths between a source and a sink.",
    "share": "The share of a callback or an edge in a chain's latency.",
    "endpoint": "The QoS settings of a node's publishers or subscriptions on a topic.",
    "qos": "QoS settings. A time that is None is unlimited.",
    "helper_figures": "Measured figures of threads that run no callback.",
}


def text():
    """The whole source text."""
    with open(SCHEMA, encoding="utf-8") as file:
        schema = json.load(file)
    definitions = named(schema["$defs"])
    names = in_order(definitions)
    exported = ", ".join(f'"{class_name(name)}"' for name in sorted(names))
    every = "\n".join(textwrap.wrap(f"__all__ = [{exported}]", WIDTH, subsequent_indent=" " * 11))
    return HEAD + "\n" + every + "\n" + "\n".join(class_text(name, definitions) for name in names) + "\n"


def main():
    """Writes or compares the file."""
    new = text()
    if "--check" in sys.argv[1:]:
        with open(OUTPUT, encoding="utf-8") as file:
            if file.read() != new:
                sys.exit("python/onbeat/schema.py is not as docs/model.schema.json says. Run scripts/python_schema.py.")
        return
    with open(OUTPUT + ".new", "w", encoding="utf-8") as file:
        file.write(new)
    os.replace(OUTPUT + ".new", OUTPUT)


if __name__ == "__main__":
    main()
