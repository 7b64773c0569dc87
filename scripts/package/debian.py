"""Makes the Debian package: a tree of files, packed by dpkg-deb."""

import gzip
import os
import re
import shutil
import subprocess
import tempfile
import textwrap
from email.utils import formatdate

import files
import licences
import programs

DEBIAN = os.path.join(files.PACKAGING, "debian")
# The libraries of the package libc6.
LIBC = re.compile(r"(libc|libm|libpthread|libdl|librt|ld-linux-[a-z0-9-]+)\.so\.\d+")
SCRIPTS = ("postinst", "prerm", "postrm")
# Who publishes the package sets an address.
MAINTAINER = os.environ.get("ONBEAT_MAINTAINER", "onbeat maintainers <maintainers@onbeat.invalid>")


def compressed(path, text):
    """Writes a compressed file; each build gives the same bytes."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(gzip.compress(text.encode(), 9, mtime=0))


def changelog():
    """CHANGELOG.md in Debian's form: the entries of each version."""
    with open(os.path.join(programs.ROOT, "CHANGELOG.md"), encoding="utf-8") as file:
        text = file.read()
    out, date = [], formatdate(programs.source_date())
    for number, entries in re.findall(r"(?m)^## (\S+)[^\n]*\n(.*?)(?=^## |\Z)", text, re.DOTALL):
        out += [f"onbeat ({number}) unstable; urgency=medium", ""]
        # The headings of the subjects would end up in the entries before them.
        for entry in re.split(r"(?m)^- ", re.sub(r"(?m)^#.*\n", "", entries))[1:]:
            # Links lead nowhere in an installed text.
            said = " ".join(re.sub(r" ?\(?\[[^]]*\]\([^)]*\)\)?", "", entry).split())
            out += textwrap.wrap(said, 76, initial_indent="  * ", subsequent_indent="    ", break_on_hyphens=False)
        out += ["", f" -- {MAINTAINER}  {date}", ""]
    return "\n".join(out)


def foreign_dependencies(paths):
    """Packages with the libraries that programs for another machine are linked with; dpkg-shlibdeps has no list of that machine's."""
    said = subprocess.run(["readelf", "-dW", *paths], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", said))
    others = {name for name in needed if not LIBC.fullmatch(name)}
    if unknown := others - {"libgcc_s.so.1"}:
        raise SystemExit(f"package: the programs need {', '.join(sorted(unknown))}, and it is not known which package has it")
    return f"libc6 (>= {programs.GLIBC})" + (", libgcc-s1 (>= 4.2)" if others else "")


def dependencies(tree, target):
    """Packages with the libraries that the programs are linked with, as dpkg-shlibdeps finds them."""
    paths = [os.path.join(tree, "usr/bin", name) for name in programs.PROGRAMS]
    paths.append(os.path.join(tree, f"usr/lib/{target.multiarch}/libonbeat_c.so.{programs.version()}"))
    if target is not programs.X86_64:
        return foreign_dependencies(paths)
    with tempfile.TemporaryDirectory() as folder:
        files.write(os.path.join(folder, "debian/control"), "Source: onbeat\n\nPackage: onbeat\nArchitecture: any\n")
        said = subprocess.run(["dpkg-shlibdeps", "-O", "--warnings=0", *paths], cwd=folder, capture_output=True, text=True)
    found = re.search(r"shlibs:Depends=(.*)", said.stdout)
    if said.returncode or not found:
        raise SystemExit(f"package: dpkg-shlibdeps failed: {said.stderr.strip()}")
    return found[1]


def control(tree, target):
    """Writes the control files of the package."""
    folder = os.path.join(tree, "DEBIAN")
    paths = sorted(os.path.relpath(os.path.join(path, name), tree) for path, _, names in os.walk(tree) for name in names)
    size = sum(-(-os.lstat(os.path.join(tree, path)).st_size // 1024) for path in paths)
    sums = subprocess.run(["md5sum", *(path for path in paths if not os.path.islink(os.path.join(tree, path)))],
                          cwd=tree, capture_output=True, text=True, check=True).stdout
    files.fill(os.path.join(DEBIAN, "control"), os.path.join(folder, "control"), VERSION=programs.version(),
               ARCHITECTURE=target.debian, SIZE=str(size), DEPENDS=dependencies(tree, target), MAINTAINER=MAINTAINER)
    files.write(os.path.join(folder, "md5sums"), sums)
    files.write(os.path.join(folder, "triggers"), "activate-noawait ldconfig\n")
    name, number = programs.SO_NAME.split(".so.")
    files.write(os.path.join(folder, "shlibs"), f"{name} {number} onbeat (>= {programs.version()})\n")
    for script in SCRIPTS:
        files.copy(os.path.join(DEBIAN, script), os.path.join(folder, script))


def make(target, to):
    """Makes the package in a folder; its path."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = os.path.join(scratch, "onbeat")
        files.place(target, os.path.join(tree, "usr"), f"lib/{target.multiarch}")
        documents = os.path.join(tree, "usr/share/doc/onbeat")
        files.fill(os.path.join(DEBIAN, "copyright"), os.path.join(documents, "copyright"), MAINTAINER=MAINTAINER)
        compressed(os.path.join(documents, "changelog.gz"), changelog())
        compressed(os.path.join(documents, "third-party-licences.gz"), licences.whole())
        files.copy(os.path.join(DEBIAN, "lintian-overrides"), os.path.join(tree, "usr/share/lintian/overrides/onbeat"))
        for unit in files.UNITS:
            files.copy(os.path.join(files.PACKAGING, "systemd", unit),
                       os.path.join(tree, "usr/lib/systemd/system", unit))
        control(tree, target)
        files.settle(tree)
        for script in SCRIPTS:
            os.chmod(os.path.join(tree, "DEBIAN", script), 0o755)
        os.makedirs(to, exist_ok=True)
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(programs.source_date())}
        said = subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", tree, scratch],
                              env=environment, capture_output=True, text=True, check=False)
        if said.returncode:
            raise SystemExit(f"package: dpkg-deb failed: {said.stderr.strip()}")
        made = next(name for name in os.listdir(scratch) if name.endswith(".deb"))
        return shutil.move(os.path.join(scratch, made), os.path.join(to, made))
