"""Generates C code of the test's message package with an environment's own generators.

usage: generate.py ENVIRONMENT OUT    (with that environment's Python)
"""

import importlib.metadata as metadata
import pathlib
import sys

# The wheels register each generator twice, which rosidl_cli refuses.
EVERY = metadata.entry_points()
if hasattr(EVERY, "values"):
    EVERY = [entry for group in EVERY.values() for entry in group]
UNIQUE = metadata.EntryPoints(dict.fromkeys(EVERY))
metadata.entry_points = lambda: UNIQUE

from rosidl_adapter.msg import convert_msg_to_idl  # noqa: E402
from rosidl_cli.command.generate.api import generate  # noqa: E402

PACKAGE = "onbeat_test_msgs"
ENV, OUT = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
HERE = pathlib.Path(__file__).resolve().parent
NAMES = ("Part", "Blob")
for name in NAMES:
    convert_msg_to_idl(HERE, PACKAGE, pathlib.Path("msg") / f"{name}.msg", OUT / "idl/msg")
generate(package_name=PACKAGE,
         interface_files=[f"{OUT}/idl:msg/{name}.idl" for name in NAMES],
         include_paths=[ENV + "/share"], output_path=OUT, types=["c"],
         typesupports=["c", "fastrtps_c", "introspection_c"])
