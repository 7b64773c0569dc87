"""Runs a function in a process of its own that leaves nothing behind, however it or its runner ends.

The runner forks a guard, and the guard forks the worker that calls the function. The guard adopts
every process that the worker leaves (a subreaper, see prctl(2)) and ends all of them as soon as the
worker or the runner is gone. A worker whose guard is killed dies with it; what is left then falls to
the runner, which is a subreaper too.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
# How long processes have to end after SIGTERM before they are killed.
GRACE_S = 10
# How long processes of a test may outlive its function before they count as left behind.
LINGER_S = 30
POLL_S = 0.1


def prctl(option, value):
    """prctl(2) with one argument."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl {option}: {os.strerror(error)}")


def become_subreaper():
    """Descendants whose parent ends become children of this process."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def children(pid):
    """Ids of a process's children, zombies included."""
    found = []
    with contextlib.suppress(OSError):
        for tid in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/task/{tid}/children", encoding="ascii") as file:
                    found += map(int, file.read().split())
    return found


def descendants(pid):
    """Ids of all processes below a process, zombies included."""
    found = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found


def command(pid):
    """A process's command line, or None once it has ended."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            text = file.read().replace("\0", " ").strip()
        return text or None
    return None


def reap():
    """Collects children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def send(pid, number):
    """Sends a signal, as root if it takes root."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        if shutil.which("sudo"):
            subprocess.run(["sudo", "-n", "kill", f"-{int(number)}", str(pid)], check=False,
                           capture_output=True)


def end_descendants(keep=()):
    """Ends every process below this one: SIGTERM, and SIGKILL after a while.

    Children in `keep` stay, with all below them.
    """
    begin, asked = time.monotonic(), set()
    while True:
        reap()
        left = [pid for child in children(os.getpid()) if child not in keep
                for pid in (child, *descendants(child))]
        waited = time.monotonic() - begin
        if not left or waited > 2 * GRACE_S:
            return
        for pid in left:
            if waited > GRACE_S:
                send(pid, signal.SIGKILL)
            elif pid not in asked:
                asked.add(pid)
                # A stopped process acts on SIGTERM only after SIGCONT.
                send(pid, signal.SIGTERM)
                send(pid, signal.SIGCONT)
        time.sleep(0.05)


class Worker:
    """A function that runs under a guard."""

    def __init__(self, guard, answers):
        self.guard, self.answers = guard, answers
        self.data = b""

    def fileno(self):
        """Readable when something has arrived."""
        return self.answers

    def read(self):
        """Reads what has arrived; whether guard and worker have both ended."""
        piece = os.read(self.answers, 65536)
        self.data += piece
        if piece:
            return False
        os.close(self.answers)
        return True

    def results(self):
        """Returns the reports of worker and guard together."""
        found = {}
        for line in self.data.splitlines():
            found.update(json.loads(line))
        return found

    def stop(self):
        """Asks the guard to end all."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.guard, signal.SIGTERM)


class Supervisor:
    """Starts workers whose guards notice the end of this process."""

    def __init__(self):
        become_subreaper()
        # Nobody writes: the guards see the end of file when the runner is gone.
        self.lifeline, self.held_open = os.pipe()

    def start(self, function):
        """Runs function() -> dict under a guard of its own."""
        answers, answer = os.pipe()
        guard = os.fork()
        if guard:
            os.close(answer)
            return Worker(guard, answers)
        status = 1
        try:
            os.setsid()
            os.close(answers)
            os.close(self.held_open)
            guarded(function, self.lifeline, answer)
            status = 0
        finally:
            os._exit(status)


def guarded(function, lifeline, answer):
    """The guard: runs the worker, and ends whatever it leaves."""
    become_subreaper()
    stopped = []
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    guard = os.getpid()
    worker = os.fork()
    if not worker:
        status = 1
        try:
            work(function, guard, lifeline, answer)
            status = 0
        finally:
            os._exit(status)
    done = watch(worker, lifeline, stopped)
    if done and descendants(guard):
        # The last of them may be about to end.
        deadline = time.monotonic() + LINGER_S
        while descendants(guard) and time.monotonic() < deadline:
            reap()
            time.sleep(0.05)
        left = [text for text in map(command, descendants(guard)) if text]
        if left:
            os.write(answer, (json.dumps({"left": left}) + "\n").encode())
    end_descendants()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    os.write(answer, (json.dumps({"cpu_s": used.ru_utime + used.ru_stime}) + "\n").encode())


def watch(worker, lifeline, stopped):
    """Waits for the worker's end, and collects whoever else ends; False if all has to end now."""
    while not stopped:
        while True:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == worker:
                return True
            if not pid:
                break
        if select.select([lifeline], [], [], POLL_S)[0]:
            return False
    return False


def work(function, guard, lifeline, answer):
    """The worker: calls the function and writes what it returns."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:
        return
    os.close(lifeline)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    result = function()
    os.write(answer, (json.dumps(result) + "\n").encode())


def run_command(words):
    """Runs a command and ends all that it leaves, also when this process is asked to end."""
    become_subreaper()
    stopped = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stopped.append(True))
    process = subprocess.Popen(words)
    # Its pid stays its own until it is waited for, so orphans are collected one by one.
    while not stopped and process.poll() is None:
        for pid in children(os.getpid()):
            if pid != process.pid:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
        time.sleep(POLL_S)
    status = process.returncode
    end_descendants()
    return 130 if stopped else status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(run_command(sys.argv[1:]))
