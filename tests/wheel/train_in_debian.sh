#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# train_in_debian.sh RELEASE EMBTIERD FOLDER: does the wheel work where nothing but Python is?
#
# Builds it, installs it in a bare Debian with PyPI's torch and NumPy, and trains through the server EMBTIERD, which runs
# outside. The Debian stays in FOLDER: torch takes gigabytes.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
release=$1 embtierd=$2 folder=$3
inside=$folder/build-debian-$release/tmp

wheel=$("$root/tools/wheel" "$folder/dist" | tail -n 1)
in_debian() {
    EMBTIER_BUILD_ROOT=$folder "$root/tools/in-debian" "$release" env PYTHONDONTWRITEBYTECODE=1 EMBTIER_SOCKET=/tmp/e.sock "$@"
}
in_debian bash -c 'command -v pip >/dev/null || {
    apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends python3-venv ca-certificates
} >/dev/null'
[[ ! -f /etc/ssl/certs/ca-certificates.crt ]] || # where a proxy stands between, it is one more
    cp -L /etc/ssl/certs/ca-certificates.crt "$folder/build-debian-$release/etc/ssl/certs/"
rm -rf "$inside"/{rows,pmem,dist,e.sock}
mkdir "$inside"/{rows,pmem,dist}
cp "$wheel" "$inside/dist/"
# shellcheck disable=SC2016 # for the shell that is started
in_debian bash -c 'cd /tmp && [[ -d venv ]] || python3 -m venv venv
    venv/bin/pip install --quiet --force-reinstall --no-deps dist/*.whl && venv/bin/pip install --quiet "$(echo dist/*.whl)[torch]"'

# As tools/quickstart: too small for the model.
cat >"$inside/embtierd.yaml" <<YAML
data: {directories: [$inside/rows], shards_per_directory: 2}
lanes: {count: 1}
cache:
  tiers:
    - {name: dram, kind: dram, bytes: 4MiB}
    - {name: pmem, kind: file, path: $inside/pmem, bytes: 2MiB}
rocksdb: {memtable_bytes: 32MiB, metadata_cache_bytes: 8MiB}
socket: {path: $inside/e.sock}
YAML
"$embtierd" --init --config "$inside/embtierd.yaml" &
server=$!
trap 'kill "$server" && wait "$server"' EXIT
for _ in {1..600}; do
    in_debian /tmp/venv/bin/embtier status >/dev/null 2>&1 && break
    sleep 0.1
done
in_debian /tmp/venv/bin/embtier status | head -n 1
in_debian /tmp/venv/bin/python -c 'import numpy, torch; print("numpy", numpy.__version__, "torch", torch.__version__)'
in_debian /tmp/venv/bin/python /embtier/examples/train_online_retail.py --dim 320
