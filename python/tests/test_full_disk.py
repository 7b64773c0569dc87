"""A disk that fills: an export leaves no half-written file, and the files of earlier exports stay as they were."""

import hashlib
import os
import subprocess
import sys

import pytest
from conftest import ROOT, TRACE

import onbeat

# Mounts a file system of the size $0 over the directory `disk`, and runs the script $1 in it.
DISK = 'mount -t tmpfs -o "size=$0k" none disk && cd disk && exec sh -ec "$1"'


def on_a_disk(size_kb, script, folder):
    """Runs a script in a file system of this size, which only the script sees. Skips the test if it cannot be mounted."""
    for more in ([], ["--map-root-user"]):
        unshare = ["unshare", "--mount", *more]
        if subprocess.run([*unshare, "sh", "-c", "mount -t tmpfs none /mnt"], check=False, capture_output=True).returncode == 0:
            break
    else:
        pytest.skip("a small file system cannot be mounted here")
    (folder / "disk").mkdir()
    env = {**os.environ, "ONBEAT": onbeat.command(), "TRACE": os.path.join(ROOT, TRACE), "TMPDIR": str(folder)}
    done = subprocess.run([*unshare, "sh", "-c", DISK, str(size_kb), script], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("words", ["--to tables -o new", "--to arrow -o new", "--to arrow --table switches -o new",
                                   "--to mcap -o new", "--to parquet -o new", "--to perfetto -o new",
                                   "--to executions -o new", "--to text -o new"])
def test_an_export_to_a_full_disk_fails_and_leaves_no_file(words, tmp_path):
    said = on_a_disk(8, f'"$ONBEAT" export "$TRACE" {words} 2>&1 || echo "exit code $?"; echo "files: $(find . -type f)."', tmp_path)
    assert "exit code 1\n" in said and "No space left on device" in said, said
    assert said.endswith("files: .\n"), said


def test_an_export_that_fails_keeps_the_tables_of_other_runs(tmp_path):
    script = """
"$ONBEAT" export "$ROOT_TRACES/parking" --to tables -o tables 2>/dev/null
find tables -type f | sort | xargs sha256sum
dd if=/dev/zero of=filler bs=1k count=100000 2>/dev/null || true
"$ONBEAT" export "$ROOT_TRACES/parking" --to tables -o tables 2>/dev/null || echo "exit code $?"
find tables -type f | sort | xargs sha256sum
"""
    script = script.replace("$ROOT_TRACES", os.path.join(ROOT, "demos/recorded"))
    before, code, after = on_a_disk(4096, script, tmp_path).partition("exit code 1\n")
    assert code and before == after and before.count(".parquet") == 10, before + code + after
    assert hashlib.sha256(b"").hexdigest() not in before


def test_a_table_that_cannot_be_read_for_lack_of_space_raises_an_error(tmp_path):
    script = """
"$PYTHON" -c "
import onbeat, os
try:
    onbeat.open(os.environ['TRACE']).read('executions', 'switches')
except onbeat.OnbeatError as error:
    print(type(error).__name__, error)
"
echo "files: $(find . -type f)."
"""
    script = script.replace('"$PYTHON"', f"TMPDIR=. '{sys.executable}'")
    said = on_a_disk(8, script, tmp_path)
    assert said.startswith("CommandFailed cannot write") and said.endswith("files: .\n"), said
