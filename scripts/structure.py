#!/usr/bin/env python3
"""How the Rust code is cut: longest functions, types with most fields, modules that depend on one another in a circle.

usage: scripts/structure.py [--check] [--top N] [DIR]

A module is a file or folder directly below a crate's `src`, or below a folder there. It depends on
another of the same level when its code names it, or an item of it: by `crate::other`, by any number of
`super::`, or by a name that a module above them re-exports or imports. Code for tests only
(`#[cfg(test)]`) does not count, nor does a module that depends on an item of the module around it.

With --check, prints what breaks a limit, and fails if anything does: a circle, a function of more than
100 lines, a struct of more than 15 fields. ALLOWED names the exceptions.
"""

import argparse
import os
import re
import sys
from collections import defaultdict

MOST_LINES = 100
MOST_FIELDS = 15

# Exceptions from the limits: the line that --check prints, up to its first ':', and the reason.
ALLOWED = {}

TOKEN = re.compile(
    r"""
    (?P<skip> \s+ | //[^\n]* | /\*(?:[^*]|\*(?!/))*\*/ )
  | (?P<text> (?:b|c)?r(?P<hash>\#*)".*?"(?P=hash) | (?:b|c)?"(?:\\.|[^"\\])*"
      | b?'(?:\\(?:x\w\w|u\{[^}]*\}|.)|[^'\\\n])' )
  | (?P<life> '\w+ )
  | (?P<name> (?:r\#)?[A-Za-z_]\w* )
  | (?P<number> \d\w* )
  | (?P<sign> :: | => | -> | . )
    """,
    re.X | re.S,
)
OPEN, CLOSE = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}
ITEMS = {"fn", "mod", "struct", "enum", "union", "impl", "trait", "type", "const", "static", "use", "unsafe",
         "async", "extern", "macro_rules"}
# Items that end with ';', whatever braces they have.
LINES = {"use", "const", "static", "type"}


class Token(str):
    """A word or sign of a source, with its line."""

    line = 0
    is_name = False


def tokens(text):
    """The tokens of a source, without comments. A string or character is one token, '"'."""
    found, line = [], 1
    for match in TOKEN.finditer(text):
        kind = match.lastgroup if match.lastgroup != "hash" else "text"
        if kind != "skip":
            token = Token('"' if kind == "text" else match[0])
            token.line, token.is_name = line, kind == "name"
            found.append(token)
        line += match[0].count("\n")
    return found


def closing(code, at):
    """Where the bracket at a place is closed."""
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i] in OPEN) - (code[i] in CLOSE)
        if depth == 0:
            return i
    return len(code) - 1


def is_for_tests(attribute):
    """Whether an attribute's tokens say that its item is compiled for tests only."""
    words = [word for word in attribute if word not in ("(", "all")]
    return words[:1] == ["cfg"] and words[1:2] in (["test"], ["loom"])


def end_of_item(code, at):
    """The place after an item, a field or a statement that begins at a place."""
    word = at
    while word < len(code) and code[word] in ("pub", "("):
        word = closing(code, word) + 1 if code[word] == "(" else word + 1
    is_item = word < len(code) and code[word] in ITEMS
    # A constant function is a function.
    is_line = is_item and code[word] in LINES and "fn" not in code[word:word + 3]
    while at < len(code):
        sign = code[at]
        if sign in CLOSE:
            return at
        if sign == ";" or sign == "," and not is_item:
            return at + 1
        if sign in OPEN:
            at = closing(code, at)
            if sign == "{" and not is_line:
                return at + 1
        at += 1
    return at


def without_tests(code):
    """Code without what is compiled for tests only, and the names of the modules that are for tests alone."""
    kept, for_tests, at = [], set(), 0
    while at < len(code):
        if code[at] == "#" and code[at + 1:at + 2] == ["["]:
            end = closing(code, at + 1) + 1
            if not is_for_tests(code[at + 2:end - 1]):
                kept += code[at:end]
                at = end
                continue
            while code[end:end + 2] == ["#", "["]:
                end = closing(code, end + 1) + 1
            at = end_of_item(code, end)
            if code[at - 3:at - 2] == ["mod"] and code[at - 1] == ";":
                for_tests.add(code[at - 2])
        else:
            kept.append(code[at])
            at += 1
    return kept, for_tests


def sizes(code):
    """(lines, name, line) of each function and (fields, name, line) of each struct."""
    functions, types = [], []
    for at, word in enumerate(code[:-1]):
        name = code[at + 1]
        if word not in ("fn", "struct") or not word.is_name or not name.is_name:
            continue
        body = at
        while body < len(code) and code[body] not in ("{", ";"):
            body = closing(code, body) + 1 if code[body] in OPEN else body + 1
        if body >= len(code) or code[body] == ";":
            continue
        end = closing(code, body)
        if word == "fn":
            functions.append((code[end].line - word.line + 1, name, word.line))
        else:
            types.append((fields(code, body, end), name, word.line))
    return functions, types


def fields(code, at, end):
    """How many fields stand between the braces of a struct."""
    count, before, at = 0, "{", at + 1
    while at < end:
        if code[at].is_name and code[at + 1] == ":" and before in ("{", ",", "pub", ")", "]"):
            count += 1
        before = code[at]
        if before in OPEN:
            at = closing(code, at)
            before = code[at]
        at += 1
    return count


# ---- modules


class Module:
    """A module of a crate: what its own code names, binds and defines."""

    def __init__(self):
        self.names = []  # (path as it is written, where), seen from this module
        self.bound = defaultdict(list)  # name: paths that `use` gives it
        self.globs = []  # paths whose names are all bound
        self.defined = set()
        self.words = {}  # every word of the code: where


def use_tree(code, at, prefix):
    """(path, name that it gets, line) of each leaf of a `use`, and the place after the tree."""
    leaves, path = [], list(prefix)
    while at < len(code):
        word = code[at]
        if word == "{":
            at += 1
            while code[at] != "}":
                inner, at = use_tree(code, at, path)
                leaves += inner
                at += code[at] == ","
            return leaves, at + 1
        if word == "*":
            return [(path, "*", word.line)], at + 1
        if word == "::":
            at += 1
            continue
        if not word.is_name:
            return leaves, at + 1
        path.append(word)
        at += 1
        if code[at] == "as":
            return [(path, code[at + 1], word.line)], at + 2
        if code[at] != "::":
            if word == "self":
                path.pop()
            return [(path, path[-1] if path else "self", word.line)], at
    return leaves, at


def read(code, path, shown, modules):
    """Reads the code of a file that is the module `path`, and of the modules written in it."""
    scopes, depth, at = [(path, 0)], 0, 0
    modules.setdefault(path, Module())
    while at < len(code):
        word, module = code[at], modules[scopes[-1][0]]
        if word in ("{", "}"):
            depth += 1 if word == "{" else -1
            if depth < scopes[-1][1]:
                scopes.pop()
        elif not word.is_name:
            pass
        elif word == "mod" and code[at + 2:at + 3] == ["{"]:
            depth += 1
            scopes.append(((*scopes[-1][0], code[at + 1]), depth))
            modules.setdefault(scopes[-1][0], Module())
            at += 2
        elif word == "pub" and code[at + 1:at + 3] == ["(", "in"]:
            at = closing(code, at + 1)
        elif word == "use" and code[at + 1] != "<":
            leaves, at = use_tree(code, at + 1, [])
            for leaf, name, line in leaves:
                module.names.append((tuple(leaf), f"{shown}:{line}"))
                if name == "*":
                    module.globs.append(tuple(leaf))
                else:
                    module.bound[name].append(tuple(leaf))
            continue
        else:
            module.words.setdefault(word, f"{shown}:{word.line}")
            if code[at - 1:at] in (["fn"], ["struct"], ["enum"], ["union"], ["trait"], ["type"], ["const"], ["static"]):
                module.defined.add(word)
            if word in ("crate", "super", "self") and code[at + 1:at + 2] == ["::"]:
                named = [word]
                while code[at + 1:at + 2] == ["::"] and code[at + 2].is_name:
                    named.append(code[at + 2])
                    at += 2
                module.names.append((tuple(named), f"{shown}:{word.line}"))
        at += 1


class Crate:
    """The modules of a crate, by path: ('flow', 'graph')."""

    def __init__(self, root, src):
        self.modules = {}
        for_tests = set()
        for folder, folders, names in os.walk(os.path.join(root, src)):
            folders[:] = sorted(f for f in folders if f not in ("bin", "bpf"))
            inner = os.path.relpath(folder, os.path.join(root, src))
            parts = () if inner == "." else tuple(inner.split(os.sep))
            for name in sorted(names):
                if not name.endswith(".rs"):
                    continue
                stem = name.removesuffix(".rs")
                path = parts if stem in ("lib", "main", "mod") else (*parts, stem)
                shown = os.path.relpath(os.path.join(folder, name), root)
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    code, tests = without_tests(tokens(file.read()))
                read(code, path, shown, self.modules)
                for_tests |= {(*path, test) for test in tests}
                self.modules.setdefault(path[:-1], Module())
        for path in list(self.modules):
            if any(path[:n] in for_tests for n in range(1, len(path) + 1)):
                del self.modules[path]

    def passed(self, module, names, seen=frozenset()):
        """The modules that a path leads through, as the module `module` writes it."""
        if (module, names) in seen or not names:
            return set()
        seen = seen | {(module, names)}
        at, rest = module, names
        if rest[0] == "crate":
            at, rest = (), rest[1:]
        elif rest[0] in ("self", "super"):
            while rest and rest[0] in ("self", "super"):
                at, rest = at[:-1] if rest[0] == "super" else at, rest[1:]
        elif rest[0] not in self.modules[module].bound and (*module, rest[0]) not in self.modules:
            return set()  # another crate
        found = {at}
        while rest and (*at, rest[0]) in self.modules:
            at, rest = (*at, rest[0]), rest[1:]
            found.add(at)
        if not rest or at not in self.modules:
            return found
        here = self.modules[at]
        for path in here.bound.get(rest[0], ()):
            # `use x::x` would lead to itself.
            if (at, path) != (module, names):
                found |= self.passed(at, path, seen)
        if rest[0] not in here.bound and rest[0] not in here.defined:
            for glob in here.globs:
                for target in self.passed(at, glob, seen):
                    if target in self.modules and rest[0] in (*self.modules[target].bound, *self.modules[target].defined):
                        found |= self.passed(target, ("self", rest[0]), seen) | {target}
        return found

    def edges(self):
        """{folder: {module: {module that it depends on: where}}}."""
        all_edges = defaultdict(lambda: defaultdict(dict))
        for path, module in self.modules.items():
            named = list(module.names)
            for glob in module.globs:
                for target in self.passed(path, glob):
                    # Names that the surrounding module has imported are used here without a path.
                    if path[:len(target)] == target:
                        named += [(("crate", *target, word), where) for word, where in module.words.items()
                                  if (*target, word) not in self.modules]
            for names, where in named:
                for target in self.passed(path, names):
                    level = len(os.path.commonprefix([path, target]))
                    if level < len(path) and level < len(target):
                        all_edges[path[:level]][path[level]].setdefault(target[level], where)
        return all_edges


def circles(edges):
    """Groups of modules that reach one another."""
    reach = {}
    for start in edges:
        seen, todo = set(), [start]
        while todo:
            for to in edges.get(todo.pop(), {}).keys() - seen:
                seen.add(to)
                todo.append(to)
        reach[start] = seen
    groups = {frozenset(o for o in reach if o in reach[n] and n in reach[o]) for n in reach if n in reach[n]}
    return sorted(sorted(group) for group in groups)


def sources(root):
    """The `src` folders of a checkout's crates."""
    for folder, folders, names in os.walk(os.path.join(root, "crates")):
        folders[:] = sorted(f for f in folders if f != "target")
        if "Cargo.toml" in names and "src" in folders:
            yield os.path.relpath(os.path.join(folder, "src"), root)


def all_circles(root):
    """(folder, modules, where each names which other) of each circle."""
    for src in sources(root):
        for level, edges in sorted(Crate(root, src).edges().items()):
            for group in circles(edges):
                names = [(a, b, edges[a][b]) for a in group for b in sorted(edges[a]) if b in group]
                yield os.path.join(src, *level), group, names


def all_sizes(root):
    """(lines, name, where) of each function and (fields, name, where) of each struct, tests included."""
    functions, types = [], []
    for folder, folders, names in os.walk(os.path.join(root, "crates")):
        folders[:] = sorted(f for f in folders if f != "target")
        for name in sorted(n for n in names if n.endswith(".rs")):
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as file:
                found = sizes(tokens(file.read()))
            for rows, part in zip((functions, types), found):
                rows += [(size, item, f"{os.path.relpath(path, root)}:{line}") for size, item, line in part]
    return functions, types


def broken(functions, types, found):
    """A line for each limit that is broken and not allowed, and for each exception that is none any more."""
    lines = []
    for limit, unit, rows in ((MOST_LINES, "lines", functions), (MOST_FIELDS, "fields", types)):
        for size, name, where in sorted(rows, reverse=True):
            if size > limit:
                lines.append((f"{where.split(':')[0]} {name}", f"{size} {unit}, at most {limit} ({where})"))
    for where, group, names in found:
        by = "".join(f"\n    {a} names {b} in {place}" for a, b, place in names)
        lines.append((f"{where} {' '.join(group)}", f"these modules depend on one another{by}"))
    unused = ALLOWED.keys() - {what for what, _ in lines}
    return [f"{what}: {why}" for what, why in lines if what not in ALLOWED] + [
        f"{what}: is in ALLOWED and breaks no limit" for what in sorted(unused)]


def main():
    """Reads the checkout and prints what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="print what breaks a limit, and fail if anything does")
    parser.add_argument("--top", type=int, default=5, help="how many to list")
    parser.add_argument("dir", nargs="?",
                        default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    args = parser.parse_args()
    found = list(all_circles(args.dir))
    functions, types = all_sizes(args.dir)
    if args.check:
        lines = broken(functions, types, found)
        for line in lines:
            print(line, file=sys.stderr)
        sys.exit(1 if lines else 0)
    for title, rows in (("lines  function", functions), ("fields  type", types)):
        print(title)
        for size, name, where in sorted(rows, reverse=True)[:args.top]:
            print(f"  {size:4}  {name}  ({where})")
    print("circles between modules")
    for where, group, _ in found:
        print(f"  {where}: {', '.join(group)}")
    if not found:
        print("  none")


if __name__ == "__main__":
    main()
