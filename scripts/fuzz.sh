#!/usr/bin/env bash
# Runs fuzz targets (default: all) for SECONDS (default 30) each: fuzz.sh [SECONDS] [TARGET...].
# With the nightly toolchain under the address sanitizer, otherwise on the stable one without it. New
# inputs go to the cache, not to fuzz/corpus.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
seconds=${1:-30}
case $seconds in *[!0-9]*|"") echo "usage: ./dev fuzz [SECONDS] [TARGET...]" >&2; exit 2 ;; esac
[ $# -eq 0 ] || shift
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for source in fuzz/fuzz_targets/*.rs; do targets+=("$(basename "$source" .rs)"); done
fi
cache="${ONBEAT_CACHE:-$HOME/.cache/onbeat}/fuzz"

if ! cargo fuzz --version >/dev/null 2>&1; then
  echo "-- installing cargo-fuzz" >&2
  cargo install --locked --quiet cargo-fuzz
fi
if cargo +nightly --version >/dev/null 2>&1; then
  fuzz=(cargo +nightly fuzz run)
else
  echo "-- no nightly toolchain (rustup toolchain install nightly): fuzzing without the address sanitizer" >&2
  export RUSTC_BOOTSTRAP=1
  fuzz=(cargo fuzz run --sanitizer none)
fi

failed=()
for target in "${targets[@]}"; do
  mkdir -p "$cache/$target"
  # Built apart, so that a first build does not look like a fuzzer that hangs.
  "${fuzz[@]/#run/build}" "$target" >&2
  log="$cache/$target.log"
  if "${fuzz[@]}" "$target" "$cache/$target" "fuzz/corpus/$target" -- \
    -max_total_time="$seconds" -timeout=10 -rss_limit_mb=3000 -print_final_stats=1 >"$log" 2>&1; then
    echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in $seconds s, no failure"
  else
    tail -40 "$log" >&2
    failed+=("$target")
  fi
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "fuzz: failed: ${failed[*]} (inputs in fuzz/artifacts; keep them in fuzz/corpus once mended)" >&2
  exit 1
fi
