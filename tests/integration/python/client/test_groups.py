# SPDX-License-Identifier: Apache-2.0
"""The members of a group of trainers make steps together: a step applies all their gradients, or none."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from conftest import TREE, Daemon

import embtier

DIM = 7
ROWS = 50
LR = 0.5  # products with it are exact
LIMIT_S = 60


class Trainer:
    """A member with a connection of its own."""

    def __init__(self, daemon: Daemon, group: str, size: int, member: int, step: int = 0) -> None:
        self.server = daemon.connect()
        self.group = self.server.join(group, size, member, step)

    def table(self, name: str) -> embtier.Table:
        return self.server.open_table(name)

    def rows(self, table: str, ids, gradients) -> embtier.PushBatch:
        """A batch ready to be pushed."""
        batch = self.server.push_batch([(self.table(table), len(ids))])
        batch.ids(0)[:] = ids
        batch.gradients(0)[:] = gradients
        return batch

    def bags(self, table: str, ids, offsets, gradients) -> embtier.BagBatch:
        """A batch ready to be pushed by its ticket."""
        batch = self.server.bag_batch([embtier.Bags(self.table(table), len(ids), len(offsets) - 1)])
        batch.ids(0)[:] = ids
        batch.offsets(0)[:] = offsets
        batch.lookup(ticket=True)
        batch.gradients(0)[:] = gradients
        return batch

    def submit(self, batch: embtier.Batch, lr: float = LR) -> embtier.Batch:
        batch.submit_push(lr, self.group.step + 1, group=self.group)
        return batch


@pytest.fixture
def trainers(daemon, name) -> Iterator[Callable[..., list[Trainer]]]:
    made: list[Trainer] = []

    def make(size: int, **options) -> list[Trainer]:
        some = [Trainer(daemon, name, size, member, **options) for member in range(size)]
        made.extend(some)
        return some

    yield make
    for trainer in made:
        trainer.server.close()


def make_table(server: embtier.Server, name: str, **options) -> embtier.Table:
    return server.create_table(name, DIM, ROWS, optimizer="sgd", init=("normal", 0, 1), seed=3, **options)


def all_rows(table: embtier.Table) -> np.ndarray:
    return table.get(np.arange(table.rows))


def reduced(ids: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """The sum that each row gets from one member: float32 [ROWS, DIM], added up in the order of the ids."""
    total = np.zeros((ROWS, DIM), np.float32)
    for one, gradient in zip(ids, gradients):
        total[one] += gradient
    return total


def some_parts(members: int, seed: int, count: int = 120) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each member: ids, offsets of bags, and a gradient for each bag."""
    random = np.random.default_rng(seed)
    parts = []
    for _ in range(members):
        offsets = np.sort(np.concatenate([[0, count], random.integers(0, count, 30)]))
        gradients = random.standard_normal((len(offsets) - 1, DIM)).astype(np.float32)
        parts.append((random.integers(0, ROWS, count), offsets, gradients))
    return parts


def expanded(offsets: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    return np.repeat(gradients, np.diff(offsets), axis=0)


# ---- Steps ----


@pytest.mark.parametrize("how", ["bags", "rows", "coalesced"])
@pytest.mark.parametrize("members", [1, 2, 5])
def test_a_step_is_the_members_sums_added_up_in_their_order(server, trainers, name, members, how):
    table = make_table(server, name)
    joint = make_table(server, f"{name}_joint")
    expected, some = all_rows(table), trainers(members)
    for step in range(1, 4):
        parts = some_parts(members, seed=step)
        batches = []
        for trainer, (ids, offsets, gradients) in zip(some, parts):
            if how == "bags":
                batches.append(trainer.bags(name, ids, offsets, gradients))
            else:
                batches.append(trainer.rows(name, ids, expanded(offsets, gradients)))
            if how == "coalesced":
                assert batches[-1].coalesce() is batches[-1]
                assert batches[-1].ids(0).tolist() == np.unique(ids).tolist()
        order = np.random.default_rng(step).permutation(members)
        for i in order[:-1]:
            some[i].submit(batches[i])
            assert not batches[i].poll()
            assert some[i].group.step == step - 1
        some[order[-1]].submit(batches[order[-1]])
        for trainer, batch in zip(some, batches):
            batch.wait(LIMIT_S)
            assert trainer.group.step == step
        total = np.zeros((ROWS, DIM), np.float32)
        for ids, offsets, gradients in parts:
            total += reduced(ids, expanded(offsets, gradients))
        expected = expected - np.float32(LR) * total
        np.testing.assert_array_equal(all_rows(table).view(np.uint32), expected.view(np.uint32))
        alone = server.push_batch([(joint, sum(len(ids) for ids, _, _ in parts))])
        alone.ids(0)[:] = np.concatenate([ids for ids, _, _ in parts])
        alone.gradients(0)[:] = np.concatenate([expanded(o, g) for _, o, g in parts])
        alone.push(LR, step)
        np.testing.assert_allclose(all_rows(table), all_rows(joint), rtol=1e-5, atol=1e-5)


def test_each_row_is_updated_once_a_step(server, trainers, name):
    """Adagrad's state gets the square of the sum, not the sum of the squares."""
    table = server.create_table(name, 2, 10, optimizer="adagrad")
    batches = [t.submit(t.rows(name, [1, member, 1], [[1, 1], [8, 8], [2, 2]])) for member, t in enumerate(trainers(2))]
    for batch in batches:
        batch.wait(LIMIT_S)
    _, state = table.get_with_state([0, 1, 2])
    assert state.tolist() == [[64, 64], [(3 + 3 + 8) ** 2] * 2, [0, 0]]


def test_members_get_the_gradients_of_their_own_weights(server, trainers, name):
    """These gradients come from the rows as they were before the step, although other members change the rows in it."""
    table = make_table(server, name)
    before, some, batches = all_rows(table), trainers(3), []
    parts = some_parts(3, seed=5)
    for trainer, (ids, offsets, gradients) in zip(some, parts):
        bags = embtier.Bags(trainer.table(name), len(ids), len(offsets) - 1, weighted=True)
        batches.append(trainer.server.bag_batch([bags]))
        batches[-1].ids(0)[:] = ids
        batches[-1].offsets(0)[:] = offsets
        batches[-1].weights(0)[:] = 0.5
        batches[-1].lookup(ticket=True)
        batches[-1].gradients(0)[:] = gradients
    for trainer, batch, asks in zip(some, batches, (True, False, True)):
        batch.submit_push(LR, 1, weight_gradients=asks, group=trainer.group)
    for batch, (ids, offsets, gradients), asks in zip(batches, parts, (True, False, True)):
        batch.wait(LIMIT_S)
        wanted = (before[ids] * expanded(offsets, gradients)).sum(axis=1) if asks else 0.5
        np.testing.assert_allclose(batch.weights(0), wanted, rtol=1e-5, atol=1e-5)


def test_members_may_push_to_different_tables_or_to_none(server, trainers, name):
    tables = [make_table(server, f"{name}_{i}") for i in range(3)]
    before = [all_rows(table) for table in tables]
    some = trainers(3)
    batches = [
        some[0].submit(some[0].rows(tables[0].name, [4], [[1] * DIM])),
        some[1].submit(some[1].rows(tables[1].name, [5, 5], [[1] * DIM, [2] * DIM])),
        some[2].submit(some[2].rows(tables[0].name, [], np.empty((0, DIM)))),
    ]
    for batch in batches:
        batch.wait(LIMIT_S)
    after = [all_rows(table) for table in tables]
    before[0][4] -= np.float32(LR)
    before[1][5] -= np.float32(LR * 3)
    np.testing.assert_array_equal(after, before)
    assert [t.group.step for t in some] == [1, 1, 1]


def test_threads_train_without_getting_into_each_other_s_way(server, trainers, name):
    """A push that waits for the others lets their threads run."""
    table = make_table(server, name)
    expected, steps, some = all_rows(table), 20, trainers(3)

    def train(member: int) -> None:
        trainer = some[member]
        for step in range(1, steps + 1):
            ids, offsets, gradients = some_parts(3, seed=step, count=20)[member]
            trainer.bags(name, ids, offsets, gradients).push(LR, step, group=trainer.group)

    threads = [threading.Thread(target=train, args=(member,)) for member in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    for step in range(1, steps + 1):
        sums = [reduced(ids, expanded(o, g)) for ids, o, g in some_parts(3, seed=step, count=20)]
        expected = expected - np.float32(LR) * ((sums[0] + sums[1]) + sums[2])
    np.testing.assert_array_equal(all_rows(table), expected)
    assert [t.group.step for t in some] == [steps] * 3


def test_a_connection_may_be_in_several_groups(server, daemon, name):
    tables = [make_table(server, f"{name}_{i}") for i in range(2)]
    before = [all_rows(table)[1] for table in tables]
    first, second = (Trainer(daemon, f"{name}_0", 2, member) for member in range(2))
    others = [trainer.server.join(f"{name}_1", 2, trainer.group.member, step=9) for trainer in (first, second)]
    for trainer, other in zip((first, second), others):
        batches = [trainer.rows(table.name, [1], np.ones((1, DIM))) for table in tables]
        trainer.batches = batches
        trainer.submit(batches[0])
        batches[1].submit_push(LR, 10, group=other)
    for trainer in (first, second):
        for batch in trainer.batches:
            batch.wait(LIMIT_S)
    assert [g.step for g in (first.group, second.group, *others)] == [1, 1, 10, 10]
    for table, row in zip(tables, before):
        np.testing.assert_array_equal(all_rows(table)[1], row - np.float32(2 * LR))


# ---- Lookups ----


def test_lookups_of_the_next_step_see_what_all_have_pushed(server, trainers, name):
    table = server.create_table(name, 1, 10, optimizer="sgd")
    first, second = trainers(2)
    rows = first.server.batch([(first.table(name), 1)])
    bags = first.server.bag_batch([embtier.Bags(first.table(name), 1, 1)])
    rows.ids(0)[:] = bags.ids(0)[:] = 3
    bags.offsets(0)[:] = [0, 1]
    for step in range(1, 4):
        pushed = first.submit(first.rows(name, [3], [[-1]]))
        rows.submit_get(group=first.group, step=step + 1)
        bags.submit_lookup(group=first.group, step=step + 1)
        time.sleep(0.01)
        assert not pushed.poll() and not rows.poll() and not bags.poll()
        second.rows(name, [3], [[-2]]).push(LR, step, group=second.group)
        for batch in (pushed, rows, bags):
            batch.wait(LIMIT_S)
        assert rows.rows(0).item() == bags.bags(0).item() == step * 1.5
    for step in (0, 3, 4):
        assert rows.get(group=first.group, step=step).rows(0).item() == 4.5
    assert bags.lookup(group=first.group, step=4, ticket=True).ticket
    bags.release()
    with pytest.raises(embtier.GroupStepError, match=f"step 5 of group '{name}' is out of order: the next step is 4, which must be"):
        rows.get(group=first.group, step=5)
    rows.rows(0)[:] = 7
    with pytest.raises(embtier.GroupStepError):
        rows.set(group=first.group, step=5)
    assert table.get([3]).item() == 4.5
    rows.set(group=first.group, step=4)
    assert table.get([3]).item() == 7
    rows.get()  # of no group


# ---- Joining ----


def test_a_group_has_so_many_members_and_each_number_once(daemon, trainers, name):
    with daemon.connect() as late, daemon.connect() as other:
        first = Trainer(daemon, name, 2, 0, step=5)
        for arguments, error, message in [
            ((name, 2, 0, 5), embtier.ExistsError, "already has a member 0"),
            ((name, 3, 1, 5), embtier.MismatchError, "has 2 members, not 3"),
            ((name, 2, 1, 4), embtier.MismatchError, "is at step 5, and member 1 joins at step 4"),
            ((name, 2, 2, 5), embtier.InvalidError, "member 2 of a group of 2"),
            ((name, 0, 0, 5), embtier.InvalidError, "0 members, allowed: 1 to 256"),
            ((name, 257, 0, 5), embtier.InvalidError, "257 members, allowed: 1 to 256"),
            (("no name", 2, 1, 5), embtier.InvalidError, "group name"),
            ((name, 2, -1, 5), ValueError, "must be counts"),
            ((name, 2, 1, 2**53), ValueError, "must be counts"),
        ]:
            with pytest.raises(error, match=message):
                late.join(*arguments)
        with pytest.raises(embtier.ExistsError, match="is already member 0"):
            first.server.join(name, 2, 1, 5)
        group = late.join(name, 2, 1, 5)
        with pytest.raises(embtier.GroupFullError, match="all of its 2 members"):
            other.join(name, 2, 1, 5)
        assert (group.name, group.size, group.member, group.step) == (name, 2, 1, 5)
        assert repr(group) == f"<embtier.Group {name!r} member 1 of 2, step 5>"
        with pytest.raises(TypeError, match="join again there"):
            pickle.dumps(group)
        first.server.close()
    with daemon.connect(arena_bytes=0) as control, pytest.raises(embtier.InvalidError):
        control.join(name, 2, 0)


def test_what_is_no_use_of_a_group_is_refused_without_asking_the_server(trainers, server, name):
    table = make_table(server, name)
    (trainer,) = trainers(1)
    batch = server.push_batch([(table, 0)])
    with pytest.raises(ValueError, match="joined by another connection"):
        batch.push(LR, 1, group=trainer.group)
    with pytest.raises(TypeError, match="must be a Group, not a str"):
        batch.push(LR, 1, group=name)
    rows = trainer.server.batch([(trainer.table(name), 1)])
    for options in ({"group": trainer.group}, {"step": 1}):
        with pytest.raises(ValueError, match="given together"):
            rows.get(**options)
    with pytest.raises(ValueError, match=r"0 to 2\*\*53 - 1"):
        rows.get(group=trainer.group, step=-1)
    with pytest.raises(ValueError, match="joined by another connection"):
        server.batch([(table, 1)]).get(group=trainer.group, step=1)
    assert trainer.group.step == 0


# ---- Refusals ----


def refuse(trainer: Trainer, batch: embtier.Batch, error: type, match: str, lr: float = LR, **fields) -> None:
    step = trainer.group.step
    with pytest.raises(error, match=match) as caught:
        batch.wait(LIMIT_S)
    assert {k: getattr(caught.value, k) for k in fields} == fields
    assert trainer.group.step == step


@pytest.mark.parametrize("late", [0, 1])
def test_steps_that_disagree_are_refused_and_change_nothing(server, trainers, name, late):
    table = make_table(server, name)
    before, some = all_rows(table), trainers(2)
    batches = [trainer.rows(name, [1], np.ones((1, DIM))) for trainer in some]
    wrong, right = some[late], some[1 - late]
    for step in (2, 7):
        waits = right.submit(batches[1 - late])
        with pytest.raises(embtier.GroupStepError, match=f"step {step} of group '{name}' is out of order: the next step is 1; nothing"):
            batches[late].push(LR, step, group=wrong.group)
        refuse(right, waits, embtier.GroupRefusedError, "GROUP_STEP", member=late, err="GROUP_STEP")
    np.testing.assert_array_equal(all_rows(table), before)
    for trainer, batch in zip(some, batches):
        trainer.submit(batch)
    for batch in batches:
        batch.wait(LIMIT_S)
    np.testing.assert_array_equal(all_rows(table)[1], before[1] - np.float32(2 * LR))


@pytest.mark.parametrize("by_ticket", [False, True])
@pytest.mark.parametrize("late", [0, 1])
def test_one_member_s_nan_keeps_the_step_from_all(server, trainers, name, late, by_ticket):
    table = make_table(server, name)
    before, some = all_rows(table), trainers(2)

    def batch_of(trainer: Trainer):
        gradients = np.ones((1, DIM))
        return trainer.bags(name, [1], [0, 1], gradients) if by_ticket else trainer.rows(name, [1], gradients)

    batches = [batch_of(trainer) for trainer in some]
    batches[late].gradients(0)[0, 3] = np.nan
    waits = some[1 - late].submit(batches[1 - late])
    assert not waits.poll()
    refuse(some[late], some[late].submit(batches[late]), embtier.NonfiniteError, "NaN or infinity")
    message = rf"member {late}'s push of step 1 of group '{name}' was refused \(NONFINITE: .*; nothing was applied"
    refuse(some[1 - late], waits, embtier.GroupRefusedError, message, member=late, err="NONFINITE")
    np.testing.assert_array_equal(all_rows(table), before)
    batches[late].gradients(0)[:] = 1
    for trainer, batch in zip(some, batches):  # with the same tickets
        trainer.submit(batch)
    for trainer, batch in zip(some, batches):
        batch.wait(LIMIT_S)
        assert trainer.group.step == 1
    np.testing.assert_array_equal(all_rows(table)[1], before[1] - np.float32(2 * LR))


def test_a_row_gets_so_many_gradients_of_all_members_together(server, trainers, name):
    dim, most = 8192, 2**27 // 8192
    table = server.create_table(name, dim, 3, optimizer="sgd")
    some = trainers(2)

    def batches(*counts: int):
        return [
            trainer.bags(name, np.ones(count, int), [0, count], np.full((1, dim), 2.0**-20))
            for trainer, count in zip(some, counts)
        ]

    too_many = batches(most // 2, most // 2 + 1)
    for trainer, batch in zip(some, too_many):
        trainer.submit(batch)
    message = f"the members of group '{name}' give a row of table '{name}' more gradients in step 1 than the server adds up"
    for trainer, batch in zip(some, too_many):
        with pytest.raises(embtier.TooLargeError, match=re.escape(message)):
            batch.wait(LIMIT_S)
        assert trainer.group.step == 0
        batch.release()
    assert not table.get([1]).any()
    enough = batches(most // 2, most // 2)
    for trainer, batch in zip(some, enough):
        trainer.submit(batch)
    for batch in enough:
        batch.wait(LIMIT_S)
    np.testing.assert_array_equal(table.get([1]), np.full((1, dim), -LR * most * 2.0**-20))


def test_learning_rates_that_differ_are_refused_for_all(server, trainers, name):
    table = make_table(server, name)
    before, some = all_rows(table), trainers(2)
    batches = [t.submit(t.rows(name, [1], np.ones((1, DIM))), lr=lr) for t, lr in zip(some, (0.5, 0.25))]
    for trainer, batch in zip(some, batches):
        refuse(trainer, batch, embtier.MismatchError, f"'{name}' gave table '{name}' different learning rates")
    np.testing.assert_array_equal(all_rows(table), before)
    for trainer, batch in zip(some, batches):
        trainer.submit(batch)
    for batch in batches:
        batch.wait(LIMIT_S)


# ---- Members that go ----


def test_a_member_that_goes_breaks_the_group_and_all_join_anew(server, daemon, trainers, name):
    table = make_table(server, name)
    before, (first, second, third) = all_rows(table), trainers(3)
    batches = [t.submit(t.rows(name, [1], np.ones((1, DIM)))) for t in (first, third)]
    second.server.close()
    for trainer, batch in zip((first, third), batches):
        refuse(trainer, batch, embtier.GroupBrokenError, f"'{name}' is over: member 1 has gone", member=1)
    for _ in range(2):  # a second try fails too
        with pytest.raises(embtier.GroupBrokenError, match="member 1 has gone"):
            batches[0].push(LR, 1, group=first.group)
    with pytest.raises(embtier.GroupBrokenError, match="nothing was done"):
        with first.server.batch([(first.table(name), 1)]) as rows:
            rows.get(group=first.group, step=1)
    np.testing.assert_array_equal(all_rows(table), before)
    second = Trainer(daemon, name, 3, 1)
    for trainer, member in ((first, 2), (third, 0)):
        trainer.group = trainer.server.join(name, 3, member, step=trainer.group.step)
    batches.append(second.rows(name, [1], np.ones((1, DIM))))
    for trainer, batch in zip((first, third, second), batches):
        trainer.submit(batch)
    for batch in batches:
        batch.wait(LIMIT_S)
    np.testing.assert_array_equal(all_rows(table)[1], before[1] - np.float32(3 * LR))
    second.server.close()


def test_a_member_leaves_and_all_join_anew_on_their_connections(server, trainers, name):
    table = make_table(server, name)
    before, members = all_rows(table), trainers(2)
    first, second = members
    for step in (1, 2):
        batches = [t.submit(t.rows(name, [1], np.ones((1, DIM)))) for t in members]
        for batch in batches:
            batch.wait(LIMIT_S)
        assert [t.group.step for t in members] == [step, step]
    waiting = first.submit(first.rows(name, [1], np.ones((1, DIM))))
    second.group.leave()
    second.group.leave()  # a second time does no harm
    refuse(first, waiting, embtier.GroupBrokenError, f"'{name}' is over: member 1 has gone", member=1)
    assert second.group.step == 2
    with pytest.raises(embtier.GroupBrokenError, match="member 1 has gone"):
        second.rows(name, [1], np.ones((1, DIM))).push(LR, 3, group=second.group)
    first.group.leave()
    for trainer, member in ((first, 1), (second, 0)):
        trainer.group = trainer.server.join(name, 2, member, step=2)
    batches = [t.submit(t.rows(name, [1], np.ones((1, DIM)))) for t in members]
    for batch in batches:
        batch.wait(LIMIT_S)
    np.testing.assert_allclose(all_rows(table)[1], before[1] - np.float32(6 * LR), rtol=1e-5)


def test_a_member_leaves_with_its_own_push_under_way(server, trainers, name):
    table = make_table(server, name)
    before, (first, second) = all_rows(table), trainers(2)
    waiting = first.submit(first.rows(name, [1], np.ones((1, DIM))))
    first.group.leave()
    refuse(first, waiting, embtier.GroupBrokenError, "member 0 has gone", member=0)
    np.testing.assert_array_equal(all_rows(table), before)
    with pytest.raises(embtier.GroupBrokenError):
        second.rows(name, [1], np.ones((1, DIM))).push(LR, 1, group=second.group)


_JOINS_AND_SLEEPS = """\
import sys, time, embtier
server = embtier.connect(sys.argv[1], timeout=60)
group = server.join(sys.argv[2], 2, 1)
print("joined", flush=True)
time.sleep(600)
"""


def test_a_member_that_is_killed_is_missed_at_once(server, daemon, name):
    table = make_table(server, name)
    before, first = all_rows(table), Trainer(daemon, name, 2, 0)
    environment = os.environ | {"PYTHONPATH": str(TREE / "client/python")}
    command = [sys.executable, "-c", _JOINS_AND_SLEEPS, daemon.socket, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as other:
        assert other.stdout.readline() == "joined\n"
        batch = first.submit(first.rows(name, [1], np.ones((1, DIM))))
        time.sleep(0.05)
        assert not batch.poll()
        other.kill()
        refuse(first, batch, embtier.GroupBrokenError, "member 1 has gone", member=1)
    np.testing.assert_array_equal(all_rows(table), before)
    first.server.close()


def test_a_member_that_does_not_come_in_time_ends_the_group(own_daemon, name):
    own_daemon.stop()
    config = own_daemon.folder / "embtierd.yaml"
    config.write_text(config.read_text().replace("group_seconds: 60", "group_seconds: 1"))
    own_daemon.start()
    first, second = (Trainer(own_daemon, name, 2, member) for member in range(2))
    table = make_table(first.server, name)
    before, batch = all_rows(table), first.rows(name, [1], np.ones((1, DIM)))
    message = rf"member 1 has not pushed step 1 in time \(lanes.group_seconds\)"
    with pytest.raises(TimeoutError) as caught:
        batch.push(LR, 1, timeout=0.05, group=first.group)
    if caught.value.member is None:
        assert "the request continues" in str(caught.value)
        refuse(first, batch, TimeoutError, message, member=1)
    else:  # on a busy machine this process may have slept through that second
        assert caught.value.member == 1 and re.search(message, str(caught.value))
    with pytest.raises(TimeoutError, match=message):
        batch.poll()
    with pytest.raises(embtier.GroupBrokenError, match="member 1 did not push in time"):
        second.rows(name, [1], np.ones((1, DIM))).push(LR, 1, group=second.group)
    np.testing.assert_array_equal(all_rows(table), before)
    for _ in range(20):
        for trainer in (first, second):
            trainer.group = trainer.server.join(name, 2, trainer.group.member)
        batches = [trainer.rows(name, [1], np.ones((1, DIM))) for trainer in (first, second)]
        try:
            for trainer, batch in zip((first, second), batches):
                trainer.submit(batch)
            for batch in batches:
                batch.wait(LIMIT_S)
            return
        except (TimeoutError, embtier.GroupBrokenError):
            continue  # it slept through a second again, between the two pushes
    pytest.fail("no step in twenty tries")


def test_memberships_end_with_their_session(own_daemon, name):
    trainer = Trainer(own_daemon, name, 1, 0)
    table = make_table(trainer.server, name)
    before, batch = all_rows(table), trainer.rows(name, [1], np.ones((1, DIM)))
    batch.push(LR, 1, group=trainer.group)
    own_daemon.stop()
    with pytest.raises(embtier.DisconnectedError):
        batch.push(LR, 2, group=trainer.group)
    own_daemon.start()
    trainer.server.reconnect()
    rows = trainer.server.batch([(table, 1)])
    for request in (lambda: batch.push(LR, 2, group=trainer.group), lambda: rows.get(group=trainer.group, step=2)):
        with pytest.raises(embtier.NoGroupError, match="ended with its session; join it again"):
            request()
    with pytest.raises(embtier.NoGroupError, match="ended with its session; join it again"):
        trainer.group.leave()
    assert trainer.group.step == 1
    trainer.group = trainer.server.join(name, 1, 0, step=trainer.group.step)
    batch.push(LR, 2, group=trainer.group)
    np.testing.assert_array_equal(all_rows(table)[1], before[1] - np.float32(2 * LR))
    old = trainer.group
    trainer.server.close()
    assert old.step == 2 and "step 2" in repr(old)


# ---- Coalescing ----


def test_coalesced_batches_keep_their_room(server, name):
    table = make_table(server, name)
    batch = server.push_batch([(table, 4), (table, 2)])
    batch.ids(0)[:], batch.ids(1)[:] = [9, 3, 9, 3], [3, 1]
    batch.gradients(0)[:] = np.arange(4)[:, None]
    batch.gradients(1)[:] = 10
    batch.coalesce()
    assert [batch.count(i) for i in range(2)] == [2, 1]
    assert batch.ids(0).tolist() == [3, 9] and batch.ids(1).tolist() == [1]
    assert batch.gradients(0)[:, 0].tolist() == [14, 2] and batch.gradients(1).shape == (1, DIM)
    batch.set_count(0, 4)
    assert batch.ids(0).shape == (4,)
    with pytest.raises(ValueError, match="room for 0 to 4"):
        batch.set_count(0, 5)
    assert not hasattr(embtier.BagBatch, "coalesce")
