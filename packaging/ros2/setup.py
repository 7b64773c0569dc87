"""The Python package as an ament package, for `colcon build`. The command itself comes with the Debian package or the archive."""

import re

from setuptools import setup

with open("package.xml", encoding="utf-8") as file:
    VERSION = re.search("<version>(.*)</version>", file.read()).group(1)

setup(
    name="onbeat",
    version=VERSION,
    packages=["onbeat"],
    package_data={"onbeat": ["py.typed"]},
    data_files=[
        ("share/ament_index/resource_index/packages", ["resource/onbeat"]),
        ("share/onbeat", ["package.xml"]),
    ],
    install_requires=["setuptools"],
    zip_safe=True,
    entry_points={
        "ros2cli.command": ["onbeat = onbeat.ros2:OnbeatCommand"],
        "launch.frontend.launch_extension": ["onbeat = onbeat.launch"],
        "pytest11": ["onbeat = onbeat.pytest_plugin"],
    },
)
