#!/usr/bin/env bash
# Runs the conformance tests of reservations, and those of sched_ext, in a guest whose kernel has sched_ext.
#
# usage: scripts/sched-ext.sh        (./dev test sched-ext)
#
# The guest boots the root file system of this machine in software emulation. Its kernel is Debian unstable's;
# packages are read from the source that this machine's apt has. All is kept in $ONBEAT_CACHE/guest; who ran when
# under a plan is left in shared/slots.* there (scripts/slots-picture.py draws it).
#
# Only some tests: ONBEAT_PROGRAMS="sched_ext" ONBEAT_FILTER=death scripts/sched-ext.sh
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
guest="${ONBEAT_CACHE:-$HOME/.cache/onbeat}/guest"
limit_s=900

die() { echo "sched-ext: $*" >&2; exit 1; }
say() { printf '\033[2m-- %s\033[0m\n' "$*" >&2; }
skip() { echo "SKIPPED sched-ext: $*"; exit 0; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Why there can be no guest here.
[ "$(uname -m)" = x86_64 ] || skip "the guest is for x86_64"
[ "$(id -u)" = 0 ] || command -v sudo >/dev/null || skip "only root can read everything that the guest boots"
mkdir -p "$guest"

need_programs() {
  local missing=()
  command -v qemu-system-x86_64 >/dev/null || missing+=(qemu-system-x86)
  command -v depmod >/dev/null || missing+=(kmod)
  command -v busybox >/dev/null || missing+=(busybox-static)
  if [ ${#missing[@]} != 0 ]; then
    command -v apt-get >/dev/null || skip "these are missing: ${missing[*]}"
    say "installing ${missing[*]}"
    as_root apt-get update -qq >&2 || true
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      "${missing[@]}" >&2 || skip "${missing[*]} cannot be installed"
  fi
  if [ ! -x "$guest/vng/bin/vng" ]; then
    say "installing virtme-ng into $guest/vng"
    { python3 -m venv "$guest/vng" && "$guest/vng/bin/pip" install -q --disable-pip-version-check virtme-ng==1.42; } >&2 ||
      { rm -rf "$guest/vng"; skip "virtme-ng cannot be installed"; }
  fi
}

kernel() { find "$guest/kernel" -name vmlinuz 2>/dev/null | head -1; }

# The kernel's packages, without installing them: with lists of their own, next to the machine's.
need_kernel() {
  [ -z "$(kernel)" ] || return 0
  local apt="$guest/apt" name options
  command -v apt-get >/dev/null || skip "there is no apt, which fetches the guest's kernel"
  [ -e /etc/apt/sources.list.d/debian.sources ] || skip "this is no Debian whose apt source could be read"
  say "fetching a kernel with sched_ext into $guest/kernel (some 130 MB)"
  mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$guest/kernel.new"
  awk -v RS= '/^Types:/ && !done { sub(/Suites:[^\n]*/, "Suites: unstable"); print; done = 1 }' \
    /etc/apt/sources.list.d/debian.sources > "$apt/only.sources"
  options=(-qq -o "Dir::Etc::sourcelist=$apt/only.sources" -o Dir::Etc::sourceparts=/nonexistent
    -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt" -o APT::Sandbox::User=root
    -o Acquire::Languages=none)
  apt-get "${options[@]}" update >&2 || skip "the package lists cannot be fetched"
  name=$(apt-cache "${options[@]}" search '^linux-binary-[0-9.]+[+]deb[0-9]+-amd64$' | sort -V | tail -1 | cut -d' ' -f1)
  [ -n "$name" ] || skip "there is no kernel package linux-binary-*-amd64"
  (cd "$guest/kernel.new" && apt-get "${options[@]}" download "$name" "${name/binary/modules}" >&2 &&
    for package in *.deb; do dpkg -x "$package" . && rm "$package"; done) || skip "the kernel cannot be fetched"
  rm -rf "$guest/kernel" && mv "$guest/kernel.new" "$guest/kernel"
}

# Copies the programs into the shared folder.
built() {
  { cargo test --locked -q -p onbeat-reserve --no-run --test conformance --test sched_ext --message-format=json
    cargo build --locked -q -p onbeat-reserve --example slots --message-format=json; } |
    python3 -c '
import json, shutil, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["target"]["name"] in ("conformance", "sched_ext", "slots"):
        shutil.copy(message["executable"], sys.argv[1] + "/" + message["target"]["name"])' "$1"
}

need_programs
need_kernel
shared="$guest/shared"
rm -rf "$shared"; mkdir -p "$shared"
built "$shared"
cat > "$shared/run" <<END
export ONBEAT_ENFORCER=sched-ext RUST_BACKTRACE=0 PATH="$PATH"
cd "$shared"
uname -r > kernel
for program in ${ONBEAT_PROGRAMS:-conformance sched_ext}; do
  ./\$program --test-threads=1 --show-output ${ONBEAT_FILTER:-} > \$program.out 2>&1
  echo \$? > \$program.code
done
./slots v2 > slots.v2 2>&1
./slots sched-ext > slots.sched-ext 2>&1
sync
END
say "booting $(basename "$(dirname "$(kernel)")") in emulation"
# One thread for all its CPUs: with several, qemu's emulation runs into code that the kernel is just changing
# ("Oops: int3").
command=("$guest/vng/bin/vng" --verbose --qemu-opts="-accel tcg,thread=single" --disable-kvm --force-9p --cpus 2 --memory 2G --rwdir "$shared"
  --run "$(kernel)" --exec "bash $shared/run")
export PATH="$guest/vng/bin:$PATH"
launcher=()
[ "$(id -u)" = 0 ] || launcher=(sudo)
"${launcher[@]}" env PATH="$PATH" timeout -s KILL "$limit_s" "${command[@]}" < /dev/null > "$shared/console" 2>&1 &
running=$!
# The guest goes with this script, whatever ends it: timeout has made it a process group.
trap 'kill -KILL -- "-$running" 2>/dev/null || kill "$running" 2>/dev/null || true' EXIT
wait "$running" || true
[ -s "$shared/kernel" ] || { tail -5 "$shared/console" >&2; die "the guest did not boot: $shared/console"; }
echo "guest kernel $(cat "$shared/kernel")"
failed=0
for program in ${ONBEAT_PROGRAMS:-conformance sched_ext}; do
  cat "$shared/$program.out"
  [ "$(cat "$shared/$program.code" 2>/dev/null)" = 0 ] || { failed=1; echo "$program failed in the guest"; }
done
exit "$failed"
