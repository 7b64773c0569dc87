#!/usr/bin/env bash
# Builds the programs for plain DDS: build.sh OUT [LIBRARIES]. Debian: cyclonedds-dev cyclonedds-tools libfastrtps-dev
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
out=$1
mkdir -p "$out"
idlc -o "$out" "$here/text.idl"
cc -O2 -Wall -Wextra -Werror -I"$out" "$here/cyclone.c" "$out/text.c" -o "$out/cyclone_source" -lddsc
c++ -std=c++17 -O2 -Wall -Wextra -Werror "$here/fast.cpp" -o "$out/fast_source" -lfastrtps -lfastcdr
for name in listener waitset; do
  ln -f "$out/cyclone_source" "$out/cyclone_$name"
  ln -f "$out/fast_source" "$out/fast_$name"
done
# With the folder of libonbeat_c.a: a program that passes messages from DDS to tasks of onbeat-flow.
if [ -n "${2:-}" ]; then
  cc -O2 -Wall -Wextra -Werror -I"$out" -I"$here/../../crates/runtime/c/include" \
    "$here/flow_relay.c" "$out/text.c" -o "$out/flow_relay" -lddsc "$2/libonbeat_c.a" -lgcc_s -lrt -lpthread -lm -ldl
fi
