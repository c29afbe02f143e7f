#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build_packages.sh: builds the Debian packages of this tree, for the Debian that it runs in, and asks lintian about them.
#
# Run it in a Debian of its own (tools/in-debian), since it installs packages. They come to $EMBTIER_BUILD_ROOT/packages. A
# compilation of before is used again.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$EMBTIER_BUILD_ROOT/packages
source=$folder/embtier

"$root/tools/install-packages" build
apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends build-essential debhelper dh-python lintian >/dev/null
mkdir -p "$source"
rm -f "$folder"/*.{deb,changes,buildinfo}
# Files that are gone must not be packed; objects of the last build stay.
find "$source" -mindepth 1 -maxdepth 1 ! -name 'obj-*' -exec rm -rf {} +
tar -C "$root" --exclude='./build*' --exclude=./.git -cf - . | tar -C "$source" -xf -
cd "$source"
DEB_BUILD_OPTIONS="parallel=$(nproc) noautodbgsym" dpkg-buildpackage -b -us -uc -nc
# newer-standards-version: the version of Debian 12's policy. bogus-mail-host-in-debian-changelog: the project has no other.
lintian --fail-on error,warning --allow-root \
    --suppress-tags newer-standards-version,bogus-mail-host-in-debian-changelog,bogus-mail-host "$folder"/*.changes
ls -l "$folder"/*.deb
