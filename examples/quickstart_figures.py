#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Figures between the steps of tools/quickstart, from the files that these leave in its folder.

sizes            the bytes of rows that each tier of the cache had room for: for `embtier profile show --cache`
tiers            options of tools/describe-machine: each tier, without what the cache needs beside rows
array-mib        what the plan keeps of DRAM for arrays
hit-rate         the predicted and the measured hit rate of the run that was profiled
second-hit-rate  the same of the pass after the plan was applied
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def tiers(folder: Path) -> dict[str, tuple[int, int]]:
    """For each tier, the bytes of rows in the cache, and those kept for arrays."""
    metrics = json.loads((folder / "stats.json").read_text())["metrics"]
    return {
        tier: (int(used), int(metrics["array_capacity_bytes"][tier])) for tier, used in metrics["cache_used_bytes"].items()
    }


def measured(report: dict) -> float:
    """A lookup that joined a read under way counts as a hit: the row was already on its way."""
    lookups = report["lookups"]
    missed = lookups.get("ssd", 0) + lookups.get("initial", 0) - report["joined_lookups"]
    return 1 - missed / sum(lookups.values())


def planned(plan: dict, profile: dict) -> float:
    """The part of all lookups that the plan predicts to need no SSD."""
    lookups = {table["name"]: table["lookups"] for table in profile["tables"]}
    hits = 0.0
    for table in plan["tables"]:
        for part in table["parts"]:
            rate = sum(part["hit_rates"]) if part["home"] == "cache" else 1
            hits += lookups[table["name"]] * part["lookup_share"] * rate
    return hits / sum(lookups.values())


def show(predicted: float, report: dict) -> None:
    joined = report["joined_lookups"] / sum(report["lookups"].values())
    print(f"\nHit rate  predicted {predicted:.1%}, measured {measured(report):.1%}")
    print(f"          {joined:.1%} of the lookups joined a read under way, and count as hits.")


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    what, folder = sys.argv[1], Path(sys.argv[2])

    def read(name: str) -> dict:
        return json.loads((folder / name).read_text())

    if what == "sizes":
        print(",".join(str(rows) for rows, _ in tiers(folder).values()))
    elif what == "tiers":
        print("\n".join(f"--tier={tier}={rows + arrays}" for tier, (rows, arrays) in tiers(folder).items()))
    elif what == "array-mib":
        print(sum(memory["array_bytes"] for memory in read("plan.json")["memories"] if memory["name"] == "dram") >> 20)
    elif what == "hit-rate":
        show(sum(read("predicted.json")["hit_rates"]), read("report.json"))
    elif what == "second-hit-rate":
        show(planned(read("plan.json"), read("predicted.json")), read("second.json"))
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
