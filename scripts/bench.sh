#!/usr/bin/env bash
# Prepares what an experiment needs and runs it: ./dev bench NAME [--quick] [-o DIR] [--seed N]
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
onbeat=target/release/onbeat

name=${1:-}
if [ -z "$name" ] || [ "$name" = -h ] || [ "$name" = --help ]; then
  echo "usage: ./dev bench NAME [--quick] [-o DIR] [--seed N]"
  echo
  exec "$onbeat" lab
fi

need_compiler() {
  command -v cc >/dev/null || { echo "bench: cc is missing: install gcc" >&2; exit 1; }
}

# Debian packages of peers; where they cannot be had the experiment says that it skips them.
want_packages() {
  local missing=() p
  command -v dpkg-query >/dev/null || return 0
  for p in "$@"; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
  done
  [ ${#missing[@]} = 0 ] && return
  local sudo=()
  [ "$(id -u)" = 0 ] || sudo=(sudo)
  echo "-- installing ${missing[*]}" >&2
  { "${sudo[@]}" apt-get update -qq &&
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >&2 ||
    echo "bench: ${missing[*]} could not be installed: the comparison with them will be skipped" >&2
}

case $name in
  tracing)
    need_compiler
    ./dev ros-env kilted >/dev/null
    ./dev ros-env jazzy >/dev/null ;;
  model)
    want_packages babeltrace2 python3-bt2 ;;
  parking)
    ./dev ros-env kilted >/dev/null ;;
esac

# Probes need root; everything built above stays the user's.
run=()
if [ "$(id -u)" != 0 ] && [ "$name" != model ]; then
  command -v sudo >/dev/null || { echo "bench: probes need root, and there is no sudo: run as root" >&2; exit 1; }
  run=(sudo -E)
fi
exec "${run[@]}" "$onbeat" lab "$@"
