# SPDX-License-Identifier: Apache-2.0
"""embtier.torch.Prefetcher passes a loader's batches on as they are, with their rows in DRAM, and gives all pins back."""

from __future__ import annotations

import contextlib
import warnings

import numpy as np
import pytest
from prefetching import ROWS, TIER_ROWS, all_rows, await_pinned, make_table, pinned_rows, press

import embtier

torch = pytest.importorskip("torch")

import embtier.torch as et  # noqa: E402

BATCHES = 7
BAGS, LENGTH = 10, 10  # all batches together fit into half of one lane's first tier


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(1)
    torch.set_num_threads(1)


def loader_of(batches: int = BATCHES, bags: int = BAGS) -> list[dict[str, torch.Tensor]]:
    """Batches with ids of features "a" and "b" in bags."""
    return [{k: torch.randint(0, ROWS // 2, (bags, LENGTH)) for k in "ab"} for _ in range(batches)]


def distinct(batches, features: str = "ab") -> int:
    """The number of distinct rows, where each feature has its own table."""
    return sum(len(torch.cat([batch[k].view(-1) for batch in batches]).unique()) for k in features)


def collection_of(server: embtier.Server, name: str, **options) -> et.EmbeddingBagCollection:
    tables = {k: make_table(server, f"{name}_{k}") for k in "ab"}
    return et.EmbeddingBagCollection(tables, lr=0.1, **options)


def given(batch):
    return batch


def train(module, batch) -> float:
    loss = sum(out.square().sum() for out in module(batch).values())
    loss.backward()
    return loss.item()


@pytest.fixture
def hit_rows(monkeypatch) -> list[tuple[int, int]]:
    """For each lookup: its hits, and its ids."""
    seen = []
    real = embtier.BagBatch.lookup

    def lookup(self, timeout=None, **options):
        batch = real(self, timeout, **options)
        seen.append((batch.hit_rows, sum(batch.count(i) for i in range(len(batch)))))
        return batch

    monkeypatch.setattr(embtier.BagBatch, "lookup", lookup)
    return seen


# ---- Batches, and training on them ----


@pytest.mark.parametrize("ahead", [1, 2, 100])
@pytest.mark.parametrize("batches", [0, 1, 2, BATCHES])
def test_batches_are_passed_on_as_they_are(server, name, batches, ahead):
    module, loader = collection_of(server, name), loader_of(batches)
    prefetcher = et.Prefetcher(loader, module, given, ahead)
    assert len(prefetcher) == batches
    for _ in range(2):
        seen = list(prefetcher)
        assert len(seen) == batches and all(one is other for one, other in zip(seen, loader))
        await_pinned(server, 0)
    assert prefetcher.skipped_prefetches == 0


def test_a_loader_is_read_no_further_ahead_than_said(server, name):
    module, loader, read = collection_of(server, name), loader_of(), []
    source = (read.append(i) or batch for i, batch in enumerate(loader))
    for i, _ in enumerate(et.Prefetcher(source, module, given, ahead=3)):
        assert len(read) == min(i + 4, BATCHES)


@pytest.mark.parametrize("update", et.UPDATES)
def test_losses_and_rows_are_the_same_bits_with_it_and_without(server, name, update):
    losses, rows = [], []
    for k in ("with", "without"):
        torch.manual_seed(2)
        module, loader = collection_of(server, f"{name}_{k}", update=update), loader_of()
        loader[3] = loader[2]  # so that rows change between their prefetch and their lookup
        over = et.Prefetcher(loader, module, given) if k == "with" else loader
        found = []
        for _ in range(2):
            for batch in over:
                found.append(train(module, batch))
                module.step()
        losses.append(found)
        rows.append([all_rows(bag.table) for bag in module.bags.values()])
        await_pinned(server, 0)
    assert losses[0] == losses[1] and len(losses[0]) == 2 * BATCHES
    for one, other in zip(*rows):
        np.testing.assert_array_equal(one, other)


def test_an_embedding_bag_and_several_modules_have_inputs_of_their_own(server, name):
    one, other = (et.EmbeddingBag(make_table(server, f"{name}_{i}"), padding_idx=p, lr=0.01) for i, p in ((1, None), (2, 0)))
    loader = [torch.randint(1, 1000, (50,)) for _ in range(BATCHES)]
    for ids in loader:
        ids[::5] = 0
    offsets = torch.tensor([0, 20])
    pinned = []
    for ids in et.Prefetcher(loader, one, lambda ids: (ids, offsets), ahead=1):
        pinned.append(pinned_rows(server))
        one(ids, offsets).sum().backward()
    assert one.steps == BATCHES
    await_pinned(server, 0)
    both = et.Prefetcher(loader, [one, other], lambda ids: [(ids, offsets), ids.view(10, 5)], ahead=1)
    for i, ids in enumerate(both):
        last = loader[i : i + 2] if i else loader[1:2]
        union = torch.cat(last).unique() if last else torch.empty(0)
        await_pinned(server, 2 * len(union) - int((union == 0).any()))  # the second has no padding
        (one(ids, offsets).sum() + other(ids.view(10, 5)).sum()).backward()
    await_pinned(server, 0)
    with pytest.raises(ValueError):
        list(et.Prefetcher(loader, [one, other], lambda ids: [(ids, offsets)]))


# ---- Pins ----


def test_rows_are_hits_under_pressure(server, name, hit_rows):
    module, loader = collection_of(server, name), loader_of(5)
    for k in ("without", "with"):
        over = et.Prefetcher(loader, module, given, ahead=1) if k == "with" else loader
        for bag in module.bags.values():
            press(bag.table)
        hit_rows.clear()
        for i, batch in enumerate(over):
            if k == "with":
                await_pinned(server, distinct(loader[max(1, i) : i + 2]))
            for bag in module.bags.values():
                press(bag.table)
            train(module, batch)
        later = hit_rows[1:]  # nothing prefetched the first
        if k == "with":
            assert all(hits == ids for hits, ids in later), hit_rows
        else:
            assert all(hits < ids for hits, ids in later), hit_rows
        await_pinned(server, 0)


def test_the_push_releases_its_batch_and_no_other(server, name):
    module, loader = collection_of(server, name), loader_of()
    for i, batch in enumerate(et.Prefetcher(loader, module, given, ahead=2)):
        await_pinned(server, distinct(loader[max(1, i) : i + 3]))
        train(module, batch)
        await_pinned(server, distinct(loader[i + 1 : i + 3]) if loader[i + 1 :] else 0)
    assert module.steps == BATCHES


@pytest.mark.parametrize("how", ["nothing", "no_grad", "no_backward", "kept_graph", "step", "nonfinite"])
def test_what_no_push_released_goes_with_the_next_batch(server, name, how):
    module = collection_of(server, name, update="step" if how == "step" else "backward")
    loader, kept = loader_of(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i, batch in enumerate(et.Prefetcher(loader, module, given, ahead=1)):
            await_pinned(server, distinct(loader[max(1, i) : i + 2]))
            if how == "no_grad":
                with torch.no_grad():
                    module(batch)
            elif how == "no_backward":
                module(batch)
            elif how == "kept_graph":
                kept.append(sum(out.sum() for out in module(batch).values()))
            elif how == "step":
                train(module, batch)
                module.step()
            elif how == "nonfinite":
                (module(batch)["a"] * float("nan")).sum().backward()
            await_pinned(server, distinct(loader[max(1, i) : i + 2]))
    await_pinned(server, 0)
    for loss in kept:
        loss.backward()  # the prefetch is gone, but the ticket is not
    assert module.steps == (BATCHES if how in ("kept_graph", "step") else 0)


def test_an_exception_in_the_loop_or_leaving_it_gives_all_pins_back(server, name):
    module, loader = collection_of(server, name), loader_of()
    prefetcher = et.Prefetcher(loader, module, given)
    with pytest.raises(ZeroDivisionError):
        for i, batch in enumerate(prefetcher):
            train(module, batch)
            if i == 2:
                await_pinned(server, distinct(loader[3:5]))
                1 / 0
    await_pinned(server, 0)
    for batch in prefetcher:
        break
    await_pinned(server, 0)
    iterator = iter(prefetcher)
    next(iterator)
    await_pinned(server, distinct(loader[1:3]))
    iterator.close()
    await_pinned(server, 0)
    iterator = iter(prefetcher)
    next(iterator)
    prefetcher.release()
    await_pinned(server, 0)
    assert len(list(iterator)) == BATCHES - 1
    await_pinned(server, 0)


def test_exceptions_of_loader_and_inputs_come_in_their_turn(server, name):
    module, loader = collection_of(server, name), loader_of()

    def failing():
        yield from loader[:3]
        raise KeyError("loader")

    def inputs(batch):
        if batch is loader[3]:
            raise KeyError("inputs")
        return batch

    for prefetcher, what in (
        (et.Prefetcher(failing(), module, given), "loader"),
        (et.Prefetcher(loader, module, inputs), "inputs"),
    ):
        seen = []
        with pytest.raises(KeyError, match=what):
            for batch in prefetcher:
                seen.append(train(module, batch))
        assert len(seen) == 3
        await_pinned(server, 0)


def test_ids_out_of_range_are_told(server, name):
    module, loader = collection_of(server, name), loader_of()
    bad = [*loader[:2], {"a": torch.tensor([[ROWS]])}]
    with pytest.raises(embtier.IdRangeError, match=f"row id {ROWS} is out of range"):
        for _ in et.Prefetcher(bad, module, given):
            pass
    with pytest.raises(KeyError, match="no such feature: c"):
        list(et.Prefetcher(loader, module, lambda batch: {"c": batch["a"]}))
    await_pinned(server, 0)
    list(et.Prefetcher(loader, module, lambda batch: {"a": torch.empty(0, 3, dtype=torch.int64)}))


# ---- No room ----


def test_batches_that_the_server_has_no_room_for_are_trained_without(server, name):
    module = collection_of(server, name)
    large = {k: torch.arange(TIER_ROWS).view(-1, LENGTH if TIER_ROWS % LENGTH == 0 else 8) for k in "ab"}
    loader = loader_of()
    loader[2] = loader[4] = large
    prefetcher = et.Prefetcher(loader, module, given, ahead=1)
    seen = []
    with pytest.warns(UserWarning, match="skipped a prefetch: no room in DRAM.*skipped_prefetches") as told:
        for i, batch in enumerate(prefetcher):
            # A prefetch without room gives back its pins before the next one is sent.
            for one in prefetcher._held:
                one.look(waits=True)
            await_pinned(server, distinct([b for b in loader[max(1, i) : i + 2] if b is not large]))
            seen.append(batch)
            train(module, batch)
    assert len(told) == 1
    assert prefetcher.skipped_prefetches == 2
    assert all(one is other for one, other in zip(seen, loader)) and module.steps == BATCHES
    await_pinned(server, 0)


def test_more_prefetches_than_may_be_in_flight_are_skipped(daemon, name):
    with daemon.connect(max_in_flight=4) as server:
        module, loader = collection_of(server, name), loader_of(40)
        prefetcher = et.Prefetcher(loader, module, given, ahead=30)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for batch in prefetcher:
                train(module, batch)
        assert module.steps == 40
        await_pinned(server, 0)


def train_in_time(module, batch) -> float:
    """Trains again if the lookup's own ticket expires too: on a busy machine the push may come a second late."""
    while True:
        with contextlib.suppress(embtier.TicketExpiredError):
            return train(module, batch)


def test_a_prefetch_that_has_expired_is_pushed_without(own_daemon, name):
    own_daemon.stop()
    config = own_daemon.folder / "embtierd.yaml"
    config.write_text(config.read_text().replace("lanes:\n", "lanes:\n  ticket_seconds: 1\n"))
    own_daemon.start()
    with own_daemon.connect() as server:
        module, loader = collection_of(server, name), loader_of(4)
        prefetcher = et.Prefetcher(loader, module, given, ahead=1)
        for i, batch in enumerate(prefetcher):
            if i % 2 == 1:
                await_pinned(server, 0)
            train_in_time(module, batch)
        assert module.steps == 4 and prefetcher.skipped_prefetches == 0
        await_pinned(server, 0)


def test_a_lost_session_is_told_by_the_lookup_and_training_goes_on(own_daemon, name):
    server = own_daemon.connect()
    module, loader = collection_of(server, name), loader_of()
    prefetcher = et.Prefetcher(loader, module, given)
    seen = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i, batch in enumerate(prefetcher):
            seen += 1
            if i == 2:
                own_daemon.stop()
                own_daemon.start()
                with pytest.raises(embtier.DisconnectedError):
                    train(module, batch)
                server.reconnect()
            train(module, batch)
    assert seen == module.steps == BATCHES
    await_pinned(server, 0)


def test_mistakes_are_told_when_it_is_made(server, name):
    with pytest.raises(ValueError, match="at least 1, not 0"):
        et.Prefetcher([], collection_of(server, name), given, ahead=0)
