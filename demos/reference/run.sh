#!/usr/bin/env bash
# run.sh ONBEAT PROGRAM OUT [FORM...]: plans the hot path of each form of the graph (single, multi, group), and shapes it.
# Needs root. PROGRAM is reference.cpp, built; OUT is a folder for traces, models, plans and results.
#
# Each form is recorded for ten seconds, then measured in several starts as it will run (strategy fifo), then planned and
# shaped in several starts, half a minute each. STARTS and RUNS say how many; three if they are not set.
set -euo pipefail
onbeat=$1 program=$2 out=$3
shift 3
part=(--from FrontLidarDriver --to topic:/ObjectCollisionEstimator)
cpus=(--cpu 1 --middleware-cpu 0)
starts=${STARTS:-3} runs=${RUNS:-3}
mkdir -p "$out"

# Records FORM for 20 seconds once its threads have their real-time priority.
measure() {
  local form=$1 trace=$2 pid='' shape
  "$onbeat" shape "$out/$form.fifo.yaml" --duration 60s -- "$program" "$form" > "$trace.shape" 2>&1 &
  shape=$!
  until pid=$(pgrep -n -f "^$program $form\$") && ps -L -o cls= -p "$pid" | grep -q FF; do
    kill -0 $shape || { cat "$trace.shape"; return 1; }
    sleep 0.2
  done
  sleep 1
  "$onbeat" record -o "$trace" --duration 20s --pid "$pid" > "$trace.record" 2>&1
  kill -INT $shape
  wait $shape || echo "exit code $? of $trace.shape"
}

[ $# -gt 0 ] || set -- single multi group
for form in "$@"; do
  echo "=== $form"
  "$onbeat" record -o "$out/$form.first" --duration 10s -- "$program" "$form" > "$out/$form.record" 2>&1
  "$onbeat" model "$out/$form.first" -o "$out/$form.first.json" "${part[@]}" > "$out/$form.model"
  "$onbeat" plan "$out/$form.first.json" "${part[@]}" "${cpus[@]}" --strategy fifo -o "$out/$form.fifo.yaml" > "$out/$form.plan"
  traces=()
  for n in $(seq "$starts"); do
    measure "$form" "$out/$form.fifo$n"
    traces+=("$out/$form.fifo$n")
  done
  "$onbeat" model "${traces[@]}" -o "$out/$form.json" "${part[@]}" >> "$out/$form.model"
  "$onbeat" plan "$out/$form.json" "${part[@]}" "${cpus[@]}" -o "$out/$form.yaml" || continue
  for n in $(seq "$runs"); do
    echo "--- $form, run $n"
    "$onbeat" shape "$out/$form.yaml" --verify 30s --json --samples "$out/$form.$n.csv" -- "$program" "$form" \
      > "$out/$form.$n.json" 2> "$out/$form.$n.log" || echo "exit code $?"
    python3 - "$out/$form.$n.json" << 'END'
import json, sys
for f in json.load(open(sys.argv[1]))["figures"]:
    kept = {None: "", True: "kept", False: "BROKEN"}[f["kept"]]
    print(f"{f['name']:45} {f['measured']:10.3f} {f['unit']:3} {'' if f['promised'] is None else f['promised']:>8} {kept}")
END
  done
done
