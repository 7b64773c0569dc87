"""Tables of an experiment's results as Markdown, for its page in docs/.

    python3 scripts/tables.py results/link                 all tables, and the figures with targets
    python3 scripts/tables.py results/link urgent          those with that word in their title

Prints them; what a page says about them is written by hand.
"""

import json
import pathlib
import sys


def lines(head, rows):
    marks = ["---"] + ["---:"] * (len(head) - 1)
    return ["| " + " | ".join(row) + " |" for row in [head, marks, *rows]]


def targets(figures):
    for figure in figures:
        target = figure.get("target")
        if target is not None:
            met = "met" if figure.get("met", True) else "**missed**"
            relation = figure["relation"].replace("_", " ")
            yield [
                figure["name"],
                f"{figure['value']:.6g} {figure['unit']}",
                f"{relation} {target:g}",
                met,
            ]


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if len(sys.argv) > 1 else 2
    path = pathlib.Path(sys.argv[1]) / "results.json"
    word = sys.argv[2].lower() if len(sys.argv) == 3 else ""
    try:
        results = json.loads(path.read_text())
    except (OSError, ValueError) as e:
        print(
            f"tables: {path}: {e}: give the directory that `./dev bench NAME -o DIR` has filled",
            file=sys.stderr,
        )
        return 1
    print(
        f"`{results['command']}`, {results['duration_s']:.0f} s, {results['load']['busy']:.0%} busy\n"
    )
    for table in results["tables"]:
        if word in table["title"].lower():
            print(
                f"{table['title']}\n",
                *lines(table["head"], table["rows"]),
                "",
                sep="\n",
            )
    if not word:
        print(
            *lines(["target", "value", "wanted", ""], targets(results["figures"])),
            sep="\n",
        )
        for skipped in results["skipped"]:
            print(f"\nskipped: {skipped['what']}: {skipped['why']}")
    return 0


sys.exit(main())
