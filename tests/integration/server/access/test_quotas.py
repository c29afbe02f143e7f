# SPDX-License-Identifier: Apache-2.0
"""Each quota of a user is reached over each transport. The refusal is BUSY and names the quota; what it needs then passes."""

from __future__ import annotations

import re

import embtier
import numpy as np
import pytest
from accessed import TRANSPORTS, Guarded, await_true

IDS, DIM = 1000, 64


@pytest.fixture
def guarded(tmp_path):
    daemon = Guarded(tmp_path / "guarded")
    daemon.add("large", "train")
    yield daemon
    daemon.end()


def start(daemon: Guarded, quotas: dict) -> None:
    """Starts with a user "small" of these quotas, and with a table."""
    daemon.add("small", "train", quotas=quotas)
    daemon.start()
    with daemon.connect() as root:
        root.create_table("t", DIM, rows=10 * IDS, optimizer="sgd", init=("constant", 1))


def refused(quota: str, most: int, words: str = ""):
    """The refusal names user, quota and limit."""
    return pytest.raises(embtier.BusyError, match=rf"{words}.*\b{most}\b.*quotas\.{quota} of the access file")


def get(server: embtier.Server, count: int = IDS) -> None:
    assert (server.open_table("t").get(range(count)) == 1).all()


# ---- Sessions ----


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_connections(guarded, transport):
    start(guarded, {"connections": 2})
    with guarded.connect_as("small", transport) as first:
        with guarded.connect_as("small", transport):
            with pytest.raises(embtier.BusyError, match=r"at most 2 sessions now \(quotas\.connections of the access file\)"):
                guarded.connect_as("small", transport)
        await_true(lambda: first.users()["small"]["sessions"]["used"] == 1, "the end of the second")
        with guarded.connect_as("small", transport) as again:
            get(again)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_bytes_of_arenas(guarded, transport):
    start(guarded, {"arena_bytes": "4MiB"})
    with guarded.connect_as("small", transport, arena_bytes=0) as watcher:
        with guarded.connect_as("small", transport, arena_bytes=3 << 20) as first:
            with refused("arena_bytes", 4 << 20):
                guarded.connect_as("small", transport, arena_bytes=3 << 20)
            get(first)
        await_true(lambda: watcher.users()["small"]["arena_bytes"]["used"] == 0, "the end of the arena")
        with guarded.connect_as("small", transport, arena_bytes=3 << 20) as again:
            get(again)


# ---- Requests ----


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_requests_a_second(guarded, transport):
    start(guarded, {"requests_per_second": 5})
    with guarded.connect_as("large", transport) as fast, guarded.connect_as("small", transport) as slow:
        said = r"user 'small' has begun as many requests as it may, 5 a second \(quotas\.requests_per_second of the access file\)"
        with pytest.raises(embtier.BusyError, match=said):
            for _ in range(10_000):
                get(slow, 1)
        for _ in range(100):  # others are not held up
            get(fast, 1)
        assert slow.status()
        await_true(lambda: succeeds(lambda: get(slow, 1)), "the next request")


def succeeds(function) -> bool:
    try:
        function()
    except embtier.BusyError:
        return False
    return True


def begin(daemon: Guarded, push: embtier.PushBatch, group: embtier.Group) -> None:
    """Submits a push, and returns when the server has begun it. Polls send the rest of its bytes."""
    before = daemon.metrics()["requests"]
    push.submit_push(0.1, 1, group=group)
    await_true(lambda: not push.poll() and daemon.metrics()["requests"] > before, "the push")


def bytes_of_get(count: int) -> int:
    return 32 + count * (8 + 4 * DIM)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_bytes_in_flight(guarded, transport):
    """A push that waits for its group is under way. The user's other sessions have what is left of the quota."""
    most = bytes_of_get(IDS) + 4096
    start(guarded, {"bytes_in_flight": most})
    with (
        guarded.connect_as("small", transport) as waiting, guarded.connect_as("small", transport) as other,
        guarded.connect_as("large", transport) as large,
    ):  # fmt: skip
        mine, others = waiting.join("g", 2, 0), other.join("g", 2, 1)
        table = waiting.open_table("t")
        with waiting.push_batch([(table, IDS)]) as push, other.push_batch([(other.open_table("t"), 1)]) as last:
            get(other)
            push.ids(0)[:], push.gradients(0)[:] = np.arange(IDS), 0
            begin(guarded, push, mine)
            said = rf"user 'small' may have {most} bytes of requests under way .*the request needs {bytes_of_get(IDS)} more: try again"
            with refused("bytes_in_flight", most) as caught:
                get(other)
            assert re.search(said, str(caught.value))
            shown = other.users()["small"]["bytes_in_flight"]
            assert IDS * (8 + 4 * DIM) <= shown["used"] <= most == shown["most"]
            assert "bytes_in_flight" not in large.users()["large"]  # it has no such quota, so they are not counted
            get(other, 1)  # there is room for a small one
            get(large)
            last.ids(0)[:], last.gradients(0)[:] = [IDS], 0
            last.push(0.1, 1, group=others)
            push.wait(60)
        get(other)
        with refused("bytes_in_flight", most) as caught:
            get(other, IDS + 100)  # would never fit
        assert "make smaller requests" in str(caught.value)
        get(waiting)
        await_true(lambda: other.users()["small"]["bytes_in_flight"]["used"] == 0, "the end of the requests")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_bytes_in_flight_of_a_client_that_goes_are_given_back(guarded, transport):
    start(guarded, {"bytes_in_flight": bytes_of_get(IDS) + 4096})
    with guarded.connect_as("small", transport) as other:
        with guarded.connect_as("small", transport) as waiting:
            push = waiting.push_batch([(waiting.open_table("t"), IDS)])
            push.ids(0)[:], push.gradients(0)[:] = np.arange(IDS), 0
            group = waiting.join("g", 2, 0)
            begin(guarded, push, group)
            assert not succeeds(lambda: get(other))
        del push  # which would keep the session
        await_true(lambda: succeeds(lambda: get(other)), "the end of the client")


# ---- Tickets and prefetches ----


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_bytes_of_tickets(guarded, transport):
    start(guarded, {"ticket_bytes": "40KiB"})
    with guarded.connect_as("small", transport) as small, guarded.connect_as("large", transport) as large:
        first, second = (bags_of(small) for _ in range(2))
        first.lookup(ticket=True)
        with refused("ticket_bytes", 40 << 10, "user 'small' may have") as caught:
            second.lookup(ticket=True)
        assert "push or release tickets, and try again" in str(caught.value)
        second.lookup()
        bags_of(large).lookup(ticket=True)
        first.release()
        # Another thread may still sort the first one's rows.
        await_true(lambda: succeeds(lambda: second.lookup(ticket=True)), "the end of the ticket")
        second.gradients(0)[:] = 0
        second.push(0.1, 1)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_sessions_part_of_a_quota_is_told(guarded, transport):
    """One session does not get all of it, so the number alone would look wrong."""
    start(guarded, {"ticket_bytes": "400KiB"})
    with guarded.connect_as("small", transport) as small:
        kept = []
        with refused("ticket_bytes", 400 << 10, "user 'small' may have") as caught:
            for _ in range(100):
                kept.append(bags_of(small))
                kept[-1].lookup(ticket=True)
        assert "a session three quarters of what the user's others leave" in str(caught.value)
        assert 200 << 10 < small.users()["small"]["ticket_bytes"]["used"] <= 300 << 10


def bags_of(server: embtier.Server) -> embtier.BagBatch:
    bags = server.bag_batch([embtier.Bags(server.open_table("t"), IDS, 10)])
    bags.ids(0)[:], bags.offsets(0)[:] = np.arange(IDS), np.arange(0, IDS + 1, IDS // 10)
    return bags


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_bytes_of_pins(guarded, transport):
    start(guarded, {"pinned_bytes": "300KiB"})
    with guarded.connect_as("small", transport) as small, guarded.connect_as("large", transport) as large:
        first, second = prefetch_of(small, 0), prefetch_of(small, IDS)
        first.prefetch()
        with refused("pinned_bytes", 300 << 10, "user 'small' may have") as caught:
            second.prefetch()
        assert "push or release prefetches, and try again" in str(caught.value)
        prefetch_of(large, 2 * IDS).prefetch()
        first.release()
        second.prefetch()
        second.release()


def prefetch_of(server: embtier.Server, start: int) -> embtier.PrefetchBatch:
    ahead = server.prefetch_batch([(server.open_table("t"), IDS)])
    ahead.ids(0)[:] = np.arange(start, start + IDS)
    return ahead


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_servers_own_limits_name_no_quota(guarded, transport):
    """A user with a quota above what the server gives one user meets the server's limit."""
    guarded.configure({"lanes": {"ticket_bytes": "4MiB"}})
    start(guarded, {"ticket_bytes": "1GiB", "pinned_bytes": "1GiB"})
    with guarded.connect_as("small", transport, arena_bytes=16 << 20) as small:
        kept = []
        with pytest.raises(embtier.TicketsFullError, match=r"lanes\.ticket_bytes") as caught:
            for _ in range(1000):
                kept.append(bags_of(small))
                kept[-1].lookup(ticket=True)
        assert "quotas" not in str(caught.value)


# ---- Reloads ----


def test_quotas_are_reloaded(guarded):
    start(guarded, {"ticket_bytes": "1KiB", "pinned_bytes": "1KiB", "bytes_in_flight": "1KiB"})
    with guarded.connect() as root, guarded.connect_as("small", "tcp") as small:
        for do in (lambda: get(small), lambda: bags_of(small).lookup(ticket=True), lambda: prefetch_of(small, 0).prefetch()):
            with pytest.raises(embtier.BusyError, match=r"quotas\.bytes_in_flight"):
                do()
        mine = small.users()["small"]
        assert (mine["ticket_bytes"]["most"], mine["pinned_bytes"]["most"]) == (1 << 10, 1 << 10)
        guarded.user("small").pop("quotas")
        guarded.write()
        root.reload()
        await_true(lambda: small.users()["small"]["pinned_bytes"]["most"] > 1 << 10, "the end of the quotas")
        get(small)
        bags_of(small).lookup(ticket=True)
        prefetch_of(small, 0).prefetch()


@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_a_wrong_quota_is_told(guarded, value):
    guarded.add("small", "train", quotas={"bytes_in_flight": value})
    assert re.search(r"users\[\d\]\.quotas\.bytes_in_flight", guarded.fail_to_start())
