#!/usr/bin/env bash
# Builds a peer of `link`: build.sh cyclonedds|fastdds|libfabric DIR
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
name=$1 out=$2
flags=(-std=c++17 -O2 -Wall -Wextra -Werror -pthread)
case $name in
  cyclonedds)
    (cd "$out" && idlc -l c "$here/message.idl")
    cc -O2 -c -I"$out" -o "$out/message.o" "$out/message.c"
    c++ "${flags[@]}" -I"$out" -o "$out/peer" "$here/cyclonedds.cpp" "$out/message.o" -lddsc ;;
  fastdds)
    c++ "${flags[@]}" -o "$out/peer" "$here/fastdds.cpp" -lfastrtps -lfastcdr ;;
  libfabric)
    c++ "${flags[@]}" -o "$out/peer" "$here/libfabric.cpp" -lfabric ;;
  *) echo "build.sh: no peer '$name'" >&2; exit 2 ;;
esac
