#!/usr/bin/env bash
# Replays a bag, a log of CAN frames and a capture together, into ROS 2, a CAN interface and UDP, in a guest: its
# kernel has CAN. Also beside canplayer, and into an emulated CAN controller.
#
# usage: scripts/replay-can.sh        (./dev test replay-can)
#
# scripts/guest.sh lists the kept files. The guest is emulated: times mean nothing, ratios little.
# $ONBEAT: the program, if not target/release/onbeat.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
part=replay-can
# shellcheck source=scripts/guest.sh
. scripts/guest.sh
limit_s=900
# A CAN controller (SJA1000), which has a bitrate and modes, beside the kernel's virtual interfaces.
# shellcheck disable=SC2034
guest_devices="-object can-bus,id=bus0 -device kvaser_pci,canbus=bus0"

guest_possible
guest_programs
guest_kernel
missing=()
command -v canplayer >/dev/null || missing+=(can-utils)
command -v ip >/dev/null || missing+=(iproute2)
guest_packages "${missing[@]}"
[ -n "$(find "$guest/kernel" -name 'vcan.ko*')" ] || skip "the guest's kernel has no virtual CAN interface (vcan)"
./dev ros-env kilted >/dev/null
[ -n "${ONBEAT:-}" ] || ./dev build >/dev/null

shared="$guest/replay"
rm -rf "$shared"; mkdir -p "$shared"
cat > "$shared/run" <<END
export PATH="$PATH" HOME="$HOME" ONBEAT="${ONBEAT:-$PWD/target/release/onbeat}" PYTHONDONTWRITEBYTECODE=1
export ONBEAT_CACHE="${ONBEAT_CACHE:-$HOME/.cache/onbeat}" ONBEAT_EMULATED=1 ROS_HOME=/tmp/ros
cd "$PWD"
uname -r > "$shared/kernel"
exec > "$shared/out" 2>&1
modprobe -a can_raw vcan
modprobe kvaser_pci || echo "the guest's kernel has no driver of the emulated CAN controller"
ip link set lo up
# Participants find each other by multicast, and there is no other interface.
ip link set lo multicast on
ip route add 224.0.0.0/4 dev lo
python3 scripts/e2e --keep "$shared/kept" ${ONBEAT_TESTS:-replay_into_ros_can_and_udp_is_whole_and_in_order replay_loses_no_can_frame_beside_busy_programs replay_reads_the_bitrate_and_refuses_a_can_controller_that_cannot_send}
echo \$? > "$shared/code"
sync
END
guest_run "$shared" "$limit_s"
cat "$shared/out"
[ "$(cat "$shared/code" 2>/dev/null)" = 0 ] || { echo "replay failed in the guest ($shared)"; exit 1; }
