#!/usr/bin/env bash
# run.sh ONBEAT PROGRAM OUT [FORM...]: records each form of the graph, plans its hot path, shapes it for half a minute.
# Needs root. PROGRAM is reference.cpp, built; OUT is a folder for traces, models, plans and results.
set -euo pipefail
onbeat=$1 program=$2 out=$3
shift 3
part=(--from FrontLidarDriver --to topic:/ObjectCollisionEstimator)
cpus=(--cpu 1 --middleware-cpu 0)
mkdir -p "$out"
for form in "${@:-single multi group}"; do
  for f in $form; do
    echo "=== $f"
    "$onbeat" record -o "$out/$f.trace" --duration 15s -- "$program" "$f" > "$out/$f.record" 2>&1
    "$onbeat" model "$out/$f.trace" -o "$out/$f.json" "${part[@]}" > "$out/$f.model"
    if ! "$onbeat" plan "$out/$f.json" "${part[@]}" "${cpus[@]}" -o "$out/$f.yaml"; then
      # The way out: measured as it will run, at a real-time priority on one CPU.
      "$onbeat" plan "$out/$f.json" "${part[@]}" "${cpus[@]}" --strategy fifo -o "$out/$f.fifo.yaml"
      "$onbeat" shape "$out/$f.fifo.yaml" --duration 25s -- "$program" "$f" > "$out/$f.fifo" 2>&1 &
      sleep 8
      "$onbeat" record -o "$out/$f.fifo.trace" --duration 18s --pid "$(pgrep -n -f "^$program $f")" > "$out/$f.record" 2>&1
      wait
      "$onbeat" model "$out/$f.fifo.trace" -o "$out/$f.json" "${part[@]}" > "$out/$f.model"
      "$onbeat" plan "$out/$f.json" "${part[@]}" "${cpus[@]}" -o "$out/$f.yaml" || continue
    fi
    "$onbeat" shape "$out/$f.yaml" --verify 30s -- "$program" "$f" || echo "exit code $?"
  done
done
