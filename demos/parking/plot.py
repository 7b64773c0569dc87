"""Draws the parking lot from above with the true and the estimated path, as SVG."""

import csv
import os

import scene

PIXELS_PER_METRE = 16


def draw(path, log, start, duration):
    """Writes the picture of one drive; `log` is the localiser's."""
    x0, x1, y0, y1 = scene.WALLS
    width, height = ((x1 - x0 + 2) * PIXELS_PER_METRE, (y1 - y0 + 2) * PIXELS_PER_METRE)

    def at(x, y):
        return f"{(x - x0 + 1) * PIXELS_PER_METRE:.1f},{(y1 + 1 - y) * PIXELS_PER_METRE:.1f}"

    def line(points, style):
        return f'<polyline points="{" ".join(at(x, y) for x, y in points)}" {style}/>'

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height + 30:.0f}" '
             'font-family="sans-serif" font-size="15">',
             f'<rect width="{width:.0f}" height="{height + 30:.0f}" fill="#fafafa"/>']
    for bx0, by0, bz0, bx1, by1, bz1 in scene.boxes():
        colour = "#555" if bz1 >= 3.0 else "#9db4c8" if bz0 < 0.5 else "#c5d3df"
        corner = at(bx0, by1).split(",")
        parts.append(f'<rect x="{corner[0]}" y="{corner[1]}" '
                     f'width="{(bx1 - bx0) * PIXELS_PER_METRE:.1f}" '
                     f'height="{(by1 - by0) * PIXELS_PER_METRE:.1f}" fill="{colour}"/>')
    drive = scene.Drive(duration)
    true = [drive.at_distance(drive.length * i / 100) for i in range(101)]
    with open(log, encoding="utf-8") as file:
        poses = [(int(r["stamp_ns"]) / 1e9 - start, float(r["x"]), float(r["y"]))
                 for r in csv.DictReader(file)]
    parts.append(line([(p.x, p.y) for p in true],
                      'fill="none" stroke="#f2b134" stroke-width="9" stroke-opacity="0.6"'))
    for t, x, y in poses:
        inbound = t < duration / 2
        cx, cy = at(x, y).split(",")
        # Rings on the way in, dots on the way out: both stay visible where they coincide.
        shape = ('r="5" fill="none" stroke="#c0392b" stroke-width="1.5"' if inbound
                 else 'r="2.4" fill="#1f618d"')
        parts.append(f'<circle cx="{cx}" cy="{cy}" {shape}/>')
    parts.append(f'<text x="16" y="{height + 18:.0f}"><tspan fill="#d68910">way as driven</tspan>'
                 '  <tspan fill="#c0392b">estimated poses, in</tspan>  '
                 '<tspan fill="#1f618d">and out</tspan></text></svg>\n')
    temporary = path + ".tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write("\n".join(parts))
    os.replace(temporary, path)
