#!/usr/bin/env bash
# Checks of flow's lock-free and unsafe parts that ordinary tests cannot make:
#   loom      every interleaving of small programs (some seconds)
#   miri      no undefined behaviour in the library's tests and the conformance suite (some minutes)
#   miri-lib  the same without the conformance suite
#   soak      10^8 items with credit, a tenth with each other policy: none lost, doubled or out of order
#   wires     links on networks that harm packets below TCP, and with cables cut for up to 30 s (root; minutes)
#   messages  10^8 messages over each link between two ends (shm, TCP in clear and sealed), and 3 x 500 killed peers
#   zoo       200 random applications against their own truth, on Kilted and on Jazzy (an hour); zoo SEED: one, made small
#             if it fails
#   clock     each execution time against the thread's own CPU clock, in three ways of recording (root; 15 minutes)
#   tables    the questions of docs/tables.md in DuckDB, pandas and polars, on the recorded traces (a minute)
#   watch     a live model for 24 h of processes that come and go (some minutes): memory grows by at most 5 %;
#             watch live, plants, faults, cost: onbeat monitor beside a running application (root; watch --help)
#   hold      1000 random faults of an application that holds its outputs back (root; some minutes; hold --help)
#   aarch64   the packages for aarch64 under qemu-user: models of the recorded traces equal those of this machine (some minutes)
#   package   the packages that ./dev package has made, in clean roots (root; some minutes); more words choose tests
# Without a word: loom, miri, soak. ./dev test runs loom and miri-lib.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

say() { printf '\033[2m-- %s\033[0m\n' "$*" >&2; }

loom() {
  say "interleavings of channels (loom)"
  RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
    cargo test --locked --release --quiet -p onbeat-flow --lib interleavings
}

# miri CARGO-TEST-WORDS ...: the tests that these select.
miri() {
  say "undefined behaviour in channels (Miri)"
  local miri=(cargo +nightly miri --version) parts=(miri rust-src)
  if ! "${miri[@]}" >/dev/null 2>&1; then
    # Into the nightly that is there, or with a new one.
    if ! { rustup component add --toolchain nightly "${parts[@]}" ||
           rustup toolchain install nightly --profile minimal --component "$(IFS=,; echo "${parts[*]}")"; } >&2; then
      echo "SKIPPED miri: there is no nightly toolchain with it (rustup toolchain install nightly --component miri,rust-src)"
      return
    fi
  fi
  # The clock and the futex are the machine's own.
  export MIRIFLAGS="-Zmiri-disable-isolation" CARGO_TARGET_DIR=target/miri
  cargo +nightly miri test --locked --quiet -p onbeat-flow "$@"
}

lib=(--lib -- memory ring typed)

soak() {
  say "10^8 items"
  ONBEAT_ITEMS=100000000 cargo test --locked --release -p onbeat-link --test soak -- --nocapture
}

wires() {
  say "links on bad networks"
  cargo test --locked --release -p onbeat-link --test bad_network -- --include-ignored --nocapture --test-threads=1
}

messages() {
  say "10^8 messages over links"
  ONBEAT_ITEMS=100000000 cargo test --locked --release -p onbeat-link --test many_messages -- --nocapture
  ONBEAT_ROUNDS=500 cargo test --locked --release -p onbeat-link --test killed -- --nocapture
}

zoo() {
  say "random applications"
  local seeds=(zoo_seed_ zoo_jazzy_seed_) all=(--all)
  [ $# = 0 ] || { seeds=("zoo_seed_$1" "zoo_jazzy_seed_$1"); all=(); export ONBEAT_ZOO_REDUCE=1; }
  python3 scripts/e2e "${all[@]}" "${seeds[@]}"
}

# clock [--seconds N]: execution times of SYN against what it reads from its threads' clocks.
clock() {
  say "execution times against the threads' own clocks"
  cargo build --locked --release -p onbeat
  python3 scripts/clock "$@"
}

# tables: exports each recorded trace, asks the questions, and compares figures with the model.
tables() {
  say "questions to tables"
  local python packages="duckdb==2.0.1 pandas==3.1.1 polars==2.1.0 pyarrow==26.0.1" scratch trace
  local dir="${ONBEAT_CACHE:-$HOME/.cache/onbeat}/tables"
  if [ "$(cat "$dir/.onbeat-packages" 2>/dev/null)" != "$packages" ]; then
    say "installing $packages into $dir"
    rm -rf "$dir"; mkdir -p "$(dirname "$dir")"
    # shellcheck disable=SC2086
    if ! { python3 -m venv "$dir" && "$dir/bin/pip" install -q --disable-pip-version-check $packages; } >&2; then
      rm -rf "$dir"; echo "SKIPPED tables: $packages cannot be installed here"; return
    fi
    printf '%s' "$packages" > "$dir/.onbeat-packages"
  fi
  python="$dir/bin/python"
  cargo build --locked --release -p onbeat -p onbeat-store-cli
  scratch=$(mktemp -d); trap 'rm -rf "${scratch:-}"' EXIT
  local onbeat="${CARGO_TARGET_DIR:-target}/release/onbeat"
  for trace in demos/recorded/*/manifest.json; do
    trace=$(dirname "$trace")
    rm -rf "$scratch/tables"
    "$onbeat" export "$trace" --to tables -o "$scratch/tables" 2>/dev/null
    "$onbeat" model "$trace" -o "$scratch/tables/model.json" >/dev/null
    say "$trace"
    "$python" scripts/ask_tables.py "$scratch/tables"
    "$onbeat" export "$trace" --to arrow --table chain_executions | "$python" -c '
import sys, pyarrow.ipc
assert len(pyarrow.ipc.open_stream(sys.stdin.buffer).read_all()) > 0'
  done
}

# watch [PART ...]: without a part, the compressed 24 h; the parts are those of scripts/watch.
watch() {
  if [ $# != 0 ]; then
    cargo build --locked --release -p onbeat -p onbeat-monitor-cli -p onbeat-top-cli
    python3 scripts/watch "$@"
    return
  fi
  say "24 h of processes that come and go"
  cargo run --locked --release -p onbeat-live --example soak demos/recorded/parking
}

# hold [OPTION ...]: faults of an rclpy publisher with the library that holds its messages back.
hold() {
  say "faults of an application that holds its outputs back"
  python3 scripts/hold "$@"
}

case ${1:-all} in
  hold) shift; hold "$@" ;;
  watch) shift; watch "$@" ;;
  tables) tables ;;
  clock) shift; clock "$@" ;;
  zoo) shift; zoo "$@" ;;
  loom) loom ;;
  miri) miri "${lib[@]}"; miri --test conforms ;;
  soak) soak ;;
  wires) wires ;;
  messages) messages ;;
  miri-lib) miri "${lib[@]}" ;;
  aarch64) exec python3 scripts/package/aarch64.py ;;
  package) shift; exec python3 scripts/package/check.py "$@" ;;
  all) loom; miri "${lib[@]}"; miri --test conforms; soak ;;
  *) echo "usage: ./dev check [loom | miri | miri-lib | soak | wires | messages | zoo [SEED] | clock [--seconds N] | tables | watch [PART] | hold [OPTION ...] | aarch64 | package [WORD ...]]" >&2; exit 2 ;;
esac
