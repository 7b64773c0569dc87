#!/usr/bin/env python3
"""Draws the pictures of docs/architecture.md: crates, data flow, states of a thread in synthesis.

usage: scripts/pictures.py [--check]

The arrows between crates come from the Cargo manifests (those that follow from others are left out).
With --check nothing is written; the exit code is 1 when a picture is not what would be drawn.
"""

import html
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
FILL = {"tools": "#e8eaf6", "enforce": "#fff3e0", "observe": "#e3f2fd", "runtime": "#e8f5e9",
        "base": "#eceff1", "outside": "#ffffff", "file": "#fffde7"}
STYLE = ("text{font:13px system-ui,sans-serif;fill:#222}.small{font-size:11px;fill:#555}"
         ".title{font-weight:600}.group{fill:#fafafa;stroke:#bbb;stroke-dasharray:4 3}"
         ".line{stroke:#555;fill:none}.box{stroke:#666}")
ARROW = ('<marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
         ' orient="auto"><path d="M0 0 8 4 0 8z" fill="#555"/></marker>')


class Picture:
    """An SVG in the making."""

    def __init__(self, width, height, title):
        self.head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
                     f' width="{width}" height="{height}" role="img">'
                     f"<title>{html.escape(title)}</title><style>{STYLE}</style><defs>{ARROW}</defs>"
                     f'<rect width="{width}" height="{height}" fill="#fff"/>')
        self.parts = []

    def text(self, x, y, words, kind="", anchor="middle"):
        """One line of text."""
        self.parts.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}" class="{kind}">'
                          f"{html.escape(words)}</text>")

    def box(self, x, y, width, height, kind, title, lines=(), radius=6):
        """A box with a title and smaller lines; returns its rectangle."""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}"'
                          f' class="box" fill="{FILL[kind]}"/>')
        top = y + height / 2 - 7 * len(lines) + 5
        self.text(x + width / 2, top, title, "title")
        for n, line in enumerate(lines):
            self.text(x + width / 2, top + 15 * (n + 1), line, "small")
        return x, y, width, height

    def group(self, x, y, width, height, title):
        """A dashed frame with a title in its upper left corner."""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="10"'
                          ' class="group"/>')
        self.text(x + 10, y + 17, title, "small title", "start")

    def arrow(self, points, label="", at=None):
        """A line through points with a head at its end."""
        path = " ".join(f"{x} {y}" for x, y in points)
        self.parts.append(f'<path d="M{path}" class="line" marker-end="url(#a)"/>')
        if label:
            x, y = at or ((points[0][0] + points[-1][0]) / 2, (points[0][1] + points[-1][1]) / 2 - 5)
            self.text(x, y, label, "small")

    def svg(self):
        """The whole."""
        return self.head + "\n".join(self.parts) + "</svg>\n"


def manifests():
    """{crate: (folder, crates that it depends on)} of the workspace, without optional ones."""
    found = {}
    base = os.path.join(ROOT, "crates")
    for group in sorted(os.listdir(base)):
        for crate in sorted(os.listdir(os.path.join(base, group))):
            path = os.path.join(base, group, crate, "Cargo.toml")
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    part = re.split(r"^\[dependencies\]$", file.read(), flags=re.M)[-1]
                part = re.split(r"^\[", part, maxsplit=1, flags=re.M)[0]
                found[crate] = (group, set(re.findall(r"^onbeat-(\w+)(?!.*optional = true)", part, flags=re.M)))
    return found


def reduced(crates):
    """Dependencies without those that follow from others."""
    def reach(crate):
        return set().union(*({d} | reach(d) for d in crates[crate][1])) if crates[crate][1] else set()
    return {c: {d for d in used if not any(d in reach(o) for o in used if o != d)}
            for c, (_, used) in crates.items()}


# Where a crate's box stands: column (130 wide) and row, top to bottom.
PLACES = {
    "store-cli": (0, 0), "lab": (1.3, 0), "cli": (3.6, 0), "link-cli": (5.2, 0), "replay-cli": (6.8, 0),
    "top-cli": (2.4, 0), "monitor-cli": (-0.05, 0.9),
    "terminal": (2.6, 0.9),
    "store": (-0.05, 2.2), "tables": (0.95, 2.2), "redact": (1.95, 2.2), "live": (0.95, 2.95), "advise": (-0.05, 2.95), "check": (0.95, 2.95),
    "diff": (1.95, 2.95), "why": (0.45, 3.7), "views": (1.95, 3.7), "synth": (0.95, 4.4), "record": (2.3, 4.4),
    "document": (-0.05, 5.1), "trace": (1.5, 5.3), "ctf": (-0.05, 4.4),
    "shape": (4, 2), "plan": (3.2, 3), "reserve": (4.3, 3.5), "ros": (5.4, 3.5),
    "replay": (7.6, 2.2), "c": (6.6, 2.7), "link": (6.9, 3.7), "flow": (6.6, 5),
    "yaml": (0.6, 6.7), "stats": (1.6, 6.7), "files": (3, 6.7), "time": (4, 6.7), "proc": (5, 6.7),
    "rights": (6, 6.7)}
FRAMES = {"tools": (-0.15, -0.35, 8, 1.85), "observe": (-0.15, 1.85, 3.35, 4.05),
          "enforce": (3.15, 1.68, 3.3, 2.45), "runtime": (6.5, 1.85, 2.2, 3.8),
          "base": (0.5, 6.35, 6.5, 0.95)}


def place(column, row):
    """Columns and rows to pixels."""
    return 40 + column * 130, 50 + row * 78


def draw_crates():
    """Draws the crates in their folders, with the dependencies that do not follow from others."""
    crates = manifests()
    picture = Picture(1200, 640, "Crates of onbeat and their dependencies")
    for name, (column, row, width, height) in FRAMES.items():
        x, y = place(column, row)
        picture.group(x, y, width * 130, height * 78, "crates/" + name)
    for crate, used in reduced(crates).items():
        x, y = place(*PLACES[crate])
        for to in sorted(used):
            to_x, to_y = place(*PLACES[to])
            shift = 20 * (to_x > x) - 20 * (to_x < x)
            picture.arrow([(x + 55 + shift, y + 36), (to_x + 55 - shift, to_y - 1)])
    for crate, (group, _) in crates.items():
        x, y = place(*PLACES[crate])
        picture.box(x, y, 110, 36, group, crate)
    return picture.svg()


def draw_flow():
    """From a call of the middleware to an output that leaves in its slot."""
    p = Picture(940, 520, "Data flow of onbeat")
    p.group(20, 20, 290, 180, "ROS 2 processes, unmodified")
    p.box(40, 50, 250, 52, "outside", "rcl, rmw, rclcpp, rclpy", ["publish, take, callback, timer"])
    p.box(40, 128, 250, 52, "outside", "threads", ["callbacks and middleware"])
    p.group(20, 225, 290, 105, "kernel")
    p.box(40, 255, 110, 56, "outside", "scheduler", ["switch, fork, exit"])
    p.box(180, 255, 110, 56, "observe", "BPF programs", ["short, filtered"])
    p.group(360, 20, 560, 310, "onbeat")
    p.box(380, 50, 150, 60, "observe", "recorder", ["reads the ring buffer,", "orders, counts losses"])
    p.box(570, 50, 150, 60, "file", "trace", ["segments of blocks"], 0)
    p.box(760, 50, 140, 60, "observe", "synthesis", ["entities, spans, flow"])
    p.box(760, 150, 140, 60, "file", "model.json", ["figures, evidence"], 0)
    p.box(570, 150, 150, 60, "observe", "merge, conclude", ["one run or fifty"])
    p.box(380, 150, 150, 60, "tools", "tables, report", ["and exports"])
    p.box(760, 250, 140, 60, "enforce", "plan", ["servers, bands"])
    p.box(570, 250, 150, 60, "file", "plan.yaml", ["slots, outputs, inputs"], 0)
    p.box(380, 250, 150, 60, "enforce", "shape", ["finds, shapes, judges"])
    p.box(360, 400, 190, 70, "enforce", "reserve", ["table of instants, gates,", "guard, ledger"])
    p.box(60, 400, 190, 70, "enforce", "ros: shaper, throttler", ["an output leaves when there",
                                                                  "is data and a slot is open"])
    p.arrow([(165, 102), (165, 128)])
    p.arrow([(290, 76), (335, 76), (335, 240), (235, 240), (235, 254)], "uprobes", (270, 236))
    p.arrow([(150, 283), (179, 283)])
    p.arrow([(290, 283), (348, 283), (348, 80), (379, 80)])
    p.arrow([(530, 80), (569, 80)], "events", (550, 72))
    p.arrow([(720, 80), (759, 80)])
    p.arrow([(830, 110), (830, 149)])
    p.arrow([(760, 172), (721, 172)])
    p.arrow([(720, 192), (759, 192)])
    p.arrow([(570, 180), (531, 180)])
    p.arrow([(830, 210), (830, 249)])
    p.arrow([(760, 280), (721, 280)])
    p.arrow([(570, 280), (531, 280)])
    p.arrow([(455, 110), (455, 125), (545, 125), (545, 262), (531, 262)], "live", (527, 137))
    p.arrow([(455, 310), (455, 399)], "servers, threads, origin", (532, 372))
    p.arrow([(400, 310), (400, 372), (155, 372), (155, 399)], "slots", (270, 366))
    p.arrow([(360, 440), (320, 440), (320, 154), (291, 154)], "threads run in their slots", (455, 490))
    p.arrow([(60, 435), (10, 435), (10, 76), (39, 76)], "outputs in their slots", (155, 490))
    return p.svg()


def draw_states():
    """Draws the states of a thread in synthesis."""
    p = Picture(940, 480, "States of a thread in synthesis")
    p.group(20, 20, 205, 440, "Phase: what its executor does")
    p.group(240, 20, 680, 440, "Running: what runs on it")
    p.box(45, 90, 150, 60, "base", "Waiting", ["in rcl_wait"])
    p.box(45, 300, 150, 60, "base", "Working", ["after its last wait"])
    p.arrow([(115, 150), (115, 299)], "any other call", (70, 230))
    p.arrow([(145, 300), (145, 151)], "rcl_wait", (175, 230))
    p.box(270, 210, 150, 60, "base", "Nothing", ["no known callback"])
    p.box(560, 60, 170, 60, "observe", "Callback: exact", ["start and end have events"])
    p.group(540, 170, 360, 150, "Callback: inferred")
    p.box(555, 210, 90, 60, "observe", "None", ["input read"])
    p.box(680, 210, 90, 60, "observe", "Once", ["one trigger"])
    p.box(800, 210, 90, 60, "observe", "Several", ["and more"])
    p.box(560, 370, 170, 60, "observe", "Continuation", ["rclpy, after a response"])
    p.arrow([(345, 210), (345, 80), (559, 80)], "callback_start", (450, 74))
    p.arrow([(560, 105), (385, 105), (385, 209)], "callback_end", (470, 121))
    p.arrow([(420, 230), (554, 230)], "take, timer call", (480, 224))
    p.arrow([(540, 255), (421, 255)], "next rcl call,", (480, 270))
    p.text(480, 284, "response, or next take", "small")
    p.arrow([(645, 240), (679, 240)], "")
    p.arrow([(770, 240), (799, 240)], "")
    p.text(722, 300, "rclpy triggers its guard condition around a callback", "small")
    p.arrow([(710, 210), (710, 121)], "callback_start", (755, 148))
    p.arrow([(345, 270), (345, 390), (559, 390)], "a response wakes code that waited", (455, 384))
    p.arrow([(560, 415), (310, 415), (310, 271)], "next rcl call", (450, 430))
    return p.svg()


PICTURES = {"docs/img/crates.svg": draw_crates, "docs/img/data-flow.svg": draw_flow,
            "docs/img/thread-states.svg": draw_states}


def main():
    """Writes the pictures, or compares them."""
    stale = False
    for path, draw in PICTURES.items():
        path, text = os.path.join(ROOT, path), draw()
        if "--check" in sys.argv[1:]:
            old = open(path, encoding="utf-8").read() if os.path.exists(path) else ""
            if old != text:
                print(f"{os.path.relpath(path, ROOT)} is not up to date: run scripts/pictures.py",
                      file=sys.stderr)
                stale = True
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    sys.exit(stale)


if __name__ == "__main__":
    main()
