# SPDX-License-Identifier: Apache-2.0
"""Further connections of a session are of its user, no less private than the first one, and count in the user's quota."""

from __future__ import annotations

import pytest
from accessed import PERMISSION, Guarded, await_true, token_file
from raw_any import RawAny

import embtier


@pytest.fixture
def guarded(tmp_path) -> Guarded:
    guarded = Guarded(tmp_path)
    guarded.add("one", "train", tables=["*"])
    guarded.add("two", "train", tables=["*"], quotas={"connections": 3})
    guarded.start()
    yield guarded
    guarded.close()


def key_of(client: RawAny) -> dict:
    session, secret = client.key()
    return {"session": session, "secret": secret}


def join(guarded: Guarded, name: str, transport: str, key: dict) -> tuple[int, str]:
    with RawAny(guarded.address(transport), guarded.tokens[name], arena_bytes=0, joins=key) as client:
        return client.greeted()


@pytest.mark.parametrize("transport", ["tcp", "tls", "rpc"])
def test_a_session_takes_connections_of_its_user_alone(guarded, transport):
    with guarded.raw_as("one", transport) as first:
        key = key_of(first)
        assert join(guarded, "boss", transport, key) == (PERMISSION, "no session of this client has that number and secret")
        assert join(guarded, "two", transport, key) == (PERMISSION, "no session of this client has that number and secret")
        assert join(guarded, "one", transport, key) == (0, "")


@pytest.mark.parametrize(("first", "second"), [("tls", "tcp"), ("tcp", "tls"), ("tls", "rpc")])
def test_all_connections_of_a_session_have_tls_or_none(guarded, first, second):
    with guarded.raw_as("one", first) as client:
        assert join(guarded, "one", second, key_of(client))[0] == PERMISSION


def test_a_reload_that_ends_its_own_session_is_answered_first(guarded):
    """The further connection came with the token that is taken away too."""
    guarded.add("leaver", "admin")
    with guarded.connect() as root:
        root.reload()
    with guarded.raw_as("leaver", "tcp") as first:
        with RawAny(guarded.address("tcp"), guarded.tokens["leaver"], arena_bytes=0, joins=key_of(first)) as second:
            assert second.greeted() == (0, "")
            guarded.users.remove(guarded.user("leaver"))
            guarded.write()
            assert first.error("reload", {}) == (0, "")


def has_one_session(guarded: Guarded) -> bool:
    """That of this question. Its user is that of the token, so it is refused until the others have ended."""
    try:
        with guarded.connect(arena_bytes=0) as server:
            return server.status()["metrics"]["sessions"] == 1
    except embtier.BusyError:
        return False


def test_connections_count_in_the_quota_and_go_together(guarded):
    address = guarded.address("tcp")
    with guarded.connect() as root:
        root.create_table("t", 4, rows=100)
    with token_file(guarded.folder, guarded.tokens["two"]):
        with embtier.connect(f"{address}?connections=3", timeout=60, arena_bytes=1 << 20) as client:
            assert (client.open_table("t").get([1, 2]) == 0).all()
            with pytest.raises(embtier.BusyError, match=r"at most 3 sessions now \(quotas.connections of the access file\)"):
                embtier.connect(address, timeout=60)
        await_true(lambda: has_one_session(guarded), "the end of the connections")
        with pytest.raises(embtier.BusyError, match=r"at most 3 sessions now \(quotas.connections of the access file\)"):
            embtier.connect(f"{address}?connections=4", timeout=60, arena_bytes=1 << 20)
