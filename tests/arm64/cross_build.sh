#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cross_build.sh: builds for arm64 on another machine, and runs the unit tests under qemu-user.
#
# For a Debian of its own (tools/in-debian): libraries of arm64 take the place of the machine's own. Builds in
# $EMBTIER_BUILD_ROOT/build, where the check looks for what the tests said.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
build=$EMBTIER_BUILD_ROOT/build

packages=(gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user meson ninja-build pkgconf protobuf-c-compiler git python3 pkgconf:arm64)
if ! grep -q arm64 <(dpkg --print-foreign-architectures); then
    dpkg --add-architecture arm64
    apt-get -qq update
fi
# Those that are no library are of the machine; and not each release has each library.
while read -r name _; do
    [[ $name != lib*-dev || $name == libc6-dev ]] || ! apt-cache show "$name:arm64" >/dev/null 2>&1 || packages+=("$name:arm64")
done < <("$root/tools/install-packages" --list build test)
DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends "${packages[@]}" >/dev/null

[[ -f $build/build.ninja ]] ||
    meson setup -Dwerror=true -Dtests=enabled -Dmutants=false --cross-file "$root/packaging/aarch64.ini" "$build" "$root"
ninja -C "$build"
# Under emulation everything takes ten times as long, or longer.
meson test -C "$build" --no-rebuild --num-processes "$(nproc)" --timeout-multiplier 10 --suite unit --print-errorlogs --logbase unit
