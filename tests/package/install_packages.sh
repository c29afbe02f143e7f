#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install_packages.sh FOLDER: installs the packages in FOLDER, uses, upgrades, removes and purges them.
#
# Run it in a bare Debian of its own (tools/in-debian). There is no systemd: the packages must not mind, and this script starts the
# server as the unit would.
set -euo pipefail

folder=$1
config=/etc/embtier/embtierd.yaml
data=/var/lib/embtier
server=''

say() {
    printf -- '--- %s\n' "$*"
}
fail() {
    printf 'install_packages: %s\n' "$*" >&2
    exit 1
}
end() {
    [[ -z $server ]] || kill "$server" 2>/dev/null || true
}
trap end EXIT

apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -y --no-install-recommends "$@"
}
# as_server: before a command, gives it the user and the variables of the unit.
as_server=(setpriv --reuid=embtier --regid=embtier --init-groups env "STATE_DIRECTORY=$data" RUNTIME_DIRECTORY=/run/embtier)
start() {
    install -d -o embtier -g embtier /run/embtier
    "${as_server[@]}" embtierd --config $config 2>/tmp/embtierd.log &
    server=$!
    for _ in $(seq 600); do
        ! embtier status >/tmp/status 2>&1 || return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    cat /tmp/embtierd.log >&2
    fail "the server did not start"
}
stop() {
    kill "$server"
    wait "$server" || fail "the server did not stop well"
    server=''
}
# files_left: everything of the packages that is still there, without the system's own records of them.
files_left() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /build -o -path /embtier -o -path /var/log -o -path /tmp \
        -o -path /var/lib/dpkg -o -path /var/cache \) -prune -o -iname '*embtier*' -print
    if getent passwd embtier || getent group embtier; then
        return 1
    fi
}

say "install"
apt purge 'embtier-server' 'libembtier*' 'python3-embtier' >/dev/null 2>&1 || true
rm -rf $data
apt update
apt install "$folder"/*.deb
[[ $(stat -c %U:%G:%a $data) == embtier:embtier:700 ]] || fail "$data is not the user's alone"
install -d -o embtier -g embtier /run/embtier
"${as_server[@]}" embtier config check $config
cmp $config <(dpkg-deb --fsys-tarfile "$folder"/embtier-server_*.deb | tar -xO ".$config")

say "start and use"
start
embtier table create users --rows 1000 --dim 4 >/dev/null
embtier set users 7=1,2,3,4 >/dev/null
python3 -c '
import embtier
with embtier.connect() as server:
    assert server.open_table("users").get([7]).tolist() == [[1, 2, 3, 4]]'
embtier support-bundle --log /tmp/embtierd.log --file /tmp/bundle.$$.tar.gz >/dev/null
tar -tzf /tmp/bundle.$$.tar.gz | grep -q '/config-file.json$'
embtier tune --directory /tmp --rows 1000 --dim 4 --updates 1000 --minutes 0.05 --cache 0 | grep -q "^Recommended: "
[[ -f /usr/include/embtier.h && -e $(echo /usr/lib/*/libembtier.so) && -f $(echo /usr/lib/*/pkgconfig/embtier.pc) ]] ||
    fail "the development files are not there"
stop

say "upgrade, with a changed configuration"
echo '# a line of the administrator' >>$config
again=$(mktemp -d)
dpkg-deb -R "$folder"/embtier-server_*.deb "$again/server"
sed -i 's/^Version: .*/&+1/' "$again/server/DEBIAN/control"
dpkg-deb -b "$again/server" "$again/embtier-server.deb" >/dev/null
apt install "$again/embtier-server.deb"
dpkg-query -W -f '${Version}\n' embtier-server | grep -q '+1$'
grep -q 'a line of the administrator' $config
start
embtier get users 7 | grep -q 4
stop

say "remove"
apt remove embtier-server
! command -v embtierd || fail "embtierd is still there"
[[ -f $config && -f $data/embtier.json ]] || fail "a removal took the configuration or the rows"

say "install again: the rows are there"
apt install "$folder"/embtier-server_*.deb
start
embtier get users 7 | grep -q 4
stop

say "purge: the rows stay"
apt purge embtier-server 2>&1 | tee /tmp/purge.log
[[ ! -e /etc/embtier ]] || fail "/etc/embtier is left"
[[ -f $data/embtier.json ]] || fail "a purge took the rows"
grep -q "$data has rows and stays" /tmp/purge.log

say "purge without rows: nothing stays"
apt install "$folder"/embtier-server_*.deb
rm -rf ${data:?}/*
apt purge embtier-server libembtier0 libembtier-dev python3-embtier
left=$(files_left) || fail "the user is left"
[[ -z $left ]] || fail "left: $left"
say "all well"
