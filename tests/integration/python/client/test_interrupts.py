# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C between any two bytecodes of a training step, and then the next step, as in a notebook.

A trace function raises KeyboardInterrupt at a bytecode of the package. Python runs a signal's handler there at the latest after a
call into C. Steps stay whole: every row of the batch has had the same number of pushes, the module's ``steps``. Nothing waits for
an answer for which no caller asks."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import embtier

torch = pytest.importorskip("torch")
import embtier.torch  # noqa: E402

PACKAGE = str(Path(embtier.__file__).parent)
LR = 0.5
ROWS = 64
LONG = os.environ.get("EMBTIER_TEST_LONG") == "1"
INTERRUPTS = 420  # for each kind of step; the long form interrupts at every bytecode
SIGNALS = 2000 if LONG else 100
LIMIT_S = 60

pytestmark = [
    pytest.mark.usefixtures("interrupts"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # from a __del__
]


class Bytecodes:
    """``with Bytecodes(at):`` raises KeyboardInterrupt at the @at-th bytecode of the package. With None it only counts them."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.count = 0

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            self.count += 1
            if self.count == self.at:
                raise KeyboardInterrupt
        return self._step

    def __enter__(self) -> Bytecodes:
        sys._getframe().f_trace_opcodes = True  # Python 3.12 needs a frame with this when tracing begins
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    """Fails a test that waits for ever."""

    def late(*_: object) -> None:
        raise AssertionError(f"nothing has happened for {LIMIT_S} seconds")

    before = signal.signal(signal.SIGALRM, late)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def interrupt_each(step: Callable[[], None], check: Callable[[int], None]) -> None:
    """Interrupts @step at bytecodes spread over all of it, one at a time, and runs it once more each time. @check gets the number
    of the bytecode."""
    step()
    with Bytecodes() as whole:
        step()
    assert whole.count > INTERRUPTS
    count = whole.count if LONG else INTERRUPTS
    for i in range(count):
        at = 1 + i * whole.count // count + (0 if LONG else i % 3)
        signal.alarm(LIMIT_S)
        with contextlib.suppress(KeyboardInterrupt), Bytecodes(at):
            step()
        step()
        check(at)


def interrupt_by_signals(step: Callable[[], None], check: Callable[[int], None]) -> None:
    """The same with one SIGINT in each step, at a random time."""
    step()
    begin = time.perf_counter()
    step()
    seconds = time.perf_counter() - begin
    delays = random.Random(1)

    def send(delay: float) -> None:
        time.sleep(delay)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    for i in range(SIGNALS):
        signal.alarm(LIMIT_S)
        sender = threading.Thread(target=send, args=(delays.uniform(0, seconds),))
        with contextlib.suppress(KeyboardInterrupt):
            sender.start()
            step()
            sender.join()
            for _ in range(1000):
                pass  # here at the latest; if it comes within a __del__, that swallows it
        sender.join()
        step()
        check(i)


@pytest.fixture
def table(server: Any, name: str) -> Any:
    return server.create_table(name, dim=4, rows=ROWS, optimizer="sgd", init=("constant", 0))


IDS, OFFSETS = torch.tensor([1, 2, 3, 5, 8]), torch.tensor([0, 2])


def pushes_of(table: Any) -> int:
    """The number of pushes that the rows of IDS have had. Each push must be whole."""
    rows = table.get(np.arange(ROWS))
    touched = rows[IDS.numpy()] / -LR
    assert np.all(touched == touched[0, 0]), touched
    assert np.all(np.delete(rows, IDS.numpy(), 0) == 0)
    return int(touched[0, 0])


def checker(table: Any, module: Any) -> Callable[[int], None]:
    before = [2]

    def check(at: int) -> None:
        pushes = pushes_of(table)
        assert 1 <= pushes - before[0] <= 2, (at, pushes, before)
        assert module.steps == pushes, at
        before[0] = pushes

    return check


@pytest.mark.parametrize("update", ["backward", "step"])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("interrupt", [interrupt_each, interrupt_by_signals])
def test_step_after_an_interrupted_one(server, table, name, update, grouped, interrupt):
    group = server.join(name, size=1, member=0) if grouped else None
    bag = embtier.torch.EmbeddingBag(table, mode="sum", lr=LR, update=update, group=group)

    def step() -> None:
        bag.zero_grad()
        bag(IDS, OFFSETS).sum().backward()
        if update == "step":
            bag.step()

    interrupt(step, checker(table, bag))
    assert group is None or group.step == bag.steps


def test_step_of_a_group_of_two_after_an_interrupted_one(daemon, server, table, name):
    bag = embtier.torch.EmbeddingBag(table, mode="sum", lr=LR, reduce="sum", group=server.join(name, size=2, member=0))
    stop, failures = threading.Event(), []

    def push_nothing() -> None:
        try:
            with daemon.connect() as other:
                group, batch = other.join(name, size=2, member=1), other.push_batch([])
                while not stop.is_set():
                    batch.push(LR, group.step + 1, group=group)
        except BaseException as error:
            failures.append(error)

    partner = threading.Thread(target=push_nothing)
    partner.start()
    try:
        interrupt_each(lambda: bag(IDS, OFFSETS).sum().backward(), checker(table, bag))
    finally:
        stop.set()
        with contextlib.suppress(embtier.GroupBrokenError, embtier.NoGroupError):  # the group has ended already
            bag(IDS, OFFSETS).sum().backward()  # the push for which the other member may wait
        partner.join(LIMIT_S)
    assert not partner.is_alive() and not failures


def test_step_with_prefetches_after_an_interrupted_one(server, table):
    bag = embtier.torch.EmbeddingBag(table, mode="sum", lr=LR)
    loader = [(IDS, OFFSETS)] * 2

    def step() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a skipped prefetch
            for i, batch in enumerate(embtier.torch.Prefetcher(loader, bag, lambda batch: batch)):
                if i == 0:
                    bag(*batch).sum().backward()

    interrupt_each(step, checker(table, bag))


def test_calls_after_an_interrupted_one(server, table):
    ids = IDS.numpy()

    def step() -> None:
        with server.push_batch([(table, len(ids))]) as batch:
            batch.ids(0)[:] = ids
            batch.gradients(0)[:] = 1
            batch.push(LR, 1)
        table.get(ids)
        server.status()

    before = [2]

    def check(at: int) -> None:
        pushes = pushes_of(table)
        assert 1 <= pushes - before[0] <= 2, at
        before[0] = pushes

    interrupt_each(step, check)


def test_interrupted_function_of_torch_leaves_rows_guarded(table):
    (rows,) = embtier.torch.EmbeddingBag(table, lr=LR).rows
    with Bytecodes() as whole:
        rows.detach()
    for at in range(1, whole.count + 1):
        with contextlib.suppress(KeyboardInterrupt), Bytecodes(at):
            rows.detach()
        with torch.no_grad(), pytest.raises(RuntimeError, match="cannot be written here"):
            rows.zero_()
