#!/usr/bin/env bash
# Bands that follow a load that changes, beside fixed ones: ./dev demo adapt [-o DIR] [OPTION ...]
# (demos/chain/adapt.py --help lists the options).
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
env=$(./dev ros-env kilted)
cache=${ONBEAT_CACHE:-$HOME/.cache/onbeat}
stage=$(demos/chain/build.sh "$env" "$cache/chain-demo")
before=()
[ "$(id -u)" = 0 ] || ! command -v sudo >/dev/null || before=(sudo)
exec "${before[@]}" "$env/bin/python" demos/chain/adapt.py --onbeat "$PWD/target/release/onbeat" --stage "$stage" "$@"
