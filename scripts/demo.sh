#!/usr/bin/env bash
# From a recording to a report on the parking demo: record it, model it, show it. ./dev demo [--duration S] [-o DIR]
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
onbeat=$PWD/target/release/onbeat
out=onbeat-demo
duration=20
while [ $# -gt 0 ]; do
  case $1 in
    --duration) duration=${2:?--duration needs seconds}; shift 2 ;;
    -o) out=${2:?-o needs a directory}; shift 2 ;;
    *) echo "usage: ./dev demo [--duration SECONDS] [-o DIR]" >&2; exit 2 ;;
  esac
done

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

env=$(./dev ros-env kilted)
mkdir -p "$out"
rm -rf "$out/trace"
trace=$out/trace

# Under sudo the demo itself still runs as you. Where there is none, onbeat records by a library that it
# loads into the demo.
before=()
[ "$(id -u)" = 0 ] || ! command -v sudo >/dev/null || ! sudo -v || before=(sudo)

say "Recording the parking demo for $duration s"
code=0
"${before[@]}" "$onbeat" record -o "$trace" -- \
  "$env/bin/python" demos/parking/run.py --duration "$duration" || code=$?
if [ ! -e "$trace" ] && [ "$code" = 4 ]; then
  # onbeat has printed the reason in one line.
  say "No recording here: going on with the one that ships with the project"
  trace=demos/recorded/parking
elif [ "$code" != 0 ]; then
  echo "demo: the parking demo or its recording failed (exit code $code)" >&2
  exit 1
fi

say "Its timing model"
"$onbeat" model "$trace" -o "$out/model.json"
"$onbeat" show "$out/model.json" --edges
say "Its chains"
"$onbeat" chains "$out/model.json"
"$onbeat" report "$out/model.json" --trace "$trace" -o "$out/report.html"
say "Done: $out/model.json, $out/report.html, $trace"
