#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a DLRM on the Online Retail sample with its embedding rows in embtierd, and beside it the
same model with torch.nn.EmbeddingBag, from the same rows and by the same batches.

One pass over the training samples: more passes overfit. Prints the loss as it goes, the AUC on the
seven days held out, what the server's memory tiers served, and how far the two models are apart.
Ends with status 1 if they are further apart than rounding explains, or if the last memory tier or SSD
had too little to do.

Needs a running embtierd with a cache too small for the rows; tools/quickstart starts one. At the
default --dim and --batch, one lane with 4 MiB of DRAM and 2 MiB of a second tier is that; these are
the least a lane takes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from dlrm_model import BagInput, Dlrm
from online_retail import DENSE, Bags, Retail, Samples, load
from progress_bar import ProgressBar

import embtier
import embtier.torch

DATA = Path(__file__).resolve().parents[1] / "tests/data/online-retail.csv.gz"
PREFIX = "online_retail."
INIT = ("uniform", -0.01, 0.01)
DUMP_ROWS = 10_000  # in one request

COMPARED_STEPS = 100
LOSS_TOLERANCE = 1e-5  # relative
AUC_TOLERANCE = 0.002
AUC_LEAST = 0.75
SHARE_LEAST = 0.05  # of lookups, by the last memory tier and by SSD; rows count as often as they stand in bags

Batch = tuple[torch.Tensor, dict[str, BagInput], torch.Tensor]


@dataclass
class Report:
    """What is printed in the end; times in seconds."""

    training_samples: int
    held_out_samples: int
    steps: int
    embtier_s: float
    torch_s: float
    loss_last: float
    auc: float
    auc_torch: float
    loss_difference: float  # greatest relative one of the first COMPARED_STEPS
    lookups: dict[str, float]  # rows of GET, by what served them
    rows_initialised: float
    ssd_written_bytes: float
    failed: list[str]


class TorchBags(torch.nn.Module):
    """torch.nn.EmbeddingBag for every feature. An unbounded table's ids are replaced by their places
    among those that occur, @known."""

    def __init__(self, rows: dict[str, np.ndarray], known: dict[str, np.ndarray]) -> None:
        super().__init__()
        self.known = {name: torch.from_numpy(ids) for name, ids in known.items()}
        self.bags = torch.nn.ModuleDict(
            {
                name: torch.nn.EmbeddingBag.from_pretrained(
                    torch.from_numpy(weight), freeze=False, mode="mean", sparse=True, include_last_offset=True
                )
                for name, weight in rows.items()
            }
        )

    def forward(self, inputs: dict[str, BagInput]) -> dict[str, torch.Tensor]:
        pooled = {}
        for name, (ids, offsets) in inputs.items():
            if name in self.known:
                ids = torch.searchsorted(self.known[name], ids)
            pooled[name] = self.bags[name](ids, offsets)
        return pooled


@dataclass
class Trainer:
    """A model and what steps its MLPs; @rows_optimizer steps the rows that torch keeps."""

    model: Dlrm
    optimizer: torch.optim.Optimizer
    rows_optimizer: torch.optim.Optimizer | None
    seconds: float = 0.0

    def step(self, batch: Batch) -> float:
        """Trains on one batch and returns its loss."""
        started = time.perf_counter()
        dense, bags, labels = batch
        loss = torch.nn.functional.binary_cross_entropy_with_logits(self.model(dense, bags), labels)
        optimizers = [one for one in (self.optimizer, self.rows_optimizer) if one is not None]
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        self.seconds += time.perf_counter() - started
        return loss.item()

    def predict(self, batch: Batch) -> torch.Tensor:
        started = time.perf_counter()
        with torch.no_grad():
            logits = self.model(*batch[:2])
        self.seconds += time.perf_counter() - started
        return logits


def arguments() -> argparse.Namespace:
    summary = (__doc__ or "").split("\n\n")
    parser = argparse.ArgumentParser(description=summary[0], epilog=summary[1])
    parser.add_argument("--socket", help="of embtierd (default: $EMBTIER_SOCKET, else its default)")
    parser.add_argument("--data", type=Path, default=DATA, help="default: %(default)s")
    parser.add_argument("--dim", type=int, default=320, help="of all rows (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=128, help="samples (default: %(default)s)")
    parser.add_argument("--lr", type=float, default=20.0, help="of the rows, SGD (default: %(default)s)")
    parser.add_argument("--mlp-lr", type=float, default=1e-3, help="of the MLPs, Adam (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of everything random (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave the tables, for a look with `embtier`")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    return parser.parse_args()


# ---- Tables and models ----


def make_tables(server: embtier.Server, retail: Retail, args: argparse.Namespace) -> dict[str, embtier.Table]:
    """One table per feature, instead of those an earlier run left."""
    drop_tables(server)
    return {
        name: server.create_table(
            PREFIX + name, args.dim, rows, optimizer="sgd", init=INIT, seed=args.seed * 100 + i
        )
        for i, (name, rows) in enumerate(retail.rows.items())
    }


def drop_tables(server: embtier.Server) -> None:
    for spec in server.tables():
        if spec.name.startswith(PREFIX):
            server.drop_table(spec.name)


def torch_bags(retail: Retail, tables: dict[str, embtier.Table]) -> TorchBags:
    """torch's bags with the rows the tables begin with, read through GET."""
    rows, known = {}, {}
    for name, count in retail.rows.items():
        ids = np.arange(count) if count is not None else occurring_ids(retail, name)
        if count is None:
            known[name] = ids
        parts = [tables[name].get(ids[i : i + DUMP_ROWS]) for i in range(0, len(ids), DUMP_ROWS)]
        rows[name] = np.concatenate(parts)
    return TorchBags(rows, known)


def occurring_ids(retail: Retail, name: str) -> np.ndarray:
    return np.unique(np.concatenate([retail.train.bags[name].ids, retail.held_out.bags[name].ids]))


def make_trainers(
    tables: dict[str, embtier.Table], bags: TorchBags, args: argparse.Namespace
) -> tuple[Trainer, Trainer]:
    features = list(tables)
    collection = embtier.torch.EmbeddingBagCollection(
        {name: embtier.torch.Bag(table, "mean", include_last_offset=True) for name, table in tables.items()},
        lr=args.lr,
    )
    trainers = []
    for embeddings in (collection, bags):
        torch.manual_seed(args.seed)  # the MLPs of both begin alike
        model = Dlrm(embeddings, features, args.dim, DENSE)
        optimizer = torch.optim.Adam(model.mlp_parameters(), args.mlp_lr)
        rows = torch.optim.SGD(bags.parameters(), args.lr) if embeddings is bags else None
        trainers.append(Trainer(model, optimizer, rows))
    return trainers[0], trainers[1]


# ---- Training and testing ----


def batches(samples: Samples, order: np.ndarray, size: int) -> Iterator[Batch]:
    def bag_input(bags: Bags) -> BagInput:
        return torch.from_numpy(bags.ids), torch.from_numpy(bags.offsets)

    for i in range(0, len(order), size):
        part = samples.take(order[i : i + size])
        bags = {name: bag_input(bag) for name, bag in part.bags.items()}
        yield torch.from_numpy(part.dense), bags, torch.from_numpy(part.labels)


def train(ours: Trainer, twin: Trainer, samples: Samples, args: argparse.Namespace) -> np.ndarray:
    """One pass in random order; returns the losses of both, [steps, 2]."""
    order = np.random.default_rng(args.seed).permutation(len(samples))
    steps = -(-len(order) // args.batch)
    bar = ProgressBar("training", steps)
    losses = np.empty((steps, 2))
    for step, batch in enumerate(batches(samples, order, args.batch)):
        losses[step] = ours.step(batch), twin.step(batch)
        recent = losses[max(0, step - 99) : step + 1].mean(axis=0)
        bar.show(step + 1, f"loss {recent[0]:.4f} (torch {recent[1]:.4f})")
    return losses


def test(ours: Trainer, twin: Trainer, samples: Samples, args: argparse.Namespace) -> tuple[float, float]:
    """AUC of both on @samples."""
    order = np.arange(len(samples))
    steps = -(-len(order) // args.batch)
    bar = ProgressBar("testing", steps)
    logits = []
    for step, batch in enumerate(batches(samples, order, args.batch)):
        logits.append(torch.stack([ours.predict(batch), twin.predict(batch)]))
        bar.show(step + 1, "held-out samples")
    scores = torch.cat(logits, dim=1).numpy()
    return auc(scores[0], samples.labels), auc(scores[1], samples.labels)


def auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Share of (positive, negative) pairs in the right order; ties count half."""
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    positives = int(labels.sum())
    above = ranks[labels == 1].sum() - positives * (positives + 1) / 2
    return float(above / (positives * (len(labels) - positives)))


# ---- What the server did ----


def growth(before: dict, after: dict, name: str) -> float:
    return after["metrics"][name] - before["metrics"][name]


def ssd_written_bytes(status: dict) -> float:
    return sum(status["metrics"]["store_written_bytes"].values())


def lookups_by_source(before: dict, after: dict) -> dict[str, float]:
    rows = after["metrics"]["lookup_rows"]
    return {source: count - before["metrics"]["lookup_rows"].get(source, 0) for source, count in rows.items()}


def failures(report: Report, last_tier: str) -> list[str]:
    """What is not as it should be."""
    total = sum(report.lookups.values())
    failed = []
    if not report.loss_difference <= LOSS_TOLERANCE:
        failed.append(f"losses differ by {report.loss_difference:.1e}, more than {LOSS_TOLERANCE}")
    if not abs(report.auc - report.auc_torch) <= AUC_TOLERANCE:
        failed.append(f"AUCs differ by more than {AUC_TOLERANCE}")
    if not report.auc >= AUC_LEAST:
        failed.append(f"AUC is under {AUC_LEAST}")
    for source in (last_tier, "ssd"):
        if not report.lookups.get(source, 0) >= SHARE_LEAST * total:
            failed.append(
                f"{source} served under {SHARE_LEAST:.0%} of lookups: the cache is not small enough"
            )
    return failed


def print_report(report: Report) -> None:
    total = sum(report.lookups.values())
    print(f"Trained on {report.training_samples:,} samples in {report.steps:,} steps, one pass.")
    print(
        f"Held-out AUC         {report.auc:.4f} on {report.held_out_samples:,} samples of the last seven days"
    )
    print(
        f"  torch.nn.EmbeddingBag {report.auc_torch:.4f}, difference {abs(report.auc - report.auc_torch):.1e}"
    )
    print(
        f"Losses of the first {COMPARED_STEPS} steps differ by at most {report.loss_difference:.1e}, relative"
    )
    print(f"Time in the model    {report.embtier_s:.1f} s; with torch.nn.EmbeddingBag {report.torch_s:.1f} s")
    print(f"Lookups              {total:,.0f} rows, served from")
    words = {"write_queue": "rows on their way to SSD", "initial": "first touch: made, not read"}
    for source, rows in report.lookups.items():
        print(f"  {source:<12} {rows / total:6.1%}  {words.get(source, '')}".rstrip())
    print(f"Rows initialised     {report.rows_initialised:,.0f} on first touch")
    print(f"Written to SSD       {report.ssd_written_bytes / 2**20:,.1f} MiB")


def run(server: embtier.Server, args: argparse.Namespace) -> Report:
    retail = load(args.data, args.seed)
    print(f"{len(retail.train):,} training samples, {len(retail.held_out):,} held out", file=sys.stderr)
    tables = make_tables(server, retail, args)
    ours, twin = make_trainers(tables, torch_bags(retail, tables), args)
    before = server.status()
    losses = train(ours, twin, retail.train, args)
    aucs = test(ours, twin, retail.held_out, args)
    after = server.status()
    first = losses[:COMPARED_STEPS]
    report = Report(
        training_samples=len(retail.train),
        held_out_samples=len(retail.held_out),
        steps=len(losses),
        embtier_s=ours.seconds,
        torch_s=twin.seconds,
        loss_last=float(losses[-COMPARED_STEPS:, 0].mean()),
        auc=aucs[0],
        auc_torch=aucs[1],
        loss_difference=float(np.max(np.abs(first[:, 0] - first[:, 1]) / np.abs(first[:, 1]))),
        lookups=lookups_by_source(before, after),
        rows_initialised=growth(before, after, "rows_initialised"),
        ssd_written_bytes=ssd_written_bytes(after) - ssd_written_bytes(before),
        failed=[],
    )
    last_tier = list(after["metrics"]["cache_rows"])[-1]
    report.failed = failures(report, last_tier)
    if not args.keep:
        drop_tables(server)
    return report


def main() -> int:
    args = arguments()
    torch.set_num_threads(1)  # leaves the other processors to the server
    try:
        with embtier.connect(args.socket, client_name="train_online_retail") as server:
            report = run(server, args)
    except embtier.UnreachableError as error:
        print(f"train_online_retail: {error}", file=sys.stderr)
        return 3
    except (embtier.Error, OSError) as error:
        print(f"train_online_retail: {error}", file=sys.stderr)
        return 1
    if args.output == "json":
        print(json.dumps(asdict(report)))
    else:
        print_report(report)
    for failure in report.failed:
        print(f"train_online_retail: {failure}", file=sys.stderr)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
