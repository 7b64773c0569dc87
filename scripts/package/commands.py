"""Reads the commands, arguments and options of onbeat from what `--help` prints.

The programs beside onbeat print their own part, so one tree has all commands. A line that is not
understood is an error: otherwise a man page or a completion would silently lack it.
"""

import re
import subprocess
import time
from dataclasses import dataclass, field

# Environment in which help is not coloured, and wrapped as for a wide terminal.
PLAIN = {"NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
SECTIONS = ("Commands:", "Arguments:", "Options:")
ITEM = re.compile(r"(?:  | {6})(-\S.*?|<.*?|\[.*?|[a-z][a-z-]*)(?: {2,}(.*))?")
VALUE = re.compile(r"- ([\w-]+):\s+(.*)")
INLINE_VALUES = re.compile(r"\[possible values: ([^]]+)\]")
LAST_OPTIONS = ("-h, --help", "-V, --version")


@dataclass
class Item:
    """A subcommand, argument or option: how it is written, and what it does."""

    spec: str
    # Paragraphs of the description.
    text: list = field(default_factory=list)
    # Possible values and what each does.
    values: list = field(default_factory=list)

    def names(self):
        """The option's names: `-o`, `--output`."""
        return re.findall(r"(?<![\w-])--?[\w][\w-]*", self.spec.split("<")[0].split("[")[0])

    def value_name(self):
        """The name of the option's or argument's value, or None."""
        found = re.search(r"[<\[]([^\]>]*)", self.spec)
        return found[1].lstrip("=<") if found else None

    def is_repeated(self):
        """Whether the argument takes any number of values."""
        return self.spec.endswith("...")

    def one_line(self):
        """The first sentence of the description, without defaults and possible values."""
        text = re.sub(r"\s*\[(default|possible values)[^]]*\]", "", self.text[0] if self.text else "")
        return re.split(r"(?<=[a-z)])\. ", text, maxsplit=1)[0].rstrip(".")


@dataclass
class Command:
    """A command and its subcommands."""

    # Words that call it: ("onbeat", "link", "key").
    words: tuple
    about: str = ""
    usage: str = ""
    arguments: list = field(default_factory=list)
    options: list = field(default_factory=list)
    commands: list = field(default_factory=list)
    # One line about each subcommand.
    summaries: dict = field(default_factory=dict)
    # The text after the options, as printed.
    after: list = field(default_factory=list)

    def all(self):
        """This command and those below it."""
        yield self
        for command in self.commands:
            yield from command.all()

    def runs_a_command(self):
        """Whether a command to start may follow after `--`."""
        return "[-- <COMMAND>...]" in self.usage


def read(program, words=("onbeat",)):
    """The tree of commands of the program at that path."""
    said = subprocess.run([program, *words[1:], "--help"], env=PLAIN, capture_output=True, text=True, check=False)
    if said.returncode:
        raise SystemExit(f"'{' '.join(words)} --help' failed: {said.stderr.strip()}")
    command = parse(words, said.stdout)
    for name in command.summaries:
        command.commands.append(read(program, (*words, name)))
    return command


def parse(words, text):
    """The command that such a help describes."""
    lines = text.split("\n")
    usage = next((at for at, line in enumerate(lines) if line.startswith("Usage: ")), None)
    if usage is None:
        raise SystemExit(f"'{' '.join(words)} --help' has no usage")
    command = Command(words, about=" ".join(line for line in lines[:usage] if line))
    at = usage
    while lines[at]:
        command.usage += " " + lines[at].removeprefix("Usage: ").strip()
        at += 1
    command.usage = command.usage.strip()
    while (at := next_line(lines, at)) < len(lines) and lines[at] in SECTIONS:
        heading = lines[at]
        items, at = parse_items(words, lines, at + 1)
        if heading == "Commands:":
            command.summaries = {item.spec: " ".join(item.text) for item in items if item.spec != "help"}
        elif heading == "Arguments:":
            command.arguments = items
        else:
            command.options = items
    if not command.options or not command.options[-1].spec.startswith(LAST_OPTIONS):
        raise SystemExit(f"'{' '.join(words)} --help': its options do not end with --help")
    command.after = lines[at:]
    while command.after and not command.after[-1]:
        command.after.pop()
    return command


def next_line(lines, at):
    """The next line that is not empty."""
    while at < len(lines) and not lines[at].strip():
        at += 1
    return at


def parse_items(words, lines, at):
    """The items of a section that begins there, and where it ends."""
    items, paragraph_ended = [], False
    while at < len(lines) and (not lines[at].strip() or lines[at].startswith(" ")):
        line = lines[at]
        at += 1
        if not line.strip():
            paragraph_ended = True
            continue
        depth = len(line) - len(line.lstrip())
        if depth in (2, 6) and (found := ITEM.fullmatch(line)):
            items.append(Item(found[1], [found[2]] if found[2] else []))
        elif depth >= 10 and items:
            add(items[-1], line.strip(), paragraph_ended)
        else:
            raise SystemExit(f"'{' '.join(words)} --help': cannot read the line '{line}'")
        paragraph_ended = False
    for item in items:
        if found := INLINE_VALUES.search(" ".join(item.text)):
            item.values = [(value.strip(), "") for value in found[1].split(",")]
    return items, at


def add(item, text, begins_paragraph):
    """Adds a line to an item's description or values."""
    if text == "Possible values:":
        return
    if found := VALUE.fullmatch(text):
        item.values.append((found[1], found[2]))
    elif item.values and not begins_paragraph:
        name, said = item.values[-1]
        item.values[-1] = (name, f"{said} {text}")
    elif item.text and not begins_paragraph:
        item.text[-1] += " " + text
    else:
        item.text.append(text)


def date_text(seconds):
    """The date at that time, as man pages show it."""
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))
