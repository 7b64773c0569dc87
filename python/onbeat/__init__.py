"""Timing models of ROS 2 systems, from Python: the `onbeat` command, and merging on clusters."""

from onbeat._command import OnbeatError, command, merge, model, run

__all__ = ["OnbeatError", "command", "merge", "model", "run"]
