"""Puts the programs that were built by cargo into the wheel: `onbeat`, and those that carry out some of its commands."""

import os
import platform

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommandHook(BuildHookInterface):
    """The programs become scripts of the environment: no Python starts before them."""

    def initialize(self, version, build_data):
        """Names the programs' files, those in the folder `$ONBEAT_WHEEL_PROGRAMS`, and the platform.

        The tag is that of this machine's kind, not manylinux: the command links libelf, which that does not
        allow, and needs the glibc of the machine that it was built on.
        """
        folder = os.environ.get("ONBEAT_WHEEL_PROGRAMS", "")
        if not os.path.isfile(os.path.join(folder, "onbeat")):
            raise FileNotFoundError("ONBEAT_WHEEL_PROGRAMS names no folder with onbeat in it: build the wheel with `./dev wheel`")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-linux_{platform.machine()}"
        for name in os.listdir(folder):
            build_data["shared_scripts"][os.path.join(folder, name)] = name
