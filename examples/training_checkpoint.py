# SPDX-License-Identifier: Apache-2.0
"""Makes checkpoints of a training with embedding rows in embtierd and dense weights in torch, and resumes from them.

To make one, the trainer first writes torch's state to a file with a new name, and syncs it to disk. Then the
server makes a checkpoint of the rows and their optimizer's state, with the step and the name of that file. A
checkpoint of the server is complete or absent. So every checkpoint has its file, of the same step, even if the
trainer or the server dies at any moment.

To resume, the trainer reads torch's state from the file and restores the tables from the checkpoint. It always
restores them. If only the trainer died, the rows have the updates of later steps. If the server died, they are
as in its newest checkpoint, which the server may have made itself at a step without a file. An existing table
cannot be overwritten, so it is dropped first. If something dies in between, the checkpoint still exists, and
the trainer can try again.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

import torch

import embtier

KEPT = 3  # checkpoints; older ones are deleted with their files


class OtherOptions(Exception):
    """The checkpoint is from a training with other options, so it cannot go on with these."""


def save(server: embtier.Server, trainer: str, step: int, options: dict, state: Any, folder: Path) -> None:
    """Makes a checkpoint. :func:`newest` finds it by @trainer and @options. @state: for torch.save()."""
    before = _all(server, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(prefix=f"step-{step}-", suffix=".pt", dir=folder, delete=False) as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    _sync_names(folder)
    metadata = {"trainer": trainer, "options": options, "dense": str(Path(file.name).resolve())}
    server.checkpoint(step=step, metadata=metadata)
    # Does not use `keep`, which counts checkpoints of other trainers too.
    kept = {checkpoint.metadata["dense"] for checkpoint in before[1 - KEPT :]}
    for checkpoint in before[: 1 - KEPT]:
        with contextlib.suppress(embtier.BusyError, embtier.NotFoundError):  # it is being exported; another client deleted it
            server.delete_checkpoint(checkpoint.id)
            if checkpoint.metadata["dense"] not in kept:  # one made by `embtierd --restore ID` shares its file
                Path(checkpoint.metadata["dense"]).unlink(missing_ok=True)


def exists(server: embtier.Server, trainer: str) -> bool:
    """True if a new training would delete a checkpoint."""
    return bool(_all(server, trainer))


def newest(server: embtier.Server, trainer: str, options: dict) -> embtier.Checkpoint | None:
    """Returns the newest checkpoint, or None. Raises OtherOptions unless it was made with @options."""
    found = _all(server, trainer)
    if not found:
        return None
    if (theirs := found[-1].metadata["options"]) != options:
        raise OtherOptions(f"checkpoint {found[-1].id} was made with {theirs}, not with {options}")
    return found[-1]


def restore(server: embtier.Server, checkpoint: embtier.Checkpoint, prefix: str) -> Any:
    """Restores the tables whose names begin with @prefix, and returns the state that was saved with them."""
    state = torch.load(checkpoint.metadata["dense"])  # first, so that nothing is dropped if it cannot be read
    for spec in server.tables():
        if spec.name.startswith(prefix):
            server.drop_table(spec.name)
    tables = server.checkpoint_info(checkpoint.id).tables
    server.restore_checkpoint(checkpoint.id, [name for name in tables if name.startswith(prefix)])
    return state


def _all(server: embtier.Server, trainer: str) -> list[embtier.Checkpoint]:
    """Returns this trainer's checkpoints, oldest first. The server and other clients make some too."""
    return [
        checkpoint
        for checkpoint in server.checkpoints()
        if isinstance(checkpoint.metadata, dict) and checkpoint.metadata.get("trainer") == trainer
    ]


def _sync_names(folder: Path) -> None:
    """Syncs the folder, so that a synced file is also found after a power failure."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
