# SPDX-License-Identifier: Apache-2.0
"""An exception of a progress function, or Ctrl-C, comes out of the call and is not lost in the library."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

import embtier

ROWS = 50_000


pytestmark = pytest.mark.usefixtures("interrupts")


class Stop(BaseException):
    """Like KeyboardInterrupt, not an Exception."""


def calls_of(server: embtier.Server, name: str, folder) -> dict[str, Callable]:
    """All calls that report progress, in an order in which they can be made."""
    checkpoint = server.checkpoint().id
    return {
        "create": lambda told: server.create_table(name, 64, ROWS, init=("constant", 2), eager=True, progress=told),
        "checkpoint": lambda told: server.checkpoint(step=checkpoint, progress=told),
        "verify": lambda told: server.verify_checkpoint(server.checkpoints()[-1].id, progress=told),
        "restore": lambda told: server.restore_checkpoint(
            server.checkpoints()[-1].id, [name], f"{name}.then", progress=told
        ),
        "export": lambda told: server.export_table(name, folder / "export", progress=told),
        "import": lambda told: server.import_table(folder / "export", f"{name}.copy", progress=told),
        "drop": lambda told: server.drop_table(name, progress=told),
    }  # fmt: skip


def test_what_a_progress_function_raises_is_raised_when_the_call_is_over(server, name, tmp_path, capsys):
    handler, told, seen = signal.getsignal(signal.SIGINT), [], set()

    def refuse(*report: object) -> None:
        told.append(report)
        raise Stop(len(told))

    for what, call in calls_of(server, name, tmp_path).items():
        told.clear()
        try:
            call(refuse)
        except Stop as error:
            assert error.args == (1,), "it was told no more"
            seen.add(what)
        assert len(told) == (what in seen), what
        assert signal.getsignal(signal.SIGINT) is handler
    print(seen)  # calls that end too quickly report nothing
    assert seen >= {"create", "export", "import"}
    made = {spec.name for spec in server.tables()}
    assert made >= {f"{name}.then", f"{name}.copy"} and name not in made, "the calls went on"
    assert (server.open_table(f"{name}.copy").get([ROWS - 1]) == 2).all()
    assert not capsys.readouterr().err


def test_a_call_that_fails_is_the_context_of_what_was_raised(own_daemon, tmp_path):
    with own_daemon.connect() as server:
        server.create_table("t", 64, ROWS)

        def kill(_done: int, _total: int, unit: str) -> None:
            if unit == "rows":
                own_daemon.kill()
                raise Stop

        with pytest.raises(Stop) as raised:
            server.export_table("t", tmp_path / "export", all_rows=True, progress=kill)
        assert isinstance(raised.value.__context__, embtier.DisconnectedError)
    own_daemon.start()


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_from_within_is_raised(server, name, tmp_path):
    server.create_table(name, 4, ROWS)
    with pytest.raises(KeyboardInterrupt):
        server.export_table(name, tmp_path / "export", all_rows=True, progress=lambda *_: interrupt())
    assert (tmp_path / "export").exists()


def test_an_interrupt_while_the_library_waits_is_raised(daemon, server, name, tmp_path, capsys):
    """The handler then runs before the progress function, not in it."""
    np.save(tmp_path / "rows.npy", np.ones((ROWS, 64), np.float32))
    told: list[float] = []
    before, over = signal.getsignal(signal.SIGINT), threading.Event()

    def disturb() -> None:
        while signal.getsignal(signal.SIGINT) is before:  # until the call has set its own handler
            if over.wait(0.001):
                return
        time.sleep(0.3)
        interrupt()
        time.sleep(0.3)
        daemon.signal(signal.SIGCONT)

    thread = threading.Thread(target=disturb)
    try:
        daemon.freeze()
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            server.import_table(tmp_path / "rows.npy", name, progress=lambda *_: told.append(time.monotonic()))
    finally:
        over.set()
        daemon.signal(signal.SIGCONT)
        thread.join()
    assert told and not capsys.readouterr().err
    assert (server.open_table(name).get([ROWS - 1]) == 1).all(), "the call went on"


def test_a_handler_of_the_program_runs_once_and_stays(server, name, tmp_path):
    server.create_table(name, 4, ROWS)
    caught, before = [], signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, lambda number, _frame: caught.append(number))
    try:
        mine = signal.getsignal(signal.SIGINT)
        server.export_table(name, tmp_path / "export", progress=lambda *_: interrupt())
        assert caught == [signal.SIGINT] and signal.getsignal(signal.SIGINT) is mine
        for other in (signal.SIG_IGN, signal.SIG_DFL):
            signal.signal(signal.SIGINT, other)
            server.export_table(name, tmp_path / other.name, progress=lambda *_: None)
            assert signal.getsignal(signal.SIGINT) is other
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_than_the_main_one_may_call(daemon, server, name, tmp_path):
    server.create_table(name, 4, ROWS)
    raised = []

    def export() -> None:
        def stop(*_: object) -> None:
            raise Stop

        with daemon.connect() as own:
            try:
                own.export_table(name, tmp_path / "export", progress=stop)
            except Stop as error:
                raised.append(error)

    thread = threading.Thread(target=export)
    thread.start()
    thread.join()
    assert len(raised) == 1
