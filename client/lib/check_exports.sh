#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_exports.sh READELF LIBRARY HEADER...: checks that the library exports the functions of its headers, and nothing else.
set -eu

readelf=$1
library=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# nm would not do: it knows only libraries for its own processor. For a defined symbol the seventh column is its section.
"$readelf" --dyn-syms --wide "$library" | awk '$5 != "LOCAL" && $7 ~ /^[0-9]+$/ { sub(/@.*/, "", $8); print $8 }' | sort >"$work/exported"
# A declaration starts with EMBTIER_PUBLIC and ends at its semicolon; the first name before a "(" that follows a
# type is the function's.
cat "$@" | tr '\n' ' ' | sed 's/;/;\n/g' | grep -o 'EMBTIER_PUBLIC [^;]*' |
    grep -o 'embtier_[a-z_]*(' | awk '{ sub(/\(/, ""); print }' | sort -u >"$work/promised"
test -s "$work/promised"
diff "$work/promised" "$work/exported"
