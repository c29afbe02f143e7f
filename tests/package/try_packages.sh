#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# try_packages.sh RELEASE FOLDER: builds the packages in a Debian of that release, and tries them in a bare one.
#
# Both Debians stay in FOLDER. The exit status is 69 if no chroot can be made here.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
release=$1 folder=$2

in_debian() {
    EMBTIER_BUILD_ROOT=$folder/$1 "$root/tools/in-debian" "$release" "${@:2}"
}
mkdir -p "$folder"/{builds,bare}
in_debian builds tests/package/build_packages.sh
in_debian bare true
to=$folder/bare/build-debian-$release/build/packages
rm -rf "$to"
mkdir -p "$to"
cp "$folder/builds/build-debian-$release/build/packages"/*.deb "$to"
in_debian bare tests/package/install_packages.sh /build/packages
