"""Places the files of a package in a folder, as they are installed below a prefix."""

import glob
import os
import re
import shutil

import commands
import completions
import pages
import programs

PACKAGING = os.path.join(programs.ROOT, "packaging")
UNITS = ("onbeat-shape.service", "onbeat-monitor.service")


def fill(source, to, **words):
    """Copies a text with these words in place of @WORD@."""
    with open(source, encoding="utf-8") as file:
        text = file.read()
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    if left := re.search(r"@[A-Z_]+@", text):
        raise SystemExit(f"package: {source}: nothing replaces {left[0]}")
    write(to, text)


def write(path, text):
    """Writes a file and makes its folders."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def copy(source, to):
    """Copies a file and makes its folders."""
    os.makedirs(os.path.dirname(to), exist_ok=True)
    shutil.copyfile(source, to)


def place(target, prefix, libraries="lib"):
    """Places all that every package has: programs, man pages, completions, the library for C, documents."""
    for name in programs.PROGRAMS:
        programs.strip(target, os.path.join(target.built(), name), os.path.join(prefix, "bin", name))
    # Programs for another machine do not run here, but have the same commands.
    tree = commands.read(os.path.join(prefix, "bin/onbeat") if target is programs.X86_64
                         else os.path.join(programs.runs_here(), "onbeat"))
    date = commands.date_text(programs.source_date())
    pages.write(tree, os.path.join(prefix, "share/man/man1"), programs.version(), date)
    completions.write(tree, os.path.join(prefix, "share"))
    place_library(target, prefix, libraries)
    place_documents(os.path.join(prefix, "share/doc/onbeat"))


def place_library(target, prefix, libraries):
    """Places the header and the library for C, and how pkg-config and CMake find them."""
    version = programs.version()
    at = os.path.join(prefix, libraries)
    copy(os.path.join(programs.ROOT, "crates/runtime/c/include/onbeat.h"), os.path.join(prefix, "include/onbeat.h"))
    shared = f"libonbeat_c.so.{version}"
    programs.strip(target, os.path.join(target.built(), "libonbeat_c.so"), os.path.join(at, shared), "--strip-unneeded")
    programs.strip(target, os.path.join(target.built(), "libonbeat_c.a"), os.path.join(at, "libonbeat_c.a"), "--strip-debug", "-D")
    for link, to in ((programs.SO_NAME, shared), ("libonbeat_c.so", programs.SO_NAME)):
        os.symlink(to, os.path.join(at, link))
    # From lib/pkgconfig, and from lib/cmake, up to the prefix.
    up = os.path.relpath(prefix, os.path.join(at, "pkgconfig"))
    words = {"VERSION": version, "SO_VERSION": programs.SO_NAME.rsplit(".", 1)[1], "UP": up}
    fill(os.path.join(PACKAGING, "c/onbeat.pc"), os.path.join(at, "pkgconfig/onbeat.pc"), **words)
    for name in ("onbeat-config.cmake", "onbeat-config-version.cmake"):
        fill(os.path.join(PACKAGING, "c", name), os.path.join(at, "cmake/onbeat", name), **words)


def place_documents(folder):
    """Places the documents that help texts and man pages name, and the examples."""
    documents = os.path.join(programs.ROOT, "docs")
    for path in glob.glob(os.path.join(documents, "*.md")) + glob.glob(os.path.join(documents, "how-to/*.md")):
        copy(path, os.path.join(folder, "docs", os.path.relpath(path, documents)))
    copy(os.path.join(documents, "model.schema.json"), os.path.join(folder, "docs/model.schema.json"))
    for example in ("crates/runtime/c/examples/exchange.c", "crates/runtime/c/examples/tasks.c"):
        copy(os.path.join(programs.ROOT, example), os.path.join(folder, "examples", os.path.basename(example)))
    # The sources of the ament package.
    ament = os.path.join(PACKAGING, "ros2")
    for pattern in ("*.*", "resource/*", "onbeat/*.py", "onbeat/py.typed"):
        for path in glob.glob(os.path.join(ament, pattern)):
            copy(path, os.path.join(folder, "ros2", os.path.relpath(path, ament)))


def settle(folder):
    """Gives every file the date of the sources and the mode of installed files."""
    date = programs.source_date()
    for path, names, files in os.walk(folder, topdown=False):
        for name in (*names, *files):
            full = os.path.join(path, name)
            if not os.path.islink(full):
                is_program = os.path.isdir(full) or os.path.basename(path) == "bin"
                os.chmod(full, 0o755 if is_program else 0o644)
            os.utime(full, (date, date), follow_symlinks=False)
    os.chmod(folder, 0o755)
    os.utime(folder, (date, date))
