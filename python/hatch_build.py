"""Puts the program that cargo has built into the wheel."""

import os
import platform
import shutil
import subprocess
import tempfile

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommandHook(BuildHookInterface):
    """A build hook that makes the program a script of the environment, so that it starts without Python."""

    def initialize(self, version, build_data):
        """Adds the program's file and the platform's tag to the wheel.

        The program is in the folder `$ONBEAT_WHEEL_PROGRAMS`, alone or with the programs that it starts. Without this
        folder, cargo builds one program with all commands from the sources in the source distribution. The tag is
        `$ONBEAT_WHEEL_TAG`, which `./dev package` sets to a tag of
        manylinux. Other builds get that of this machine's kind, because they need its glibc and libelf.
        """
        if self.target_name == "sdist":
            return
        self.scratch = tempfile.mkdtemp()
        folder = os.environ.get("ONBEAT_WHEEL_PROGRAMS") or self.build_program()
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

    def build_program(self):
        """Builds the program from the sources beside this file, and returns its folder."""
        sources = os.path.join(self.root, "workspace")
        if not os.path.isfile(os.path.join(sources, "Cargo.toml")):
            raise FileNotFoundError("the program is not built: build the wheel with `./dev wheel`")
        target = os.environ.get("CARGO_TARGET_DIR") or os.path.join(self.scratch, "target")
        words = ["--release", "--locked", "--target-dir", target, "-p", "onbeat", "--features", "whole"]
        try:
            subprocess.run(["cargo", "build", *words], cwd=sources, check=True)
        except FileNotFoundError:
            raise FileNotFoundError("cargo is missing: install Rust, or the wheel of onbeat for this machine") from None
        folder = os.path.join(self.scratch, "programs")
        os.makedirs(folder)
        subprocess.run(["strip", "-o", os.path.join(folder, "onbeat"), os.path.join(target, "release/onbeat")], check=True)
        return folder
