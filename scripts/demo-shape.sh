#!/usr/bin/env bash
# Records, models, plans and shapes the parking demo: ./dev demo shape [--duration S] [-o DIR]
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
onbeat=$PWD/target/release/onbeat
out=onbeat-demo
duration=30
while [ $# -gt 0 ]; do
  case $1 in
    --duration) duration=${2:?--duration needs seconds}; shift 2 ;;
    -o) out=${2:?-o needs a directory}; shift 2 ;;
    *) echo "usage: ./dev demo shape [--duration SECONDS] [-o DIR]" >&2; exit 2 ;;
  esac
done

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

env=$(./dev ros-env kilted)
mkdir -p "$out"
rm -rf "$out/trace"
app=("$env/bin/python" demos/parking/run.py)

# Recording and shaping need root, and nothing else here does.
before=()
[ "$(id -u)" = 0 ] || ! command -v sudo >/dev/null || before=(sudo)

say "1. Recording the parking demo for $duration s"
code=0
"${before[@]}" "$onbeat" record -o "$out/trace" -- "${app[@]}" --duration "$duration" || code=$?
[ "$code" = 0 ] || { echo "demo: the recording failed (exit code $code)" >&2; exit "$code"; }

say "2. Its timing model"
"$onbeat" model "$out/trace" -o "$out/model.json"
"$onbeat" chains "$out/model.json"

say "3. A plan for the chain from the rear lidar to the pose: one latency"
plan=(--chain "/lidar_rear/..p2d_ndt" -o "$out/plan.yaml")
if ! "$onbeat" plan "$out/model.json" "${plan[@]}" --strategy bands --bands 1; then
  # On a busy machine the chain waits for other programs; under a plan it does not.
  say "   Measured again at a real-time priority"
  "$onbeat" plan "$out/model.json" "${plan[@]}" --strategy fifo
  rm -rf "$out/trace"
  "${before[@]}" "$onbeat" shape "$out/plan.yaml" --duration "${duration}s" --trace "$out/trace" -- \
    "${app[@]}" --duration $((duration + 60)) >/dev/null
  "$onbeat" model "$out/trace" -o "$out/model.json"
  "$onbeat" plan "$out/model.json" "${plan[@]}" --strategy bands --bands 1
fi

say "4. The demo under the plan for $duration s, checked against its promises"
code=0
"${before[@]}" "$onbeat" shape "$out/plan.yaml" --verify "${duration}s" --samples "$out/latency.csv" -- \
  "${app[@]}" --duration $((duration + 60)) || code=$?
case $code in
  0 | 5) say "Done: $out/plan.yaml, $out/latency.csv" ;;
  *) echo "demo: shaping failed (exit code $code)" >&2; exit "$code" ;;
esac
