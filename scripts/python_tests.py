"""Tests the Python package: types, tests, examples, and the package in Pythons without other packages.

usage: scripts/python_tests.py [WORD ...]    tests whose names contain a WORD; without one, all of them

`$ONBEAT` is the command (default: target/release/onbeat). The last line is `N passed, N failed, N skipped`.
"""

import glob
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGE = os.path.join(ROOT, "python")
# Versions in which the package works; find_python chooses the one that runs most tests.
VERSIONS = [f"3.{minor}" for minor in range(10, 15)]
TIMEOUT_S = 600


def prepared():
    """The interpreter of an environment with the packages that the tests need, or None."""
    done = subprocess.run([os.path.join(ROOT, "dev"), "python-env"], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return None
    return os.path.join(done.stdout.strip().splitlines()[-1], "bin/python")


def types(python):
    """Whether mypy --strict passes."""
    return subprocess.run([python, "-m", "mypy", "--cache-dir", os.path.join(tempfile.gettempdir(), "onbeat-mypy")],
                          cwd=PACKAGE, check=False, timeout=TIMEOUT_S).returncode == 0


def tests(python, words):
    """Runs pytest: tests and the examples of docstrings. The number of tests that passed, names of failed and of
    skipped ones."""
    with tempfile.TemporaryDirectory() as scratch:
        report = os.path.join(scratch, "report.xml")
        choice = ["-k", " or ".join(words)] if words else []
        done = subprocess.run(
            [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", os.path.join(scratch, "work"),
             "--doctest-modules", f"--junitxml={report}", "--doctest-continue-on-failure", *choice, "tests", "--ignore=tests/bare.py",
             *(os.path.join("onbeat", name) for name in os.listdir(os.path.join(PACKAGE, "onbeat"))
               if name.endswith(".py") and name not in ("dask.py", "ray.py", "spark.py", "ros2.py", "launch.py"))],
            cwd=PACKAGE, check=False, timeout=TIMEOUT_S)
        if not os.path.exists(report):
            return 0, [f"pytest (exit code {done.returncode})"], []
        cases = list(xml.etree.ElementTree.parse(report).getroot().iter("testcase"))
    failed = [one.get("name") for one in cases if one.find("failure") is not None or one.find("error") is not None]
    skipped = [one.get("name") for one in cases if one.find("skipped") is not None]
    return len(cases) - len(failed) - len(skipped), failed, skipped


def interpreter(version):
    """A Python of this version that works, on the search path or in pyenv's folder, or None."""
    folder = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    for program in [shutil.which(f"python{version}"), *glob.glob(f"{folder}/versions/{version}.*/bin/python{version}")]:
        if program and subprocess.run([program, "--version"], check=False, capture_output=True).returncode == 0:
            return program
    return None


def bare():
    """Tests the package in each Python of this machine without its other packages: passed, failed, skipped."""
    passed, failed, skipped = 0, [], []
    with tempfile.TemporaryDirectory() as scratch:
        model = os.path.join(scratch, "model.json")
        subprocess.run([os.environ["ONBEAT"], "model", os.path.join(ROOT, "demos/recorded/parking"), "-o", model],
                       check=True, stdout=subprocess.DEVNULL)
        for version in VERSIONS:
            program = interpreter(version)
            if program is None:
                skipped.append(f"the package in Python {version}: it is not installed")
                continue
            script = os.path.join(PACKAGE, "tests/bare.py")
            done = subprocess.run([program, "-S", "-E", "-B", "-W", "error", script, model], check=False, timeout=TIMEOUT_S)
            passed += done.returncode == 0
            failed += [f"bare_python_{version.replace('.', '_')}"] if done.returncode else []
    return passed, failed, skipped


def main():
    """Runs all parts."""
    # Words choose tests of pytest only.
    words = sys.argv[1:]
    os.environ["ONBEAT"] = os.path.abspath(os.environ.get("ONBEAT", os.path.join(ROOT, "target/release/onbeat")))
    os.environ["PYTHONPATH"] = PACKAGE
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    passed, failed, skipped = (0, [], []) if words else bare()
    python = prepared()
    if python is None:
        skipped.append("tests of the Python package: its packages cannot be installed here")
    else:
        if not words:
            passed, failed = (passed + 1, failed) if types(python) else (passed, [*failed, "types"])
        of = tests(python, words)
        passed, failed, skipped = passed + of[0], failed + of[1], skipped + of[2]
    for reason in skipped:
        print(f"SKIPPED {reason}")
    for name in failed:
        print(f"FAILED {name}")
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
