# SPDX-License-Identifier: Apache-2.0
"""Walks all public functions and all of their parameters: every invalid value is refused at once, by a short message that names
the parameter. A new parameter is walked too; the test fails until GOOD has a value for it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import embtier
import embtier.torch as et

HUGE = 2**40_000  # more digits than Python prints
MESSAGE_MAX = 1024  # in bytes
RESULTS = {embtier.TableSpec, embtier.Checkpoint, embtier.Exported, embtier.Imported, embtier.ProfileState, et.Replaced}  # callers never make these
CALLED = {  # a parameter: its name in messages
    "ids": "(row )?ids", "hot_rows": "row ids", "parts": "part", "input": "the ids",
}  # fmt: skip


@dataclass
class Call:
    """A call that would succeed, except that a test replaces one argument."""

    name: str
    function: Callable[..., Any]
    arguments: dict[str, Any]

    def __call__(self, parameter: str, value: Any) -> None:
        given = self.arguments | {parameter: value}
        signature = inspect.signature(self.function)
        positional = [
            given.pop(name)
            for name, one in signature.parameters.items()
            if name in given and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) and one.default is one.empty
        ]
        self.function(*positional, **given)


class World:
    """Objects of all public classes, and valid arguments for their methods."""

    def __init__(self, daemon: Any, folder: Any) -> None:
        self.server = server = daemon.connect()
        self.table = table = server.create_table("walk", 4, 100, optimizer="sgd")
        connection = server._connection
        self.lookups = server.bag_batch([embtier.Bags(table, 2, 1, "sum", True)])
        self.lookups.offsets(0)[:] = [0, 2]
        self.collection = et.EmbeddingBagCollection({"a": et.Bag(table, "sum")}, lr=0.01)
        self.bag = et.EmbeddingBag(table, lr=0.01)
        self.combined = et.CombinedOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1), self.bag)
        self.objects = {
            embtier.Server: server,
            embtier.Table: table,
            embtier.Batch: server.batch([(table, 2)], state=True),
            embtier.BagBatch: self.lookups,
            embtier.PushBatch: server.push_batch([(table, 2)]),
            embtier.PrefetchBatch: server.prefetch_batch([(table, 2)]),
            embtier.Group: server.join("walk", 1, 0),
            et.EmbeddingBagCollection: self.collection,
            et.EmbeddingBag: self.bag,
            et.Embedding: et.Embedding(table, lr=0.1),
            et.Optimizer: self.collection.optimizer,
            et.CombinedOptimizer: self.combined,
            et.Rows: et.Rows(table, True),
            et.Prefetcher: et.Prefetcher([], self.bag, lambda batch: batch),
            embtier.TraceWriter: embtier.TraceWriter(folder / "walk.trace", [embtier.TraceTable("walk", 4)]),
        }
        self.good = {
            "socket": daemon.socket, "name": "none", "dim": 4, "id": 2**50, "path": folder / "none" / "none",
            "parts": [(table, 2)], "size": 1, "memory_bytes": 1, "member": 0, "step": 1, "ids": [1, 2], "rows": 1.0, "part": 0, "count": 1,
            "bag_count": 1, "lr": 0.1, "table": table, "bags": {"a": table}, "loader": [], "module": self.bag,
            "inputs": lambda batch: batch, "batch": self.objects[embtier.Batch], "connection": connection,
            "rooms": self.collection._rooms, "gathers": False, "gradient": torch.zeros(2, 4),
            "input": torch.tensor([[1, 2]]), "state": None, "requires_grad": True, "model": self.bag,
            "num_embeddings": table, "embeddings": torch.zeros(2, 4), "group": None, "server": server, "hook": print,
            "home": "cache",
            "optimizer": torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1), "param_group": {"params": []},
        }  # fmt: skip
        self.special = {
            "Server.checkpoint": {"step": 1},
            "Server.load_table": {"name": "loaded", "pieces": []},
            "Server.export_table": {"table": "none"},
            "Server.bag_batch": {"parts": [embtier.Bags(table, 2, 1)]},
            "BagBatch.__init__": {"parts": [embtier.Bags(table, 2, 1)]},
            "Group.__init__": {"name": "other", "step": 0},
            "Table.__init__": {"pointer": None},
            "EmbeddingBagCollection.forward": {"inputs": {"a": torch.tensor([[1, 2]])}},
            "EmbeddingBagCollection.set_extra_state": {"state": self.collection.get_extra_state()},
            "Embedding.__init__": {"lr": 0.1},
            "EmbeddingBag.__init__": {"lr": 0.1},
            "EmbeddingBagCollection.__init__": {"lr": 0.1},
            "Embedding.forward": {"input": torch.tensor([1, 2])},
            "Embedding.set_extra_state": {"state": et.Embedding(table, lr=0.1).get_extra_state()},
            "Embedding.from_pretrained": {"server": server, "name": "pretrained"},
            "EmbeddingBag.from_pretrained": {"server": server, "name": "pretrained"},
            "EmbeddingBag.set_extra_state": {"state": self.bag.get_extra_state()},
            "Optimizer.__init__": {"rows": list(self.collection.rows)},
            "CombinedOptimizer.load_state_dict": {"state_dict": self.combined.state_dict()},
            "Rows.add_gradients": {"ids": torch.tensor([1, 2])},
            "Optimizer.push": {"batch": self.objects[embtier.PushBatch]},
            "Optimizer.step": {},
            "TraceTable.__init__": {"name": "walk", "rows": 10},
            "TraceWriter.__init__": {"tables": [table]},
            "TraceWriter.add": {"table": "walk"},
            "TraceWriter.add_jagged": {"offsets": [0, 1, 2]},
        }

    def calls(self) -> Iterator[Call]:
        for module in (embtier, et):
            for name in module.__all__:
                one = getattr(module, name)
                if inspect.isfunction(one):
                    yield self._call(name, one, one)
                elif inspect.isclass(one) and not issubclass(one, Exception) and one not in RESULTS:
                    yield from self._calls_of(one)

    def _calls_of(self, kind: type) -> Iterator[Call]:
        yield self._call(f"{kind.__name__}.__init__", kind, kind)
        for name, member in inspect.getmembers(kind):
            if name.startswith("_"):
                continue
            if isinstance(member, property):
                if member.fset is not None and member.fset.__module__.startswith("embtier"):
                    yield self._setter(kind, name)
            elif inspect.isfunction(member) and member.__module__.startswith("embtier"):
                yield self._call(f"{kind.__name__}.{name}", getattr(self.objects[kind], name), member)

    def _setter(self, kind: type, name: str) -> Call:
        def assign(value: Any) -> None:
            setattr(self.objects[kind], name, value)

        assign.__signature__ = inspect.Signature(
            [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        )
        return Call(f"{kind.__name__}.{name}=", assign, {name: None})

    def _call(self, name: str, function: Callable[..., Any], declared: Any) -> Call:
        special = self.special.get(name, {})
        arguments = {}
        for parameter, one in inspect.signature(function).parameters.items():
            if one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL):
                continue
            if parameter in special or one.default is one.empty:
                arguments[parameter] = special.get(parameter, self.good.get(parameter))
                assert parameter in special or parameter in self.good, (name, parameter)
        return Call(name, function, arguments)

    def parameters(self) -> Iterator[tuple[Call, str, Any]]:
        for call in self.calls():
            for parameter, one in inspect.signature(call.function).parameters.items():
                if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL):
                    yield call, parameter, one.annotation


@pytest.fixture(scope="module")
def world(daemon, tmp_path_factory) -> Iterator[World]:
    world = World(daemon, tmp_path_factory.mktemp("walk"))
    yield world
    world.server.close()


class LongText:
    def __repr__(self) -> str:
        return "y\n\x9b" * 10_000


class NoText:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


LongName = type("N" * 100_000, (), {})
LONG = {
    "str": "a" * 5_000_000,
    "control characters": "\x9b\u202e\n" * 100,
    "bytes": b"a" * 5_000_000,
    "bytearray": bytearray(5_000_000),
    "list": [0] * 1_000_000,
    "names": ["a" * 100_000] * 3,
    "dict": {"a" * 100_000: 0},
    "dict of a dict": {"a": {"a" * 100_000: "b" * 100_000}},
    "int": HUGE,
    "negative int": -HUGE,
    "array": np.zeros((2,) * 11, "S4"),
    "dtype": np.zeros(1, [(f"field{i}", "u1") for i in range(200)]),
    "masked": np.ma.array(5, mask=True),
    "repr": LongText(),
    "no repr": NoText(),
    "type": LongName(),
    "object": object(),
}


@pytest.mark.parametrize("long", LONG)
def test_a_message_is_short_whatever_was_given(world, long):
    value = LONG[long]
    count = 0
    for call, parameter, _ in world.parameters():
        try:
            call(parameter, value)
        except (TypeError, ValueError, LookupError, embtier.Error) as error:
            message = str(error)
            assert len(message.encode("utf-8", "surrogateescape")) <= MESSAGE_MAX, (call.name, parameter, message[:300])
            assert message.isprintable(), (call.name, parameter, message)
            count += 1
        if world.lookups.ticket:
            world.lookups.release()
    assert count > 150  # there are some 200


# ---- Flags ----

NO_FLAGS = ("no", "", "True", b"1", 2, -1, HUGE, 1.0, math.nan, [], [True], np.array([True]), torch.tensor([1, 2]), object())


def test_a_flag_is_true_or_false(world):
    flags = [(call, name, note) for call, name, note in world.parameters() if note in ("bool", "bool | None")]
    names = {(call.name, name) for call, name, _ in flags}
    assert {
        ("Server.batch", "state"), ("BagBatch.lookup", "ticket"), ("BagBatch.submit_lookup", "ticket"),
        ("EmbeddingBag.__init__", "frozen"), ("EmbeddingBagCollection.__init__", "frozen"), ("Bag.__init__", "unsigned_ids"),
        ("Server.create_table", "eager"), ("Server.import_table", "allow_nonfinite"), ("BagBatch.skip", "skipped"),
    } <= names  # fmt: skip
    for call, name, note in flags:
        if call.name == "Bags.__init__":
            continue
        for wrong in (*NO_FLAGS, *([None] if note == "bool" else [])):
            with pytest.raises((TypeError, ValueError), match=rf"\b{name}\b") as caught:
                call(name, wrong)
            assert not isinstance(caught.value, embtier.Error), (call.name, name, wrong)


def test_flags_are_taken_as_numpy_has_them(server, name):
    table = server.create_table(name, 2, optimizer=["none", "sgd"][True])
    for yes, no in ((np.True_, np.False_), (1, 0), (True, False), (np.int8(1), np.uint8(0))):
        assert not et.EmbeddingBag(table, frozen=yes, lr=0.01).rows[0].requires_grad
        assert et.EmbeddingBag(table, frozen=no, lr=0.01).rows[0].requires_grad
        with server.batch([(table, 1)], state=yes) as batch:
            assert batch.state(0).shape == (1, 0)
        with server.batch([(table, 1)], state=no) as batch, pytest.raises(ValueError, match="without state"):
            batch.state(0)
        with server.bag_batch([embtier.Bags(table, 0, 0)]) as bags:
            assert bags.lookup(ticket=no).ticket == 0
            assert bags.lookup(ticket=yes).ticket != 0
            bags.release()
            bags.submit_lookup(ticket=yes)
            bags.wait(60)
            assert bags.ticket != 0
            bags.release()


# ---- Types ----

WRONG_TYPES = (object(), 1j, LongText(), NoText(), LongName(), np.datetime64(1, "s"), Ellipsis)
NOT_LOOKED_AT = {  # modules pass these
    ("Optimizer.__init__", "rooms"), ("Table.__init__", "pointer"),
}  # fmt: skip


def test_a_value_of_a_wrong_type_is_refused_by_name_and_at_once(world):
    for call, name, _ in world.parameters():
        if call.name == "Bags.__init__" or (call.name, name) in NOT_LOOKED_AT:
            continue
        called = rf"{CALLED.get(name, name)}|has (no )?\w+\(\)"  # "a BagBatch has bags(), not rows"
        for wrong in WRONG_TYPES:
            if name == "loader" and isinstance(wrong, np.generic):
                continue  # these can be indexed
            with pytest.raises((TypeError, ValueError), match=called) as caught:
                call(name, wrong)
                pytest.fail(f"{call.name} takes {type(wrong).__name__[:40]} for {name}")
            assert not isinstance(caught.value, embtier.Error), (call.name, name)


def test_a_module_is_made_of_tables_and_finite_rates(server, name):
    table = server.create_table(name, 2, optimizer="sgd")
    for wrong in ("users", None, 5, server, embtier.Bags(table, 1, 1)):
        with pytest.raises(TypeError, match="table must be an embtier.Table"):
            et.Bag(wrong)
        with pytest.raises((TypeError, ValueError), match="num_embeddings must be a count of rows, or|a new table needs"):
            et.EmbeddingBag(wrong, lr=0.01)
        with pytest.raises(TypeError, match="bags"):
            et.EmbeddingBagCollection(wrong, lr=0.01)
        with pytest.raises(TypeError, match="bags"):
            et.EmbeddingBagCollection({"a": wrong}, lr=0.01)
        with pytest.raises(TypeError, match="the table of a part must be a Table"):
            server.batch([(wrong, 1)])
    for wrong in (math.nan, math.inf, -math.inf, 1e39, np.float64(-1e300)):
        with pytest.raises(ValueError, match="lr must be a number that is finite in float32"):
            et.EmbeddingBag(table, lr=wrong)
        module = et.EmbeddingBag(table, lr=0.5)
        with pytest.raises(ValueError, match="lr must be a number that is finite in float32"):
            module.lr = wrong
        assert module.lr == 0.5
    for wrong in (5, "ab", {}, [table], [(table,)], [(table, 1, 1)], "", {table: 1}):
        for make in (server.batch, server.push_batch, server.prefetch_batch):
            with pytest.raises(TypeError, match="parts"):
                make(wrong)


def test_rows_are_numbers_one_by_one(server, name):
    table = server.create_table(name, 2, optimizer="adagrad")
    for wrong in ([[True, 2.5]], [[np.True_, 2]], [["1", 2]], [[None, 2]], [bytearray(b"ab")], bytearray(b"ab"), [[1, 1j]]):
        with pytest.raises(TypeError, match="rows"):
            table.set([1], wrong)
        with pytest.raises(TypeError, match="state"):
            table.set([1], 0, wrong)
    assert not table.get([1]).any()
    for wrong in (bytearray(b"ab"), [bytearray(b"ab")], memoryview(b"ab"), memoryview(bytearray(b"ab"))):
        with pytest.raises(TypeError, match="row ids"):
            table.get(wrong)
    table.set([1], [[2**53 + 1, -7]])
    table.set([2], [[0.5, np.float16(2)]], [[torch.tensor(1.5), 3]])
    assert table.get([1, 2]).tolist() == [[2.0**53, -7], [0.5, 2]]
    assert table.get_with_state([2])[1].tolist() == [[1.5, 3]]
