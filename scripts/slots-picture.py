#!/usr/bin/env python3
"""Draws which thread ran in which slot, under each enforcer: scripts/slots-picture.py FILE... > picture.svg

A FILE is what `cargo run -p onbeat-reserve --example slots` prints. Slots are light, running is dark.
"""

import sys

WIDTH, LEFT, ROW, TOP = 860, 150, 26, 44
COLOURS = {"alpha": "#4477aa", "beta": "#228833", "bands": "#cc6677"}


def read(path):
    """Name of the enforcer, slots and runs of a file, in us."""
    name, slots, runs = path, [], []
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.split()
            if words[:1] == ["enforcer"]:
                name = " ".join(words[1:])
            elif words[:1] == ["slot"]:
                slots.append((words[1], int(words[2]), int(words[3])))
            elif words[:1] == ["ran"]:
                runs.append((words[1], int(words[2]), int(words[3])))
    return name, slots, runs


def counts(slots, runs):
    """Returns the number of slots in which the servers ran, and whether they ran in the plan's order."""
    order = [server for server, _, _ in sorted(slots, key=lambda slot: slot[1])]
    came = []
    for server, begin, end in sorted(slots, key=lambda slot: slot[1]):
        if any(s == server and b < end and e > begin for s, b, e in runs):
            came.append((min(max(b, begin) for s, b, e in runs if s == server and b < end and e > begin), server))
    in_order = [server for _, server in sorted(came)] == order
    return f"servers ran in {len(came)} of {len(slots)} slots, {'in' if in_order else 'not in'} the plan's order"


def main():
    """Reads the files and prints the picture."""
    files = [read(path) for path in sys.argv[1:]]
    if not files:
        sys.exit(__doc__)
    last = max(end for _, slots, _ in files for _, _, end in slots)
    cycle_us = 100_000
    span = -(-last // cycle_us) * cycle_us
    scale = (WIDTH - LEFT - 20) / span
    height = TOP + len(files) * (len(COLOURS) * ROW + 40) + 20
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
           '<text x="10" y="20" font-size="14">The same plan under both enforcers: slots (light), '
           'running (dark)</text>']
    y = TOP
    for name, slots, runs in files:
        out.append(f'<text x="10" y="{y}">{name}: {counts(slots, runs)}</text>')
        y += 8
        for cycle in range(span // cycle_us + 1):
            x = LEFT + cycle * cycle_us * scale
            out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + len(COLOURS) * ROW}" stroke="#999"/>')
        for server, colour in COLOURS.items():
            out.append(f'<text x="{LEFT - 10}" y="{y + 17}" text-anchor="end">{server}</text>')
            for kind, bars, high, opacity in (("slot", slots, 22, 0.25), ("ran", runs, 12, 1)):
                for owner, begin, end in bars:
                    if owner == server:
                        out.append(
                            f'<rect class="{kind}" x="{LEFT + begin * scale:.2f}" y="{y + 2 + (22 - high) / 2}" '
                            f'width="{max((end - begin) * scale, 0.4):.2f}" height="{high}" fill="{colour}" '
                            f'fill-opacity="{opacity}"/>')
            y += ROW
        y += 32
    out.append(f'<text x="{LEFT}" y="{height - 8}">lines: cycles of 100 ms, in emulated time: how late a change is says nothing here</text></svg>')
    print("\n".join(out))


if __name__ == "__main__":
    main()
