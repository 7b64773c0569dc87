#!/usr/bin/env bash
# Builds the ROS 1 peers of the queues experiment against the system's roscpp and nodelet.
#
# usage: build.sh OUT
#   OUT/queues-ros1                   nodes, and the loader of nodelets
#   OUT/lib, OUT/share/onbeat_queues  a ROS package with the nodelets
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
[ $# = 1 ] || { sed -n '4,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
package=share/onbeat_queues
mkdir -p "$1/lib" "$1/$package"; out=$(cd "$1" && pwd)
if ! pkg-config --exists roscpp || ! [ -e /usr/include/nodelet/nodelet.h ] || ! [ -e /usr/include/std_msgs/UInt8MultiArray.h ] ||
  ! [ -e /usr/lib/gencpp/gen_cpp.py ]; then
  echo "build.sh: roscpp or nodelet is missing: install libroscpp-dev libnodelet-dev libnodeletlib-dev libstd-msgs-dev python3-gencpp" >&2
  exit 1
fi

mkdir -p "$out/include/onbeat_queues"
# The system's own Python: another one on the path lacks the modules of ROS 1.
/usr/bin/python3 /usr/lib/gencpp/gen_cpp.py "$here/Swap.srv" -p onbeat_queues -o "$out/include/onbeat_queues" -e /usr/share/gencpp

read -ra flags <<<"$(pkg-config --cflags roscpp)"
read -ra link <<<"$(pkg-config --libs roscpp)"
# Warnings in headers of other projects are ignored.
flags=("${flags[@]/#-I/-isystem}")
flags+=(-std=c++17 -O2 -g -Wall -Wextra -Werror -pthread -I"$here/../queues-common")
flags+=(-isystem "$out/include")
# Debian's pluginlib is shared by ROS 1 and ROS 2, and has its headers one folder deeper.
for dir in pluginlib class_loader rcutils rcpputils ament_index_cpp; do
  flags+=(-isystem "/usr/include/$dir")
done
g++ "${flags[@]}" -o "$out/queues-ros1" "$here/nodes.cpp" "${link[@]}" &
nodes=$!
g++ "${flags[@]}" -fPIC -shared -o "$out/lib/libonbeat_queues.so" "$here/nodelets.cpp" \
  "${link[@]}" -lnodeletlib -lclass_loader -lconsole_bridge
wait "$nodes"
cp "$here/package.xml" "$here/nodelets.xml" "$out/$package/"
