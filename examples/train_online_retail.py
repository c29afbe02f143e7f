#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a DLRM on the Online Retail sample with its embedding rows in embtierd, and next to it the
same model with torch.nn.EmbeddingBag, from the same rows and by the same batches.

It makes one pass over the training samples, because more passes overfit. It prints the loss during training,
the AUC on the seven days held out, the lookups that each memory tier served, and the difference of the two models.
The exit status is 1 if they differ by more than rounding explains, or if the last memory tier or SSD served
too few lookups.

Needs a running embtierd with a cache too small for the rows; tools/quickstart starts one. At the
default --dim and --batch, one lane with 4 MiB of DRAM and 2 MiB of a second tier is small enough. A lane needs
at least that.

With --checkpoint-every a killed training resumes from the newest checkpoint, also if its server was killed.
Start it again with the same options and --resume. The result is the same, to the last bit, as without the kill;
training_checkpoint.py shows how. The rows of torch.nn.EmbeddingBag are in no checkpoint, so --resume trains
without it, as --alone does.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from dlrm_model import BagInput, Dlrm
from online_retail import DENSE, Bags, Retail, Samples, load
from progress_bar import ProgressBar
from training_checkpoint import OtherOptions, exists, newest, restore, save

import embtier
import embtier.torch

DATA = Path(__file__).resolve().parents[1] / "tests/data/online-retail.csv.gz"
NAME = "train_online_retail"
PREFIX = "online_retail."
INIT = ("uniform", -0.01, 0.01)
DUMP_ROWS = 10_000  # in one request

COMPARED_STEPS = 100
LOSS_TOLERANCE = 1e-5  # relative
AUC_TOLERANCE = 0.002
AUC_LEAST = 0.75
SHARE_LEAST = 0.05  # of lookups, for the last memory tier and for SSD; a row counts each time it is in a bag

Batch = tuple[torch.Tensor, dict[str, BagInput], torch.Tensor]


@dataclass
class Report:
    """The figures printed at the end; times are in seconds."""

    training_samples: int
    held_out_samples: int
    steps: int
    resumed_step: int  # the step at which this run began
    embtier_s: float
    torch_s: float | None  # None here and below: trained without torch.nn.EmbeddingBag
    loss_last: float  # mean of the last COMPARED_STEPS
    loss_final: float  # of the last step
    auc: float
    auc_torch: float | None
    loss_difference: float | None  # the greatest relative one of the first COMPARED_STEPS
    lookups: dict[str, float]  # rows of GET, by the source that served them
    joined_lookups: float  # those from SSD, and first touches, that joined a read under way
    rows_initialised: float
    ssd_written_bytes: float
    failed: list[str]


class TorchBags(torch.nn.Module):
    """torch.nn.EmbeddingBag for every feature. For an unbounded table, an id's place in @known, the ids that
    occur, replaces the id."""

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
    """A model and its optimizers: one for the MLPs, and @rows_optimizer for the rows in torch. @losses: of each step.
    @trace: of the lookups, if one is written."""

    model: Dlrm
    optimizer: torch.optim.Optimizer
    rows_optimizer: torch.optim.Optimizer | None
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    trace: embtier.TraceWriter | None = None

    def step(self, batch: Batch) -> float:
        """Trains on one batch and returns its loss."""
        dense, bags, labels = batch
        self.note(bags, update=True)
        started = time.perf_counter()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(self.model(dense, bags), labels)
        optimizers = [one for one in (self.optimizer, self.rows_optimizer) if one is not None]
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        self.seconds += time.perf_counter() - started
        self.losses.append(loss.item())
        return self.losses[-1]

    def recent_loss(self) -> float:
        return float(np.mean(self.losses[-100:]))

    def note(self, bags: dict[str, BagInput], update: bool) -> None:
        """Writes the lookups of a batch to the trace."""
        if self.trace is None:
            return
        for name, (ids, offsets) in bags.items():
            self.trace.add(PREFIX + name, ids.numpy(), offsets.numpy(), update)
        self.trace.next_batch()

    def predict(self, batch: Batch) -> torch.Tensor:
        self.note(batch[1], update=False)
        started = time.perf_counter()
        with torch.no_grad():
            logits = self.model(*batch[:2])
        self.seconds += time.perf_counter() - started
        return logits

    def state(self) -> dict:
        """Returns the whole state except the rows, which the server keeps."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "losses": self.losses,
        }

    def load_state(self, state: dict) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.losses = state["losses"]


def arguments() -> argparse.Namespace:
    summary = (__doc__ or "").split("\n\n")
    parser = argparse.ArgumentParser(description=summary[0], epilog=f"{summary[2]} {summary[3]}")
    parser.add_argument("--socket", help="address of embtierd: a socket's path, tcp://HOST:PORT, or tls://HOST:PORT?ca=FILE&cert=FILE&key=FILE (default: $EMBTIER_SOCKET, else the server's default)")
    parser.add_argument("--data", type=Path, default=DATA, help="file of sales (default: %(default)s)")
    parser.add_argument("--dim", type=int, default=320, help="numbers per row (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=128, help="samples per batch (default: %(default)s)")
    parser.add_argument("--lr", type=float, default=20.0, help="learning rate of the rows (default: %(default)s)")
    parser.add_argument(
        "--optimizer", default="sgd", help="optimizer of the rows; any but %(default)s, the default, implies --alone"
    )
    parser.add_argument("--mlp-lr", type=float, default=1e-3, help="learning rate of the MLPs, Adam (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of all random numbers (default: %(default)s)")
    parser.add_argument("--steps", type=int, help="number of steps (default: one pass)")
    parser.add_argument("--alone", action="store_true", help="do not train with torch.nn.EmbeddingBag too")
    parser.add_argument(
        "--checkpoint-every", type=int, metavar="STEPS", help="make a checkpoint after this number of steps, again and again"
    )
    parser.add_argument(
        "--checkpoint-dir", type=Path, default=Path("online-retail-checkpoints"), metavar="DIR",
        help="folder for the MLPs of checkpoints; rows stay in the server (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--resume", action="store_true",
        help="resume from the newest checkpoint, or begin if there is none and no table of a training; implies --alone",
    )  # fmt: skip
    parser.add_argument(
        "--restart", action="store_true",
        help="begin again: with --checkpoint-every even if there are checkpoints; with --resume and no checkpoint even if "
        "there are tables of a training",
    )  # fmt: skip
    parser.add_argument(
        "--trace", type=Path, metavar="FILE",
        help="write the lookups to a new file, for `embtier profile show` and `embtier trace hottest`",
    )  # fmt: skip
    parser.add_argument("--report", type=Path, metavar="FILE", help="also write the figures to a file, as JSON")
    parser.add_argument(
        "--reuse", action="store_true",
        help="train the rows of the tables that an earlier run kept for one more pass, with new MLPs; implies --alone",
    )  # fmt: skip
    parser.add_argument("--keep", action="store_true", help="keep the tables, to inspect them with `embtier`")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    args = parser.parse_args()
    for name in ("steps", "checkpoint_every"):
        if (value := getattr(args, name)) is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')}: at least 1")
    if args.reuse and (args.resume or args.restart):
        parser.error("--reuse excludes --resume and --restart")
    args.alone |= args.resume or args.reuse or args.optimizer != "sgd"
    return args


def trained_with(args: argparse.Namespace) -> dict:
    """Returns the options that change the result of a step. A resumed training must have the same."""
    return {name: getattr(args, name) for name in ("dim", "batch", "lr", "optimizer", "mlp_lr", "seed")}


# ---- Tables and models ----


def make_tables(
    server: embtier.Server, retail: Retail, args: argparse.Namespace, optimizer: str = "sgd"
) -> dict[str, embtier.Table]:
    """Makes one table per feature, in place of those that an earlier run left."""
    drop_tables(server)
    return {
        name: server.create_table(
            PREFIX + name, args.dim, rows, optimizer=optimizer, init=INIT, seed=args.seed * 100 + i
        )
        for i, (name, rows) in enumerate(retail.rows.items())
    }


def our_tables(server: embtier.Server) -> list[str]:
    return [spec.name for spec in server.tables() if spec.name.startswith(PREFIX)]


def drop_tables(server: embtier.Server) -> None:
    for name in our_tables(server):
        server.drop_table(name)


def torch_bags(retail: Retail, tables: dict[str, embtier.Table]) -> TorchBags:
    """Makes torch's bags with the rows that the tables begin with, read through GET."""
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
    tables: dict[str, embtier.Table], bags: TorchBags | None, args: argparse.Namespace
) -> tuple[Trainer, Trainer | None]:
    features = list(tables)
    collection = embtier.torch.EmbeddingBagCollection(
        {name: embtier.torch.Bag(table, "mean", include_last_offset=True) for name, table in tables.items()},
        lr=args.lr,
    )
    trainers = []
    for embeddings in [collection] if bags is None else [collection, bags]:
        torch.manual_seed(args.seed)  # both MLPs begin alike
        model = Dlrm(embeddings, features, args.dim, DENSE)
        optimizer = torch.optim.Adam(model.mlp_parameters(), args.mlp_lr)
        rows = torch.optim.SGD(bags.parameters(), args.lr) if embeddings is bags else None
        trainers.append(Trainer(model, optimizer, rows))
    return trainers[0], None if bags is None else trainers[1]


# ---- Training and testing ----


def batches(samples: Samples, order: np.ndarray, size: int) -> Iterator[Batch]:
    def bag_input(bags: Bags) -> BagInput:
        return torch.from_numpy(bags.ids), torch.from_numpy(bags.offsets)

    for i in range(0, len(order), size):
        part = samples.take(order[i : i + size])
        bags = {name: bag_input(bag) for name, bag in part.bags.items()}
        yield torch.from_numpy(part.dense), bags, torch.from_numpy(part.labels)


def train(
    server: embtier.Server, ours: Trainer, twin: Trainer | None, samples: Samples, args: argparse.Namespace
) -> None:
    """Trains one pass in random order, or the rest of it after the steps already made."""
    order = np.random.default_rng(args.seed).permutation(len(samples))
    if args.steps is not None:
        order = order[: args.steps * args.batch]
    left = order[len(ours.losses) * args.batch :]
    bar = ProgressBar("training", -(-len(left) // args.batch))
    for i, batch in enumerate(batches(samples, left, args.batch)):
        ours.step(batch)
        text = f"loss {ours.recent_loss():.4f}"
        if twin is not None:
            twin.step(batch)
            text += f" (torch {twin.recent_loss():.4f})"
        bar.show(i + 1, text)
        if args.checkpoint_every and len(ours.losses) % args.checkpoint_every == 0:
            step = len(ours.losses)
            save(server, NAME, step, trained_with(args), ours.state(), args.checkpoint_dir)


def test(
    ours: Trainer, twin: Trainer | None, samples: Samples, args: argparse.Namespace
) -> tuple[float, float | None]:
    """Returns the AUC of both models on @samples."""
    order = np.arange(len(samples))
    bar = ProgressBar("testing", -(-len(order) // args.batch))
    trainers = [trainer for trainer in (ours, twin) if trainer is not None]
    logits = []
    for step, batch in enumerate(batches(samples, order, args.batch)):
        logits.append(torch.stack([trainer.predict(batch) for trainer in trainers]))
        bar.show(step + 1, "held-out samples")
    scores = torch.cat(logits, dim=1).numpy()
    aucs = [auc(each, samples.labels) for each in scores]
    return aucs[0], None if twin is None else aucs[1]


def auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Returns the share of (positive, negative) pairs in the right order; ties count half."""
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    positives = int(labels.sum())
    above = ranks[labels == 1].sum() - positives * (positives + 1) / 2
    return float(above / (positives * (len(labels) - positives)))


def loss_difference(ours: Trainer, twin: Trainer) -> float:
    first, theirs = (np.array(trainer.losses[:COMPARED_STEPS]) for trainer in (ours, twin))
    return float(np.max(np.abs(first - theirs) / np.abs(theirs)))


# ---- The server's figures ----


def growth(before: dict, after: dict, name: str) -> float:
    return after["metrics"][name] - before["metrics"][name]


def ssd_written_bytes(status: dict) -> float:
    return sum(status["metrics"]["store_written_bytes"].values())


def lookups_by_source(before: dict, after: dict) -> dict[str, float]:
    rows = after["metrics"]["lookup_rows"]
    return {source: count - before["metrics"]["lookup_rows"].get(source, 0) for source, count in rows.items()}


def failures(report: Report, last_tier: str) -> list[str]:
    """Returns the expectations that a whole pass has not met."""
    total = sum(report.lookups.values())
    failed = []
    if not report.auc >= AUC_LEAST:
        failed.append(f"AUC is under {AUC_LEAST}")
    for source in (last_tier, "ssd"):
        if not report.lookups.get(source, 0) >= SHARE_LEAST * total:
            failed.append(
                f"{source} served under {SHARE_LEAST:.0%} of lookups: the cache is not small enough"
            )
    return failed


def differences(report: Report) -> list[str]:
    """Returns the figures in which the two models differ by more than rounding explains."""
    failed = []
    if report.loss_difference is not None and not report.loss_difference <= LOSS_TOLERANCE:
        failed.append(f"losses differ by {report.loss_difference:.1e}, more than {LOSS_TOLERANCE}")
    if report.auc_torch is not None and not abs(report.auc - report.auc_torch) <= AUC_TOLERANCE:
        failed.append(f"AUCs differ by more than {AUC_TOLERANCE}")
    return failed


def print_report(report: Report) -> None:
    total = sum(report.lookups.values())
    began = f", this run from step {report.resumed_step:,} on" if report.resumed_step else ""
    print(f"Trained on {report.training_samples:,} samples in {report.steps:,} steps, one pass{began}.")
    print(
        f"Held-out AUC         {report.auc:.4f} on {report.held_out_samples:,} samples of the last seven days"
    )
    if report.auc_torch is not None:
        print(
            f"  torch.nn.EmbeddingBag {report.auc_torch:.4f}, difference {abs(report.auc - report.auc_torch):.1e}"
        )
        print(
            f"Losses of the first {COMPARED_STEPS} steps differ by at most {report.loss_difference:.1e}, relative"
        )
    beside = "" if report.torch_s is None else f"; with torch.nn.EmbeddingBag {report.torch_s:.1f} s"
    print(f"Time in the model    {report.embtier_s:.1f} s{beside}")
    print(f"Lookups              {total:,.0f} rows, served from")
    words = {"write_queue": "rows on their way to SSD", "initial": "first touch: made, not read"}
    for source, rows in report.lookups.items():
        print(f"  {source:<12} {rows / total:6.1%}  {words.get(source, '')}".rstrip())
    print(f"  {report.joined_lookups / total:.1%} joined a read under way, and are in the shares of ssd or initial")
    print(f"Rows initialised     {report.rows_initialised:,.0f} on first touch")
    print(f"Written to SSD       {report.ssd_written_bytes / 2**20:,.1f} MiB")


def run(server: embtier.Server, args: argparse.Namespace) -> Report:
    checkpoint = newest(server, NAME, trained_with(args)) if args.resume else None
    if args.checkpoint_every and not (args.resume or args.restart) and exists(server, NAME):
        raise OtherOptions("this training has checkpoints: --resume continues from the newest, --restart begins again")
    if args.resume and checkpoint is None and not args.restart and (there := our_tables(server)):
        raise OtherOptions(
            f"there are tables of a training ({there[0]} and {len(there) - 1} more), but no checkpoint to resume from: "
            "add --restart to drop them and begin again"
        )
    retail = load(args.data, args.seed)
    print(f"{len(retail.train):,} training samples, {len(retail.held_out):,} held out", file=sys.stderr)
    state = None
    if args.reuse:
        tables = {name: server.open_table(PREFIX + name) for name in retail.rows}
    elif checkpoint is None:
        tables = make_tables(server, retail, args, args.optimizer)
    else:
        print(f"resuming from step {checkpoint.step:,}, checkpoint {checkpoint.id}", file=sys.stderr)
        state = restore(server, checkpoint, PREFIX)
        tables = {name: server.open_table(PREFIX + name) for name in retail.rows}
    ours, twin = make_trainers(tables, None if args.alone else torch_bags(retail, tables), args)
    if state is not None:
        ours.load_state(state)
    resumed_step = len(ours.losses)
    before = server.status()
    with embtier.TraceWriter(args.trace, tables.values()) if args.trace else nullcontext() as ours.trace:
        train(server, ours, twin, retail.train, args)
        aucs = test(ours, twin, retail.held_out, args)
    after = server.status()
    report = Report(
        training_samples=min(len(ours.losses) * args.batch, len(retail.train)),
        held_out_samples=len(retail.held_out),
        steps=len(ours.losses),
        resumed_step=resumed_step,
        embtier_s=ours.seconds,
        torch_s=None if twin is None else twin.seconds,
        loss_last=float(np.mean(ours.losses[-COMPARED_STEPS:])),
        loss_final=ours.losses[-1],
        auc=aucs[0],
        auc_torch=aucs[1],
        loss_difference=None if twin is None else loss_difference(ours, twin),
        lookups=lookups_by_source(before, after),
        joined_lookups=growth(before, after, "shared_reads"),
        rows_initialised=growth(before, after, "rows_initialised"),
        ssd_written_bytes=ssd_written_bytes(after) - ssd_written_bytes(before),
        failed=[],
    )
    report.failed = differences(report)
    if args.steps is None and resumed_step == 0 and not args.reuse:  # other runs say too little
        last_tier = list(after["metrics"]["cache_rows"])[-1]
        report.failed += failures(report, last_tier)
    if not args.keep:
        drop_tables(server)
    return report


def main() -> int:
    args = arguments()
    torch.set_num_threads(1)  # leaves the other processors to the server
    try:
        with embtier.connect(args.socket, client_name=NAME) as server:
            report = run(server, args)
        if args.report:
            args.report.write_text(json.dumps(asdict(report)) + "\n")
    except embtier.UnreachableError as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 3
    except (embtier.Error, OtherOptions, OSError) as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 1
    if args.output == "json":
        print(json.dumps(asdict(report)))
    else:
        print_report(report)
    for failure in report.failed:
        print(f"{NAME}: {failure}", file=sys.stderr)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
