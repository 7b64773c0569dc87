"""Puts the programs that cargo has built into the wheel: `onbeat`, and the programs that run some of its commands."""

import os
import platform
import shutil
import subprocess
import tempfile

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Programs, and their packages in the workspace.
PROGRAMS = {"onbeat": "onbeat", "onbeat-link": "onbeat-link-cli", "onbeat-replay": "onbeat-replay-cli",
            "onbeat-store": "onbeat-store-cli", "onbeat-top": "onbeat-top-cli",
            "onbeat-monitor": "onbeat-monitor-cli"}


class CommandHook(BuildHookInterface):
    """A build hook that makes the programs scripts of the environment, so that they start without Python."""

    def initialize(self, version, build_data):
        """Adds the programs' files and the platform's tag to the wheel.

        The programs are those in the folder `$ONBEAT_WHEEL_PROGRAMS`. Without it, cargo builds them from the
        sources in the source distribution. The tag is `$ONBEAT_WHEEL_TAG`, which `./dev package` sets to a tag of
        manylinux. Other builds get that of this machine's kind, because they need its glibc and libelf.
        """
        if self.target_name == "sdist":
            return
        self.scratch = tempfile.mkdtemp()
        folder = os.environ.get("ONBEAT_WHEEL_PROGRAMS") or self.build_programs()
        if not os.path.isfile(os.path.join(folder, "onbeat")):
            raise FileNotFoundError("the folder ONBEAT_WHEEL_PROGRAMS does not contain onbeat: build the wheel with `./dev wheel`")
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + (os.environ.get("ONBEAT_WHEEL_TAG") or f"linux_{platform.machine()}")
        for name in sorted(os.listdir(folder)):
            build_data["shared_scripts"][os.path.join(folder, name)] = name

    def finalize(self, version, build_data, artifact_path):
        """Removes the programs that were built for the wheel."""
        if self.target_name != "sdist":
            shutil.rmtree(self.scratch, ignore_errors=True)

    def build_programs(self):
        """Builds the programs from the sources beside this file, and returns their folder."""
        sources = os.path.join(self.root, "workspace")
        if not os.path.isfile(os.path.join(sources, "Cargo.toml")):
            raise FileNotFoundError("the programs are not built: build the wheel with `./dev wheel`")
        target = os.path.join(self.scratch, "target")
        words = [word for package in PROGRAMS.values() for word in ("-p", package)]
        try:
            subprocess.run(["cargo", "build", "--release", "--locked", "--target-dir", target, *words], cwd=sources, check=True)
        except FileNotFoundError:
            raise FileNotFoundError("cargo is missing: install Rust, or the wheel of onbeat for this machine") from None
        folder = os.path.join(self.scratch, "programs")
        os.makedirs(folder)
        for name in PROGRAMS:
            subprocess.run(["strip", "-o", os.path.join(folder, name), os.path.join(target, "release", name)], check=True)
        return folder
