"""Writes the man pages of a tree of commands, one for each command."""

import gzip
import os
import re

# Titles of man pages by the first words of a paragraph in a help.
TITLES = {"Examples:": "EXAMPLES", "Exit codes:": "EXIT STATUS"}


def escape(text):
    """Text that roff prints as it stands."""
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("`", r"\(ga")
    return re.sub(r"^(['.])", r"\\&\1", text, flags=re.MULTILINE)


def name(command):
    """The name of a command's man page."""
    return "-".join(command.words)


def items(title, entries):
    """A section of arguments or options."""
    if not entries:
        return
    yield f".SH {title}"
    for entry in entries:
        yield ".TP"
        yield f"\\fB{escape(entry.spec)}\\fR"
        yield escape("\n.sp\n".join(entry.text) or " ").replace("\\&.sp", ".sp")
        for value, said in entry.values:
            if said:
                yield ".RS"
                yield ".TP"
                yield f"\\fB{escape(value)}\\fR"
                yield escape(said)
                yield ".RE"


def notes(lines):
    """The text after the options. Indented lines stay as they are, others are filled."""
    section, is_example, has_text = None, False, False
    for line in lines:
        title = next((words for words in TITLES if line.startswith(words)), None)
        wanted = TITLES[title] if title else section or "NOTES"
        indented = line.startswith(" ")
        if line and not indented and not title and not has_text and section == "EXAMPLES":
            wanted = "NOTES"
        if is_example and not indented and line:
            yield ".EE"
            is_example = False
        if line and wanted != section:
            section = wanted
            yield f".SH {section}"
            line = line.removeprefix(title or "").strip() if not indented else line
            has_text = bool(line)
        if not line:
            has_text = False
            if not is_example and section:
                yield ".PP"
            continue
        has_text = True
        if indented and not is_example:
            yield ".EX"
            is_example = True
        yield escape(line)
    if is_example:
        yield ".EE"


def page(command, version, date, parent):
    """The text of a command's man page."""
    out = [f'.TH {name(command).upper().replace("-", chr(92) + "-")} 1 "{date}" "onbeat {version}" "onbeat"',
           ".SH NAME", f"{escape(name(command))} \\- {escape(command.about[:1].lower() + command.about[1:])}",
           ".SH SYNOPSIS", f"\\fB{escape(command.usage)}\\fR",
           ".SH DESCRIPTION", escape(command.about.rstrip(".") + ".")]
    if command.summaries:
        out.append(".SH COMMANDS")
        for word, summary in command.summaries.items():
            out += [".TP", f"\\fB{escape(name(command) + '-' + word)}\\fR(1)", escape(summary)]
    out += items("ARGUMENTS", command.arguments)
    out += items("OPTIONS", command.options)
    out += notes(command.after)
    others = [name(parent)] if parent else []
    others += [name(inner) for inner in command.commands]
    if others:
        out += [".SH SEE ALSO", ",\n".join(f"\\fB{escape(other)}\\fR(1)" for other in others)]
    # Paragraphs without text are a fault to mandoc and lintian.
    text = re.sub(r"(?:\.PP\n)+(?=\.PP|\.SH|\.EX|\Z)", "", "\n".join(out) + "\n")
    return re.sub(r"(\.SH [^\n]+\n)(?:\.PP\n)+", r"\1", text)


def write(command, folder, version, date):
    """Writes the pages of a command and those below it, compressed; each build gives the same bytes."""
    os.makedirs(folder, exist_ok=True)
    parents = {inner.words: outer for outer in command.all() for inner in outer.commands}
    for each in command.all():
        text = page(each, version, date, parents.get(each.words))
        with open(os.path.join(folder, f"{name(each)}.1.gz"), "wb") as file:
            file.write(gzip.compress(text.encode(), 9, mtime=0))
