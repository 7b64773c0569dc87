#!/usr/bin/env bash
# Runs the conformance suite of links over RDMA in a guest: two network namespaces with a Soft-RoCE device each.
#
# usage: scripts/link-verbs.sh        (./dev test link-verbs)
#
# scripts/guest.sh lists the kept files. The guest is emulated: times in its output mean nothing.
#
# Only some tests: ONBEAT_FILTER=death scripts/link-verbs.sh
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
part=link-verbs
# shellcheck source=scripts/guest.sh
. scripts/guest.sh
limit_s=900

guest_possible
guest_programs
guest_kernel

# The programs that the guest needs to use RDMA, and those that build the bindings.
missing=()
command -v cmake >/dev/null || missing+=(cmake)
command -v clang >/dev/null || missing+=(clang)
command -v rdma >/dev/null && command -v ip >/dev/null || missing+=(iproute2)
command -v nsenter >/dev/null || missing+=(util-linux)
[ -e /etc/libibverbs.d/rxe.driver ] || missing+=(ibverbs-providers libibverbs1)
guest_packages "${missing[@]}"
[ -n "$(find "$guest/kernel" -name 'rdma_rxe.ko*')" ] || skip "the guest's kernel has no Soft-RoCE (rdma_rxe)"

shared="$guest/verbs"
rm -rf "$shared"; mkdir -p "$shared"
# The unit tests (lib), the suite (verbs), on a port (verbs_port), allocations (verbs_steady), and the example that the suite starts.
programs=(lib verbs verbs_port verbs_steady)
{
  cargo test --locked -q -p onbeat-link --features verbs --no-run --lib --test verbs --test verbs_port --test verbs_steady \
    --message-format=json
  cargo build --locked -q -p onbeat-link --features verbs --example hosts --message-format=json
} | python3 -c '
import json, shutil, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable"):
        target = message["target"]
        name = "lib" if "lib" in target["kind"] else target["name"]
        shutil.copy(message["executable"], sys.argv[1] + "/" + name)' "$shared"

cat > "$shared/run" <<END
export PATH="$PATH"
cd "$shared"
uname -r > kernel
exec > setup 2>&1
set -x
modprobe -a rdma_rxe ib_uverbs veth
mkdir -p /run/netns
ip netns add a; ip netns add b
ip link add va netns a type veth peer name vb netns b
ip -n a addr add 10.9.0.1/24 dev va; ip -n b addr add 10.9.0.2/24 dev vb
for n in a b; do ip -n \$n link set lo up; ip -n \$n link set v\$n up; done
# The devices belong to all namespaces, as the kernel does by default; their packets to one each.
for n in a b; do nsenter --net=/run/netns/\$n rdma link add rxe_\$n type rxe netdev v\$n; done
rdma link
export ONBEAT_RDMA="10.9.0.1 /run/netns/a 10.9.0.2 /run/netns/b"
for program in ${programs[*]}; do
  filter="${ONBEAT_FILTER:-}"
  [ \$program != lib ] || filter="\${filter:-verbs::}"
  PROPTEST_FAILURE_PERSISTENCE=off timeout -s KILL 400 ./\$program --test-threads=1 --show-output \$filter > \$program.out 2>&1
  echo \$? > \$program.code
done
dmesg | tail -50 > dmesg
sync
END
guest_run "$shared" "$limit_s"
failed=0
for program in "${programs[@]}"; do
  cat "$shared/$program.out"
  [ "$(cat "$shared/$program.code" 2>/dev/null)" = 0 ] || { failed=1; echo "$program failed in the guest ($shared)"; }
done
exit "$failed"
