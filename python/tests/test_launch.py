"""The launch actions, with ROS 2's package `launch` where it is installed, else with a double of the calls they need."""

import os
import re
import stat
import sys
import types

import pytest
from conftest import ROOT

import onbeat

PLAN = os.path.join(ROOT, "crates/enforce/plan/tests/golden/plan.yaml")


class Execute:
    """Takes the arguments of ExecuteProcess that the actions use, and starts nothing."""

    def __init__(self, *, cmd, name, output, sigterm_timeout, prefix, cwd=None):
        self.cmd = [[word] for word in cmd]

    def execute(self, context):
        self.started = [perform(context, word) for word in self.cmd]

    @classmethod
    def parse(cls, entity, parser, ignore):
        return cls, {}


def perform(context, parts):
    """The text of a list of strings and substitutions."""
    return "".join(part if isinstance(part, str) else part.perform(context) for part in parts)


def is_true(context, parts):
    """What `launch` makes of the text of a condition."""
    return {"true": True, "1": True, "false": False, "0": False}[perform(context, parts).lower()]


def double():
    """Modules with the names of `launch`."""
    listed = {
        "launch.actions": {"ExecuteProcess": Execute},
        "launch.conditions": {"evaluate_condition_expression": is_true},
        "launch.frontend": {"expose_action": lambda name: lambda action: action},
        "launch.utilities": {"normalize_to_list_of_substitutions": lambda one: one if isinstance(one, list) else [one],
                             "perform_substitutions": perform},
    }
    modules = {"launch": types.ModuleType("launch")}
    for name, content in listed.items():
        modules[name] = types.ModuleType(name)
        vars(modules[name]).update(content)
    return modules


class Context:
    """A launch context of the double."""

    def __init__(self):
        self.launch_configurations = {}


class Configuration:
    """A launch configuration of the double."""

    def __init__(self, name):
        self.name = name

    def perform(self, context):
        return context.launch_configurations[self.name]


@pytest.fixture
def launch(monkeypatch):
    """The module under test, how a launch configuration is named, and a context."""
    try:
        from launch import LaunchContext
        from launch.substitutions import LaunchConfiguration
    except ImportError:
        for name, module in double().items():
            monkeypatch.setitem(sys.modules, name, module)
        LaunchContext, LaunchConfiguration = Context, Configuration
    import onbeat.launch as module
    yield module, LaunchConfiguration, LaunchContext()
    if not hasattr(sys.modules["launch"], "__file__"):
        del sys.modules["onbeat.launch"], onbeat.launch


def test_options_are_those_of_the_command(launch):
    module = launch[0]
    # Options that make no sense beside a launch: for commands that onbeat starts itself, and answers of other sessions.
    other = {"record": {"output", "preload"}, "shape": {"hold", "remap", "status", "reload", "prometheus"}}
    for action in (module.OnbeatRecord, module.OnbeatShape):
        said = onbeat.run(action.verb, "--help").decode()
        found = re.findall(r"^ {2,6}(?:-\w, )?--([a-z-]+)( <)?", said, re.MULTILINE)
        names = {name: bool(value) for name, value in found if name != "help" and name not in other[action.verb]}
        known = {**dict.fromkeys(action.values, True), **dict.fromkeys(action.flags, False)}
        assert {name.replace("_", "-"): value for name, value in known.items()} == names


def test_record_observes_the_launch_or_what_is_selected(launch):
    module, configuration, context = launch
    context.launch_configurations.update(folder="-runs", mode="", all="true", pid="", domain="0")
    action = module.OnbeatRecord([configuration("folder"), "/1"], mode=configuration("mode"), keep=10, duration="60s",
                                 all_threads=configuration("all"), pid=configuration("pid"), sudo=True)
    assert action.line(context) == [
        "sudo", "-n", onbeat._command.command(), "record", "--duration=60s", "--keep=10", "--all-threads",
        f"--pid={os.getpid()}", "--output=./-runs/1"]
    for given, words in (({"domain": configuration("domain")}, ["--domain=0"]), ({"everything": True}, [])):
        assert module.OnbeatRecord(sudo="false", **given).line(context)[2:] == words
    with pytest.raises(TypeError):
        module.OnbeatRecord("trace", preload=True)


def test_shape_remaps_the_nodes_that_follow(launch):
    module, configuration, context = launch
    context.launch_configurations.update(plan=PLAN, ros_remaps=[("/a", "/b")])
    action = module.OnbeatShape(configuration("plan"), gate="hard", user="robot", sudo=False)
    assert action.line(context)[1:] == ["shape", "--user=robot", "--gate=hard", PLAN]
    if type(context) is Context:
        action.execute(context)
        assert action.started == action.line(context)
        assert context.launch_configurations["ros_remaps"] == [
            ("/a", "/b"), ("n5:/t5", "/t5/onbeat_held"), ("bag:/points", "/points/onbeat_held")]
    with pytest.raises(onbeat.OnbeatError, match="nowhere.yaml"):
        module.OnbeatShape("nowhere.yaml").execute(context)
    assert module.held(PLAN)[:2] == ["-r", "n5:/t5:=/t5/onbeat_held"]


# Stands for onbeat: writes its words down and waits for SIGINT. `--remap` is the real command's.
WAITS = """#!/bin/sh
case "$*" in *--remap*) exec '{real}' "$@" ;; esac
trap "echo put back >> {said}; exit 0" INT
echo "$@" >> {said}
while :; do sleep 0.05; done
"""


@pytest.mark.parametrize("form", ["py", "xml", "yaml"])
def test_the_actions_run_and_end_with_a_real_launch(form, tmp_path, monkeypatch):
    real = pytest.importorskip("launch", reason="ROS 2's package launch is not installed")
    from launch import actions, event_handlers, events
    from launch.frontend import Parser

    said, program = tmp_path / "said", tmp_path / "onbeat"
    program.write_text(WAITS.format(real=onbeat._command.command(), said=said))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("ONBEAT", str(program))
    from onbeat.launch import OnbeatRecord, OnbeatShape

    monkeypatch.setattr(Parser, "extensions_loaded", True)
    if form == "py":
        parsed = [OnbeatShape(PLAN, sudo=False, adapt=True), OnbeatRecord("trace", keep=4, sudo=False)]
    else:
        pytest.importorskip(f"launch_{form}")
        text = {"xml": f'<launch><onbeat_shape plan="{PLAN}" sudo="false" adapt="$(env A)"/>'
                       '<onbeat_record trace="trace" keep="4" sudo="false"/></launch>',
                "yaml": f"launch:\n- onbeat_shape: {{plan: {PLAN}, sudo: false, adapt: $(env A)}}\n"
                        "- onbeat_record: {trace: trace, keep: 4, sudo: false}\n"}[form]
        monkeypatch.setenv("A", "true")
        (tmp_path / f"all.{form}").write_text(text)
        root, parser = Parser.load(str(tmp_path / f"all.{form}"))
        parsed = parser.parse_description(root).entities
    # A process that starts has not set its trap yet.
    end = actions.TimerAction(period=0.5, actions=[actions.EmitEvent(event=events.Shutdown())])
    handler = actions.RegisterEventHandler(event_handlers.OnProcessStart(target_action=parsed[1], on_start=[end]))
    service = real.LaunchService(noninteractive=True)
    service.include_launch_description(real.LaunchDescription([handler, *parsed]))
    assert service.run() == 0
    assert [rule[0] for rule in service.context.launch_configurations["ros_remaps"]] == ["n5:/t5", "bag:/points"]
    lines = sorted(said.read_text().splitlines())
    assert lines[:2] == ["put back", "put back"]
    assert lines[2] == f"record --keep=4 --pid={os.getpid()} --output=trace"
    assert lines[3].startswith("shape --adapt --user=") and lines[3].endswith(PLAN)


def test_the_ament_package_is_that_of_the_wheel():
    tomllib = pytest.importorskip("tomllib")
    with open(os.path.join(ROOT, "Cargo.toml"), "rb") as file:
        version = tomllib.load(file)["workspace"]["package"]["version"]
    with open(os.path.join(ROOT, "python/pyproject.toml"), "rb") as file:
        points = tomllib.load(file)["project"]["entry-points"]
    with open(os.path.join(ROOT, "packaging/ros2/package.xml"), encoding="utf-8") as file:
        assert f"<version>{version}</version>" in file.read()
    with open(os.path.join(ROOT, "packaging/ros2/setup.py"), encoding="utf-8") as file:
        text = file.read()
    for group, named in points.items():
        lines = [f"{name} = {place}" for name, place in named.items()]
        assert f'"{group}": ["{lines[0]}"]' in text and len(lines) == 1
