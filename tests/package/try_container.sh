#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# try_container.sh FOLDER: builds the image of packaging/Containerfile, and serves a client in a container of it.
#
# Its packages are those that try_packages.sh has left in FOLDER for Debian 12, and its base is made of the bare Debian 12 there, so
# no registry is needed. Images stay in FOLDER. The exit status is 66 without packages, and 69 if no image can be made here.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$1
packages=$folder/bare/build-debian-bookworm/build/packages
base=localhost/debian:12
no_packages=66
unavailable=69

compgen -G "$packages/embtier-server_*.deb" >/dev/null || {
    echo "try_container: no packages in $packages; run try_packages.sh first" >&2
    exit "$no_packages"
}
command -v buildah >/dev/null || {
    echo "try_container: buildah is not installed: apt-get install --no-install-recommends buildah" >&2
    exit "$unavailable"
}
# A chroot in place of namespaces, and plain folders in place of overlays: that also works in a container.
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
run_buildah() {
    buildah --root "$folder/images" --runroot "$folder/images-run" "$@"
}
container=''
end() {
    [[ -z $container ]] || run_buildah rm "$container" >/dev/null
}
trap end EXIT

if ! run_buildah images --quiet "$base" >/dev/null 2>&1; then
    container=$(run_buildah from scratch) || exit "$unavailable"
    mounted=$(run_buildah mount "$container") || exit "$unavailable"
    tar -C "$folder/bare/build-debian-bookworm" --one-file-system --exclude='./build/*' --exclude='./embtier/*' -cf - . |
        tar -C "$mounted" -xf -
    run_buildah commit --quiet "$container" "$base"
    end
fi
run_buildah bud --pull-never --build-arg "BASE=$base" --build-context "packages=$packages" --tag embtier \
    --file "$root/packaging/Containerfile" "$root"
container=$(run_buildah from localhost/embtier)
# shellcheck disable=SC2016 # for the shell in the container
run_buildah run "$container" -- bash -euc '
    [[ $(id -un) == embtier ]]
    embtierd --config /etc/embtier/embtierd.yaml &
    for _ in $(seq 600); do
        ! embtier status >/tmp/status 2>&1 || break
        sleep 0.1
    done
    embtier table create users --rows 100 --dim 4 >/dev/null
    embtier set users 7=1,2,3,4 >/dev/null
    [[ $(embtier get users 7) == 7=1,2,3,4 ]]
    kill %1
    wait %1'
echo "all well"
