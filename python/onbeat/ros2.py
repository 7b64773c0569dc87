"""`ros2 onbeat`: an extension of ros2cli, which starts the command."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from ros2cli.command import CommandExtension

from onbeat._command import command

VERBS = {
    "record": "Record a running ROS 2 system, or one that this command starts",
    "model": "Make a timing model of traces",
    "report": "Write the HTML report of a model",
    "why": "Show what made executions of a chain late",
    "top": "Watch the timing of a running system",
}


class OnbeatCommand(CommandExtension):  # type: ignore[misc]
    """Record and explain the timing of callbacks and chains."""

    def add_arguments(self, parser: argparse.ArgumentParser, cli_name: str, **_: Any) -> None:
        """Adds the verbs. All words after the verb go to the command."""
        self._parser = parser
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        lines = [f"  {verb:8}{text}" for verb, text in VERBS.items()]
        parser.epilog = "\n".join(["Verbs:", *lines, "", f"`{cli_name} VERB --help` explains a verb, `onbeat --help` all commands."])
        parser.add_argument("verb", nargs="?", choices=VERBS, metavar="VERB", help="one of the verbs below")
        parser.add_argument("words", nargs=argparse.REMAINDER, metavar="...", help="arguments of `onbeat VERB`")

    def main(self, *, parser: argparse.ArgumentParser, args: argparse.Namespace) -> int | str:
        """Becomes the command, so that signals reach it and its exit code is that of `ros2`."""
        if args.verb is None:
            self._parser.print_help()
            return 0
        program = command()
        sys.stdout.flush()
        try:
            os.execvp(program, [program, args.verb, *args.words])
        except OSError as error:
            return f"cannot run {program}: {error.strerror}. Set ONBEAT to the path of the command onbeat."
