# SPDX-License-Identifier: Apache-2.0
"""Helpers for the tests of this folder: checks of checkpoints and of the numbers in rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from stores import MODES, folders_of

import embtier

GONE = (embtier.DisconnectedError, embtier.UnreachableError)


def ids_of(server: embtier.Server) -> list[int]:
    return [checkpoint.id for checkpoint in server.checkpoints()]


def check_nothing_is_left_over(daemon, server: embtier.Server) -> None:
    """The disk has all listed checkpoints, each with its record, and nothing else."""
    listed = {f"{id:06d}" for id in ids_of(server)}
    for directory in daemon.config["data"]["directories"]:
        shelf = Path(directory) / "checkpoints"
        assert {path.name for path in shelf.glob("*")} == listed
    records = {path.parent.name for path in folders_of(daemon, "checkpoint.json")}
    assert records == listed


def the_number(rows: np.ndarray) -> int:
    assert (rows == rows[0, 0]).all(), f"several requests are in it: {np.unique(rows)}"
    return int(rows[0, 0])


def numbers_of(server, names=MODES) -> list[int]:
    return [the_number(server.open_table(name).get(np.arange(3000))) for name in names]
