#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# train_in_debian.sh RELEASE EMBTIERD FOLDER: checks that the wheel works on a system that has only Python.
#
# Builds it, installs it in a bare Debian with PyPI's torch and NumPy, and trains through the server EMBTIERD, which runs outside.
# The Debian stays in FOLDER, since torch takes gigabytes. The exit status is 69 if PyPI cannot be reached.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
release=$1 embtierd=$2 folder=$3
inside=$folder/build-debian-$release/tmp
certificates=/etc/ssl/certs/ca-certificates.crt
unavailable=69

# The server's paths begin with a short link: a socket's path may have at most 107 bytes, and FOLDER may be longer.
short=$(mktemp -d /tmp/embtier-wheel.XXXXXX)
server=''
end() {
    local status=$?
    trap - EXIT
    if [[ -n $server ]]; then
        kill "$server" 2>/dev/null || true
        wait "$server" || status=$?
    fi
    rm -rf -- "$short"
    exit "$status"
}
trap end EXIT

wheel=$("$root/tools/wheel" "$folder/dist" | tail -n 1)
in_debian() {
    EMBTIER_BUILD_ROOT=$folder "$root/tools/in-debian" "$release" env PYTHONDONTWRITEBYTECODE=1 EMBTIER_SOCKET=/tmp/e.sock "$@"
}
in_debian bash -c 'python3 -c "import ensurepip" 2>/dev/null || {
    apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends python3-venv ca-certificates
} >/dev/null'
[[ ! -f $certificates ]] || # where a proxy stands between, it is one more
    cp -L "$certificates" "$folder/build-debian-$release/etc/ssl/certs/"
rm -rf "$inside"/{rows,pmem,dist,e.sock}
mkdir "$inside"/{rows,pmem,dist}
cp "$wheel" "$inside/dist/"
index=(${PIP_INDEX_URL+PIP_INDEX_URL="$PIP_INDEX_URL"}) # as tools/wheel has it
pip() {
    in_debian env PIP_CERT="$certificates" "${index[@]}" /tmp/venv/bin/pip --quiet --disable-pip-version-check "$@"
}
in_debian bash -c '[[ -x /tmp/venv/bin/pip ]] || python3 -m venv --clear /tmp/venv'
pip install --force-reinstall --no-deps "/tmp/dist/${wheel##*/}"
if ! pip install "/tmp/dist/${wheel##*/}[torch]"; then
    # pip has one exit status for all failures; fetching a small package shows whether PyPI can be reached.
    pip download --no-deps --no-cache-dir --retries 0 --timeout 20 --dest /tmp/asked wheel 2>/dev/null || exit "$unavailable"
    exit 1
fi

ln -s "$(cd -- "$inside" && pwd)" "$short/in"
# Sizes as in tools/quickstart, too small for the whole model.
cat >"$inside/embtierd.yaml" <<YAML
data: {directories: ["$short/in/rows"], shards_per_directory: 2}
lanes: {count: 1}
cache:
  tiers:
    - {name: dram, kind: dram, bytes: 4MiB}
    - {name: pmem, kind: file, path: "$short/in/pmem", bytes: 2MiB}
rocksdb: {memtable_bytes: 32MiB, metadata_cache_bytes: 8MiB}
socket: {path: "$short/in/e.sock"}
YAML
"$embtierd" --init --config "$inside/embtierd.yaml" &
server=$!
for _ in {1..600}; do
    in_debian /tmp/venv/bin/embtier status >/dev/null 2>&1 && break
    if ! kill -0 "$server" 2>/dev/null; then
        echo "train_in_debian: the server has ended" >&2
        exit 1
    fi
    sleep 0.1
done
in_debian /tmp/venv/bin/embtier status | head -n 1
in_debian /tmp/venv/bin/python -c 'import numpy, torch; print("numpy", numpy.__version__, "torch", torch.__version__)'
in_debian /tmp/venv/bin/python /embtier/examples/train_online_retail.py --dim 320
