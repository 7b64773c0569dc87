#!/usr/bin/env python3
"""Looks at the project's English: what a machine can find, figures, and samples for readers.

usage: scripts/prose.py --check            patterns that read badly, one line each; exit code 1 if there is one
       scripts/prose.py --count            comments, how they begin, and how often each pattern occurs
       scripts/prose.py --sample KIND N --seed SEED
                                           N items drawn at random: doc, message, sentence, test

The rules are in CONTRIBUTING.md, under Style. `prose: right` in a comment beside a line (in Markdown
`<!-- prose: right -->` in the line) keeps a pattern that is right there.
"""

import argparse
import collections
import os
import random
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RIGHT = "prose: right"

# Patterns that are almost always a sentence to read twice, and what to write instead.
PATTERNS = {
    r"\b[Ww]hom\b": "name the thing or the person",
    r"\b(?:is|are|was|were) told\b": "say who reports it",
    r"\bsuch that\b": "so that",
    r"\b(?:is|are) no (?!longer\b|more than\b|less than\b|later than\b|earlier than\b|other\b)": "is not a",
    r"\bof (?:theirs|its own kind|the like)\b": "name it",
    r"^(?:What|Who|Whom|Whose)\b[^?]*$": "begin with the thing that acts",
    r"^(?:With|As|That|Of)\b(?![^.]*,)": "begin with the thing that acts",
}
# Beginnings of comments that the issue of plain text counts.
INVERTED = re.compile(r"^(?:What|Who|Of|With|As|That)\b")
ARTICLES = {"a", "an", "the", "one", "two", "each", "every", "all", "some", "no", "any", "both"}
# Words in -s that are not verbs at the beginning of a comment.
NO_VERBS = {"this", "its", "as", "was", "is", "has", "does", "always", "plus", "whereas", "less", "us", "ours",
            "theirs", "perhaps", "besides", "sometimes", "afterwards", "these", "times", "items", "names", "bytes"}
# Literals that nobody reads: SQL, addresses, HTML.
NOT_READ = re.compile(r"\s*(?:SELECT|INSERT|CREATE TABLE|UPDATE|DELETE|PRAGMA|https?:|<)")
IMPERATIVES = {"return", "see", "set", "do", "note"}


def files(*patterns):
    """Files of the repository that match, by path."""
    said = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in said.stdout.split("\n") if name]


def lines_of(name):
    """The lines of a file."""
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read().split("\n")


def comments(name):
    """Comments of a Rust file: line number, kind (`///`, `//!`, `//`), text, signature of what follows."""
    lines, at = lines_of(name), 0
    while at < len(lines):
        found = re.match(r"\s*(///|//!|//)(?!/) ?(.*)", lines[at])
        if not found:
            at += 1
            continue
        first, kind, text = at, found[1], []
        while at < len(lines) and (more := re.match(r"\s*(///|//!|//)(?!/) ?(.*)", lines[at])) and more[1] == kind:
            text.append(more[2])
            at += 1
        yield first + 1, kind, "\n".join(text), within(lines, first) + signature(lines, at) if kind == "///" else ""


def within(lines, at):
    """The head of the type that a field or variant belongs to; empty for others."""
    indent = len(lines[at]) - len(lines[at].lstrip())
    if not indent:
        return ""
    for line in reversed(lines[:at]):
        if line.strip() and len(line) - len(line.lstrip()) < indent:
            found = re.match(r"\s*(?:pub(?:\([^)]*\))? )?(struct|enum|union) \w+", line)
            return found[0].strip() + " { ... " if found else ""
    return ""


def signature(lines, at):
    """Returns the code below a comment: a field, a variant, or a head up to its brace."""
    head = []
    for line in lines[at:at + 12]:
        if line.strip().startswith(("#[", "//")):
            continue
        head.append(line.strip())
        if re.search(r"[{;,]\s*$", line) and line.count("(") <= line.count(")") or line.rstrip().endswith(("{", ";")):
            break
    return " ".join(head)


def usual(text):
    """Whether a doc comment begins in the usual form: a verb in the third person, or an article and a noun."""
    words = re.findall(r"[A-Za-z`'’_-]+", text.split("\n")[0])
    if not words:
        return False
    first = words[0].strip("`").lower()
    if first in ARTICLES or first in IMPERATIVES:
        return True
    return first.endswith("s") and first not in NO_VERBS and not first.endswith("ss")


def strings(name):
    """Yields line, text and place of string literals of at least four words; tests, SQL and HTML are left out."""
    text = "\n".join(lines_of(name)).split("#[cfg(test)]\nmod ")[0]
    for found in re.finditer(r'"((?:[^"\\\n]|\\.|\\\n\s*)*)"', re.sub(r"(?m)^\s*//.*$", lambda m: "", text)):
        said = re.sub(r"\\\n\s*", "", found[1])
        if len(re.findall(r"\b[a-z]{2,}\b", said)) >= 4 and " " in said and not NOT_READ.match(said):
            yield text.count("\n", 0, found.start()) + 1, said, place(text, found)


def place(text, found):
    """Returns the error variant that a literal describes, or the function that it stands in."""
    before, after = text[:found.start()], text[found.end():]
    if before.rstrip().endswith("#[error("):
        variant = re.search(r"\n\s*(\w+)", after)
        return f"error {variant[1]}" if variant else ""
    heads = re.findall(r"\bfn (\w+)|\b(?:const|static) (\w+)", before)
    return f"in {heads[-1][0] or heads[-1][1]}" if heads else ""


def sentences(name):
    """Sentences of a Markdown file: line number and text. Code and tables are left out."""
    fenced, paragraph, start = False, [], 0
    for number, line in enumerate([*lines_of(name), ""], 1):
        if line.startswith("```"):
            fenced = not fenced
        prose = not fenced and not line.startswith(("    ", "|", "#", "```", "<")) and line.strip()
        begins = re.match(r"\s*(?:[-*]|\d+\.) ", line)
        if paragraph and (not prose or begins):
            yield from split(start, " ".join(paragraph))
            paragraph = []
        if prose:
            if not paragraph:
                start = number
            paragraph.append(re.sub(r"^\s*(?:[-*]|\d+\.) ", "", line).strip())


def split(number, text):
    """Sentences of a paragraph."""
    for part in re.split(r"(?<=[.!?])\s+(?=[A-Z`*\[])", text):
        if len(part.split()) >= 4:
            yield number, part


def tests(name):
    """Names of tests."""
    lines = lines_of(name)
    for at, line in enumerate(lines):
        if re.match(r"\s*#\[test\]|@test", line):
            for later in lines[at + 1:at + 5]:
                if found := re.match(r"\s*(?:fn|def) (\w+)", later):
                    yield at + 1, found[1]
                    break


def items(kind):
    """Everything of a kind: where it stands, and its text."""
    if kind == "doc":
        for name in files("*.rs"):
            for number, mark, text, head in comments(name):
                if mark == "///":
                    yield f"{name}:{number}", text + "\n        on: " + head
    elif kind == "message":
        for name in files("*.rs"):
            if not re.search(r"/(?:tests|examples|benches)/|tests\.rs$|/testing", name):
                for number, text, head in strings(name):
                    yield f"{name}:{number}", text + (f"\n        on: {head}" if head else "")
    elif kind == "sentence":
        for name in files("README.md", "CONTRIBUTING.md", "docs/*.md"):
            for number, text in sentences(name):
                yield f"{name}:{number}", text
    else:
        for name in files("*.rs", "scripts/e2e/tests/*.py"):
            for number, text in tests(name):
                yield f"{name}:{number}", text


def checked():
    """Yields the texts that the patterns are searched in, with their places."""
    for name in files("*.rs"):
        lines = lines_of(name)
        for number, _, text, _ in comments(name):
            for offset, line in enumerate(text.split("\n")):
                if RIGHT not in lines[number - 1 + offset]:
                    yield f"{name}:{number + offset}", line, offset == 0
    for name in files("README.md", "CONTRIBUTING.md", "docs/*.md"):
        for number, text in sentences(name):
            if RIGHT not in text:
                yield f"{name}:{number}", text, True


def findings():
    """Lines with a pattern: where, which, the text."""
    for where, text, first in checked():
        for pattern in PATTERNS:
            if (first or not pattern.startswith("^")) and re.search(pattern, text):
                yield where, pattern, text


def check():
    """Prints the findings; whether there is none."""
    count = 0
    for where, pattern, text in findings():
        count += 1
        print(f"{where}: {text.strip()[:90]}\n    {PATTERNS[pattern]}")
    if count:
        print(f"{count} places read badly: CONTRIBUTING.md, Style. Keep one that is right with '{RIGHT}'.")
    return count == 0


def count():
    """Prints the figures of the comments and of the patterns."""
    docs, kinds, folders = [], collections.Counter(), collections.Counter()
    inverted = told = none = whom = 0
    for name in files("*.rs"):
        folder = "/".join(name.split("/")[1:3])
        for _, kind, text, _ in comments(name):
            kinds[kind] += 1
            inverted += bool(INVERTED.match(text))
            if kind == "///":
                docs.append(text)
                folders[folder] += 1
    for name in files("*.rs", "*.md", "*.py"):
        text = "\n".join(lines_of(name))
        told += len(re.findall(r"\b(?:is|are|was) told\b", text))
        none += len(re.findall(r"\bis no\b", text))
        whom += len(re.findall(r"\b[Ww]hom\b", text))
    print(f"doc comments {kinds['///']}, modules' {kinds['//!']}, others {kinds['//']}")
    print(f"in the usual form {100 * sum(map(usual, docs)) / max(1, len(docs)):.0f} %")
    print(f"begin with What, Who, Of, With, As, That: {inverted}")
    print(f"'is told' {told}, 'is no' {none}, 'whom' {whom}")
    for folder, number in folders.most_common():
        print(f"  {folder:24} {number}")


def sample(kind, number, seed):
    """Prints so many items of a kind."""
    every = list(items(kind))
    for at, (where, text) in enumerate(random.Random(seed).sample(every, min(number, len(every))), 1):
        print(f"{at}. {text}\n        at: {where}\n")


def main():
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--sample", nargs=2, metavar=("KIND", "N"))
    parser.add_argument("--seed")
    asked = parser.parse_args()
    if asked.sample:
        if asked.seed is None:
            parser.error("--sample needs --seed")
        sample(asked.sample[0], int(asked.sample[1]), asked.seed)
        return 0
    if asked.count:
        count()
        return 0
    return 0 if check() else 1


if __name__ == "__main__":
    sys.exit(main())
