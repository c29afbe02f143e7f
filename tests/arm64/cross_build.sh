#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cross_build.sh: builds for arm64 on another machine, and runs the unit tests under qemu-user.
#
# Run it in a Debian of its own (tools/in-debian), since arm64 libraries replace the machine's own. Builds in
# $EMBTIER_BUILD_ROOT/build, where the check reads the tests' reports.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
build=$EMBTIER_BUILD_ROOT/build

packages=(gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user meson ninja-build pkgconf protobuf-c-compiler git python3 pkgconf:arm64
    libcmocka-dev:arm64)
is_known() {
    apt-cache show "$1" >/dev/null 2>&1
}
dpkg --add-architecture arm64
is_known librocksdb-dev:arm64 || apt-get -qq update
list=$("$root/tools/install-packages" --list build)
# Programs are the machine's own, libraries are arm64's. A library may be missing only if the build works without it; --list marks
# these with a ? after the name. Only the unit tests run here, and they need cmocka and no tier in a file.
while read -r name _; do
    library=${name%'?'}
    [[ $library == lib*-dev && $library != libc6-dev ]] || continue
    [[ $name != *'?' ]] || is_known "$library:arm64" || continue
    packages+=("$library:arm64")
done <<<"$list"
DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends "${packages[@]}" >/dev/null

[[ -f $build/build.ninja ]] ||
    meson setup -Dwerror=true -Dtests=enabled -Dmutants=false --cross-file "$root/packaging/aarch64.ini" "$build" "$root"
ninja -C "$build"
# Emulation is ten times slower, or worse, so the long forms are left to the machine's own processor.
EMBTIER_TEST_LONG=0 meson test -C "$build" --no-rebuild --num-processes "$(nproc)" --timeout-multiplier 10 --suite unit --print-errorlogs --logbase unit
