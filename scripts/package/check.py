"""Tries the packages as users do: in clean roots, as root and as an ordinary user.

usage: ./dev check package [WORD ...]

WORDs choose tests by parts of their names. `./dev package` must have made the packages in `dist`. The last line is
`N passed, N failed, N skipped`.
"""

import filecmp
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv

import archive
import debian
import programs
import roots

SUITE = "bookworm"
# A Debian whose Python is the newest that the wheel is tried with.
NEWEST_SUITE, NEWEST_PYTHON = "forky", (3, 14)
WITHIN = ("python3", "python3-venv", "man-db")
MOST_WHEEL_BYTES = 12e6
LONGEST_INSTALL_S = 10
COLCON = ("colcon-core==0.21.3", "colcon-ros==0.5.0", "colcon-python-setup-py==0.2.9", "colcon-library-path==0.2.1",
          "colcon-recursive-crawl==0.2.3", "setuptools<80")
TRACE = os.path.join(programs.ROOT, "demos/recorded/parking")
TESTS = []


class Skip(Exception):
    """Why a test cannot run here."""


def test(function):
    """Marks a test."""
    TESTS.append(function)
    return function


def made(pattern):
    """The only package in `dist` with such a name."""
    found = glob.glob(os.path.join(programs.ROOT, "dist", pattern))
    if len(found) != 1:
        raise Skip(f"dist has {len(found)} files {pattern}: run ./dev package")
    return found[0]


def built():
    """The folder with the built programs."""
    return programs.X86_64.built()


def put(root, path):
    """Copies a file into a root's /tmp; its path there."""
    shutil.copy(path, root.path("/tmp"))
    return "/tmp/" + os.path.basename(path)


def expect(found, text):
    """Fails if a text does not have another in it."""
    assert text in found, f"'{text}' is not in: {found}"


def wheels_of_ros():
    """A folder with the wheels of ROS 2 for the root's Python."""
    folder = os.path.join(programs.CACHE, "wheels-kilted")
    if not os.path.isdir(folder):
        if sys.version_info[:2] != (3, 11):
            raise Skip("the clean root has Python 3.11: fetch ROS 2 with the same")
        programs.say("fetching ROS 2 as wheels")
        wanted = ["ros-rclpy==9.1.2", "ros-rmw-fastrtps-cpp==9.3.3", "ros-std-msgs"]
        done = subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "-w", folder + ".new",
                               *wanted], check=False)
        if done.returncode:
            raise Skip("the wheels of ROS 2 cannot be fetched")
        os.rename(folder + ".new", folder)
    return folder


APPLICATION = """
import rclpy, rclpy.node, std_msgs.msg
rclpy.init()
node = rclpy.node.Node("app")
publisher = node.create_publisher(std_msgs.msg.String, "topic", 10)
node.create_subscription(std_msgs.msg.String, "topic", lambda _: None, 10)
node.create_timer(0.05, lambda: publisher.publish(std_msgs.msg.String(data="x")))
for _ in range(60):
    rclpy.spin_once(node, timeout_sec=0.1)
"""


def install_ros(root):
    """Makes an environment of the root's Python with ROS 2, and a program that uses it, for its ordinary user."""
    shutil.copytree(wheels_of_ros(), root.path("/tmp/ros"))
    with open(root.path("/home/robot/app.py"), "w", encoding="utf-8") as file:
        file.write(APPLICATION)
    root.run("python3 -m venv venv; venv/bin/pip install -q --no-index --find-links /tmp/ros ros-rclpy "
             "ros-rmw-fastrtps-cpp ros-std-msgs", "robot")


@test
def lintian_finds_no_error():
    """The package keeps Debian's rules; overrides have their reasons beside them."""
    if not shutil.which("lintian"):
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "lintian"], check=True,
                       stdout=subprocess.DEVNULL, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    said = subprocess.run(["lintian", "--allow-root", "--fail-on=error", made("onbeat_*_amd64.deb")], capture_output=True, text=True,
                          check=False)
    print(said.stdout, end="")
    assert said.returncode == 0, said.stdout + said.stderr


@test
def packages_have_the_same_bytes_again():
    """The time and the folder of a build change nothing."""
    before = time.localtime().tm_sec
    while time.localtime().tm_sec == before:
        time.sleep(0.1)
    with tempfile.TemporaryDirectory() as again:
        for make, pattern in ((debian.make, "onbeat_*_amd64.deb"), (archive.make, "onbeat-*-x86_64-linux.tar.gz")):
            assert filecmp.cmp(make(programs.X86_64, again), made(pattern), shallow=False), f"{pattern} differs"


@test
def debian_package_installs_records_and_leaves_nothing():
    """Install, use, remove, purge."""
    package = made("onbeat_*_amd64.deb")
    with roots.root(SUITE, *WITHIN) as root:
        install_ros(root)
        before = root.files()
        root.run(f"apt-get install -y -qq --no-install-recommends {put(root, package)}")
        for user in ("root", "robot"):
            expect(root.run("onbeat --version", user), f"onbeat {programs.version()}")
            for command in ("link", "monitor", "replay", "store", "top"):
                expect(root.run(f"onbeat {command} --help", user), "Exit codes")
        expect(root.run("zcat /usr/share/man/man1/onbeat-record.1.gz"), "flight recorder")
        root.run("ldconfig -p | grep libonbeat_c.so.0")
        record_channels(root)
        record_ros(root)
        root.run("apt-get remove -y -qq onbeat")
        left = {path for path in root.files() - before if "onbeat" in path}
        assert not left, f"left by remove: {left}"
        root.run("apt-get purge -y -qq onbeat")
        # The loader's own cache, and what adding the user and installing changes.
        left = root.files() - before - {"etc/ld.so.cache", "var/lib/systemd"}
        assert not left, f"left by purge: {left}"
        expect(root.run("onbeat --version", accept=(127,)), "not found")


def record_channels(root):
    """Records the C library's example with its tasks, built against the installed package."""
    source = root.path("/usr/share/doc/onbeat/examples/tasks.c")
    for how in (compile_by_pkg_config, compile_by_cmake):
        shutil.copy(how(root, source), root.path("/usr/local/bin/tasks"))
        root.run("rm -rf trace model.json; tasks sensor scans 5000 & tasks fusion scans 5000 & sleep 1; "
                 "onbeat record -o trace --duration 2s; wait; onbeat model trace")
        shown = root.run("onbeat show")
        assert re.search("callback +count", shown) and "fus" in shown, shown
        os.remove(root.path("/usr/local/bin/tasks"))


def record_ros(root):
    """Records a ROS 2 program as an ordinary user with the preloaded library, and as root by BPF."""
    for user, options in (("robot", "--preload"), ("root", "")):
        root.run(f"rm -rf trace; onbeat record -o trace {options} -- /home/robot/venv/bin/python3 /home/robot/app.py; onbeat model trace; "
                 "onbeat report", user)
        expect(root.run("onbeat show", user), "/app:timer(50ms)")


def compile_by_pkg_config(root, source):
    """The example, compiled with what pkg-config says of the installed package."""
    program = root.path("/tmp/tasks-pkg-config")
    words = subprocess.run(["pkg-config", "--cflags", "--libs", "onbeat"], capture_output=True, text=True, check=True,
                           env={**os.environ, "PKG_CONFIG_LIBDIR": root.path(f"/usr/lib/{programs.X86_64.multiarch}/pkgconfig")})
    subprocess.run(["cc", "-std=c11", source, "-o", program, *words.stdout.split()], check=True)
    return program


def compile_by_cmake(root, source):
    """The example, compiled by a CMake project that finds the installed package."""
    if not shutil.which("cmake"):
        raise Skip("cmake is missing")
    folder = root.path("/tmp/project")
    os.makedirs(os.path.join(folder, "build"))
    with open(os.path.join(folder, "CMakeLists.txt"), "w", encoding="utf-8") as file:
        file.write("cmake_minimum_required(VERSION 3.16)\nproject(example C)\nfind_package(onbeat 0.1 REQUIRED CONFIG)\n"
                   f"add_executable(tasks {source})\ntarget_link_libraries(tasks onbeat::onbeat)\n"
                   f"add_executable(tasks-static {source})\ntarget_link_libraries(tasks-static onbeat::static)\n")
    build = os.path.join(folder, "build")
    for words in (["-S", folder, "-B", build, f"-Donbeat_DIR={root.path(f'/usr/lib/{programs.X86_64.multiarch}/cmake/onbeat')}",
                   "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON"], ["--build", build]):
        done = subprocess.run(["cmake", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return os.path.join(build, "tasks")


@test
def debian_package_upgrades_an_older_one():
    """The older package's files go, the newer one's stay."""
    package = made("onbeat_*_amd64.deb")
    with roots.root(SUITE, *WITHIN) as root:
        with tempfile.TemporaryDirectory() as scratch:
            tree = os.path.join(scratch, "tree")
            subprocess.run(["dpkg-deb", "-R", package, tree], check=True)
            control = os.path.join(tree, "DEBIAN/control")
            with open(control, encoding="utf-8") as file:
                text = re.sub(r"(?m)^Version: .*$", "Version: 0.0.9", file.read())
            with open(control, "w", encoding="utf-8") as file:
                file.write(text)
            with open(os.path.join(tree, "usr/share/doc/onbeat/only-of-the-older-one"), "w", encoding="utf-8") as file:
                file.write("x\n")
            older = os.path.join(scratch, "older.deb")
            subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", tree, older], check=True, stdout=subprocess.DEVNULL)
            root.run(f"dpkg -i {put(root, older)}")
        expect(root.run("dpkg-query -W onbeat"), "0.0.9")
        root.run(f"dpkg -i {put(root, package)}")
        expect(root.run("dpkg-query -W onbeat"), programs.version())
        assert not os.path.exists(root.path("/usr/share/doc/onbeat/only-of-the-older-one"))
        expect(root.run("onbeat store --help"), "Exit codes")


@test
def debian_package_says_that_a_copy_in_usr_local_wins():
    """The copy in /usr/local/bin comes first on PATH, and takes only programs of its own version."""
    package = made("onbeat_*_amd64.deb")
    with roots.root(SUITE, *WITHIN) as root:
        shutil.copy(os.path.join(built(), "onbeat"), root.path("/usr/local/bin/onbeat"))
        expect(root.run(f"dpkg -i {put(root, package)}"), "/usr/local/bin/onbeat comes before /usr/bin/onbeat")
        expect(root.run("command -v onbeat", "robot"), "/usr/local/bin/onbeat")
        # An ordinary user gets the program of the same version from PATH; root only one beside onbeat.
        expect(root.run("onbeat store --help", "robot"), "Exit codes")
        expect(root.run("onbeat store --help", accept=(1,)), "onbeat-store is missing in /usr/local/bin")
        other = root.path("/usr/local/bin/onbeat-store")
        with open(os.path.join(built(), "onbeat-store"), "rb") as file:
            older = file.read().replace(programs.version().encode(), b"0.0.9")
        with open(other, "wb") as file:
            file.write(older)
        os.chmod(other, 0o755)
        for user in ("root", "robot"):
            said = root.run("onbeat store --help", user, accept=(1,))
            expect(said, f"the program has version 0.0.9, and onbeat has {programs.version()}")
            expect(root.run("/usr/bin/onbeat store --help", user), "Exit codes")
        root.run("rm /usr/local/bin/onbeat*; apt-get purge -y -qq onbeat")


@test
def wheel_is_small():
    """The wheel has at most 12 MB."""
    assert (size := os.path.getsize(made("onbeat-*_x86_64.whl"))) <= MOST_WHEEL_BYTES, f"the wheel has {size} bytes"


@test
def wheel_records_a_ros_2_program_without_root():
    """pip installs the wheel where there is no compiler; an ordinary user records a program and gets a report."""
    wheel = made("onbeat-*_x86_64.whl")
    with roots.root(SUITE, *WITHIN) as root:
        expect(root.run("command -v cc gcc clang || echo none"), "none")
        at = put(root, wheel)
        install_ros(root)
        begin = time.monotonic()
        root.run(f"venv/bin/pip install -q --no-index {at}", "robot")
        installed = time.monotonic()
        print(root.run(". venv/bin/activate; onbeat record -o trace --preload -- python3 app.py; onbeat model trace", "robot"))
        print(root.run(". venv/bin/activate; onbeat report; onbeat show", "robot"))
        print(f"installed in {installed - begin:.1f} s, recorded, modelled and reported in {time.monotonic() - installed:.1f} s")
        assert installed - begin <= LONGEST_INSTALL_S
        expect(root.run(". venv/bin/activate; onbeat show", "robot"), "/app:timer(50ms)")
        expect(root.run("venv/bin/python -c 'import onbeat; print(onbeat.run(\"--version\"))'", "robot"), programs.version())
        check_commands_of_one_program(root)
        root.run("venv/bin/pip uninstall -q -y onbeat; ! ls venv/bin | grep onbeat", "robot")


def check_commands_of_one_program(root):
    """Runs the commands that separate programs carry out in other packages."""
    def run(words, accept=(0,)):
        return root.run(f". venv/bin/activate; {words}", "robot", accept=accept)
    for command in ("link", "store", "replay", "info", "compare", "convert", "import", "top", "monitor"):
        expect(run(f"onbeat {command} --help"), f"Usage: onbeat {command}")
    expect(run("onbeat export trace --to tables -o tables 2>&1"), "tables/runs/")
    expect(run("onbeat export trace --to arrow --table runs | wc -c | grep -v '^0$' && echo streamed"), "streamed")
    expect(run("echo '(1.0) can0 044#2A' > can.log; onbeat info can.log"), "can.log: candump log")
    expect(run("onbeat store init runs; onbeat store put runs model.json; onbeat store list runs"), "model")
    expect(run("echo '{}' | onbeat diagnostics - 2>&1", accept=(1,)), "onbeat: ")


@test
def wheel_is_refused_on_musl_and_by_an_older_python():
    """pip sees by the tags that the wheel does not fit."""
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryDirectory() as folder:
        shutil.copy(made("onbeat-*_x86_64.whl"), folder)
        pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-index", "--no-deps", "--find-links", folder,
               "--only-binary=:all:"]
        for words, fits in ((["--platform", "manylinux_2_28_x86_64"], True), (["--platform", "musllinux_1_2_x86_64"], False),
                            (["--platform", "manylinux_2_28_aarch64"], False), (["--platform", "manylinux_2_17_x86_64"], False),
                            (["--platform", "manylinux_2_28_x86_64", "--python-version", "3.9"], False)):
            done = subprocess.run([*pip, "-d", scratch, *words, "onbeat"], capture_output=True, text=True, check=False)
            assert (done.returncode == 0) == fits, f"{words}: {done.stdout}{done.stderr}"


@test
def wheel_works_in_the_newest_python():
    """The package without its optional packages, where pip and the program are as new."""
    wheel = made("onbeat-*_x86_64.whl")
    with roots.root(NEWEST_SUITE, "python3", "python3-venv") as root:
        found = root.run("python3 -c 'import sys; print(*sys.version_info[:2])'").split()
        if tuple(map(int, found)) < NEWEST_PYTHON:
            raise Skip(f"Debian {NEWEST_SUITE} has Python {'.'.join(found)}")
        at = put(root, wheel)
        shutil.copytree(TRACE, root.path("/tmp/demos/recorded/parking"))
        os.makedirs(root.path("/tmp/python/tests"))
        shutil.copy(os.path.join(programs.ROOT, "python/tests/bare.py"), root.path("/tmp/python/tests"))
        root.run("chmod -R a+rX /tmp")
        said = root.run(f"python3 -m venv venv; venv/bin/pip install -q --no-index {at}; . venv/bin/activate; "
                        "onbeat model /tmp/demos/recorded/parking; python3 -B -W error /tmp/python/tests/bare.py model.json", "robot")
        expect(said, f"Python {'.'.join(found)}: ok")


@test
def source_distribution_builds_and_installs():
    """pip builds the program from the source distribution, as on a machine that no wheel fits."""
    source = made(f"onbeat-{programs.version()}.tar.gz")
    if not shutil.which("cargo"):
        raise Skip("cargo is missing")
    with tempfile.TemporaryDirectory() as scratch:
        python = os.path.join(scratch, "venv/bin/python")
        venv.create(os.path.join(scratch, "venv"), with_pip=True)
        env = {**os.environ, "CARGO_TARGET_DIR": os.path.join(programs.TARGET_FOLDER, "sdist")}
        done = subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", source], cwd=scratch, env=env,
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        script = f"import onbeat; print(onbeat.run('--version').decode(), onbeat.open({TRACE!r}).model.chains[0].id)"
        said = subprocess.run([python, "-c", script], cwd=scratch, capture_output=True, text=True, check=True).stdout
        assert said.startswith(f"onbeat {programs.version()}") and "chain-" in said, said


@test
def ament_package_builds_with_colcon():
    """The Python package in a workspace: built, found by Python, by the index of packages, and by `ros2` and `launch`."""
    with tempfile.TemporaryDirectory() as scratch:
        space, bin_folder = os.path.join(scratch, "space"), os.path.join(scratch, "venv/bin")
        venv.create(os.path.dirname(bin_folder), with_pip=True)
        python = os.path.join(bin_folder, "python")
        done = subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *COLCON], check=False)
        if done.returncode:
            raise Skip("colcon cannot be installed here")
        shutil.copytree(os.path.join(programs.ROOT, "packaging/ros2"), os.path.join(space, "src/onbeat"),
                        ignore=shutil.ignore_patterns("__pycache__"))
        env = {**os.environ, "PATH": bin_folder + os.pathsep + os.environ["PATH"]}
        done = subprocess.run(["colcon", "build"], cwd=space, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        script = ("import importlib.metadata as m, os, onbeat, onbeat.schema; print(onbeat.__file__);"
                  "print(*(f'{e.group}:{e.value}' for e in m.distribution('onbeat').entry_points));"
                  "print(os.environ['AMENT_PREFIX_PATH'])")
        said = subprocess.run(["sh", "-ec", f". install/setup.sh; exec python -c \"{script}\""], cwd=space, env=env,
                              capture_output=True, text=True, check=True).stdout
        module, points, prefix = said.splitlines()
        assert module.startswith(os.path.join(space, "install/onbeat/lib/")), module
        assert set(points.split()) == {"ros2cli.command:onbeat.ros2:OnbeatCommand", "launch.frontend.launch_extension:onbeat.launch",
                                       "pytest11:onbeat.pytest_plugin"}, points
        assert os.path.exists(os.path.join(prefix.split(os.pathsep)[0], "share/ament_index/resource_index/packages/onbeat")), prefix


@test
def container_file_makes_a_system_that_records():
    """The instructions of the container file, in a clean root: a program in the image records another one by BPF."""
    package = made("onbeat_*_amd64.deb")
    with open(os.path.join(programs.ROOT, "packaging/container/Containerfile"), encoding="utf-8") as file:
        text = re.sub(r"(?m)^#.*\n", "", file.read()).replace("\\\n", " ")
    steps = [line.split(None, 1) for line in text.splitlines() if line]
    assert steps[0] == ["FROM", f"debian:{SUITE}-slim"], steps[0]
    with roots.root(SUITE, *WITHIN) as root:
        install_ros(root)
        entry, (word, default) = [], steps[1]
        assert word == "ARG", word
        name, machine = default.split("=")
        for word, rest in ((word, rest.replace(f"${{{name}}}", machine)) for word, rest in steps[2:]):
            if word == "COPY":
                pattern, to = rest.split()
                assert glob.glob(os.path.join(os.path.dirname(package), pattern)) == [package], rest
                shutil.copy(package, root.path(to))
            elif word == "RUN":
                root.run(rest)
            elif word == "WORKDIR":
                os.makedirs(root.path(rest), exist_ok=True)
            elif word == "ENTRYPOINT":
                entry = json.loads(rest)
            else:
                assert (word, rest) == ("CMD", '["--help"]'), f"{word} {rest}"
        assert not glob.glob(root.path("/tmp/onbeat*")) and not os.listdir(root.path("/var/lib/apt/lists"))
        expect(root.run(f"cd /work; {' '.join(entry)} --help"), "record")
        root.run(f"cd /work; {entry[0]} record -o trace --duration 8s & sleep 2; "
                 f"/home/robot/venv/bin/python3 /home/robot/app.py; wait; {entry[0]} model trace")
        expect(root.run(f"cd /work; {entry[0]} show"), "/app:timer(50ms)")


@test
def archive_runs_with_an_older_glibc():
    """The programs run on Debian 11, whose glibc is older than that of the machine that built them."""
    with roots.root("bullseye") as root:
        root.run(f"tar xzf {put(root, made('onbeat-*-x86_64-linux.tar.gz'))} -C /opt; ln -s /opt/onbeat-* /opt/onbeat")
        for command in ("--version", "link --help", "store --help", "replay --help", "top --help"):
            root.run(f"/opt/onbeat/bin/onbeat {command}", "robot")
        # Nothing of ROS 2 runs: the recording says so, and the preloaded library has been loaded.
        expect(root.run("/opt/onbeat/bin/onbeat record -o trace --preload -- sh -c 'grep -c preload /proc/$$/maps; exit 0'", "robot", accept=(3,)), "no ROS 2")


def main():
    """Runs the tests that the words choose."""
    words = sys.argv[1:]
    passed, failed, skipped = 0, 0, 0
    for function in TESTS:
        if words and not any(word in function.__name__ for word in words):
            continue
        begin = time.monotonic()
        try:
            function()
        except Skip as why:
            skipped += 1
            print(f"SKIPPED {function.__name__}: {why}")
        except (AssertionError, subprocess.CalledProcessError) as error:
            failed += 1
            print(f"FAILED {function.__name__} ({time.monotonic() - begin:.0f} s)\n{error}")
        else:
            passed += 1
            print(f"ok     {function.__name__} ({time.monotonic() - begin:.0f} s)", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
