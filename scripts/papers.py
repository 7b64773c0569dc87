#!/usr/bin/env python3
"""Repeats the rows of docs/papers.md on this machine and prints one table.

usage: ./dev bench papers [--quick] [--only PAPER] [--compare OLD] [--json] [-o DIR]
       scripts/papers.py --check    fails if scripts/papers.toml and docs/papers.md differ

Each experiment runs once, and all its rows are read from its results. A row's verdict is *met*, *missed* or
*cannot be told here*. It comes from the confidence interval of one figure. --compare reads the table.json of an
earlier run, and lists the rows whose verdict has changed.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import tomllib

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROWS = os.path.join(ROOT, "scripts", "papers.toml")
DOCUMENT = os.path.join(ROOT, "docs", "papers.md")
WIDTH = 100
MET, MISSED, UNKNOWN = "met", "missed", "cannot be told here"
# Fewer undisturbed rounds decide nothing. The lab's frame has the same limit (frame/verdict.rs).
DECIDING_ROUNDS = 3
# The time in s for all experiments of a quick run.
QUICK_LIMIT_S = 40 * 60


def documented(text):
    """The rows of the document's tables: (section, figure, theirs, ours)."""
    rows, section = [], None
    for line in text.split("\n"):
        if line.startswith("#"):
            section = line.lstrip("# ").strip()
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        is_row = line.startswith("| ") and len(cells) == 5 and cells[0] != ""
        if is_row and not line.startswith("| |"):
            rows.append((section, *cells[:3]))
    return rows


def rows():
    """The rows of the table, as scripts/papers.toml describes them."""
    with open(ROWS, "rb") as file:
        found = tomllib.load(file)["row"]
    for row in found:
        unknown = set(row) - {"paper", "figure", "theirs", "ours", "run", "key", "at_most", "at_least", "absent", "why"}
        if unknown or ("run" in row) == ("why" in row) or ("key" in row) != ("run" in row):
            sys.exit(f"papers: scripts/papers.toml: wrong row '{row.get('figure')}': give run and key, or why")
    return found


def check():
    """Compares the file of rows with the document. Returns the differences."""
    with open(DOCUMENT, encoding="utf-8") as file:
        there = documented(file.read())
    here = [(row["paper"], row["figure"], row["theirs"], row["ours"]) for row in rows()]
    faults = []
    for at in range(max(len(here), len(there))):
        one, other = (rows[at] if at < len(rows) else None for rows in (here, there))
        if one != other:
            faults.append(f"papers: row {at + 1}: scripts/papers.toml has {one}, docs/papers.md has {other}")
            break
    return faults


# ---- verdicts


def side(interval, row):
    """The verdict of an interval against the row's own target."""
    low, high = interval
    if "at_most" in row:
        good, bad = high <= row["at_most"], low > row["at_most"]
    else:
        good, bad = low >= row["at_least"], high < row["at_least"]
    return MET if good else MISSED if bad else UNKNOWN


def judge(row, figure):
    """The verdict of a row, and what decided it. The rules are those of the lab's frame."""
    if "at_most" not in row and "at_least" not in row:
        if "verdict" not in figure:
            return UNKNOWN, "the figure has no target"
        return figure["verdict"].replace("_", " "), figure["decided_by"]
    value, interval, rounds = figure["value"], figure.get("interval"), figure.get("rounds")
    if "absent" in row and value == 0:
        return UNKNOWN, row["absent"]
    if figure.get("exact"):
        return side((value, value), row), f"the exact value {value:g}"
    if interval is None:
        return UNKNOWN, "a single value is not enough for a verdict"
    if rounds is not None and rounds < DECIDING_ROUNDS:
        return UNKNOWN, f"{rounds} undisturbed rounds, and {DECIDING_ROUNDS} decide"
    if rounds is None and figure.get("disturbed"):
        return UNKNOWN, f"a single run that was disturbed: {figure['disturbed']}"
    verdict = side(interval, row)
    every = figure.get("with_disturbed")
    if every and {verdict, side(every["interval"], row)} == {MET, MISSED}:
        return UNKNOWN, "the verdict is another one without the disturbed rounds"
    return verdict, f"the interval {interval[0]:.4g} .. {interval[1]:.4g}"


def now(figure):
    """A figure as text, with its unit."""
    unit = figure["unit"]
    return f"{figure['value']:.4g}" + ("" if unit == "1" else f" {unit}")


# ---- runs


def prepare(name):
    """Builds what an experiment needs. The time for this does not count towards the limit."""
    environment = {**os.environ, "BENCH_PREPARE": "1"}
    return subprocess.run(["scripts/bench.sh", name], cwd=ROOT, env=environment, check=False).returncode == 0


def run(words, directory, quick, limit_s):
    """Runs an experiment once. Returns its results, or the reason why there are none, and the time in s."""
    command = ["scripts/bench.sh", *words.split(), "-o", directory] + (["--quick"] if quick else [])
    results = os.path.join(directory, "results.json")
    if os.path.exists(results):
        os.remove(results)
    os.makedirs(directory, exist_ok=True)
    begun = time.monotonic()
    with open(os.path.join(directory, "report.txt"), "w", encoding="utf-8") as report:
        child = subprocess.Popen(command, cwd=ROOT, stdout=report, start_new_session=True)
        try:
            code = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
            end(child)
        except KeyboardInterrupt:
            end(child)
            raise
    took_s = time.monotonic() - begun
    if code is None:
        return f"./dev bench {words} did not end within {took_s:.0f} s", took_s
    if not os.path.exists(results):
        return f"./dev bench {words} failed with exit code {code}", took_s
    with open(results, encoding="utf-8") as file:
        return json.load(file), took_s


def end(child):
    """Ends an experiment and all programs of its process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
            child.wait(20)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def measure(wanted, directory, quick):
    """Runs each experiment once. Returns for each command the results, or why there are none, and the time in s."""
    limit_s = QUICK_LIMIT_S if quick else float("inf")
    found, prepared = {}, {}
    for row in wanted:
        words = row.get("run")
        if words is None or words in found:
            continue
        name = words.split()[0]
        if name not in prepared:
            prepared[name] = prepare(name)
        if not prepared[name]:
            found[words] = (f"./dev bench {name} could not be prepared", 0.0)
        elif limit_s <= 0:
            found[words] = ("the time of a quick run was over", 0.0)
        else:
            print(f"-- {words}", file=sys.stderr)
            place = os.path.join(directory, words.replace(" --only ", "-"))
            found[words] = run(words, place, quick, None if limit_s == float("inf") else limit_s)
            limit_s -= found[words][1]
    return found


def table(wanted, found):
    """The rows of the table as values."""
    out, timed = [], set()
    for row in wanted:
        line = {key: row[key] for key in ("paper", "figure", "theirs", "ours")}
        line.update(command="", now="", verdict="not reproduced here", decided_by=row.get("why", ""), seconds=None)
        if "run" in row:
            results, took_s = found[row["run"]]
            line.update(command=f"./dev bench {row['run']}", key=row["key"], verdict=UNKNOWN)
            # Only the first row of an experiment has its time.
            line["seconds"] = None if row["run"] in timed else round(took_s, 1)
            timed.add(row["run"])
            if isinstance(results, str):
                line["decided_by"] = results
            else:
                figure = next((f for f in results["figures"] if f["name"] == row["key"]), None)
                if figure is None or figure["value"] is None:
                    line["decided_by"] = f"the run did not measure {row['key']}"
                else:
                    line["now"] = now(figure)
                    line["verdict"], line["decided_by"] = judge(row, figure)
        out.append(line)
    return out


# ---- printing


def wrapped(cells, widths):
    """A row of a table, over several lines."""
    parts = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, widths, strict=True)]
    for at in range(max(len(part) for part in parts)):
        line = (part[at] if at < len(part) else "" for part in parts)
        yield "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()


def text(lines):
    """The table as text, at most WIDTH columns wide."""
    widths = (20, 19, 21, 11, 10, 5)
    heads = ("figure", "theirs", "ours then", "ours now", "verdict", "s")
    out, paper = [], None
    for line in lines:
        if line["paper"] != paper:
            paper = line["paper"]
            out += ["", paper, *wrapped(heads, widths), "  ".join("-" * width for width in widths)]
        seconds = "" if line["seconds"] is None else f"{line['seconds']:.0f}"
        verdict = "no" if line["verdict"].startswith("not") else line["verdict"]
        cells = (line["figure"], line["theirs"], line["ours"], line["now"], verdict, seconds)
        out += wrapped(cells, widths)
        if line["decided_by"]:
            out += textwrap.wrap(line["decided_by"], WIDTH, initial_indent="    ", subsequent_indent="    ")
    counts = {name: sum(line["verdict"] == name for line in lines) for name in (MET, MISSED, UNKNOWN)}
    rest = len(lines) - sum(counts.values())
    total = sum(line["seconds"] or 0 for line in lines)
    summary = ", ".join(f"{count} {name}" for name, count in counts.items())
    out += ["", f"{len(lines)} rows: {summary}, {rest} not reproduced here; {total / 60:.1f} min"]
    return "\n".join(out)


def changed_verdicts(old, new):
    """The rows whose verdicts differ between two tables, and new rows."""
    def key(line):
        return line["paper"], line["figure"], line["ours"]
    before = {key(line): line["verdict"] for line in old}
    changed = []
    for line in new:
        was = before.get(key(line))
        if was is None:
            changed.append(f"{line['figure']}: new: {line['verdict']}")
        elif was != line["verdict"]:
            changed.append(f"{line['figure']}: {was} -> {line['verdict']}")
    return changed


def main():
    parser = argparse.ArgumentParser(prog="./dev bench papers", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="do short runs, at most 40 min on two cores")
    parser.add_argument("--only", metavar="EXPERIMENT", help="run only the rows of this experiment")
    parser.add_argument("--compare", metavar="OLD", help="table.json of an earlier run: list rows whose verdict changed")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    parser.add_argument("-o", "--output", metavar="DIR", default="results/papers", help="directory of all results")
    parser.add_argument("--check", action="store_true", help="compare papers.toml with docs/papers.md, run nothing")
    arguments = parser.parse_args()
    faults = check()
    if faults:
        sys.exit("\n".join(faults))
    if arguments.check:
        return
    wanted = rows()
    if arguments.only:
        wanted = [row for row in wanted if row.get("run", "").split()[:1] == [arguments.only]]
        if not wanted:
            sys.exit(f"papers: no row needs the experiment '{arguments.only}'. ./dev bench lists the experiments")
    old = None
    if arguments.compare:
        with open(arguments.compare, encoding="utf-8") as file:
            old = json.load(file)["rows"]
    directory = os.path.abspath(arguments.output)
    lines = table(wanted, measure(wanted, directory, arguments.quick))
    document = {"schema": "onbeat-papers/1", "quick": arguments.quick, "rows": lines}
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, "table.json")
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
    os.replace(path + ".new", path)
    print(json.dumps(document, indent=1) if arguments.json else text(lines))
    if old is not None:
        changed = changed_verdicts(old, lines)
        print("\n".join(["", f"{len(changed)} rows have another verdict"] + changed), file=sys.stderr if arguments.json else sys.stdout)


if __name__ == "__main__":
    main()
