"""Every test and every example runs in a folder with `model.json`, `demos` (the recorded trace among them) and
`session`, a session of LTTng."""

import os

import matplotlib
import pytest

import onbeat

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TRACE = "demos/recorded/parking"

matplotlib.use("Agg")
pytest_plugins = ["pytester"]


@pytest.fixture(scope="session")
def workplace(tmp_path_factory):
    """The folder."""
    folder = tmp_path_factory.mktemp("workplace")
    os.symlink(os.path.join(ROOT, "demos"), folder / "demos")
    os.symlink(os.path.join(ROOT, "crates/observe/ctf/tests/recorded"), folder / "session")
    onbeat.model(folder / TRACE, folder / "model.json")
    onbeat.open_trace(folder / TRACE).export(folder / "tables")
    return folder


@pytest.fixture(autouse=True)
def in_workplace(workplace, monkeypatch):
    """Works there, and closes plots."""
    import matplotlib.pyplot

    monkeypatch.chdir(workplace)
    yield
    matplotlib.pyplot.close("all")
