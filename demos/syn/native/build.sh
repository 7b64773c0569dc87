#!/usr/bin/env bash
# Builds SYN's compiled client against a ROS 2 environment of wheels (./dev ros-env DISTRO).
#
# usage: build.sh ENVIRONMENT OUT
#   OUT/syn         a client on rcl; with --as rclcpp its execute_* functions are not exported
#   OUT/syn-rclcpp  the same, with execute_* in a shared library of rclcpp's name
#   OUT/syn-lyrical the same, with the symbols of Lyrical
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
[ $# = 2 ] || { sed -n '4,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
env=$(readlink -f "$1")
mkdir -p "$2"; out=$(cd "$2" && pwd)
[ -d "$env/include/rcl" ] || { echo "build.sh: no ROS 2 headers in $env: make it with ./dev ros-env" >&2; exit 1; }

# Every package has an include folder of its own.
flags=(-std=c++17 -O2 -g -Wall -Wextra -Werror -pthread)
for dir in "$env"/include/*/; do flags+=(-isystem "${dir%/}"); done
flags+=(-isystem "$env/include")

# DT_RPATH, unlike RUNPATH, also serves the libraries' own dependencies, so that neither the
# builder nor the user needs LD_LIBRARY_PATH.
link=(-L"$env/lib" -Wl,--disable-new-dtags -Wl,-rpath,"$env/lib" -Wl,-rpath,"\$ORIGIN"
  -Wl,--allow-shlib-undefined -Wl,--unresolved-symbols=ignore-in-shared-libs)
for dir in "$env"/lib/python3*/site-packages/*.libs; do link+=(-Wl,-rpath,"$dir"); done
link+=(-lrcl -lrmw_fastrtps_cpp -lrmw -lrcutils -lrosidl_runtime_c -ltracetools
  -lstd_msgs__rosidl_typesupport_c -lstd_msgs__rosidl_generator_c
  -lstd_srvs__rosidl_typesupport_c -lstd_srvs__rosidl_generator_c)

# The wheels' librcl pulls in Python's type support, which nothing here calls. Its symbols only
# have to be there, so a library of empty ones saves a dependency on Python.
symbols=$(nm -D --undefined-only "$env"/lib/*generator_py.so | awk '$2 ~ /^_?Py/ {print $2}' | sort -u)
for symbol in $symbols; do printf 'char %s[64];\n' "$symbol"; done |
  g++ -x c -shared -fPIC -fno-builtin -o "$out/libnopython.so" -
link+=(-Wl,--no-as-needed -L"$out" -lnopython)

cd "$here"
g++ "${flags[@]}" -fPIC -shared -Wl,-soname,librclcpp.so -o "$out/librclcpp.so" rclcpp_stub.cpp
g++ "${flags[@]}" -c -o "$out/main.o" main.cpp
g++ "${flags[@]}" -o "$out/syn" "$out/main.o" rclcpp_stub.cpp "${link[@]}"
g++ "${flags[@]}" -o "$out/syn-rclcpp" "$out/main.o" "$out/librclcpp.so" "${link[@]}"
mkdir -p "$out/lyrical"
g++ "${flags[@]}" -DLYRICAL -fPIC -shared -Wl,-soname,librclcpp.so -o "$out/lyrical/librclcpp.so" rclcpp_stub.cpp
g++ "${flags[@]}" -DLYRICAL -Wl,-rpath,"\$ORIGIN/lyrical" -o "$out/syn-lyrical" main.cpp "$out/lyrical/librclcpp.so" "${link[@]}"
rm "$out/main.o"
echo "$out/syn $out/syn-rclcpp $out/syn-lyrical"
