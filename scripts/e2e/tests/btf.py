"""Kernels and file systems that refuse a part of BPF: a kernel without BTF, files that cannot be probed."""

import os
import shutil
import struct
import subprocess

from compare import expect_all
from harness import ONBEAT, load
from registry import Skip, need, test
from tests.observe import GENTLE

KERNEL = "/sys/kernel/btf/vmlinux"

# Bytes after the head of a type of BTF, by its kind: fixed, and for each member (include/uapi/linux/btf.h).
HEAD, STRUCT, FIXED = 12, 4, {1: 4, 3: 12, 14: 4, 17: 4}
MEMBERS = {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}

# How much later a member stands in another kernel, in bytes: beyond members with similar content.
MOVED = 64


def types_file(harness, name, content):
    """A file that belongs to root and that only root can write."""
    path = harness.new_file(name)
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, 0o644)
    return path


def kernels_types():
    """The BTF of this machine's kernel, as the file of a user has it."""
    if os.geteuid() != 0:
        raise Skip("the file must belong to root")
    if not os.path.exists(KERNEL):
        raise Skip("this kernel has no BTF that a file could contain")
    with open(KERNEL, "rb") as file:
        return file.read()


def moved(types, structure, member):
    """BTF of another kernel: a member stands somewhat later."""
    types = bytearray(types)
    head, at, length, strings = struct.unpack_from("<IIII", types, 4)

    def name(offset):
        return types[head + strings + offset:].split(b"\0", 1)[0].decode()

    at += head
    end = at + length
    while at < end:
        word, info = struct.unpack_from("<II", types, at)
        kind, count = info >> 24 & 31, info & 0xffff
        if kind == STRUCT and word and name(word) == structure:
            for place in range(at + HEAD, at + HEAD + 12 * count, 12):
                if name(struct.unpack_from("<I", types, place)[0]) == member:
                    bits, = struct.unpack_from("<I", types, place + 8)
                    struct.pack_into("<I", types, place + 8, bits + 8 * MOVED)
                    return bytes(types)
        at += HEAD + FIXED.get(kind, 0) + MEMBERS.get(kind, 0) * count
    raise Skip(f"this kernel has no {structure}.{member}")


@test
def btf_file_in_place_of_the_kernels_btf_gives_a_model_equal_to_the_ground_truth(harness):
    """SYN, recorded by the programs for kernels without BTF, is as in its truth."""
    file = types_file(harness, "vmlinux.btf", kernels_types())
    truth, model = harness.syn("btf_from_a_file", "kilted", *GENTLE, how=["--btf", file])
    need(any("--btf" in line for line in model["coverage"]), "the recording does not say what it lacks")
    expect_all(harness, truth, model)


@test
def btf_of_another_kernel_is_refused(harness):
    """A file that does not describe this kernel is refused, as is one that others can write."""
    types = kernels_types()
    for structure, member in (("task_struct", "pid"), ("task_struct", "comm"),
                              ("sched_entity", "sum_exec_runtime")):
        file = types_file(harness, "other.btf", moved(types, structure, member))
        text = refusal(harness, file)
        need("does not describe the running kernel" in text, f"{structure}.{member}: {text}")
    file = types_file(harness, "loose.btf", types)
    os.chmod(file, 0o666)
    need("only root can write" in refusal(harness, file), "a file that all can write was taken")


def refusal(harness, file):
    """What onbeat says of the file."""
    ended = subprocess.run([*harness.privileged(), ONBEAT, "record", "-o", harness.file("refused"), "--btf",
                            file, "--duration", "1s"], capture_output=True, text=True, check=False)
    need(ended.returncode == 2, f"exit code {ended.returncode}: {ended.stderr}")
    return ended.stderr


@test
def a_file_system_that_refuses_probes_is_recorded_without_them(harness):
    """A command is recorded as with --preload if its file system refuses probes; files of /proc do."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        raise Skip("only root can mount a file of a file system without probes")
    prefix = harness.file("refusing")
    library = os.path.join(prefix, "lib/libtracetools.so")
    os.makedirs(os.path.dirname(library), exist_ok=True)
    with open(library, "w", encoding="utf-8"):
        pass
    mount = f"mount --bind /proc/version {library} && exec \"$@\""
    before = ["unshare", "--mount", "sh", "-c", mount, "sh", "env", f"AMENT_PREFIX_PATH={prefix}"]
    truth, model = harness.syn("refused", "kilted", *GENTLE, before=before)
    manifest = load(os.path.join(harness.file("refused.trace"), "manifest.json"))
    need(manifest["probing"] == "preload", f"it was recorded by {manifest['probing']}")
    expect_all(harness, truth, model)
