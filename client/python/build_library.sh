#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# build_library.sh SOURCE BUILD LIBRARY PROGRAM OPTIMIZATION: builds libembtier and the command line of the tree SOURCE in BUILD,
# with meson's option of that name, and copies them to LIBRARY and PROGRAM.
set -eu

[ -f "$2/build.ninja" ] || meson setup -Ddebug=false -Doptimization="$5" -Dtests=disabled -Dcuda=disabled "$2" "$1"
meson compile -C "$2" client/embtier:shared_library tools/embtier:executable
strip --strip-unneeded -o "$3" "$2/client/libembtier.so"
strip -o "$4" "$2/tools/embtier"
