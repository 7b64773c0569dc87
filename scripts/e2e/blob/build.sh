#!/usr/bin/env bash
# Builds the test's message package and the programs that use it against an environment of wheels.
#
# usage: build.sh ENVIRONMENT OUT
#   OUT/lib    the package's libraries, to be found by LD_LIBRARY_PATH
#   OUT/blob   publisher and subscriber
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
[ $# = 2 ] || { sed -n '4,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
env=$(readlink -f "$1")
mkdir -p "$2/lib" "$2/include"; out=$(cd "$2" && pwd)
AMENT_PREFIX_PATH=$env "$env/bin/python" -W ignore "$here/generate.py" "$env" "$out/generated" >/dev/null
ln -sfn "$out/generated/c" "$out/include/onbeat_test_msgs"
for kind in fastrtps_c introspection_c; do cp -r "$out/generated/$kind/msg/detail/"*.h "$out/generated/c/msg/detail/"; cp "$out/generated/$kind/msg/"*.h "$out/generated/c/msg/"; done

flags=(-O1 -fPIC -w -pthread -I"$out/include")
for dir in "$env"/include/*/; do flags+=(-isystem "${dir%/}"); done
flags+=(-isystem "$env/include")
link=(-L"$env/lib" -L"$out/lib" -Wl,--disable-new-dtags -Wl,-rpath,"$env/lib" -Wl,-rpath,"$out/lib"
  -Wl,--allow-shlib-undefined -Wl,--unresolved-symbols=ignore-in-shared-libs)
for dir in "$env"/lib/python3*/site-packages/*.libs; do link+=(-Wl,-rpath,"$dir"); done
lib=$out/lib/libonbeat_test_msgs__rosidl
c=$out/generated/c/msg
gcc "${flags[@]}" -shared -o "${lib}_generator_c.so" "$c"/detail/*__functions.c \
  "$c"/detail/*__description.c "$c"/detail/*__type_support.c "${link[@]}" \
  -lstd_msgs__rosidl_generator_c -lbuiltin_interfaces__rosidl_generator_c -lrosidl_runtime_c -lrcutils
g++ "${flags[@]}" -shared -o "${lib}_typesupport_fastrtps_c.so" "$out"/generated/fastrtps_c/msg/detail/*.cpp \
  "${link[@]}" -lonbeat_test_msgs__rosidl_generator_c -lstd_msgs__rosidl_typesupport_fastrtps_c \
  -lrosidl_typesupport_fastrtps_c -lfastcdr -lrosidl_runtime_c
gcc "${flags[@]}" -shared -o "${lib}_typesupport_introspection_c.so" \
  "$out"/generated/introspection_c/msg/detail/*.c "${link[@]}" -lonbeat_test_msgs__rosidl_generator_c \
  -lstd_msgs__rosidl_typesupport_introspection_c -lrosidl_typesupport_introspection_c -lrosidl_runtime_c
g++ "${flags[@]}" -shared -o "${lib}_typesupport_c.so" "$c"/*__type_support.cpp "${link[@]}" \
  -lonbeat_test_msgs__rosidl_generator_c -lrosidl_typesupport_c -lrosidl_runtime_c

# As for SYN: the wheels' librcl wants symbols of Python that nothing here uses.
symbols=$(nm -D --undefined-only "$env"/lib/*generator_py.so | awk '$2 ~ /^_?Py/ {print $2}' | sort -u)
for symbol in $symbols; do printf 'char %s[64];\n' "$symbol"; done |
  gcc -x c -shared -fPIC -fno-builtin -o "$out/lib/libnopython.so" -
gcc "${flags[@]}" -Wall -o "$out/blob" "$here/blob.c" "${link[@]}" -Wl,--no-as-needed -lnopython \
  -lrcl -lrmw_fastrtps_cpp -lrmw -lrcutils -lrosidl_runtime_c \
  -lonbeat_test_msgs__rosidl_typesupport_c -lonbeat_test_msgs__rosidl_generator_c
