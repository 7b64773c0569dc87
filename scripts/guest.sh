# Parts of scripts that boot a guest; sourced by them. The guest boots the root file system of this machine in
# software emulation. Its kernel is Debian unstable's; packages are read from the source that this machine's apt
# has. All is kept in $ONBEAT_CACHE/guest. `part` is the caller's name.
# shellcheck shell=bash disable=SC2154
guest="${ONBEAT_CACHE:-$HOME/.cache/onbeat}/guest"

die() { echo "$part: $*" >&2; exit 1; }
say() { printf '\033[2m-- %s\033[0m\n' "$*" >&2; }
skip() { echo "SKIPPED $part: $*"; exit 0; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Why there can be no guest here.
guest_possible() {
  [ "$(uname -m)" = x86_64 ] || skip "the guest is for x86_64"
  [ "$(id -u)" = 0 ] || command -v sudo >/dev/null || skip "only root can read everything that the guest boots"
  mkdir -p "$guest"
}

# Installs the packages that these are; skips where that cannot be done.
guest_packages() {
  [ $# != 0 ] || return 0
  command -v apt-get >/dev/null || skip "these are missing: $*"
  say "installing $*"
  as_root apt-get update -qq >&2 || true
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2 ||
    skip "$* cannot be installed"
}

guest_programs() {
  local missing=()
  command -v qemu-system-x86_64 >/dev/null || missing+=(qemu-system-x86)
  command -v depmod >/dev/null || missing+=(kmod)
  command -v busybox >/dev/null || missing+=(busybox-static)
  guest_packages "${missing[@]}"
  if [ ! -x "$guest/vng/bin/vng" ]; then
    say "installing virtme-ng into $guest/vng"
    { python3 -m venv "$guest/vng" && "$guest/vng/bin/pip" install -q --disable-pip-version-check virtme-ng==1.42; } >&2 ||
      { rm -rf "$guest/vng"; skip "virtme-ng cannot be installed"; }
  fi
}

kernel() { find "$guest/kernel" -name vmlinuz 2>/dev/null | head -1; }

# The kernel's packages, without installing them: with lists of their own, next to the machine's.
guest_kernel() {
  [ -z "$(kernel)" ] || return 0
  local apt="$guest/apt" name options
  command -v apt-get >/dev/null || skip "there is no apt, which fetches the guest's kernel"
  [ -e /etc/apt/sources.list.d/debian.sources ] || skip "this is no Debian whose apt source could be read"
  say "fetching a kernel for guests into $guest/kernel (some 130 MB)"
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

# Boots the guest with a folder that it shares, runs `run` in it, and waits for its end, for so many seconds.
# $guest_devices: options of qemu for more devices.
guest_run() {
  local shared=$1 limit_s=$2 command launcher=()
  say "booting $(basename "$(dirname "$(kernel)")") in emulation"
  # One thread for all its CPUs: with several, qemu's emulation runs into code that the kernel is just changing
  # ("Oops: int3").
  command=("$guest/vng/bin/vng" --verbose --qemu-opts="-accel tcg,thread=single${guest_devices:+ $guest_devices}" --disable-kvm --force-9p --cpus 2
    --memory 2G --rwdir "$shared" --run "$(kernel)" --exec "bash $shared/run")
  [ "$(id -u)" = 0 ] || launcher=(sudo)
  "${launcher[@]}" env PATH="$guest/vng/bin:$PATH" timeout -s KILL "$limit_s" "${command[@]}" \
    < /dev/null > "$shared/console" 2>&1 &
  running=$!
  # The guest goes with this script, whatever ends it: timeout has made it a process group.
  trap 'kill -KILL -- "-$running" 2>/dev/null || kill "$running" 2>/dev/null || true' EXIT
  wait "$running" || true
  [ -s "$shared/kernel" ] || { tail -5 "$shared/console" >&2; die "the guest did not boot: $shared/console"; }
  echo "guest kernel $(cat "$shared/kernel")"
}
