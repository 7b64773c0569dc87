#!/usr/bin/env bash
# Builds the ROS 2 peer of the queues experiment against an environment of wheels.
#
# usage: build.sh ENVIRONMENT OUT
#   OUT/queues-ros2
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
[ $# = 2 ] || { sed -n '4,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
env=$(readlink -f "$1")
mkdir -p "$2"; out=$(cd "$2" && pwd)
[ -d "$env/include/rcl" ] || { echo "build.sh: no ROS 2 headers in $env: make it with ./dev ros-env" >&2; exit 1; }

# Every package has its own include folder.
flags=(-std=c++17 -O2 -g -Wall -Wextra -Werror -pthread -I"$here/../queues-common")
for dir in "$env"/include/*/; do flags+=(-isystem "${dir%/}"); done

# DT_RPATH, unlike RUNPATH, also applies to the dependencies of the libraries.
link=(-L"$env/lib" -Wl,--disable-new-dtags -Wl,-rpath,"$env/lib" -Wl,-rpath,"\$ORIGIN"
  -Wl,--allow-shlib-undefined -Wl,--unresolved-symbols=ignore-in-shared-libs)
for dir in "$env"/lib/python3*/site-packages/*.libs; do link+=(-Wl,-rpath,"$dir"); done
link+=(-lrcl -lrmw_fastrtps_cpp -lrmw -lrcutils -lrosidl_runtime_c -ltracetools
  -lstd_msgs__rosidl_typesupport_c -lstd_msgs__rosidl_generator_c)

# The wheels' librcl links Python's type support, which nothing here calls. A library with empty
# symbols saves a dependency on Python.
symbols=$(nm -D --undefined-only "$env"/lib/*generator_py.so | awk '$2 ~ /^_?Py/ {print $2}' | sort -u)
for symbol in $symbols; do printf 'char %s[64];\n' "$symbol"; done |
  g++ -x c -shared -fPIC -fno-builtin -o "$out/libnopython.so" -
link+=(-Wl,--no-as-needed -L"$out" -lnopython)
g++ "${flags[@]}" -o "$out/queues-ros2" "$here/main.cpp" "${link[@]}"
