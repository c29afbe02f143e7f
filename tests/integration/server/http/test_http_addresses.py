# SPDX-License-Identifier: Apache-2.0
"""Where the server listens for HTTP, and where it does not."""

from __future__ import annotations

import socket

import pytest
from readers import get, port_of


def test_it_is_off_unless_configured(own_daemon):
    assert not [line for line in own_daemon.logged("listening") if line["address"].startswith("http://")]


def test_a_port_in_use_is_told(make_daemon):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        daemon = make_daemon({"http": {"listen": f"127.0.0.1:{port}"}})
        why = daemon.fail_to_start()
    assert f"http.listen: cannot listen at http://127.0.0.1:{port}: Address already in use" in why


def test_a_second_server_of_a_store_is_told_about_the_store(make_daemon, tmp_path):
    daemon = make_daemon({"http": {"listen": "127.0.0.1:0"}})
    daemon.start()
    daemon.configure({"http": {"listen": f"127.0.0.1:{port_of(daemon)}"}})
    second = make_daemon(folder=tmp_path / "second")
    second.configure({"data": daemon.config["data"], "http": daemon.config["http"]})
    assert "already" in second.fail_to_start().lower() or "in use" in second.fail_to_start()


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
def test_other_hosts_need_a_word(make_daemon, listen: str):
    if listen.startswith("[") and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    daemon = make_daemon({"http": {"listen": listen}})
    why = daemon.fail_to_start()
    assert "http.listen" in why and f"http://{listen} can be reached from other hosts" in why and "http.insecure: yes" in why


def test_an_open_address_is_warned_about(make_daemon):
    daemon = make_daemon({"http": {"listen": "0.0.0.0:0", "insecure": "yes"}})
    daemon.start()
    assert daemon.logged("http.insecure: every host")[0]["level"] == "warn"
    assert get(port_of(daemon), "/livez", headers={"Host": "embeddings.example"}).status == 200


@pytest.mark.parametrize("listen", ["localhost", "127.0.0.1:70000", "tcp://127.0.0.1:1", "/run/socket"])
def test_an_address_must_be_one(make_daemon, listen: str):
    assert "http.listen" in make_daemon({"http": {"listen": listen}}).fail_to_start()
