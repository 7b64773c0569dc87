#!/usr/bin/env bash
# Runs the conformance tests of reservations, and those of sched_ext, in a guest whose kernel has sched_ext.
#
# usage: scripts/sched-ext.sh        (./dev test sched-ext)
#
# The guest: scripts/guest.sh. Who ran when under a plan is left in $ONBEAT_CACHE/guest/shared/slots.*
# (scripts/slots-picture.py draws it).
#
# Only some tests: ONBEAT_PROGRAMS="sched_ext" ONBEAT_FILTER=death scripts/sched-ext.sh
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
part=sched-ext
# shellcheck source=scripts/guest.sh
. scripts/guest.sh
limit_s=900

# Copies the programs into the shared folder.
built() {
  { cargo test --locked -q -p onbeat-reserve --no-run --test conformance --test sched_ext --message-format=json
    cargo build --locked -q -p onbeat-reserve --example slots --message-format=json; } |
    python3 -c '
import json, shutil, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["target"]["name"] in ("conformance", "sched_ext", "slots"):
        shutil.copy(message["executable"], sys.argv[1] + "/" + message["target"]["name"])' "$1"
}

guest_possible
guest_programs
guest_kernel
shared="$guest/shared"
rm -rf "$shared"; mkdir -p "$shared"
built "$shared"
cat > "$shared/run" <<END
export ONBEAT_ENFORCER=sched-ext RUST_BACKTRACE=0 PATH="$PATH"
cd "$shared"
uname -r > kernel
for program in ${ONBEAT_PROGRAMS:-conformance sched_ext}; do
  ./\$program --test-threads=1 --show-output ${ONBEAT_FILTER:-} > \$program.out 2>&1
  echo \$? > \$program.code
done
./slots v2 > slots.v2 2>&1
./slots sched-ext > slots.sched-ext 2>&1
sync
END
guest_run "$shared" "$limit_s"
failed=0
for program in ${ONBEAT_PROGRAMS:-conformance sched_ext}; do
  cat "$shared/$program.out"
  [ "$(cat "$shared/$program.code" 2>/dev/null)" = 0 ] || { failed=1; echo "$program failed in the guest"; }
done
exit "$failed"
