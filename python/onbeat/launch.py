"""Launch actions of ROS 2: `OnbeatRecord` and `OnbeatShape` run onbeat beside the nodes of a launch file.

    from launch import LaunchDescription
    from launch.actions import DeclareLaunchArgument
    from launch.substitutions import LaunchConfiguration
    from launch_ros.actions import Node
    from onbeat.launch import OnbeatRecord, OnbeatShape

    def generate_launch_description():
        return LaunchDescription([
            DeclareLaunchArgument("plan"),
            OnbeatShape(LaunchConfiguration("plan")),
            OnbeatRecord("trace", duration="60s"),
            Node(package="my_package", executable="my_node"),
        ])

Launch files in XML and YAML have the actions as `onbeat_record` and `onbeat_shape`. The module needs the package `launch`.
"""

from __future__ import annotations

import os
import pwd
from typing import Any, ClassVar

from launch.actions import ExecuteProcess
from launch.conditions import evaluate_condition_expression
from launch.frontend import expose_action
from launch.utilities import normalize_to_list_of_substitutions, perform_substitutions

from onbeat._command import StrPath, as_path, command, run

__all__ = ["OnbeatRecord", "OnbeatShape", "held"]

# They choose the processes.
SELECTIONS = ("pid", "domain", "cgroup", "container")


def held(plan: StrPath) -> list[str]:
    """Returns the ROS arguments that move the topics which a plan holds back, for processes that are not a `Node`.

    Each rule names its node, so every node can have all of them. Raises an OnbeatError if the plan cannot be read.
    """
    words = run("shape", as_path(plan), "--remap").decode().split()
    return words[1:] if words[:1] == ["--ros-args"] else words


class OnbeatAction(ExecuteProcess):  # type: ignore[misc]
    """A command of onbeat as a process of the launch. Its words are known when the launch reaches the action."""

    verb: ClassVar[str]
    # Options with a value, and options without one, as keyword arguments.
    values: ClassVar[tuple[str, ...]]
    flags: ClassVar[tuple[str, ...]]
    # Arguments of the action itself.
    own: ClassVar[tuple[str, ...]]
    own_flags: ClassVar[tuple[str, ...]]

    def __init__(self, **given: Any) -> None:
        """Takes every option of the command by its name, as a value or a substitution. An empty value leaves it out.

        `sudo` says whether `sudo -n` starts the command (default: if this user is not root). All other arguments are
        those of `ExecuteProcess`.
        """
        names = ("sudo", *self.values, *self.flags, *self.own, *self.own_flags)
        self.given = {name: given.pop(name) for name in names if given.get(name) is not None}
        given = {name: value for name, value in given.items() if name not in names}
        given.setdefault("name", f"onbeat_{self.verb}")
        given.setdefault("output", "screen")
        # The command writes or puts back what it has before it ends.
        given.setdefault("sigterm_timeout", "30")
        # The launch configuration `launch-prefix` is meant for nodes.
        given.setdefault("prefix", "")
        super().__init__(cmd=[self.verb], **given)

    @classmethod
    def parse(cls, entity: Any, parser: Any) -> Any:
        """Reads the action from a launch file in XML or YAML."""
        _, given = super().parse(entity, parser, ignore=["cmd"])
        for name in (*cls.values, *cls.own):
            try:
                text = entity.get_attr(name, optional=True)
            except TypeError:
                # A number of YAML.
                text = str(entity.get_attr(name, data_type=int))
            if text is not None:
                given[name] = parser.parse_substitution(text)
        for name in ("sudo", *cls.flags, *cls.own_flags):
            flag = entity.get_attr(name, data_type=bool, optional=True)
            if flag is not None:
                given[name] = parser.parse_substitution(flag) if isinstance(flag, str) else flag
        return cls, given

    def execute(self, context: Any) -> Any:
        """Starts the command."""
        self.cmd[:] = [normalize_to_list_of_substitutions(word) for word in self.line(context)]
        return super().execute(context)

    def line(self, context: Any) -> list[str]:
        """Returns all words of the command line."""
        needs_sudo = self.is_set(context, "sudo", os.geteuid() != 0)
        line = [*(["sudo", "-n"] if needs_sudo else []), command(), self.verb]
        for name in self.values:
            if text := self.value(context, name):
                line.append(f"--{name.replace('_', '-')}={text}")
        line += [f"--{name.replace('_', '-')}" for name in self.flags if self.is_set(context, name)]
        return line

    def value(self, context: Any, name: str) -> str:
        """Returns the text of an argument, '' if it has none."""
        given = self.given.get(name, "")
        if isinstance(given, (int, float, os.PathLike)):
            given = os.fspath(given) if isinstance(given, os.PathLike) else str(given)
        return str(perform_substitutions(context, normalize_to_list_of_substitutions(given)))

    def is_set(self, context: Any, name: str, default: bool = False) -> bool:
        """Returns whether an argument is true."""
        given = self.given.get(name, default)
        return given if isinstance(given, bool) else bool(evaluate_condition_expression(context, normalize_to_list_of_substitutions(given)))


@expose_action("onbeat_record")
class OnbeatRecord(OnbeatAction):
    """Records into a directory until the launch ends: the processes of this launch, or others that an option selects."""

    verb = "record"
    values = ("mode", "duration", *SELECTIONS, "btf", "buffer", "segment", "keep")
    flags = ("all_threads",)
    own = ("trace",)
    own_flags = ("everything",)

    def __init__(self, trace: Any = None, **given: Any) -> None:
        """`trace` is the directory (default: trace-DATE-TIME in `cwd`). `everything` also records other applications."""
        super().__init__(trace=trace, **given)

    def line(self, context: Any) -> list[str]:
        """Returns the words of `onbeat record`. Without a selection, it observes what this process starts."""
        line = super().line(context)
        is_selected = self.is_set(context, "everything") or any(self.value(context, name) for name in SELECTIONS)
        line += [] if is_selected else [f"--pid={os.getpid()}"]
        trace = self.value(context, "trace")
        return [*line, f"--output={as_path(trace)}"] if trace else line


@expose_action("onbeat_shape")
class OnbeatShape(OnbeatAction):
    """Shapes the application under a plan until the launch ends. Nodes that the launch starts later are remapped for it."""

    verb = "shape"
    values = ("verify", "duration", "find", *SELECTIONS, "user", "dispatcher_cpu", "enforcer", "gate", "deadline",
              "record_bands", "trace", "samples", "metrics")
    flags = ("strict", "idle", "adapt", "diagnostics", "dry_run", "json")
    own = ("plan",)
    own_flags = ("remap",)

    def __init__(self, plan: Any = "plan.yaml", **given: Any) -> None:
        """`user` is the application's (default: this one). `remap=False` leaves the topics of later nodes as they are."""
        super().__init__(plan=plan, **given)

    def line(self, context: Any) -> list[str]:
        """Returns the words of `onbeat shape`."""
        line = super().line(context)
        own = [] if self.value(context, "user") else [f"--user={pwd.getpwuid(os.getuid()).pw_name}"]
        return [*line, *own, as_path(self.value(context, "plan"))]

    def execute(self, context: Any) -> Any:
        """Starts the command, and adds the plan's rules to those that `SetRemap` of launch_ros gives to all later nodes."""
        if self.is_set(context, "remap", True):
            rules = [word.split(":=", 1) for word in held(self.value(context, "plan")) if ":=" in word]
            before = context.launch_configurations.get("ros_remaps", [])
            context.launch_configurations["ros_remaps"] = [*before, *map(tuple, rules)]
        return super().execute(context)
