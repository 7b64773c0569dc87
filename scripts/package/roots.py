"""Clean roots: Debian systems in folders, in which packages are tried."""

import contextlib
import os
import shutil
import subprocess
import tempfile

import programs


class Root:
    """A system in a folder. Its processes have mounts of their own, and the machine's process ids: BPF sees those."""

    def __init__(self, folder):
        self.folder = folder

    def path(self, inside):
        """The path of a file of this system, as this one sees it."""
        return os.path.join(self.folder, inside.lstrip("/"))

    def run(self, script, user="root", accept=(0,)):
        """Runs lines of a shell in the system; what they print. Other exit codes raise an error."""
        home = "/root" if user == "root" else f"/home/{user}"
        words = ["env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin" + (":/usr/sbin:/sbin" if user == "root" else ""),
                 f"HOME={home}", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "sh", "-ec", f"cd {home}\n{script}"]
        if user != "root":
            words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", *words]
        # The recorder finds only files in file systems that are mounted: the folder becomes one.
        mount = 'mount --bind "$0" "$0" && mount --rbind /proc "$0/proc" && mount --rbind /sys "$0/sys" && mount --rbind /dev "$0/dev" && ' \
                'exec chroot "$0" "$@"'
        done = subprocess.run(["unshare", "--mount", "--fork", "--kill-child", "sh", "-c", mount, self.folder,
                               *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr
        if done.returncode not in accept:
            raise AssertionError(f"exit code {done.returncode} of: {script}\n{said}")
        return said

    def files(self):
        """All files and folders of the system, except where programs keep changing ones."""
        changing = {"proc", "sys", "dev", "tmp", "var/log", "var/cache", "var/lib/dpkg", "var/lib/apt", "root", "home"}
        found = set()
        for path, folders, names in os.walk(self.folder):
            at = os.path.relpath(path, self.folder)
            folders[:] = [name for name in folders if os.path.normpath(os.path.join(at, name)) not in changing]
            found |= {os.path.normpath(os.path.join(at, name)) for name in (*folders, *names)}
        return found


def bootstrapped(suite, packages):
    """An archive with a small Debian system and these packages; makes it at the first call."""
    path = os.path.join(programs.CACHE, f"root-{suite}.tar")
    stamp = path + ".packages"
    wanted = " ".join(packages)
    with contextlib.suppress(FileNotFoundError), open(stamp, encoding="utf-8") as file:
        if file.read() == wanted and os.path.exists(path):
            return path
    if not shutil.which("mmdebstrap"):
        subprocess.run(["apt-get", "update", "-qq"], check=False)
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "mmdebstrap"], check=True,
                       stdout=subprocess.DEVNULL, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    programs.say(f"making a clean root of Debian {suite} (a minute)")
    os.makedirs(programs.CACHE, exist_ok=True)
    more = [f"--include={','.join(packages)}"] if packages else []
    # A mirror that is kept at a date has lists whose validity has ended.
    more.append('--aptopt=Acquire::Check-Valid-Until "false"')
    subprocess.run(["mmdebstrap", "-q", "--variant=minbase", "--format=tar", *more, suite, path + ".new"], check=True)
    os.replace(path + ".new", path)
    with open(stamp, "w", encoding="utf-8") as file:
        file.write(wanted)
    return path


@contextlib.contextmanager
def root(suite, *packages):
    """A fresh root with an ordinary user `robot`, removed at the end."""
    archive = bootstrapped(suite, packages)
    folder = tempfile.mkdtemp(prefix="onbeat-root-")
    try:
        os.chmod(folder, 0o755)
        subprocess.run(["tar", "--exclude=./dev/*", "-xf", archive, "-C", folder], check=True)
        made = Root(folder)
        made.run("useradd --create-home robot")
        yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)
