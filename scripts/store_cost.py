#!/usr/bin/env python3
"""Measures the cost of a merge in a store by the number of models. Prints rows of docs/how-to/store.md's table.

Seconds are printed on stderr.

usage: scripts/store_cost.py ONBEAT [NUMBER ...]
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TRACE = os.path.join(ROOT, "demos/recorded/parking")


def models(onbeat, folder, count):
    """Models of `count` runs: one that was recorded, under other ids and times."""
    path = os.path.join(folder, "model.json")
    subprocess.run([onbeat, "model", TRACE, "-o", path], check=True, capture_output=True)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    run = json.loads(text)["runs"][0]
    paths = []
    for n in range(count):
        paths.append(os.path.join(folder, f"{n}.json"))
        start = f'"start":{run["start"] + n * 60_000_000_000}'
        with open(paths[-1], "w", encoding="utf-8") as file:
            file.write(text.replace(run["id"], f"{n:032x}").replace(f'"start":{run["start"]}', start))
    return paths


def main():
    """Puts all but one, merges, puts the last, merges."""
    onbeat = os.path.abspath(sys.argv[1])
    for count in [int(n) for n in sys.argv[2:]] or [10, 100, 1000]:
        with tempfile.TemporaryDirectory() as folder:
            store = os.path.join(folder, "store")
            subprocess.run([onbeat, "store", "init", store], check=True, capture_output=True)
            paths = models(onbeat, folder, count + 1)
            cells = [str(count)]
            for some in (paths[:-1], paths[-1:]):
                subprocess.run([onbeat, "store", "put", store, *some], check=True, capture_output=True)
                began = time.monotonic()
                done = subprocess.run([onbeat, "store", "merge", store, "-o", os.path.join(folder, "all.json")],
                                      check=True, capture_output=True, text=True)
                took = time.monotonic() - began
                read = re.search(r"(\d+) models read, (\d+) earlier merges read", done.stderr)
                cells.append(f"{read[1]} models, {read[2]} earlier merges")
                print(f"{count} models: {took:.1f} s", file=sys.stderr)
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
