# SPDX-License-Identifier: Apache-2.0
"""Runs examples/train_online_retail.py with the arguments after the first two, step by step. It never makes more steps than the
number in the file MAY. When it waits for more, it writes the number of steps made to the file AT.

Usage: paced_training.py MAY AT [OPTION...]
"""

from __future__ import annotations

import functools
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "examples"))

import train_online_retail as training  # noqa: E402


def write(path: Path, steps: int) -> None:
    """Replaces the file at once, so that a reader never finds half of it."""
    new = path.with_suffix(".new")
    new.write_text(str(steps))
    os.replace(new, path)


class PacedTrainer(training.Trainer):
    may: Path
    at: Path

    def step(self, batch: training.Batch) -> float:
        if len(self.losses) >= int(self.may.read_text()):
            write(self.at, len(self.losses))
            while len(self.losses) >= int(self.may.read_text()):
                time.sleep(0.005)
        return super().step(batch)


if __name__ == "__main__":
    PacedTrainer.may, PacedTrainer.at = (Path(path) for path in sys.argv[1:3])
    del sys.argv[1:3]
    training.Trainer = PacedTrainer
    training.embtier.connect = functools.partial(training.embtier.connect, timeout=60)  # on a busy machine, silence may be long
    sys.exit(training.main())
