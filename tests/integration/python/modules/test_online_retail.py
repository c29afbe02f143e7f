# SPDX-License-Identifier: Apache-2.0
"""The samples of examples/ are as described, and the model learns the same through embtierd."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import EMBTIERD, TREE

torch = pytest.importorskip("torch")
sys.path.insert(0, str(TREE / "examples"))

import online_retail  # noqa: E402
import train_online_retail as training  # noqa: E402

import embtier  # noqa: E402

CLI = os.environ.get("EMBTIER_CLI", EMBTIERD.parents[1] / "tools/embtier")
STEPS = 30


@pytest.fixture(scope="module")
def retail() -> online_retail.Retail:
    return online_retail.load(training.DATA)


def test_the_help_names_each_kind_of_address(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train_online_retail.py", "--help"])
    with pytest.raises(SystemExit):
        training.arguments()
    words = capsys.readouterr().out
    assert "tcp://HOST:PORT" in words and "tls://HOST:PORT?ca=FILE" in words


def test_samples_are_five_for_each_positive_and_the_last_week_is_held_out(retail):
    assert (len(retail.train), len(retail.held_out)) == (5 * 26_160, 5 * 5_555)
    for samples in (retail.train, retail.held_out):
        labels = samples.labels.reshape(-1, 5)
        assert (labels[:, 0] == 1).all() and (labels[:, 1:] == 0).all()


def test_a_negative_differs_from_its_positive_in_the_item_only(retail):
    samples = retail.train
    item = samples.bags["item"].ids.reshape(-1, 5)
    assert (item[:, 1:] != item[:, :1]).all()
    first, second = samples.take(np.arange(0, len(samples), 5)), samples.take(np.arange(1, len(samples), 5))
    for name in ("customer", "last_items", "invoice_items", "hour", "weekday"):
        np.testing.assert_array_equal(first.bags[name].ids, second.bags[name].ids)
        np.testing.assert_array_equal(first.bags[name].offsets, second.bags[name].offsets)
    np.testing.assert_array_equal(first.dense[:, 1:], second.dense[:, 1:])


def test_bags_end_before_the_line(retail):
    """From line to line of an invoice, its bag grows by the item of the line before."""
    positives = retail.train.take(np.arange(0, 5_000, 5))
    bag, item, customer = (positives.bags[k] for k in ("invoice_items", "item", "customer"))
    seen = 0
    for i in range(1, 1_000):
        now = bag.ids[bag.offsets[i] : bag.offsets[i + 1]]
        if len(now):
            assert customer.ids[i] == customer.ids[i - 1] and now[-1] == item.ids[i - 1]
            seen += 1
        assert len(now) <= online_retail.INVOICE_ITEMS
    assert seen > 900


def test_the_same_seed_gives_the_same_samples(retail):
    again, other = online_retail.load(training.DATA), online_retail.load(training.DATA, seed=2)
    np.testing.assert_array_equal(again.train.bags["cross"].ids, retail.train.bags["cross"].ids)
    assert (other.train.bags["cross"].ids != retail.train.bags["cross"].ids).any()


def test_auc_counts_pairs_in_the_right_order():
    labels = np.array([1, 0, 1, 0], np.float32)
    assert training.auc(np.array([4.0, 3, 2, 1]), labels) == 0.75
    assert training.auc(np.array([1.0, 1, 1, 1]), labels) == 0.5


def test_the_model_and_its_rows_stay_those_of_torch(daemon, retail):
    args = argparse.Namespace(dim=16, batch=128, lr=20.0, mlp_lr=1e-3, seed=1)
    with daemon.connect() as server:
        tables = training.make_tables(server, retail, args)
        ours, twin = training.make_trainers(tables, training.torch_bags(retail, tables), args)
        order = np.random.default_rng(1).permutation(len(retail.train))[: STEPS * args.batch]
        for batch in training.batches(retail.train, order, args.batch):
            assert ours.step(batch) == pytest.approx(twin.step(batch), rel=training.LOSS_TOLERANCE)
        for name in ("customer", "item", "last_items"):
            rows = tables[name].get(np.arange(retail.rows[name]))
            weight = twin.model.embeddings.bags[name].weight.detach().numpy()
            np.testing.assert_allclose(rows, weight, rtol=1e-4, atol=1e-5)
        training.drop_tables(server)


def test_the_trace_has_the_lookups_of_each_batch(daemon, retail, tmp_path):
    args = argparse.Namespace(dim=16, batch=128, lr=20.0, mlp_lr=1e-3, seed=1)
    with daemon.connect() as server:
        tables = training.make_tables(server, retail, args)
        ours, _ = training.make_trainers(tables, None, args)
        drawn = list(training.batches(retail.train, np.arange(4 * args.batch), args.batch))
        before = server.status()
        with embtier.TraceWriter(tmp_path / "run.trace", tables.values()) as ours.trace:
            for batch in drawn[:3]:
                ours.step(batch)
            ours.predict(drawn[3])
        served = training.lookups_by_source(before, server.status())
        training.drop_tables(server)
    shown = subprocess.run(
        [CLI, "-o", "json", "profile", "show", tmp_path / "run.trace"], check=True, capture_output=True
    )
    profile = json.loads(shown.stdout)
    assert (profile["batches"], profile["lookups"]) == (4, sum(served.values()))
    for table in profile["tables"]:
        name = table["name"].removeprefix(training.PREFIX)
        ids = [batch[1][name][0].numpy() for batch in drawn]
        assert table["lookups"] == sum(len(one) for one in ids)
        assert table["distinct_rows"] == len(np.unique(np.concatenate(ids)))
        updated, looked_up = (sum(len(np.unique(one)) for one in part) for part in (ids[:3], ids))
        assert table["updated_share"] == pytest.approx(updated / looked_up)
