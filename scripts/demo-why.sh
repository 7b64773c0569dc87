#!/usr/bin/env bash
# The parking demo beside a neighbour that takes its CPUs now and then, and what onbeat says about that:
# ./dev demo why [--duration S] [-o DIR]
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
onbeat=$PWD/target/release/onbeat
out=onbeat-demo
duration=20
while [ $# -gt 0 ]; do
  case $1 in
    --duration) duration=${2:?--duration needs seconds}; shift 2 ;;
    -o) out=${2:?-o needs a directory}; shift 2 ;;
    *) echo "usage: ./dev demo why [--duration SECONDS] [-o DIR]" >&2; exit 2 ;;
  esac
done

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

env=$(./dev ros-env kilted)
mkdir -p "$out"
rm -rf "$out/trace"
trace=$out/trace

before=()
[ "$(id -u)" = 0 ] || ! command -v sudo >/dev/null || ! sudo -v || before=(sudo)

# One process per CPU, all with one name, at real-time priority. Most executions meet none of them.
neighbours=()
stop() {
  [ ${#neighbours[@]} = 0 ] || "${before[@]}" kill "${neighbours[@]}" 2>/dev/null || true
  neighbours=()
}
trap stop EXIT
if [ "$(id -u)" = 0 ] || [ ${#before[@]} -gt 0 ]; then
  say "A neighbour takes every CPU for 60 ms, every 970 ms"
  for cpu in $("$env/bin/python" -c 'import os; print(*sorted(os.sched_getaffinity(0)))'); do
    "${before[@]}" "$env/bin/python" demos/syn/burner.py --cpu "$cpu" --period 970 --busy 60 --name neighbour \
      --duration $((duration + 60)) &
    neighbours+=($!)
  done
fi

say "Recording the parking demo for $duration s"
code=0
"${before[@]}" "$onbeat" record -o "$trace" -- \
  "$env/bin/python" demos/parking/run.py --duration "$duration" || code=$?
stop
if [ ! -e "$trace" ] && [ "$code" = 4 ]; then
  # onbeat has printed the reason in one line.
  say "No recording here: going on with the one that ships with the project, without the neighbour"
  trace=demos/recorded/parking
elif [ ! -e "$trace" ]; then
  echo "demo: the parking demo or its recording failed (exit code $code)" >&2
  exit 1
fi

say "Why were executions of its slowest chain late?"
"$onbeat" why "$trace" --worst 1
say "The same for all executions, as a page"
"$onbeat" why "$trace" --html "$out/why.html"
say "Done: open $out/why.html in a browser"
