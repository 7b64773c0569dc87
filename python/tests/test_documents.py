"""Examples of the documents: the blocks of Python in docs/how-to/python.md, and the notebook."""

import json
import os
import re
import shutil
import subprocess
import sys

import matplotlib.pyplot
from conftest import ROOT

HOW_TO = os.path.join(ROOT, "docs/how-to")
# Blocks that need ROS 2, root or an engine. End-to-end tests have them.
NOT_RUN = re.compile(r"onbeat\.record\(|def test_|import onbeat\.(dask|ray|spark)")


def test_the_blocks_of_the_page_run(capsys):
    with open(os.path.join(HOW_TO, "python.md"), encoding="utf-8") as file:
        blocks = re.findall(r"^```python\n(.*?)^```$", file.read(), re.DOTALL | re.MULTILINE)
    names, count = {"__name__": "page"}, 0
    for block in blocks:
        code = compile(block, "python.md", "exec")
        if not NOT_RUN.search(block):
            exec(code, names)
            count += 1
    assert count >= 6
    said = [line for line in capsys.readouterr().out.splitlines() if line]
    assert any("late" in line for line in said)


def test_the_notebook_runs():
    with open(os.path.join(HOW_TO, "timing.ipynb"), encoding="utf-8") as file:
        cells = json.load(file)["cells"]
    names = {}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None, "clear the outputs of the notebook"
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
    assert len(matplotlib.pyplot.get_fignums()) >= 4


def test_the_ten_questions_about_tables_have_one_answer_in_three_languages(tmp_path):
    tables = tmp_path / "tables"
    shutil.copytree("tables", tables)
    shutil.copy("model.json", tables)
    asked = [sys.executable, os.path.join(ROOT, "scripts/ask_tables.py"), str(tables)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
