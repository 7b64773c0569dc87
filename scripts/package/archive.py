"""Makes the archive to unpack anywhere: the same files as the Debian package, below one folder."""

import gzip
import io
import os
import tarfile
import tempfile

import files
import licences
import programs


def make(target, to):
    """Makes the archive in a folder; its path."""
    name = f"onbeat-{programs.version()}-{target.machine}-linux"
    path = os.path.join(to, name + ".tar.gz")
    os.makedirs(to, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        tree = os.path.join(scratch, name)
        files.place(target, tree)
        documents = os.path.join(tree, "share/doc/onbeat")
        files.write(os.path.join(documents, "third-party-licences.txt"), licences.whole())
        for document in ("LICENSE", "README.md", "CHANGELOG.md"):
            files.copy(os.path.join(programs.ROOT, document), os.path.join(documents, document))
        for unit in files.UNITS:
            files.copy(os.path.join(files.PACKAGING, "systemd", unit), os.path.join(documents, "examples", unit))
        files.settle(tree)
        memory = io.BytesIO()
        with tarfile.open(fileobj=memory, mode="w", format=tarfile.GNU_FORMAT) as archive:
            archive.add(tree, name, recursive=False, filter=by_root)
            for at in sorted(os.path.relpath(os.path.join(folder, each), tree)
                             for folder, folders, names in os.walk(tree) for each in (*folders, *names)):
                archive.add(os.path.join(tree, at), os.path.join(name, at), recursive=False, filter=by_root)
        with open(path, "wb") as file:
            file.write(gzip.compress(memory.getvalue(), 9, mtime=0))
    return path


def by_root(entry):
    """The entry as root's, whoever packs it."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry
