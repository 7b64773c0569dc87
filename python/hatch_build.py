"""Puts the `onbeat` command that was built by cargo into the wheel."""

import os
import platform

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommandHook(BuildHookInterface):
    """The command becomes one of the environment's scripts: no Python starts before it."""

    def initialize(self, version, build_data):
        """Names the command's file, `$ONBEAT_WHEEL_COMMAND`, and the platform.

        The tag is that of this machine's kind, not manylinux: the command links libelf, which that does not
        allow, and needs the glibc of the machine that it was built on.
        """
        command = os.environ.get("ONBEAT_WHEEL_COMMAND", "")
        if not os.path.isfile(command):
            raise FileNotFoundError("ONBEAT_WHEEL_COMMAND names no file: build the wheel with `./dev wheel`")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-linux_{platform.machine()}"
        build_data["shared_scripts"][command] = "onbeat"
