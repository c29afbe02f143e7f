# SPDX-License-Identifier: Apache-2.0
"""TorchRec's collections and our stand-ins give and train the same. Without the package, doubles replace its tensors, and
torch.nn's modules its collections. With EMBTIER_TEST_TORCHREC=real the package must be there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

try:
    import torchrec

    IS_REAL = True
except Exception:  # it is missing, or does not fit a library that it loads
    if os.environ.get("EMBTIER_TEST_TORCHREC") == "real":
        raise
    for name in [one for one in sys.modules if one.split(".")[0] == "torchrec"]:
        del sys.modules[name]
    sys.path.insert(0, str(Path(__file__).parent / "torchrec_double"))
    import torchrec

    IS_REAL = False

import embtier.torch as et  # noqa: E402
from embtier.torch import torchrec as ours_of  # noqa: E402

ROWS, LR = 30, 0.25
Config, Bag = torchrec.EmbeddingConfig, torchrec.EmbeddingBagConfig


@pytest.fixture(autouse=True)
def _fixed_seed() -> Iterator[None]:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    yield


def features_of(keys: list[str], samples: int, weighted: bool = False):
    lengths = torch.randint(0, 4, (len(keys) * samples,))
    count = int(lengths.sum())
    weights = torch.rand(count) if weighted else None
    return torchrec.KeyedJaggedTensor.from_lengths_sync(
        keys=keys, values=torch.randint(0, ROWS, (count,)), lengths=lengths, weights=weights
    )


class Twins(torch.nn.Module):
    """torch.nn's modules with the same rows, used as TorchRec's collections use them, with the same keys and rows in a
    state_dict."""

    def __init__(self, folder: str, configs: list, weights: dict[str, torch.Tensor]) -> None:
        super().__init__()
        kind = torch.nn.EmbeddingBag if folder == "embedding_bags" else torch.nn.Embedding
        made = {}
        for config in configs:
            options = {} if folder == "embeddings" else {"mode": config.pooling.value.lower(), "include_last_offset": True}
            rows = weights[f"{folder}.{config.name}.weight"].clone()
            made[config.name] = kind.from_pretrained(rows, freeze=False, **options)
        self.add_module(folder, torch.nn.ModuleDict(made))
        self.modules_of = made


def test_bags_of_keyed_jagged_tensors(server, name):
    tables = [
        Bag(name="t1", num_embeddings=ROWS, embedding_dim=4, feature_names=["a", "b"]),
        Bag(name="t2", num_embeddings=ROWS, embedding_dim=6, feature_names=["b"], pooling=torchrec.PoolingType.MEAN),
    ]
    ours = ours_of.EmbeddingBagCollection(tables, server=server, prefix=f"{name}.", lr=LR)
    twins = Twins("embedding_bags", tables, ours.weights())
    theirs = torchrec.EmbeddingBagCollection(tables=tables) if IS_REAL else None
    if theirs is not None:
        theirs.load_state_dict(ours.weights())
    optimizer = torch.optim.SGD((theirs or twins).parameters(), lr=LR)
    assert list(ours.weights()) == list(twins.state_dict()) == ["embedding_bags.t1.weight", "embedding_bags.t2.weight"]
    for samples in (5, 1, 3):
        features = features_of(["b", "unused", "a"], samples)
        out = ours(features)
        assert list(out.keys()) == ["a", "b@t1", "b@t2"] and list(out.length_per_key()) == [4, 4, 6]
        if theirs is not None:
            expected = theirs(features)
            assert list(expected.keys()) == list(out.keys())
            expected = expected.values()
        else:
            parts = [("a", "t1"), ("b", "t1"), ("b", "t2")]
            expected = torch.cat([twins.modules_of[t](features[f].values(), features[f].offsets()) for f, t in parts], 1)
        torch.testing.assert_close(out.values(), expected)
        torch.testing.assert_close(out["b@t2"], expected[:, 8:])
        optimizer.zero_grad()
        for one in (out.values(), expected):
            one.square().sum().backward()
        optimizer.step()
        for key, rows in (theirs or twins).state_dict().items():
            torch.testing.assert_close(ours.weights()[key], rows, rtol=1e-5, atol=1e-5)


def test_weighted_bags(server, name):
    tables = [Bag(name="t", num_embeddings=ROWS, embedding_dim=4, feature_names=["a"])]
    ours = ours_of.EmbeddingBagCollection(tables, is_weighted=True, server=server, prefix=name, lr=LR)
    features = features_of(["a"], 6, weighted=True)
    twin = torch.nn.EmbeddingBag.from_pretrained(ours.weights()["embedding_bags.t.weight"], mode="sum", include_last_offset=True)
    one = features["a"]
    torch.testing.assert_close(ours(features)["a"], twin(one.values(), one.offsets(), one.weights_or_none()))
    assert ours.is_weighted() and ours.embedding_bag_configs() == tables


def test_rows_of_keyed_jagged_tensors(server, name):
    tables = [
        Config(name="t1", num_embeddings=ROWS, embedding_dim=4, feature_names=["a"]),
        Config(name="t2", num_embeddings=ROWS, embedding_dim=4, feature_names=["b", "a"]),
    ]
    ours = ours_of.EmbeddingCollection(tables, server=server, prefix=name, lr=LR, need_indices=True, update="step")
    twins = Twins("embeddings", tables, ours.weights())
    optimizer = torch.optim.SGD(twins.parameters(), lr=LR)
    for samples in (4, 2):
        features = features_of(["a", "b"], samples)
        out = ours(features)
        assert list(out) == ["a@t1", "b", "a@t2"]
        optimizer.zero_grad()
        for key, feature, table in (("a@t1", "a", "t1"), ("b", "b", "t2"), ("a@t2", "a", "t2")):
            expected = twins.modules_of[table](features[feature].values())
            torch.testing.assert_close(out[key].values(), expected)
            assert torch.equal(out[key].lengths(), features[feature].lengths())
            assert torch.equal(out[key].weights_or_none(), features[feature].values())
            expected.square().sum().backward()
        sum(one.values().square().sum() for one in out.values()).backward()
        ours.step()
        optimizer.step()
        for key, rows in twins.state_dict().items():
            torch.testing.assert_close(ours.weights()[key], rows, rtol=1e-5, atol=1e-5)
    assert ours.embedding_dim() == 4 and ours.need_indices() and ours.embedding_configs() == tables


def test_rows_of_a_checkpoint_are_loaded(server, name):
    tables = [Bag(name="t", num_embeddings=ROWS, embedding_dim=4, feature_names=["a"], data_type=torchrec.DataType.FP16)]
    ours = ours_of.EmbeddingBagCollection(tables, server=server, prefix=name, lr=LR, optimizer="adagrad")
    saved = {"model.embedding_bags.t.weight": torch.arange(4.0 * ROWS).view(ROWS, 4)}
    ours.load_weights(saved, "model.")
    assert torch.equal(ours.weights("x.")["x.embedding_bags.t.weight"].float(), saved["model.embedding_bags.t.weight"])
    assert (ours.rows[0].table.dtype, ours.rows[0].table.spec.optimizer) == ("f16", "adagrad")
    with pytest.raises(KeyError, match="state_dict has no embedding_bags.t.weight"):
        ours.load_weights(saved)
    features = features_of(["a"], 2)
    batches = et.Prefetcher([features], ours, lambda one: one)
    assert len(list(batches)) == 1


def test_configurations_that_fit_no_table_are_refused_and_leave_none(server, name):
    before = {one.name for one in server.tables()}
    good = {"num_embeddings": ROWS, "embedding_dim": 4}
    for tables, options, error, said in (
        ([Bag(name="t", **good)] * 2, {}, ValueError, "tables have the same name"),
        ([Bag(name="t", **good, pooling=torchrec.PoolingType.NONE)], {}, ValueError, "pooling must be one of SUM, MEAN"),
        ([Bag(name="t", **good), Bag(name="u", **good, data_type=torchrec.DataType.INT8)], {}, ValueError, "data_type must be one of"),
        ([Bag(name="t", **good)], {"optimiser": "sgd"}, TypeError, "unexpected arguments: optimiser"),
    ):
        with pytest.raises(error, match=said):
            ours_of.EmbeddingBagCollection(tables, server=server, prefix=name, **{"lr": LR, **options})
    with pytest.raises(ValueError, match="tables must have one embedding_dim"):
        ours_of.EmbeddingCollection([Config(5, 4, "t"), Config(5, 6, "u")], server=server, prefix=name, lr=LR)
    assert {one.name for one in server.tables()} == before
    ours = ours_of.EmbeddingBagCollection([Bag(name="t", **good)], server=server, prefix=name, lr=LR)
    for wrong in (5, None, torch.zeros(3), features_of(["other"], 2)):
        with pytest.raises(TypeError, match="features must be a KeyedJaggedTensor with t, not"):
            ours(wrong)
    np.testing.assert_array_equal(list(ours(features_of(["t"], 2)).keys()), ["t"])


def test_weights_have_the_dtype_and_the_shape_of_the_table(server, name):
    config = Bag(name="t", embedding_dim=4, num_embeddings=ROWS, feature_names=["f"])
    config.data_type = type(config.data_type).BF16
    configs = [config]
    ours = ours_of.EmbeddingBagCollection(configs, server=server, prefix=f"{name}.", lr=LR)
    key = "embedding_bags.t.weight"
    given = torch.randn(ROWS, 4)
    ours.load_weights({key: given})
    torch.testing.assert_close(ours.weights()[key], given.bfloat16(), rtol=0, atol=0)
    for wrong in (given[:, :1], given[:5], given[0], 3):
        with pytest.raises(ValueError, match=rf"{key} must be of shape \({ROWS}, 4\)"):
            ours.load_weights({key: wrong})
    torch.testing.assert_close(ours.weights()[key], given.bfloat16(), rtol=0, atol=0)
