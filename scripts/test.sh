#!/usr/bin/env bash
# Sets up and runs the tests: ./dev test [unit | e2e [--all] [PART OF A NAME ...]]
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

say() { printf '\033[2m-- %s\033[0m\n' "$*" >&2; }

# What needs the kernel is skipped by these tests themselves, by name and with the reason. Each step's
# failure counts: `set -e` does not where a function is part of a condition.
unit() {
  say "unit and integration tests"
  local failed=0
  cargo test --locked --workspace --no-fail-fast || failed=1
  scripts/check.sh quick || failed=1
  return "$failed"
}

# Robots run on it.
aarch64() {
  say "aarch64 (compiled, not run)"
  if ! command -v rustup >/dev/null; then
    echo "SKIPPED aarch64: rustup is missing, which installs its standard library"
  elif command -v aarch64-linux-gnu-gcc >/dev/null || [ "$(id -u)" = 0 ] || command -v sudo >/dev/null; then
    ./dev aarch64
  else
    echo "SKIPPED aarch64: gcc-aarch64-linux-gnu is not installed, and only root can install it"
  fi
}

environments() {
  ./dev ros-env kilted >/dev/null
  ./dev ros-env jazzy >/dev/null
}

e2e() {
  say "end-to-end tests (real ROS 2 applications, recorded and compared with what they know)"
  python3 scripts/e2e "$@"
}

case ${1:-all} in
  unit) ./dev build; environments; unit ;;
  e2e) shift; ./dev build; environments; e2e "$@" ;;
  all)
    ./dev build
    environments
    failed=0
    unit || failed=1
    aarch64 || failed=1
    e2e || failed=1
    exit "$failed" ;;
  *) echo "usage: ./dev test [unit | e2e [--all] [PART OF A NAME ...]]" >&2; exit 2 ;;
esac
