#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# build_library.sh SOURCE BUILD OUTPUT: builds libembtier of the tree SOURCE in BUILD, copies it to OUTPUT.
set -eu

[ -f "$2/build.ninja" ] || meson setup -Dbuildtype=release -Dtests=disabled "$2" "$1"
meson compile -C "$2" client/embtier:shared_library
strip --strip-unneeded -o "$3" "$2/client/libembtier.so"
