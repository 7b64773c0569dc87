"""A trace, and its tables as pyarrow."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from onbeat._command import EMPTY, StrPath, as_path, cannot_run, command, options, pass_on_warnings, run, said_or_ended
from onbeat._errors import BadFile, MissingPackage, NothingFound, OnbeatError, UsageError, error_of

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from onbeat._model import Model

TableName = Literal["callbacks", "chains", "executions", "items", "chain_executions", "stretches", "threads",
                    "processes", "switches", "runs"]
TABLES: tuple[TableName, ...] = get_args(TableName)


def need(package: str, what: str) -> Any:
    """Imports an optional package; says how to get it if it is missing."""
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError as error:
        name = package.split(".")[0]
        extra = {"pyarrow": "tables", "pandas": "tables", "polars": "polars", "matplotlib": "plots"}[name]
        found = "cannot be imported" if not isinstance(error, ModuleNotFoundError) else "is not installed"
        raise MissingPackage(f"{what} need the Python package {name}, which {found} ({error}). Install it:"
                             f" pip install 'onbeat[{extra}]'", name=name) from error


def checked(name: TableName) -> TableName:
    """Returns the name of a table, or raises an error if there is no such table."""
    if name not in TABLES:
        raise UsageError(f"there is no table {name!r}. Choose one of {', '.join(TABLES)}.", 2)
    return name


def chosen(columns: Sequence[str]) -> list[str]:
    """Returns the options that choose columns, or no options if there are no columns."""
    return [f"--column={','.join(checked_columns(columns))}"] if columns else []


def checked_columns(columns: Sequence[str]) -> Sequence[str]:
    """Returns the columns, or raises an error if they are one text, which would count as a list of letters."""
    if isinstance(columns, str):
        raise UsageError(f"columns is a text, not a list of names. Write columns=[{columns!r}].", 2)
    return columns


def shown_columns(tables: dict[TableName, list[str]], columns: Sequence[str]) -> dict[TableName, list[str]]:
    """Returns those of the columns that each table has; without columns, all that it has."""
    for column in checked_columns(columns):
        if not any(column in has for has in tables.values()):
            raise UsageError(f"there is no column {column!r} in these tables: {', '.join(tables)}. docs/tables.md lists the columns.", 2)
    shown = {name: [one for one in has if not columns or one in columns] for name, has in tables.items()}
    for name, has in tables.items():
        if not shown[name]:
            raise UsageError(f"none of the columns is in the table {name}. Omit this table, or add a column of it: {', '.join(has)}.", 2)
    return shown


class HasTables(ABC):
    """Ten tables, with the columns that docs/tables.md lists. Times are whole nanoseconds.

    A table is a `pyarrow.Table`, which is read when it is first asked for, and then kept. `table.to_pandas(
    types_mapper=pandas.ArrowDtype)` and `polars.from_arrow(table)` make data frames of it, without copies.
    `read_polars` makes data frames of polars without pyarrow.
    """

    def __init__(self) -> None:
        self._tables: dict[str, pa.Table] = {}

    @abstractmethod
    def _read(self, name: TableName) -> pa.Table:
        """Reads a table."""

    @abstractmethod
    def _read_polars(self, names: Sequence[TableName], columns: Sequence[str]) -> dict[str, pl.DataFrame]:
        """Reads tables as data frames of polars, by name. Without columns, reads all of them."""

    def read_polars(self, *names: TableName, columns: Sequence[str] = ()) -> tuple[pl.DataFrame, ...]:
        """Returns tables as data frames of polars. Needs polars, and no pyarrow. Does not keep the tables.

        With `columns`, each table has only those of the columns that it has. This takes less time and memory.

        >>> import onbeat
        >>> trace = onbeat.open("demos/recorded/parking")
        >>> executions, runs = trace.read_polars("executions", "runs", columns=["callback", "exec_ns", "complete"])
        >>> runs["complete"].to_list(), executions.columns
        ([True], ['callback', 'exec_ns'])
        """
        frames = self._read_polars([checked(name) for name in dict.fromkeys(names)], columns)
        return tuple(frames[name] for name in names)

    def table(self, name: TableName) -> pa.Table:
        """Returns the table of this name.

        >>> import onbeat
        >>> onbeat.open("demos/recorded/parking").table("runs")["complete"].to_pylist()
        [True]
        """
        if checked(name) not in self._tables:
            self._tables[name] = self._read(name)
        return self._tables[name]

    @property
    def callbacks(self) -> pa.Table:
        """A row for each callback and synchroniser of the model."""
        return self.table("callbacks")

    @property
    def chains(self) -> pa.Table:
        """A row for each chain of the model."""
        return self.table("chains")

    @property
    def executions(self) -> pa.Table:
        """A row for each execution of a callback, in the order of their ends."""
        return self.table("executions")

    @property
    def items(self) -> pa.Table:
        """A row for each item and each callback to which it goes."""
        return self.table("items")

    @property
    def chain_executions(self) -> pa.Table:
        """A row for each execution of a chain."""
        return self.table("chain_executions")

    @property
    def stretches(self) -> pa.Table:
        """The stretches of each execution of a chain, which add up to its latency."""
        return self.table("stretches")

    @property
    def threads(self) -> pa.Table:
        """A row for each thread in the recording."""
        return self.table("threads")

    @property
    def processes(self) -> pa.Table:
        """A row for each observed process."""
        return self.table("processes")

    @property
    def switches(self) -> pa.Table:
        """A row for each time that an observed thread had a CPU."""
        return self.table("switches")

    @property
    def runs(self) -> pa.Table:
        """A row for each run."""
        return self.table("runs")


class Trace(HasTables, os.PathLike[str]):
    """A trace directory, as `onbeat record` writes it.

    >>> import onbeat
    >>> trace = onbeat.open("demos/recorded/parking")
    >>> trace.chain_executions.num_rows, trace.chain_executions.column_names[-2:]
    (400, ['latency_ns', 'age_ns'])
    """

    def __init__(self, path: StrPath) -> None:
        super().__init__()
        self.path = Path(path)

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __repr__(self) -> str:
        return f"<Trace {self.path}>"

    @cached_property
    def coverage(self) -> tuple[str, ...]:
        """Sentences: limits of the recording. For an imported trace, they say what the trace lacks.

        >>> import onbeat
        >>> onbeat.import_trace("session", "notes").coverage[0][:37]
        'The trace is imported from LTTng. Its'
        """
        path = os.path.join(self.path, "manifest.json")
        try:
            manifest = json.loads(Path(path).read_bytes())
            return tuple(str(sentence) for sentence in manifest.get("coverage", ()))
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise BadFile(f"cannot read {path}: {error}. Record or import the trace again.") from error

    @cached_property
    def model(self) -> Model:
        """The trace's model, made when it is first asked for. `onbeat.model` makes one with options, in a file."""
        from onbeat._model import Model

        return Model(content=run("model", "-o", "-", "--", as_path(self), accept=(0, EMPTY)))

    def _read(self, name: TableName) -> pa.Table:
        with self.stream(name) as reader:
            return reader.read_all()

    def read(self, *names: TableName) -> tuple[pa.Table, ...]:
        """Returns several tables, and reads those that are not kept yet in one pass over the events.

        The tables are mapped from temporary files, so they need space in `$TMPDIR` as long as they are used.

        >>> import onbeat
        >>> executions, chains = onbeat.open("demos/recorded/parking").read("executions", "chain_executions")
        >>> executions.num_rows > chains.num_rows
        True
        """
        if missing := [checked(name) for name in dict.fromkeys(names) if name not in self._tables]:
            ipc, pyarrow = need("pyarrow.ipc", "tables"), need("pyarrow", "tables")
            # The tables stay mapped after their files are gone.
            with self._exported(missing) as paths:
                for name, path in paths.items():
                    self._tables[name] = ipc.open_stream(pyarrow.memory_map(path)).read_all()
        return tuple(self.table(name) for name in names)

    def _read_polars(self, names: Sequence[TableName], columns: Sequence[str]) -> dict[str, pl.DataFrame]:
        polars = need("polars", "data frames")
        with self._exported(names, columns) as paths:
            return {name: polars.read_ipc_stream(path) for name, path in paths.items()}

    @contextmanager
    def _exported(self, names: Sequence[TableName], columns: Sequence[str] = ()) -> Iterator[dict[TableName, str]]:
        """Gives the paths of temporary files with tables in the format of Arrow IPC, made in one pass over the events."""
        with tempfile.TemporaryDirectory(prefix="onbeat-") as directory:
            several = len(names) > 1
            output = directory if several else os.path.join(directory, "table.arrows")
            if names:
                run("export", as_path(self), "--to", "arrow", "--table", ",".join(names), *chosen(columns), "-o", output,
                    accept=(0, EMPTY))
            folders = {name: os.path.join(directory, name) for name in names}
            yield {name: os.path.join(folder, os.listdir(folder)[0]) if several else output
                   for name, folder in folders.items()}

    @contextmanager
    def stream(self, name: TableName, *, columns: Sequence[str] = ()) -> Iterator[pa.RecordBatchReader]:
        """Gives a table, or only these columns, as a stream of batches: for tables that are larger than the memory.

        >>> import onbeat
        >>> with onbeat.open("demos/recorded/parking").stream("executions", columns=["exec_ns"]) as batches:
        ...     print(max(batch.num_rows for batch in batches) > 0)
        True
        """
        ipc, pyarrow = need("pyarrow.ipc", "tables"), need("pyarrow", "tables")
        line = [command(), "export", as_path(self), "--to", "arrow", "--table", name, *chosen(columns)]
        fault: Exception | None = None
        with tempfile.TemporaryFile() as stderr:
            try:
                process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr)
            except OSError as error:
                raise cannot_run(line[0], error) from error
            assert process.stdout is not None
            with process:
                try:
                    yield ipc.open_stream(process.stdout)
                except (OSError, pyarrow.ArrowException) as error:
                    # The stream is cut off, which the command explains, or the caller's block has failed.
                    fault = error
                finally:
                    is_whole = process.stdout.read(1) == b""
                    if not is_whole:
                        process.kill()
            stderr.seek(0)
            said = stderr.read()
        if is_whole and process.returncode not in (0, EMPTY):
            raise error_of(said_or_ended(said, line, process.returncode), process.returncode) from fault
        if fault is not None:
            raise fault
        pass_on_warnings(said)

    def export(self, directory: StrPath) -> Tables:
        """Writes all tables as Parquet into a directory, beside those of other runs. Returns the tables in it.

        >>> import onbeat
        >>> onbeat.open("demos/recorded/parking").export("tables").runs.num_rows
        1
        """
        run("export", as_path(self), "--to", "tables", "-o", as_path(directory), accept=(0, EMPTY))
        return Tables(directory)

    def export_to(self, to: str, output: StrPath, **given: object) -> Path:
        """Writes another format with `onbeat export`: `perfetto`, `executions` (CSV), `text`. Returns the output's path."""
        run("export", as_path(self), "--to", to, "-o", as_path(output), *options(**given))
        return Path(output)


class Tables(HasTables, os.PathLike[str]):
    """A directory of tables as Parquet, of one run or of many, as `onbeat export --to tables` writes it.

    >>> import onbeat
    >>> tables = onbeat.open("tables")
    >>> sorted(tables.executions.column_names)[:3]
    ['blocked_ns', 'blockings', 'callback']
    """

    def __init__(self, path: StrPath) -> None:
        super().__init__()
        self.path = Path(path)

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __repr__(self) -> str:
        return f"<Tables {self.path}>"

    def files(self, name: TableName) -> list[str]:
        """Returns the paths of a table's files, one for each run."""
        return sorted(glob.glob(os.path.join(glob.escape(os.fspath(self.path)), name, "*.parquet")))

    def _read(self, name: TableName) -> pa.Table:
        parquet, pyarrow = need("pyarrow.parquet", "tables"), need("pyarrow", "tables")
        files = self._files_of(name)
        try:
            return pyarrow.concat_tables([parquet.ParquetFile(file).read() for file in files])
        except (OSError, pyarrow.ArrowException) as error:
            first = str(error).partition("\n")[0]
            raise OnbeatError(f"cannot read the table {name} in {self.path}: {first}") from error

    def _read_polars(self, names: Sequence[TableName], columns: Sequence[str]) -> dict[str, pl.DataFrame]:
        polars = need("polars", "data frames")
        found = {name: self._files_of(name) for name in names}
        try:
            shown = shown_columns({name: list(polars.read_parquet_schema(files[0])) for name, files in found.items()}, columns)
            return {name: polars.concat([polars.read_parquet(file, columns=shown[name], glob=False, hive_partitioning=False)
                                         for file in files])
                    for name, files in found.items()}
        except (OSError, polars.exceptions.PolarsError) as error:
            first = str(error).partition("\n")[0]
            raise OnbeatError(f"cannot read the tables {', '.join(names)} in {self.path}: {first}") from error

    def _files_of(self, name: TableName) -> list[str]:
        files = self.files(name)
        if not files:
            raise NothingFound(f"{self.path} has no table {name}. Write it with onbeat.open(TRACE).export({str(self.path)!r}).", 3)
        return files


def import_trace(session: StrPath, output: StrPath, *, mode: str | None = None) -> Trace:
    """Imports an LTTng session, as `ros2 trace` and CARET write it, into a new trace with `onbeat import`.

    `Trace.coverage` says what the imported trace lacks.

    >>> import onbeat
    >>> onbeat.import_trace("session", "of_lttng").executions["exec_ns"].null_count > 0
    True
    """
    run("import", as_path(session), "-o", as_path(output), *options(mode=mode), accept=(0, EMPTY))
    return Trace(output)
