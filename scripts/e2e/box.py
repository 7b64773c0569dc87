#!/usr/bin/env python3
"""Runs a program in a container: namespaces and a root of its own, with folders at other paths than outside.

usage: box.py FOLDER=PLACE ... -- PROGRAM [ARGUMENT ...]

It needs root and util-linux. Nothing of it is left when the program has ended or this process is killed.
"""

import fcntl
import os
import socket
import struct
import subprocess
import sys

INSIDE = "ONBEAT_E2E_IN_BOX"
SYSTEM = ["bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc"]


def mount(*words):
    """Calls mount(8)."""
    subprocess.run(["mount", *words], check=True)


def bind(source, target):
    """Shows a folder at another place."""
    os.makedirs(target, exist_ok=True)
    mount("--bind", source, target)


def build(folders):
    """A root with the machine's programs and these folders; goes into it."""
    # In memory, over a folder that is there anyway: there is nothing to be removed.
    root = "/mnt"
    mount("-t", "tmpfs", "tmpfs", root)
    for name in SYSTEM:
        source, target = os.path.join("/", name), os.path.join(root, name)
        if os.path.islink(source):
            os.symlink(os.readlink(source), target)
        elif os.path.isdir(source):
            bind(source, target)
    for folder in folders:
        source, place = folder.split("=")
        bind(source, root + place)
    for name in ("proc", "dev", "tmp", "old"):
        os.mkdir(os.path.join(root, name))
    mount("-t", "proc", "proc", os.path.join(root, "proc"))
    mount("--rbind", "/dev", os.path.join(root, "dev"))
    mount("-t", "tmpfs", "tmpfs", os.path.join(root, "dev/shm"))
    os.chdir(root)
    subprocess.run(["pivot_root", ".", "old"], check=True)
    os.chdir("/")
    subprocess.run(["umount", "-l", "/old"], check=True)


def loopback():
    """Turns the container's only network interface on."""
    up_and_running = 0x1 | 0x40
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", up_and_running))


def main():
    """First makes the namespaces, then is called again within them."""
    at = sys.argv.index("--")
    if INSIDE not in os.environ:
        own = ["--pid", "--fork", "--kill-child", "--mount", "--net", "--ipc", "--uts", "--cgroup"]
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", *own, "--propagation", "private", sys.executable, *sys.argv])
    del os.environ[INSIDE]
    build(sys.argv[1:at])
    loopback()
    os.execvp(sys.argv[at + 1], sys.argv[at + 1:])


if __name__ == "__main__":
    main()
