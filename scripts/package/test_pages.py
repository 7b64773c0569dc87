"""Tests the man pages and the shells' completions of the programs that are built.

usage: scripts/package/test_pages.py [ONBEAT]    (default: target/release/onbeat)
"""

import os
import shutil
import subprocess
import sys
import tempfile

import commands
import completions
import pages
import programs

HELP = """\
Do a thing

Usage: onbeat thing [OPTIONS] --to <KIND> [FILE] [-- <COMMAND>...]

Arguments:
  [FILE]
          File to read

Options:
      --to <KIND>
          Kind to write: it's [done]

          Possible values:
          - dot: The graph
            of all
          - svg: A picture

  -h, --help
          Print help

Examples:
  onbeat thing --to dot     'a' \\b

.Notes begin here.

Exit codes: 0 done.
"""


def run(words, text=None):
    """What a program prints; it must end with 0 and say nothing on stderr."""
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, f"{words}: {done.stderr or done.returncode}"
    return done.stdout


def a_help_text_is_read(_):
    """Options, values and texts come out, and a line that is not understood is an error."""
    command = commands.parse(("onbeat", "thing"), HELP)
    assert command.options[0].names() == ["--to"] and completions.takes_value(command.options[0])
    assert command.options[0].values == [("dot", "The graph of all"), ("svg", "A picture")]
    assert command.arguments[0].value_name() == "FILE" and command.runs_a_command()
    assert command.after[0] == "Examples:" and command.after[-1] == "Exit codes: 0 done."
    try:
        commands.parse(("onbeat", "thing"), HELP.replace("      --to", "     --to"))
    except SystemExit as error:
        assert "--to" in str(error)
    else:
        raise AssertionError("a line that is not understood was passed over")
    text = pages.page(command, "1.0", "2026-01-01", None)
    for part in (r"'a' \eb", r"\&.Notes begin", ".SH EXIT STATUS\n0 done.", ".SH NOTES"):
        assert part in text, text


def every_command_has_a_page(tree):
    """Also those of the programs beside onbeat; the pages render without a warning."""
    names = {" ".join(command.words) for command in tree.all()}
    for wanted in ("onbeat record", "onbeat link key", "onbeat store merge", "onbeat replay"):
        assert wanted in names, f"'{wanted}' is not in {sorted(names)}"
    for command in tree.all():
        text = pages.page(command, programs.version(), "2026-01-01", None)
        assert ".SH OPTIONS" in text and ".SH NAME" in text
        if shutil.which("groff"):
            run(["groff", "-man", "-Tutf8", "-ww", "-Wbreak", "-z"], text)


def bash_completes(tree):
    """Commands, options, values also after an equals sign, commands to start."""
    asks = {"onbeat rec": "record recover", "onbeat link k": "key", "onbeat export --to p": "perfetto parquet",
            "onbeat export --to = pe": "perfetto", "onbeat record --pre": "--preload", "onbeat record -- onbeat-no-such-c": "",
            "onbeat check -": None}
    script = [completions.bash(tree), "compopt() { :; }"]
    for line in asks:
        words = line.split(" ")
        script.append(f"COMP_WORDS=({' '.join(map(completions.quoted, words))}); COMP_CWORD={len(words) - 1}; _onbeat; "
                      "echo \"${COMPREPLY[*]}\"")
    for (line, wanted), got in zip(asks.items(), run(["bash", "-c", "\n".join(script)]).split("\n"), strict=False):
        assert (wanted is None and "--junit" in got) or got == wanted, f"{line}: {got}"


def zsh_and_fish_read_their_completions(tree):
    """Fish also completes; zsh can do that in a terminal only."""
    with tempfile.TemporaryDirectory() as folder:
        completions.write(tree, folder)
        if shutil.which("zsh"):
            run(["zsh", "-f", "-n", os.path.join(folder, "zsh/vendor-completions/_onbeat")])
        if shutil.which("fish"):
            path = os.path.join(folder, "fish/vendor_completions.d/onbeat.fish")
            for line, wanted in (("onbeat link k", "key"), ("onbeat export --to perf", "perfetto")):
                assert run(["fish", "--no-config", "-c", f"source {path}; complete -C '{line}'"]).startswith(wanted + "\t")


def main():
    """Runs the tests."""
    onbeat = sys.argv[1] if sys.argv[1:] else os.path.join(programs.TARGET_FOLDER, "release/onbeat")
    tree, failed = commands.read(onbeat), 0
    tests = (a_help_text_is_read, every_command_has_a_page, bash_completes, zsh_and_fish_read_their_completions)
    for test in tests:
        try:
            test(tree)
        except AssertionError as error:
            failed += 1
            print(f"FAILED {test.__name__}: {error}")
        else:
            print(f"ok     {test.__name__}")
    print(f"{len(tests) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
