"""Runs a command as in a plain container: without capabilities, and where its filter of system calls,
as containers have by default, refuses bpf and perf_event_open. With --perf the latter is allowed.

    python3 confined.py [--perf] COMMAND [ARGUMENT ...]
"""

import ctypes
import os
import platform
import struct
import sys

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 22, 38, 24
SECCOMP_MODE_FILTER = 2
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | 1  # EPERM
NUMBERS = {"x86_64": {"bpf": 321, "perf_event_open": 298},
           "aarch64": {"bpf": 280, "perf_event_open": 241}}

libc = ctypes.CDLL(None, use_errno=True)


class Program(ctypes.Structure):
    """`struct sock_fprog`."""
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def refuse(numbers):
    """From now on these system calls fail with EPERM, also in what is executed."""
    lines = [(LOAD, 0, 0, 0)]
    lines += [(EQUAL, len(numbers) - i, 0, number) for i, number in enumerate(numbers)]
    lines += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)]
    code = b"".join(struct.pack("HBBI", *line) for line in lines)
    program = Program(len(lines), code)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0):
        sys.exit(f"confined: seccomp: {os.strerror(ctypes.get_errno())}")


def main():
    """Confines this process, then becomes the command."""
    words = sys.argv[1:]
    numbers = dict(NUMBERS[platform.machine()])
    if words[0] == "--perf":
        words.pop(0)
        del numbers["perf_event_open"]
    # A program that is executed later has no capability, not even as root.
    for capability in range(64):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    refuse(list(numbers.values()))
    os.execvp(words[0], words)


main()
