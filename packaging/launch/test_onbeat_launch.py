"""Tests of onbeat_launch: `python3 packaging/launch/test_onbeat_launch.py ONBEAT PLAN`.

The action itself is run by the real `launch` where that is installed; else the reason is printed.
"""

import os
import pathlib
import stat
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import onbeat_launch  # noqa: E402


def words_name_plan_user_and_options():
    words = onbeat_launch.command("/p.yaml", "--gate", "hard", user="robot", sudo=True)
    assert words == ["sudo", "-n", "onbeat", "shape", "/p.yaml", "--user", "robot", "--gate", "hard"], words
    words = onbeat_launch.command(pathlib.Path("/p.yaml"), onbeat="/x/onbeat", sudo=False)
    assert words[:3] == ["/x/onbeat", "shape", "/p.yaml"] and words[3] == "--user" and words[4], words


def held_topics_are_ros_arguments(onbeat, plan):
    words = onbeat_launch.held(plan, onbeat=onbeat)
    assert words[0] == "-r" and ":=" in words[1], words
    assert "--ros-args" not in words, words
    try:
        onbeat_launch.held("/nowhere.yaml", onbeat=onbeat)
    except RuntimeError as error:
        assert "/nowhere.yaml" in str(error), error
    else:
        raise AssertionError("a plan that does not exist")


def the_action_runs_and_ends_with_the_launch():
    try:
        from launch import LaunchDescription, LaunchService
        from launch.actions import EmitEvent, RegisterEventHandler
        from launch.event_handlers import OnProcessStart
        from launch.events import Shutdown
    except ImportError as error:
        print(f"skipped: the_action_runs_and_ends_with_the_launch: {error}")
        return
    with tempfile.TemporaryDirectory() as folder:
        # Stands for onbeat: writes its words down and waits for SIGINT.
        said = os.path.join(folder, "said")
        program = os.path.join(folder, "onbeat")
        with open(program, "w") as file:
            file.write(f'#!/bin/sh\ntrap "echo put back >>{said}; exit 0" INT\necho "$@" >{said}\n')
            file.write("while :; do sleep 0.05; done\n")
        os.chmod(program, stat.S_IRWXU)
        action = onbeat_launch.shape("/p.yaml", onbeat=program, user="robot", sudo=False)
        end = RegisterEventHandler(OnProcessStart(target_action=action, on_start=[EmitEvent(event=Shutdown())]))
        service = LaunchService()
        service.include_launch_description(LaunchDescription([end, action]))
        service.run()
        assert action.process_details["cmd"][1:] == ["shape", "/p.yaml", "--user", "robot"], action.process_details


def main():
    onbeat, plan = sys.argv[1:3]
    words_name_plan_user_and_options()
    held_topics_are_ros_arguments(onbeat, plan)
    the_action_runs_and_ends_with_the_launch()
    print("ok")


if __name__ == "__main__":
    main()
