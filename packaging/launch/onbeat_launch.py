"""A launch action that runs `onbeat shape` beside the nodes of a launch file.

    from launch import LaunchDescription
    from launch_ros.actions import Node
    from onbeat_launch import held, shape

    def generate_launch_description():
        plan = "/etc/onbeat/plan.yaml"
        return LaunchDescription([
            Node(package="my_package", executable="my_node", ros_arguments=held(plan)),
            shape(plan),
        ])

It needs no package but `launch`, which is imported when an action is made.
"""

import os
import pwd
import subprocess

__all__ = ["command", "held", "shape"]


def command(plan, *options, onbeat="onbeat", user=None, sudo=None):
    """Words that shape the application of this launch file under a plan.

    `user` is the application's (default: whoever runs the launch file). `sudo` says whether root's rights are asked
    for (default: where they are missing); it must not ask for a password, because nobody could give it.
    """
    own = pwd.getpwuid(os.getuid()).pw_name
    needs_sudo = os.geteuid() != 0 if sudo is None else sudo
    before = ["sudo", "-n"] if needs_sudo else []
    return [*before, onbeat, "shape", os.fspath(plan), "--user", user or own, *map(str, options)]


def held(plan, onbeat="onbeat"):
    """ROS arguments that move the topics which a plan holds back: for `ros_arguments` of the application's nodes.

    Rules name their node, so all nodes may be given all of them. Raises RuntimeError with the command's own line if the
    plan cannot be read.
    """
    done = subprocess.run([onbeat, "shape", os.fspath(plan), "--remap"], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"onbeat ended with status {done.returncode}")
    words = done.stdout.split()
    return words[1:] if words[:1] == ["--ros-args"] else words


def shape(plan, *options, onbeat="onbeat", user=None, sudo=None, **others):
    """The action: an ExecuteProcess. `others` are passed on to it.

    When the launch ends, the session gets SIGINT and puts everything back; it has ten seconds until SIGTERM. When the
    session ends, also by itself, the nodes run on, unshaped.
    """
    from launch.actions import ExecuteProcess

    others.setdefault("name", "onbeat_shape")
    others.setdefault("output", "screen")
    others.setdefault("sigterm_timeout", "10")
    return ExecuteProcess(cmd=command(plan, *options, onbeat=onbeat, user=user, sudo=sudo), **others)


