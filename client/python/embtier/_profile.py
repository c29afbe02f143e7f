# SPDX-License-Identifier: Apache-2.0
"""Profiles of a running server as the library describes them."""

from __future__ import annotations

from dataclasses import dataclass

from ._library import ProfileInfo


@dataclass(frozen=True)
class ProfileState:
    """State of a profile: see :meth:`Server.start_profile`.

    @runs: False: it has ended.
    @exact: every row was sampled so far, and no sample lost.
    @age: time in seconds since it began.
    @memory_bytes: memory of the server.
    @tables: number of tables that were looked up.
    @lookups: of all clients.
    @samples: samples taken.
    @lost_samples: samples for which the server had no room; estimates may be wrong.
    """

    runs: bool
    exact: bool
    age: float
    memory_bytes: int
    tables: int
    lookups: int
    samples: int
    lost_samples: int


def state_of(info: ProfileInfo) -> ProfileState:
    return ProfileState(
        bool(info.runs),
        bool(info.is_exact),
        info.age_ms / 1e3,
        info.memory_bytes,
        info.tables,
        info.lookups,
        info.samples,
        info.lost_samples,
    )
