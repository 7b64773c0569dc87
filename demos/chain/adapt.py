#!/usr/bin/env python3
"""Shapes the chain while its load steps up and down: with the plan's bands, and with bands that follow.

The last stage takes longer for some items. Records and plans the chain without the step (once for each directory), then
runs it under that plan twice, without and with --adapt, and once under a plan whose bands have room for the step.
Prints the latency before, during and after the step, and draws completions and bands over time.
"""

import argparse
import csv
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PERIOD_MS, STEP_MS, ROOM_MS = 20, 5, 7
# Items of the first stage: the step's first one, and the first one after it.
STEP = (1000, 2500)
# Length of each run: with --adapt until the last band has come down again.
ARMS = [("fixed", "fixed bands", 60), ("room", "fixed bands, with room", 60), ("adapt", "--adapt", 130)]


def command(args, *more):
    """Words of the application."""
    return [sys.executable, os.path.join(HERE, "run.py"), "chain", "--stage", args.stage, "--stages",
            "3", "--min", "0.8", "--max", "2.4", "--period", str(PERIOD_MS), "--cpu", "1", *more]


def onbeat(args, *words, accept=(0,)):
    """Runs onbeat; what it printed."""
    done = subprocess.run([args.onbeat, *words], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in accept:
        sys.exit(f"adapt: onbeat {words[0]} failed ({done.returncode})")
    return done.stdout


def plans(args):
    """Records the chain without its step, and plans it; the plan of each arm."""
    def at(name):
        """A file of the output directory."""
        return os.path.join(args.output, name)

    made = {"fixed": at("plan.yaml"), "room": at("room.yaml"), "adapt": at("plan.yaml")}
    if all(os.path.exists(plan) for plan in made.values()):
        return made
    onbeat(args, "record", "-o", at("trace"), "--", *command(args, "--fifo", "10", "--duration", "25"))
    onbeat(args, "model", at("trace"), "-o", at("model.json"))
    with open(at("model.json"), encoding="utf-8") as file:
        chains = json.load(file)["chains"]
    chain = next((c["id"] for c in chains if c["callbacks"][0].startswith("/stage_1:")
                  and c["callbacks"][-1].startswith("/stage_3:")), None)
    if not chain:
        sys.exit("adapt: the recording does not show the chain")
    common = ["plan", at("model.json"), "--chain", chain, "--cpu", "1", "--strategy", "bands", "--bands", "3"]
    onbeat(args, *common, "--room", str(ROOM_MS), "-o", at("plan.yaml"))
    onbeat(args, *common, "--epsilon", str(ROOM_MS), "-o", at("room.yaml"))
    return made


def run(args, arm, plan, seconds):
    """One run under a plan."""
    def at(kind):
        """A file of this arm."""
        return os.path.join(args.output, f"{arm}.{kind}")

    words = ["shape", plan, "--verify", f"{seconds}s", "--json", "--samples", at("samples.csv")]
    if arm == "adapt":
        words += ["--adapt", "--record-bands", at("bands.csv")]
    step = ["--step", str(STEP_MS), "--step-from", str(STEP[0]), "--step-until", str(STEP[1])]
    with open(at("json"), "w", encoding="utf-8") as file:
        file.write(onbeat(args, *words, "--", *command(args, "--duration", "0", *step), accept=(0, 5)))


def load(args, arm):
    """(executions, bands) of an arm: each execution as (second, ready ms, left ms, late), each set of
    bands as (second, [(begin ms, end ms)])."""
    with open(os.path.join(args.output, f"{arm}.samples.csv"), encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    begin = int(rows[0]["start_ns"])
    runs = []
    for row in rows:
        start, left, output = (int(row[k]) for k in ("start_ns", "left_ns", "output_ns"))
        # The slots count from the release, which the start follows.
        release = output - int(row["offset_ns"])
        runs.append(((start - begin) / 1e9, (left - release) / 1e6, (output - release) / 1e6,
                     row["late"] == "1"))
    sets = {}
    path = os.path.join(args.output, f"{arm}.bands.csv")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for row in csv.DictReader(file):
                second = max(0, (int(row["from_ns"]) - begin) / 1e9)
                slot = int(row["start_ns"]) / 1e6, int(row["end_ns"]) / 1e6
                sets.setdefault(second, {})[row["band"]] = slot
    return runs, sorted((second, list(slots.values())) for second, slots in sets.items())


def step_of(runs):
    """When the step began and ended in a run: where the shortest of 40 executions jumps."""
    least = [min(r[1] for r in runs[i:i + 40]) for i in range(len(runs) - 40)]
    high = (min(least) + max(least)) / 2
    inside = [i for i, value in enumerate(least) if value > high]
    return (runs[inside[0]][0], runs[inside[-1] + 39][0]) if inside else None


def figures(runs):
    """Rows of the table: part, executions, average, worst, unshaped average, late."""
    step = step_of(runs)
    if not step:
        sys.exit("adapt: the run does not show the step")
    begin, end = step
    last = runs[-1][0]
    parts = [("before", 0, begin), ("its first 3 s", begin, begin + 3), ("the rest of it", begin + 3, end),
             ("after it, 15 s", end, end + 15), ("the last 15 s", max(end + 15, last - 15), last + 1)]
    for name, since, until in parts:
        part = [r for r in runs if since <= r[0] < until]
        if part:
            ready = sum(r[1] for r in part) / len(part)
            average = sum(r[2] for r in part) / len(part)
            yield (name, len(part), average, max(r[2] for r in part), ready, sum(r[3] for r in part))


def panel(parts, top, title, runs, sets, scale):
    """Completions and outputs of one arm."""
    x, y = scale
    parts.append(f'<text x="60" y="{top - 8}" class="title">{title}</text>')
    for ms in range(0, PERIOD_MS + 1, 5):
        parts.append(f'<path d="M60 {y(ms) + top:.1f}H980" class="grid"/><text x="52" y="{y(ms) + top + 4:.1f}"'
                     f' text-anchor="end">{ms}</text>')
    last = runs[-1][0]
    for (second, slots), (until, _) in zip(sets, sets[1:] + [(last, None)]):
        for begin, end in slots:
            width, height = x(min(until, last)) - x(second), y(begin) - y(end)
            parts.append(f'<rect x="{x(second):.1f}" y="{y(end) + top:.1f}" width="{max(width, 0):.1f}"'
                         f' height="{max(height, 1):.1f}" class="band"/>')
    # Draws every third output in time, and all late ones.
    in_time, late = [r for r in runs if not r[3]][::3], [r for r in runs if r[3]]
    for some, kind in ((in_time, "ready"), (late, "late")):
        path = "".join(f"M{x(r[0]):.1f} {y(r[1]) + top:.1f}h.1" for r in some)
        parts.append(f'<path d="{path}" class="{kind}"/>')


def draw(path, arms):
    """Writes the picture."""
    longest = max(runs[-1][0] for _, runs, _ in arms)
    height = 210
    scale = (lambda s: 60 + s / longest * 920, lambda ms: (1 - ms / PERIOD_MS) * height)
    style = ("text{font:12px system-ui,sans-serif;fill:#222}.title{font-size:14px;font-weight:600}"
             ".grid{stroke:#ddd;fill:none}.band{fill:#f2a93b;fill-opacity:.75}"
             ".ready,.late{stroke:#1f5f8b;stroke-opacity:.6;stroke-width:2;stroke-linecap:round;fill:none}"
             ".late{stroke:#c0392b}")
    whole = len(arms) * (height + 50) + 70
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1000 {whole}" width="1000" height="{whole}"'
             f' role="img"><title>Bands and completions over a step of the load</title><style>{style}</style>'
             f'<rect width="1000" height="{whole}" fill="#fff"/>']
    for number, (title, runs, sets) in enumerate(arms):
        panel(parts, 40 + number * (height + 50), title, runs, sets, scale)
    foot = 40 + len(arms) * (height + 50) - 50
    for second in range(0, int(longest) + 1, 20):
        parts.append(f'<text x="{scale[0](second):.1f}" y="{foot + 24}" text-anchor="middle">{second} s</text>')
    parts.append(f'<text x="60" y="{foot + 52}"><tspan fill="#1f5f8b">output ready, ms after the release</tspan>'
                 '<tspan dx="18" fill="#b9770e">slots of the bands</tspan>'
                 '<tspan dx="18" fill="#c0392b">late for the last slot: leaves a cycle later</tspan></text></svg>\n')
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        file.write("\n".join(parts))
    os.replace(path + ".tmp", path)


def main():
    """Does what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--onbeat", default="onbeat", help="the program")
    parser.add_argument("--stage", default=os.environ.get("STAGE", "stage"), help="the program that build.sh made")
    parser.add_argument("--only", choices=[arm for arm, *_ in ARMS], action="append", help="run these arms only")
    parser.add_argument("--draw", action="store_true", help="run nothing: figures and picture of earlier runs")
    parser.add_argument("--picture", metavar="FILE", help="the picture [default: adapt.svg in the directory]")
    parser.add_argument("-o", "--output", default="onbeat-adapt", metavar="DIR")
    args = parser.parse_args()
    os.makedirs(args.output, exist_ok=True)
    if not args.draw:
        made = plans(args)
        for arm, title, seconds in ARMS:
            if not args.only or arm in args.only:
                print(f"adapt: {title}, {seconds} s", file=sys.stderr)
                run(args, arm, made[arm], seconds)
    arms = []
    print("| | executions | average, ms | worst | average, unshaped | late |\n|---|---:|---:|---:|---:|---:|")
    for arm, title, _ in ARMS:
        if os.path.exists(os.path.join(args.output, f"{arm}.samples.csv")):
            runs, sets = load(args, arm)
            for name, count, average, worst, ready, late in figures(runs):
                print(f"| {title}: {name} | {count} | {average:.2f} | {worst:.2f} | {ready:.2f} | {late} |")
            arms.append((title, runs, sets or [(0, fixed(args, arm))]))
    draw(args.picture or os.path.join(args.output, "adapt.svg"), [a for a in arms if a[0] != ARMS[1][1]])


def fixed(args, arm):
    """The plan's bands: those that --adapt began with, or the room's."""
    with open(os.path.join(args.output, f"{'room' if arm == 'room' else 'plan'}.yaml"), encoding="utf-8") as file:
        lines = [line for line in file if "latency_ms:" in line]
    return [tuple(float(n) for n in line.split("[")[1].split("]")[0].split(",")) for line in lines]


if __name__ == "__main__":
    main()
