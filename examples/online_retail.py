# SPDX-License-Identifier: Apache-2.0
"""The Online Retail sample as training data: will this customer buy this item next?

A *positive* is one sale line with a customer: customer, item and time. Each positive gets
:data:`NEGATIVES` items drawn uniformly from the catalogue, except items that this line or a later one
of the invoice buys. A negative differs from its positive only in the item and the features derived from
it. Lines are in time order, and the last :data:`HELD_OUT_DAYS` days are held out.

No feature of an item comes from the line to be predicted. The price is the catalogue's: the first one
at which the item is listed, for positives and negatives alike. The bag "the customer's last items" ends
before the invoice, and the bag "the invoice so far" before the line. The model can learn how popular an
item is only from the rows of its embeddings.
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict, deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

NEGATIVES = 4
HELD_OUT_DAYS = 7
LAST_ITEMS = 20
INVOICE_ITEMS = 20
PRICE_BUCKETS = 16
DENSE = 3  # log price; log of the lines the customer bought before, and in this invoice


@dataclass(frozen=True)
class Bags:
    """Bags of ids, one per sample: bag i is ``ids[offsets[i]:offsets[i + 1]]``."""

    ids: np.ndarray  # int64 [total]
    offsets: np.ndarray  # int64 [samples + 1]

    def take(self, samples: np.ndarray) -> Bags:
        """Returns the bags of @samples, in that order."""
        starts = self.offsets[samples]
        lengths = self.offsets[samples + 1] - starts
        offsets = np.zeros(len(samples) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return Bags(self.ids[places], offsets)


@dataclass(frozen=True)
class Samples:
    """Features of samples, in time order or as taken."""

    dense: np.ndarray  # float32 [samples, DENSE]
    bags: dict[str, Bags]
    labels: np.ndarray  # float32 [samples]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, samples: np.ndarray) -> Samples:
        bags = {name: bag.take(samples) for name, bag in self.bags.items()}
        return Samples(self.dense[samples], bags, self.labels[samples])


@dataclass(frozen=True)
class Retail:
    train: Samples
    held_out: Samples
    rows: dict[str, int | None]  # rows of each feature's table; None: unbounded


@dataclass(frozen=True)
class _Line:
    invoice: str
    item: int
    customer: int  # -1: anonymous
    time: datetime
    sold: bool  # not a return


class _Numbers(dict):
    """Numbers the keys from 0 up, in the order in which they are first seen."""

    def __missing__(self, key: str) -> int:
        self[key] = len(self)
        return self[key]


def cross_id(customer: np.ndarray, item: np.ndarray) -> np.ndarray:
    """Hashes pairs to 63 bits (splitmix64's finisher), because torch has no unsigned 64-bit integers."""
    x = (customer.astype(np.uint64) << np.uint64(32)) + item.astype(np.uint64)
    x += np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)


def load(path: Path, seed: int = 1) -> Retail:
    """Reads the file and makes samples from it; the same @seed gives the same samples."""
    lines, prices, customer_count = _read(path)
    positives = _Positives()
    for invoice in _invoices(lines):
        positives.add_invoice(invoice)
    samples = positives.samples(prices, np.random.default_rng(seed))
    last = max(line.time for line in lines if line.sold and line.customer >= 0)
    cut = sum(time <= last - timedelta(days=HELD_OUT_DAYS) for time in positives.times)
    cut *= 1 + NEGATIVES
    everything = np.arange(len(samples))
    rows = {
        "customer": customer_count, "item": len(prices), "last_items": len(prices),
        "invoice_items": len(prices), "hour": 24, "weekday": 7, "price": PRICE_BUCKETS,
        "cross": None,
    }  # fmt: skip
    return Retail(samples.take(everything[:cut]), samples.take(everything[cut:]), rows)


def _read(path: Path) -> tuple[list[_Line], np.ndarray, int]:
    items, customers = _Numbers(), _Numbers()
    prices: list[float] = []
    lines = []
    with gzip.open(path, "rt", newline="") as file:
        for record in csv.DictReader(file):
            item = items[record["stock_code"]]
            if item == len(prices):
                prices.append(float(record["unit_price"]))
            customer = customers[record["customer_id"]] if record["customer_id"] else -1
            time = datetime.strptime(record["invoice_time"], "%Y-%m-%d %H:%M")
            sold = int(record["quantity"]) > 0
            lines.append(_Line(record["invoice"], item, customer, time, sold))
    return lines, np.array(prices), len(customers)


def _invoices(lines: list[_Line]) -> list[list[_Line]]:
    """Returns the sales by invoice, in the order in which the invoices began."""
    invoices: dict[str, list[_Line]] = defaultdict(list)
    for line in lines:
        if line.sold:
            invoices[line.invoice].append(line)
    return list(invoices.values())


class _Positives:
    """Walks through the invoices in time order and notes, for each line, what was known before it."""

    def __init__(self) -> None:
        self.history: dict[int, deque[int]] = defaultdict(lambda: deque(maxlen=LAST_ITEMS))
        self.bought: dict[int, int] = defaultdict(int)  # lines of each customer, so far
        self.times: list[datetime] = []
        self.customer: list[int] = []
        self.item: list[int] = []
        self.lines: list[tuple[float, float]] = []  # bought before: ever, in this invoice
        self.last_items: list[list[int]] = []
        self.invoice_items: list[list[int]] = []
        self.still_to_buy: list[frozenset[int]] = []  # on this and later lines of the invoice

    def add_invoice(self, invoice: list[_Line]) -> None:
        customer = invoice[0].customer
        if customer < 0:
            return
        history = list(self.history[customer])
        so_far: list[int] = []
        for place, line in enumerate(invoice):
            self.times.append(line.time)
            self.customer.append(customer)
            self.item.append(line.item)
            self.lines.append((float(self.bought[customer]), float(len(so_far))))
            self.last_items.append(history)
            self.invoice_items.append(so_far[-INVOICE_ITEMS:])
            self.still_to_buy.append(frozenset(later.item for later in invoice[place:]))
            so_far.append(line.item)
        self.history[customer].extend(so_far)
        self.bought[customer] += len(so_far)

    def samples(self, prices: np.ndarray, rng: np.random.Generator) -> Samples:
        """Adds the negatives: sample 5 k is positive k, and the next four are its negatives."""
        group = 1 + NEGATIVES
        count = len(self.item)
        item = np.empty((count, group), np.int64)
        item[:, 0] = self.item
        for k, bought in enumerate(self.still_to_buy):
            item[k, 1:] = _draw(len(prices), bought, rng)
        item = item.reshape(-1)
        customer = np.repeat(np.array(self.customer), group)
        hour = np.repeat([time.hour for time in self.times], group)
        weekday = np.repeat([time.weekday() for time in self.times], group)
        edges = np.quantile(prices, np.linspace(0, 1, PRICE_BUCKETS + 1)[1:-1])
        bags = {
            "customer": _singles(customer), "item": _singles(item),
            "last_items": _bags(self.last_items, group),
            "invoice_items": _bags(self.invoice_items, group),
            "hour": _singles(hour), "weekday": _singles(weekday),
            "price": _singles(np.searchsorted(edges, prices[item])),
            "cross": _singles(cross_id(customer, item)),
        }  # fmt: skip
        context = np.repeat(np.array(self.lines), group, axis=0)
        dense = np.stack(
            [
                np.log1p(prices[item].clip(min=0)),
                np.log1p(context[:, 0]) / 3,
                np.log1p(context[:, 1]) / 3,
            ],
            axis=1,
        ).astype(np.float32)
        labels = np.zeros((count, group), np.float32)
        labels[:, 0] = 1
        return Samples(dense, bags, labels.reshape(-1))


def _draw(item_count: int, taken: frozenset[int], rng: np.random.Generator) -> list[int]:
    """Draws NEGATIVES items uniformly from those not @taken."""
    items: list[int] = []
    while len(items) < NEGATIVES:
        item = int(rng.integers(item_count))
        if item not in taken:
            items.append(item)
    return items


def _singles(ids: np.ndarray) -> Bags:
    return Bags(ids.astype(np.int64), np.arange(len(ids) + 1))


def _bags(lists: list[list[int]], group: int) -> Bags:
    """Makes bags of @lists; each list is the bag of @group samples."""
    repeated = [ids for ids in lists for _ in range(group)]
    offsets = np.zeros(len(repeated) + 1, np.int64)
    np.cumsum([len(ids) for ids in repeated], out=offsets[1:])
    ids = np.fromiter((item for bag in repeated for item in bag), np.int64, int(offsets[-1]))
    return Bags(ids, offsets)
