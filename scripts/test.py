"""Runs the project's tests, all or a part.

usage: ./dev test                          everything
       ./dev test unit                     unit and integration tests of every crate
       ./dev test CRATE [WORD ...]         those of one crate, by its short name: trace, model, plan ...;
                                           WORDs choose tests by parts of their names
       ./dev test e2e [OPTION ...] [NAME ...]  end-to-end tests by subject or name (e2e --help)
       ./dev test channels                 flow's channels under loom and Miri
       ./dev test pages                    man pages and completions, made from every command's --help
       ./dev test python [WORD ...]        the Python package: types, tests, examples, the notebook
       ./dev test browser                  `onbeat why --html` in a Chromium
       ./dev test aarch64                  compile for aarch64 what runs on a robot
       ./dev test sched-ext                reservations in a guest whose kernel has sched_ext (minutes)
       ./dev test link-verbs               links over RDMA in a guest with two Soft-RoCE devices (a minute or two)
       ./dev test replay-can               replay into ROS 2, CAN and UDP in a guest that has CAN (a minute or two)
       ./dev test list                     the parts, crates and end-to-end tests

A run of everything leaves out what passed before with the same inputs (programs, sources, data), and lists it as
UNCHANGED. ONBEAT_TEST_ALL=1 runs it too, and so does asking for it by name: `./dev test trace`, `./dev test e2e`.
With ONBEAT_TEST_MINUTES=N a run of everything begins no other end-to-end test after N minutes; those left are skipped.
What cannot run on this machine is skipped, and the end of the output lists it with the reason, as it
lists what failed beside others and was run again. The last line is `N passed, N failed, N skipped`.
"""

import collections
import contextlib
import ctypes
import functools
import glob
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib
from dataclasses import dataclass, field

from stamp import Stamp

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DEV = os.path.join(ROOT, "dev")
SUPERVISE = os.path.join(ROOT, "scripts/e2e/supervise.py")
PR_SET_PDEATHSIG = 1

# Whether a run of everything runs what passed before with the same inputs, too.
RUNS_ALL = bool(os.environ.get("ONBEAT_TEST_ALL"))

# Last lines of test programs: of Rust's own harness, and of ours.
CARGO_RESULT = re.compile(r"test result: \w+\. (\d+) passed; (\d+) failed")
OWN_RESULT = re.compile(r"(\d+) passed, (\d+) failed, (\d+) skipped$")
CARGO_TEST = ["cargo", "test", "--locked", "--workspace"]
# Decide what loom and Miri find in flow's channels.
FLOW = ("crates/runtime/flow", "crates/base", "Cargo.lock", "Cargo.toml", "scripts/check.sh")
# Decide how a page looks and moves. The numbers in it are tested without a browser.
PAGES = ("crates/observe/why", "crates/observe/views", "crates/observe/document", "crates/tools/cli/src/why",
         "demos/recorded/parking", "scripts/browser.py", "Cargo.lock", "dev")
# Decide what tests of the Python package find.
PYTHON = ("target/release/onbeat", "target/release/onbeat-store", "target/release/onbeat-replay",
          "demos/recorded/parking", "python/onbeat", "python/tests",
          "python/conftest.py", "python/pyproject.toml", "docs/how-to/python.md", "docs/how-to/timing.ipynb",
          "docs/model.schema.json", "docs/tables.md", "docs/cli.md", "crates/observe/views/src/report/style.css",
          "crates/observe/why/src/page/page.css", "scripts/python_tests.py", "scripts/python_schema.py", "scripts/ask_tables.py",
          "scripts/beside", "crates/observe/ctf/tests/recorded", "packaging/ros2", "dev")
# Folders with files that tests of a crate may read: they do if a source of the crate names the folder.
DATA = ("docs", "demos", "fuzz", "native", "packaging", "python", "scripts")
# Crates whose tests read what cargo does not report: they always run.
ALWAYS = ("c",)
# How many of the slowest test programs and end-to-end tests the end of the output lists.
SLOWEST = 10
# Parts that run side by side.
LANES = 4
# Crates whose tests run beside no other: their real-time threads would stop others, and their times count.
ALONE = ("reserve",)
# A test of a crate that fails beside others is run again alone: other programs can spoil what it
# measures. It fails when it fails this often, and what went wrong before is printed.
ATTEMPTS = 3
# A test program that takes longer hangs, and is ended.
PROGRAM_LIMIT_S = 600
# Test programs that take longest; they begin first.
LONGEST = ("record/recorder", "link/faults", "cli/hostile", "cli/command")
SKIPPED = re.compile(r"skipped:? +(.+)", re.IGNORECASE)
TEST_NAME = re.compile(r"\w+(::\w+)*")
UNCHANGED = re.compile(r"UNCHANGED +(\d+) tests")
AGAIN = re.compile(r"AGAIN +(.+)")
# A line of an end-to-end test: what came out, its name, its seconds.
TIMED = re.compile(r"(?:ok|FAILED|AGAIN) +([\w:-]+)[^(]*\((\d+) s")
FAILED = re.compile(r"(?:test (.+) \.\.\. FAILED|FAILED +(\w+).*)$")


def say(text):
    """A line about the progress."""
    print(f"-- {text}", file=sys.stderr, flush=True)


def terminate_with_parent():
    """Asks the kernel for SIGTERM when the thread that started this process ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def crates():
    """Cargo's names of the crates, by their short ones."""
    found = {}
    for manifest in sorted(glob.glob(os.path.join(ROOT, "crates/*/*/Cargo.toml"))):
        with open(manifest, "rb") as file:
            found[os.path.basename(os.path.dirname(manifest))] = tomllib.load(file)["package"]["name"]
    return found


@functools.cache
def compilers():
    """The versions of the compilers."""
    return b"".join(subprocess.run(command, capture_output=True, check=False).stdout
                    for command in (["rustc", "-vV"], ["rustc", "+nightly", "-vV"]))


@functools.cache
def digest_of(name):
    """A digest of a file, or of all files in a folder that git does not ignore."""
    found, names = hashlib.sha256(), [name]
    if os.path.isdir(os.path.join(ROOT, name)):
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", name],
                                cwd=ROOT, capture_output=True, text=True, check=True).stdout
        names = sorted({entry for entry in listed.split("\0") if entry})
    for entry in names:
        path = os.path.join(ROOT, entry)
        if os.path.islink(path):
            found.update(f"{entry}\0{os.readlink(path)}\n".encode())
            continue
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            found.update(f"{entry}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return found.digest()


def digest(inputs, programs=()):
    """A digest of files and folders, of the compilers, and of programs: where they are, their size, and when they were
    written, because cargo writes a program only if it has changed."""
    found = hashlib.sha256(compilers())
    for name in inputs:
        found.update(digest_of(name))
    for path in programs:
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(path)
            found.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return found.hexdigest()


@dataclass
class Part:
    """A command that runs tests, and what its output says of them."""

    name: str
    command: list
    # The folder it runs in.
    folder: str = ROOT
    passed: int = 0
    failed: int = 0
    # Skipped tests and the reasons.
    skipped: list = field(default_factory=list)
    failures: list = field(default_factory=list)
    # Tests that failed beside others and ran again.
    again: list = field(default_factory=list)
    # Seconds and name of each piece of this part.
    pieces: list = field(default_factory=list)
    seconds: float = 0
    # CPU time of all its processes.
    cpu_s: float = 0
    # The output; printed at once, or at the end of a part that runs beside others.
    lines: list = field(default_factory=list)
    # Whether the command's success is a test of its own, because it names no tests.
    is_test: bool = False
    # Within what tests that passed have printed: read for what they skipped, and not shown.
    in_successes: bool = False
    # Files and folders that alone decide what comes out: while they are the same, a part that passed does not run
    # again. Without them it always runs.
    inputs: tuple = ()
    # Programs that decide it, too.
    programs: tuple = ()
    # When it passed with these inputs; None: it ran.
    passed_before: str | None = None
    # How many of its pieces were left out because they passed before with the same inputs.
    unchanged: int = 0
    # After so many seconds it is ended as a failure; None: it may take any time.
    limit_s: float | None = None
    # Whether it was ended because of its limit.
    hung: bool = False

    def run(self, aloud=True):
        """Runs it, unless it has passed with the same inputs; returns itself."""
        stamp = Stamp(self.name, digest(self.inputs, self.programs)) if self.inputs else None
        self.passed_before = stamp and not RUNS_ALL and stamp.read()
        if self.passed_before:
            return self
        self.run_command(aloud)
        if stamp and self.passed and not self.failed and not self.skipped:
            stamp.write()
        return self

    def run_command(self, aloud):
        """Runs the command and reads its output."""
        begin = time.monotonic()
        if aloud:
            say(self.name)
        # Ends with all that it started when it ends, or when this process does, however that ends.
        process = subprocess.Popen([sys.executable, SUPERVISE, *self.command], cwd=self.folder,
                                   env={**os.environ, "CARGO_MANIFEST_DIR": self.folder}, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   errors="replace", preexec_fn=terminate_with_parent)
        watchdog = threading.Timer(self.limit_s or threading.TIMEOUT_MAX, self.end, [process])
        watchdog.daemon = True
        watchdog.start()
        try:
            for line in process.stdout:
                self.read(line.rstrip("\n"))
                if self.in_successes:
                    continue
                if aloud:
                    print(line, end="", flush=True)
                else:
                    self.lines.append(line)
            status = self.wait(process)
        except BaseException:
            process.terminate()
            process.wait()
            raise
        finally:
            watchdog.cancel()
        self.seconds = time.monotonic() - begin
        self.passed += self.is_test and status == 0 and not self.skipped
        if status != 0 and not self.failed:
            # It does not compile, or ended in a way that no test reports.
            self.failed = 1
            why = f"still running after {self.limit_s:.0f} s" if self.hung else f"exit code {status}"
            self.failures.append(f"{self.name} ({why})")

    def end(self, process):
        """Ends the command and everything that it started."""
        self.hung = True
        process.terminate()

    def wait(self, process):
        """Waits for the end of a process, and notes its CPU time; the exit code."""
        _, status, used = os.wait4(process.pid, 0)
        self.cpu_s = used.ru_utime + used.ru_stime
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode

    def read(self, line):
        """Notes what a line of the output says."""
        text = line.strip()
        if text == "successes:":
            self.in_successes = True
        elif text == "failures:" or text.startswith("test result:"):
            self.in_successes = False
        # Indented lines are what a test quotes of another program.
        if found := CARGO_RESULT.match(line):
            self.passed += int(found[1])
            self.failed += int(found[2])
        elif found := OWN_RESULT.match(line):
            self.passed += int(found[1])
            self.failed += int(found[2])
        elif found := SKIPPED.match(text):
            self.skipped.append(found[1])
        elif found := AGAIN.match(line):
            self.again.append(found[1])
        elif found := UNCHANGED.match(line):
            self.unchanged += int(found[1])
        if found := TIMED.match(line):
            self.pieces.append((float(found[2]), found[1]))
        if found := FAILED.match(line):
            self.failures.append(found[1] or found[2])

    def failed_by_name(self):
        """Whether tests failed, and all that failed have a name."""
        return 0 < self.failed == len(self.failures) and all(map(TEST_NAME.fullmatch, self.failures))

    def print_lines(self):
        """Prints the output that was kept."""
        say(f"{self.name} ({self.seconds:.0f} s, {self.cpu_s:.0f} s of CPU)")
        print("".join(self.lines), end="", flush=True)
        self.lines.clear()


PRINTING = threading.Lock()


def started(parts, lanes):
    """Starts parts side by side, so many at once; prints what each said when it ends. Returns the lanes' threads."""
    lock, waiting = threading.Lock(), collections.deque(parts)

    def run():
        while True:
            with lock:
                if not waiting:
                    return
                part = waiting.popleft()
            part.run(aloud=False)
            with PRINTING:
                if not part.passed_before:
                    part.print_lines()

    threads = [threading.Thread(target=run, daemon=True) for _ in range(lanes)]
    if parts:
        say("side by side: " + ", ".join(part.name for part in parts))
    for thread in threads:
        thread.start()
    return threads


def ended(threads):
    """Waits for threads, and for a signal meanwhile."""
    for thread in threads:
        while thread.is_alive():
            thread.join(0.5)


def beside(*parts, lanes=LANES):
    """Runs parts side by side, so many at once; prints what each said when it ends."""
    ended(started(parts, lanes))
    return list(parts)


def build():
    """The release binary, and the examples and the library for C that end-to-end tests need."""
    examples = "cargo build --release --locked --quiet -p onbeat-flow --example pipeline" \
               " && cargo build --release --locked --quiet -p onbeat-link --example crossing" \
               " && cargo build --release --locked --quiet -p onbeat-c"
    return Part("build", ["bash", "-c", f"'{DEV}' build && {examples}"])


def environment(distro):
    """A ROS 2 environment."""
    return Part(f"ROS 2 {distro}", [DEV, "ros-env", distro])


def prepare():
    """Prepares the program and the environments for tests of the whole program. Exits if a part fails."""
    parts = beside(build(), environment("kilted"), environment("jazzy"))
    if any(part.failed for part in parts):
        summarize(parts, max(part.seconds for part in parts))
        sys.exit(1)
    return parts


def unit(*others, all_of_them=True):
    """Unit and integration tests of the workspace, and those in its documentation. `others` run beside them, at the
    lowest priority; tests of `ALONE` run with no other test beside them. Unless `all_of_them` run, those are left out
    that passed before with the same inputs."""
    begin = time.monotonic()
    build_tests = Part("compile the tests", [*CARGO_TEST, "--no-run"]).run()
    if build_tests.failed:
        return build_tests
    programs = sorted(test_programs(), key=lambda part: part.name not in LONGEST)
    alone = [part for part in programs if part.name.split("/")[0] in ALONE]
    documentation = Part("documentation", [*CARGO_TEST, "--doc", "--no-fail-fast"], inputs=("crates", "Cargo.lock"))
    if all_of_them:
        for part in [*programs, documentation]:
            part.inputs = ()
    tests = [*[part for part in programs if part not in alone], documentation]
    # The others take lanes of their own: they must not be what everybody waits for at the end.
    computing = started(others, len(others))
    parts = beside(*tests)
    parts += beside(*alone, lanes=1)
    ended(computing)
    again(parts)
    whole = Part("unit and integration tests", [])
    for part in parts:
        whole.passed += part.passed
        whole.failed += part.failed
        whole.skipped += part.skipped
        whole.failures += part.failures
        whole.again += part.again
        whole.unchanged += bool(part.passed_before)
        whole.pieces.append((part.seconds, part.name))
        whole.cpu_s += part.cpu_s
    whole.pieces.append((build_tests.seconds, build_tests.name))
    whole.cpu_s += build_tests.cpu_s
    whole.seconds = time.monotonic() - begin
    return whole


def again(parts):
    """Runs the failed tests of each program again, alone, and a program that hung as a whole; not those of a
    program that crashed."""
    for part in parts:
        if part.hung:
            part.again += [f"{failure}, attempt 1 of 2" for failure in part.failures]
            retried = Part(part.name, part.command, folder=part.folder, limit_s=part.limit_s).run()
            part.passed, part.failed, part.failures = retried.passed, retried.failed, retried.failures
            part.skipped = retried.skipped
        number = 1
        while part.folder != ROOT and part.failed_by_name() and number < ATTEMPTS:
            part.again += [f"{part.name} {name}, attempt {number} of {ATTEMPTS}" for name in part.failures]
            number += 1
            names = list(part.failures)
            retried = Part(part.name, [*part.command, "--exact", *names], folder=part.folder).run()
            if retried.passed + retried.failed != len(names):
                break
            part.passed += retried.passed
            part.failed, part.failures = retried.failed, retried.failures


def built():
    """What cargo has built for the tests: path, folder of the crate, name and kind of the target, whether it is a test."""
    said = subprocess.run([*CARGO_TEST, "--no-run", "--message-format=json"], cwd=ROOT, check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    for message in map(json.loads, said.splitlines()):
        if message.get("executable"):
            target = message["target"]
            yield (message["executable"], os.path.dirname(message["manifest_path"]), target["name"], target["kind"][0],
                   message["profile"]["test"])


def sources_of(folder):
    """The files that tests of a crate may read."""
    inside = os.path.relpath(folder, ROOT)
    text = ""
    for path in glob.glob(os.path.join(folder, "**/*.rs"), recursive=True):
        with open(path, encoding="utf-8") as file:
            text += file.read()
    if '"../../.."' in text:
        return (".",)
    crates_read = sorted(name for name in glob.glob("crates/*/*", root_dir=ROOT)
                         if f"../{os.path.basename(name)}/" in text)
    return (inside, *crates_read, *(name for name in DATA if f"../{name}/" in text or f"../{name}\"" in text))


def test_programs():
    """The test programs that cargo has built, each to be run in its crate's folder as cargo does."""
    every = list(built())
    programs = {path: folder for path, folder, _, _, is_test in every if not is_test}
    for path, folder, name, kind, is_test in every:
        if not is_test:
            continue
        short = os.path.basename(folder)
        # Programs of tools start one another.
        is_tool = "/crates/tools/" in f"{folder}/"
        started_ones = tuple(sorted(p for p, of in programs.items() if is_tool or of == folder))
        yield Part(f"{short}/{'unit' if kind in ('lib', 'bin') else name}", [path, "--show-output"], folder=folder,
                   limit_s=PROGRAM_LIMIT_S, inputs=() if short in ALWAYS else sources_of(folder),
                   programs=(path, *started_ones))


def check(what, inputs=()):
    """Flow's channels under one of the checkers."""
    return Part(what, [os.path.join(ROOT, "scripts/check.sh"), what], inputs=inputs)


def aarch64():
    """Robots run on it."""
    return Part("aarch64 (compiled, not run)", [DEV, "aarch64", "--or-skip"], is_test=True)


def sched_ext():
    """A kernel that this machine may not have, in emulation: not among all parts, which it would make slow."""
    return Part("reservations on sched_ext, in a guest", [os.path.join(ROOT, "scripts/sched-ext.sh")])


def link_verbs():
    """Soft-RoCE, which this machine's kernel may not have, in emulation."""
    return Part("links over RDMA, in a guest", [os.path.join(ROOT, "scripts/link-verbs.sh")])


def replay_can():
    """CAN interfaces, which this machine's kernel may not have, in emulation."""
    return Part("replay into CAN, in a guest", [os.path.join(ROOT, "scripts/replay-can.sh")])


def pages():
    """Man pages and completions of the built programs."""
    return Part("man pages and completions", [sys.executable, os.path.join(ROOT, "scripts/package/test_pages.py")])


def browser(inputs=()):
    """Pages of the built program in a Chromium."""
    return Part("pages in a browser", [sys.executable, os.path.join(ROOT, "scripts/browser.py")], inputs=inputs)


def python(words=(), inputs=()):
    """The Python package, with the built program."""
    return Part("Python package", [sys.executable, os.path.join(ROOT, "scripts/python_tests.py"), *words], inputs=inputs)


def low_priority(part):
    """The same part with the lowest priority."""
    part.command = ["nice", "-n", "19", *part.command]
    return part


def end_to_end(words):
    """Real ROS 2 applications, recorded and compared with what they know."""
    return Part("end-to-end tests", [sys.executable, os.path.join(ROOT, "scripts/e2e"), *words])


def end_to_end_inputs():
    """A digest of what decides the end-to-end tests: the built programs, and every file but Rust's and documents."""
    release = os.path.join(ROOT, "target/release")
    programs = sorted(path for path in glob.glob(f"{release}/*") + glob.glob(f"{release}/examples/*")
                      if os.path.isfile(path) and not path.endswith(".d"))
    return digest(("crates/runtime/c/include", "demos", "dev", "native", "packaging", "python", "scripts"), programs)


def everything():
    """All parts. What only computes runs side by side, what measures time runs alone."""
    begin = time.monotonic()
    parts = prepare()
    # They wait for nothing and measure nothing: they take the time in which tests wait.
    computing = [low_priority(part) for part in (check("miri-lib", FLOW), check("loom", FLOW), aarch64(), pages(),
                                                   browser(PAGES), python(inputs=PYTHON))]
    parts += [unit(*computing, all_of_them=False), *computing]
    words = []
    if minutes := os.environ.get("ONBEAT_TEST_MINUTES"):
        words = ["--within", str(max(0, float(minutes) * 60 - (time.monotonic() - begin)))]
    if not RUNS_ALL:
        words += ["--inputs", end_to_end_inputs()]
    parts.append(end_to_end(words).run())
    return parts


def listing():
    """Prints what can be asked for."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    print("parts:  unit, e2e, channels, pages, browser, python, aarch64, sched-ext, link-verbs, replay-can")
    print(f"crates: {', '.join(crates())}")
    print("end-to-end tests, by subject:", flush=True)
    subprocess.run([sys.executable, os.path.join(ROOT, "scripts/e2e"), "--list"], check=False)


def chosen(words):
    """Runs what the command line asks for; the parts."""
    first, rest = (words[0], words[1:]) if words else ("all", [])
    if first == "e2e":
        if "--help" in rest or "-h" in rest or "--list" in rest:
            sys.exit(subprocess.run(end_to_end(rest).command, check=False).returncode)
        return [*prepare(), end_to_end(rest).run()]
    if first in crates():
        if first == "cli" or first.endswith("-cli"):
            # Their tests start the programs beside the one under test.
            programs = [f"-p{name}" for short, name in crates().items() if short == "cli" or short.endswith("-cli")]
            built = Part("build the programs", ["cargo", "build", "--locked", "--quiet", *programs]).run()
            if built.failed:
                return [built]
        command = ["cargo", "test", "--locked", "--no-fail-fast", "-p", crates()[first], "--",
                   "--show-output", *rest]
        return [Part(f"tests of {first}", command).run()]
    if first == "python":
        return [*beside(build()), python(rest).run()]
    if rest:
        sys.exit(f"test: '{first}' takes no words: {' '.join(rest)}")
    if first == "all":
        return everything()
    if first == "unit":
        return [*prepare(), unit()]
    if first == "channels":
        return beside(check("miri-lib"), check("loom"))
    if first == "pages":
        return [*beside(build()), pages().run()]
    if first == "browser":
        return [*beside(build()), browser().run()]
    if first == "aarch64":
        return [aarch64().run()]
    if first == "sched-ext":
        return [sched_ext().run()]
    if first == "link-verbs":
        return [link_verbs().run()]
    if first == "replay-can":
        return [replay_can().run()]
    sys.exit(f"test: no part and no crate '{first}': ./dev test list")


def summarize(parts, elapsed):
    """Prints where the time went, what was skipped and why, what failed; whether nothing did."""
    print()
    for part in parts:
        if part.seconds >= 1:
            print(f"{part.seconds:6.0f} s, {part.cpu_s:6.0f} s of CPU  {part.name}")
    print(f"{elapsed:6.0f} s  in all")
    pieces = [piece for part in parts for piece in part.pieces or [(part.seconds, part.name)]]
    print("slowest: " + ", ".join(f"{name} {seconds:.0f} s" for seconds, name in sorted(pieces, reverse=True)[:SLOWEST]))
    for part in parts:
        if part.passed_before:
            print(f"UNCHANGED {part.name}: passed on {part.passed_before} with the same inputs")
        if part.unchanged:
            print(f"UNCHANGED {part.name}: {part.unchanged} passed before with the same inputs (ONBEAT_TEST_ALL=1 runs"
                  " them, too)")
    for part in parts:
        for reason in part.skipped:
            print(f"SKIPPED  {reason}")
    for part in parts:
        for name in part.again:
            print(f"AGAIN    {name}")
    for part in parts:
        for failure in part.failures:
            print(f"FAILED   {failure}")
    failed = sum(part.failed for part in parts)
    print(f"{sum(part.passed for part in parts)} passed, {failed} failed,"
          f" {sum(len(part.skipped) for part in parts)} skipped", flush=True)
    return failed == 0


def main():
    """Runs what the command line asks for."""
    words = sys.argv[1:]
    if words and words[0] in ("-h", "--help", "help"):
        print(__doc__.strip())
        return 0
    if words == ["list"]:
        listing()
        return 0
    begin = time.monotonic()
    parts = chosen(words)
    return 0 if summarize(parts, time.monotonic() - begin) else 1


if __name__ == "__main__":
    sys.exit(main())
