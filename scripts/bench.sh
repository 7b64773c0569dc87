#!/usr/bin/env bash
# Prepares what an experiment needs and runs it: ./dev bench NAME [--quick | --long] [-o DIR] [--seed N] [--arrivals FILE] [--baseline PROGRAM]
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
lab=target/release/onbeat-lab

name=${1:-}
if [ -z "$name" ] || [ "$name" = -h ] || [ "$name" = --help ]; then
  echo "usage: ./dev bench NAME [--quick | --long] [-o DIR] [--seed N] [--arrivals FILE] [--baseline PROGRAM]"
  echo "       ./dev bench papers [--quick] [--only EXPERIMENT] [--compare OLD] [--json] [-o DIR]"
  echo
  exec "$lab"
fi
# All rows of docs/papers.md in one table. It runs this script for each experiment.
if [ "$name" = papers ]; then
  shift
  exec python3 scripts/papers.py "$@"
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

# The peers in Rust have dependencies of their own. Without those ours is measured all the same.
build_peers() {
  local build=(cargo build --release --locked --manifest-path crates/tools/lab/peers/rust/Cargo.toml)
  export CARGO_TARGET_DIR="$ONBEAT_CACHE/peers"
  echo "-- building the peers in Rust" >&2
  "${build[@]}" --bin peer-onbeat
  "${build[@]}" --bin peer-iceoryx2 --features iceoryx2 ||
    { rm -f "$CARGO_TARGET_DIR/release/peer-iceoryx2"
      echo "bench: iceoryx2 could not be built: the comparison with it will be skipped" >&2; }
  unset CARGO_TARGET_DIR
}

# build_peer NAME COMMAND...: a program that an experiment measures. One that cannot be built is
# skipped by the experiment, with what its log says went wrong as the reason.
build_peer() {
  local out="$ONBEAT_CACHE/lab/$name/$1" log="$ONBEAT_CACHE/lab/$name/$1.log"
  shift
  mkdir -p "$out"
  echo "-- building $(basename "$out"), to be compared" >&2
  if ! "$@" >"$log" 2>&1; then
    rm -rf "$out"
    # Keeps the line with the error instead of the compiler's last line.
    { grep -m1 -wE 'error|missing' "$log" || tail -n 1 "$log"; } >"$log.new"
    mv "$log.new" "$log"
    echo "bench: $(cat "$log"): the comparison with it will be skipped" >&2
  fi
}

# build_venv NAME PACKAGE...: a Python of its own for an experiment; without it the experiment skips what
# it was for.
build_venv() {
  local venv="$ONBEAT_CACHE/lab/$1/venv" stamp
  shift
  stamp="$venv/.onbeat-packages"
  [ "$(cat "$stamp" 2>/dev/null)" = "$*" ] && return
  echo "-- setting up Python with $*" >&2
  rm -rf "$venv"
  if python3 -m venv "$venv" >&2 && "$venv/bin/pip" install -q --disable-pip-version-check "$@" >&2; then
    echo "$*" >"$stamp"
  else
    rm -rf "$venv"
    echo "bench: Python with $* could not be set up: the comparison with it will be skipped" >&2
  fi
}

case $name in
  queues)
    need_compiler
    want_packages libroscpp-dev libnodelet-dev libnodeletlib-dev libnodeletlib-tools \
      python3-rosmaster libstd-msgs-dev pkg-config
    peers=crates/tools/lab/peers
    build_peer onbeat env CARGO_TARGET_DIR="$ONBEAT_CACHE/lab/queues/onbeat" \
      cargo build --release --locked --bin queues-onbeat --manifest-path $peers/rust/Cargo.toml
    build_peer ros1 $peers/queues-ros1/build.sh "$ONBEAT_CACHE/lab/queues/ros1"
    build_peer ros2 bash -c \
      'env=$(./dev ros-env kilted) && exec "$0" "$env" "$1"' $peers/queues-ros2/build.sh "$ONBEAT_CACHE/lab/queues/ros2" ;;
  tracing)
    need_compiler
    ./dev ros-env kilted >/dev/null
    ./dev ros-env jazzy >/dev/null
    want_packages lttng-tools liblttng-ust-dev babeltrace2 ;;
  model)
    want_packages babeltrace2 python3-bt2 ;;
  fleet)
    for engine in dask ray spark; do
      ONBEAT=target/release/onbeat ./dev engine-env $engine >/dev/null ||
        echo "bench: $engine could not be set up: the merge on it will be skipped" >&2
    done ;;
  planner)
    build_venv planner pyswarms==1.3.0 ;;
  parking)
    ./dev ros-env kilted >/dev/null ;;
  shaping)
    need_compiler
    ./dev ros-env kilted >/dev/null
    want_packages rt-tests ;;
  link)
    want_packages iproute2 qperf g++ cyclonedds-dev cyclonedds-tools libfastrtps-dev libfabric-dev
    for peer in cyclonedds fastdds libfabric; do
      build_peer $peer crates/tools/lab/peers/link/build.sh $peer "$ONBEAT_CACHE/lab/link/$peer"
    done
    echo "-- building the peers in Rust" >&2
    CARGO_TARGET_DIR="$ONBEAT_CACHE/peers" cargo build --release --locked --bin peer-link \
      --manifest-path crates/tools/lab/peers/rust/Cargo.toml
    build_venv link eclipse-zenoh==1.10.2 ;;
  inhibition)
    need_compiler
    ./dev ros-env kilted >/dev/null || echo "bench: no ROS 2: the part with it will be skipped" >&2
    want_packages g++ iproute2 rt-tests cyclonedds-dev cyclonedds-tools libfastrtps-dev ;;
  replay)
    want_packages iproute2 tcpreplay rt-tests ;;
  latency)
    need_compiler
    ./dev ros-env kilted >/dev/null
    want_packages g++ iproute2 cyclonedds-dev cyclonedds-tools libfastrtps-dev
    echo "-- building the peers in Rust" >&2
    CARGO_TARGET_DIR="$ONBEAT_CACHE/peers" cargo build --release --locked --bin peer-link \
      --manifest-path crates/tools/lab/peers/rust/Cargo.toml ;;
  transport)
    need_compiler
    ./dev ros-env kilted >/dev/null || echo "bench: no ROS 2: the comparison with it will be skipped" >&2
    want_packages g++ cyclonedds-dev cyclonedds-tools libfastrtps-dev iceoryx libiceoryx-binding-c-dev
    build_peers ;;
esac

# scripts/papers.py builds first, so that its time limit covers only the runs.
[ -z "${BENCH_PREPARE:-}" ] || exit 0

# Probes need root, and priority over other programs; everything built above stays the user's.
run=()
if [ "$(id -u)" != 0 ] && [ "$name" = queues ] && ! command -v sudo >/dev/null; then
  echo "bench: without root the programs that are measured have no priority over others" >&2
elif [ "$(id -u)" != 0 ] && [ "$name" != model ] && [ "$name" != planner ] && [ "$name" != fleet ]; then
  command -v sudo >/dev/null || { echo "bench: probes need root, and there is no sudo: run as root" >&2; exit 1; }
  run=(sudo -E)
fi
exec "${run[@]}" "$lab" "$@"
