#!/usr/bin/env python3
"""How the Rust code is cut: longest functions, types with most fields, modules that depend on one another in a circle.

usage: scripts/structure.py [--check] [--top N] [DIR]

A module is a file or folder directly below a crate's `src`, or below a folder there. It depends on
another of the same level when its code names it (`crate::other`, `super::other`). Tests within a file
(`#[cfg(test)]`) do not count. With --check nothing is printed but circles, and those are an error.
"""

import argparse
import os
import re
import sys

FUNCTION = re.compile(r'^(\s*)(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe |extern "C" )*fn (\w+)')
TYPE = re.compile(r"^(\s*)(?:pub(?:\([^)]*\))? )?struct (\w+)[^;]*\{\s*$")
FIELD = re.compile(r"^\s+(?:pub(?:\([^)]*\))? )?[a-z]\w*: ")


def rust_files(root):
    """All Rust sources of a checkout's crates, without build results."""
    for folder, folders, names in os.walk(os.path.join(root, "crates")):
        folders[:] = [f for f in folders if f != "target"]
        for name in sorted(names):
            if name.endswith(".rs"):
                yield os.path.join(folder, name)


def without_tests(text):
    """The code of a file up to its first test module at the outermost level."""
    return re.split(r"^#\[cfg\((?:all\()?(?:test|loom)", text, maxsplit=1, flags=re.M)[0]


def without_comments(text):
    """Code without line comments: documentation may name any module."""
    return re.sub(r"//.*", "", text)


def items(path):
    """(lines, name) of each function and (fields, name) of each struct in a file."""
    with open(path, encoding="utf-8") as file:
        lines = without_tests(file.read()).split("\n")
    functions, types = [], []
    for at, line in enumerate(lines):
        function, struct = FUNCTION.match(line), TYPE.match(line)
        found = function or struct
        if not found or line.rstrip().endswith((";", "}")):
            continue
        end = next((n for n in range(at + 1, len(lines))
                    if lines[n].startswith(found[1] + "}")), None)
        if end is None:
            continue
        if function:
            functions.append((end - at + 1, found[2], at + 1))
        else:
            types.append((sum(bool(FIELD.match(text)) for text in lines[at + 1:end]), found[2], at + 1))
    return functions, types


def module_texts(folder):
    """The code of each module directly in a folder: {name: text}, files of a module's folder included."""
    texts = {}
    for entry in sorted(os.listdir(folder)):
        path = os.path.join(folder, entry)
        name = entry.removesuffix(".rs")
        if os.path.isdir(path):
            for sub, _, names in os.walk(path):
                for n in sorted(names):
                    if n.endswith(".rs"):
                        with open(os.path.join(sub, n), encoding="utf-8") as file:
                            texts[name] = texts.get(name, "") + without_tests(file.read())
        elif entry.endswith(".rs") and name not in ("lib", "main", "mod"):
            with open(path, encoding="utf-8") as file:
                texts[name] = texts.get(name, "") + without_tests(file.read())
    return {name: without_comments(text) for name, text in texts.items()}


def names_after(text, prefix):
    """What `use prefix::{a, b::c}` and `prefix::a` name first."""
    found = set(re.findall(re.escape(prefix) + r"::(\w+)", text))
    for group in re.findall(re.escape(prefix) + r"::\{((?:[^{}]|\{[^{}]*\})*)\}", text):
        found.update(re.findall(r"(?:^|,)\s*(\w+)", re.sub(r"\{[^{}]*\}", "", group)))
    return found


def circles(folder, prefix):
    """Groups of modules in a folder that reach one another."""
    texts = module_texts(folder)
    edges = {}
    for name, text in texts.items():
        used = names_after(text, prefix)
        direct = os.path.join(folder, name + ".rs")
        if os.path.exists(direct):
            with open(direct, encoding="utf-8") as file:
                used |= names_after(without_comments(without_tests(file.read())), "super")
        edges[name] = {u for u in used if u in texts and u != name}
    reach = {}
    for start in edges:
        seen, todo = set(), [start]
        while todo:
            for to in edges[todo.pop()] - seen:
                seen.add(to)
                todo.append(to)
        reach[start] = seen
    groups = {frozenset(o for o in reach if o in reach[n] and n in reach[o]) for n in reach
              if n in reach[n]}
    return sorted(sorted(g) for g in groups)


def all_circles(root):
    """(module path, circle) of every crate and of every folder of modules in it."""
    for group in sorted(os.listdir(os.path.join(root, "crates"))):
        base = os.path.join(root, "crates", group)
        crates = [group] if os.path.isdir(os.path.join(base, "src")) else [
            os.path.join(group, c) for c in sorted(os.listdir(base))
            if os.path.isdir(os.path.join(base, c, "src"))]
        for crate in crates:
            src = os.path.join(root, "crates", crate, "src")
            for folder, folders, _ in os.walk(src):
                folders[:] = sorted(f for f in folders if f not in ("bin", "bpf"))
                inner = os.path.relpath(folder, src)
                parts = [] if inner == "." else inner.split(os.sep)
                for circle in circles(folder, "::".join(["crate", *parts])):
                    yield os.path.join(crate, "src", *parts), circle


def main():
    """Reads the checkout and prints what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only circles, as errors")
    parser.add_argument("--top", type=int, default=5, help="how many to list")
    parser.add_argument("dir", nargs="?",
                        default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    args = parser.parse_args()
    found = list(all_circles(args.dir))
    if args.check:
        for where, circle in found:
            print(f"{where}: these modules depend on one another: {', '.join(circle)}", file=sys.stderr)
        sys.exit(1 if found else 0)
    functions, types = [], []
    for path in rust_files(args.dir):
        shown = os.path.relpath(path, args.dir)
        for lists, results in zip((functions, types), items(path)):
            lists += [(size, name, f"{shown}:{line}") for size, name, line in results]
    for title, rows in (("lines  function", functions), ("fields  type", types)):
        print(title)
        for size, name, where in sorted(rows, reverse=True)[:args.top]:
            print(f"  {size:4}  {name}  ({where})")
    print("circles between modules")
    for where, circle in found:
        print(f"  {where}: {', '.join(circle)}")
    if not found:
        print("  none")


if __name__ == "__main__":
    main()
