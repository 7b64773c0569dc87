"""Runs the ten questions of docs/tables.md on tables of a trace, in SQL (DuckDB), pandas and polars.

    python3 scripts/ask_tables.py TABLES

TABLES is a directory that `onbeat export --to tables` has written. The three answers to a question must be equal. Without
rows an answer shows nothing, so that fails, too, unless the question is about what is missing. Then recomputes the figures
of the model beside it, if TABLES/model.json exists.
"""

import json
import math
import os
import pathlib
import re
import sys

import duckdb
import pandas
import polars  # noqa: F401: the document imports it, and its absence shows here

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Nothing is missing in a good recording.
MAY_BE_EMPTY = {"Of how many executions is the execution time unknown, and why?"}
QUESTIONS = 10


def questions(text):
    """The title, the preparation and the three answers of each question."""
    _, part = text.split("\n## Ten questions\n")
    head, *sections = part.split("\n### ")
    (begin,) = re.findall(r"```python\n(.*?)```", head, re.S)
    for section in sections:
        title, body = section.split("\n", 1)
        (sql,) = re.findall(r"```sql\n(.*?)```", body, re.S)
        with_pandas, with_polars = re.findall(r"```python\n(.*?)```", body, re.S)
        yield title, begin, sql, with_pandas, with_polars


def plain(value):
    if value is None or value is pandas.NA or (isinstance(value, float) and math.isnan(value)):
        return None
    return value if isinstance(value, str) else int(value)


def rows(columns, found):
    return [tuple(columns)] + [tuple(plain(value) for value in row) for row in found]


def answers(begin, sql, with_pandas, with_polars):
    asked = duckdb.sql(sql)
    yield "DuckDB", rows(asked.columns, asked.fetchall())
    names = {}
    exec(begin + with_pandas, names)  # noqa: S102: the document's own code
    frame = names["pandas_answer"]
    yield "pandas", rows(frame.columns, frame.itertuples(index=False, name=None))
    names = {}
    exec(begin + with_polars, names)  # noqa: S102
    frame = names["polars_answer"].collect()
    yield "polars", rows(frame.columns, frame.rows())


def ask():
    failed, asked = 0, 0
    for title, *question in questions((ROOT / "docs/tables.md").read_text()):
        asked += 1
        answered = dict(answers(*question))
        first = answered["DuckDB"]
        wrong = [name for name, answer in answered.items() if answer != first]
        if len(first) == 1 and title not in MAY_BE_EMPTY:
            wrong.append("no rows")
        print(f"{'FAILED' if wrong else 'ok'} {title} {' '.join(wrong)}")
        for name in wrong:
            print(f"  DuckDB: {first[:4]}\n  {name}: {answered.get(name, [])[:4]}")
        failed += bool(wrong)
    if asked != QUESTIONS:
        print(f"FAILED docs/tables.md has {asked} questions, not {QUESTIONS}")
        failed += 1
    return failed


def compare(model):
    """Counts, sums and percentiles of executions and chains against the model's."""
    failed = 0
    figures = [("executions", "callback", "exec_ns", c["id"], c["exec_ns"]) for c in model["callbacks"]]
    figures += [("chain_executions", "chain", "latency_ns", c["id"], c["latency_ns"]) for c in model["chains"]]
    for table, key, column, name, expected in figures:
        quantiles = ", ".join(f"quantile_disc({column}, {q})" for q in (0.5, 0.9, 0.99))
        found = duckdb.execute(
            f"SELECT count({column}), sum({column}), min({column}), max({column}), {quantiles} "
            f"FROM 'tables/{table}/*.parquet' WHERE {key} = ?",
            [name],
        ).fetchone()
        exact = (found[0], int(found[1] or 0), found[2] or 0, found[3] or 0)
        same = exact == (expected["count"], int(expected["sum"]), expected["min"], expected["max"])
        # A bucket of the model is at most a 64th of its value wide.
        near = found[0] == 0 or all(
            abs(a - expected[q]) <= max(1, a / 64) for a, q in zip(found[4:], ("p50", "p90", "p99"))
        )
        if not (same and near):
            failed += 1
            print(f"FAILED {column} of {name}: {found}, model: {expected}")
    print(f"{len(figures)} figures compared with the model, {failed} differ")
    return failed


def main():
    tables = pathlib.Path(sys.argv[1]).resolve()
    os.chdir(tables.parent)
    if tables.name != "tables":
        sys.exit("the directory must have the name 'tables', as in docs/tables.md")
    failed = ask()
    model = tables / "model.json"
    if model.exists():
        failed += compare(json.loads(model.read_text()))
    sys.exit(1 if failed else 0)


main()
