# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for TorchRec's collections. They are made from its configurations, take its KeyedJaggedTensor, and return
its results.

    tables = [EmbeddingBagConfig(name="items", num_embeddings=1_000_000, embedding_dim=64, feature_names=["item", "history"])]
    bags = embtier.torch.torchrec.EmbeddingBagCollection(tables, server=server, lr=0.1, optimizer="adagrad")
    pooled = bags(features)     # a KeyedTensor, as torchrec.EmbeddingBagCollection gives it

A pass makes one request, as in :class:`embtier.torch.EmbeddingBagCollection`, which describes how rows are trained.
TorchRec is imported when a collection is called, for the classes of its results."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import torch

from .._arguments import flag, kind_of, several, shown, text
from .._server import Server, Table
from ._bags import Bag, Input
from ._embeddings import TORCH_DTYPES, new_table
from ._modules import EmbeddingBagCollection as _Collection
from ._modules import as_tensor

_DTYPES = {"FP32": "f32", "FP16": "f16", "BF16": "bf16"}
_MODES = {"SUM": "sum", "MEAN": "mean"}

__all__ = ["EmbeddingBagCollection", "EmbeddingCollection"]


def _word_of(what: str, words: dict[str, str], value: Any) -> str:
    """Returns the word for @value, a member of one of TorchRec's enumerations, whose values are texts."""
    word = str(getattr(value, "value", value)).upper()
    if word not in words:
        raise ValueError(f"{what} must be one of {', '.join(words)}, not {shown(value)}")
    return words[word]


class _Keyed(_Collection):
    """The common part of both collections. A feature of one table gives its name to its output. A feature of several
    tables gives "feature@table" for each."""

    _weights_are_in: str  # the folder of weights in a state_dict

    def __init__(
        self, tables: Sequence[Any], server: Server, prefix: str, options: dict[str, Any], modes: list[str], weighted: bool
    ) -> None:  # fmt: skip
        own = {key: options.pop(key) for key in ("lr", "update", "frozen", "group", "reduce", "timeout") if key in options}
        frozen = flag("frozen", own.get("frozen", False))
        prefix = text("prefix", prefix).decode()
        names = [config.name for config in tables]
        if len(set(names)) != len(names):
            raise ValueError(f"tables have the same name: {shown(sorted(n for n in set(names) if names.count(n) > 1))}")
        features_of = {config.name: list(config.feature_names) or [config.name] for config in tables}
        every = [feature for features in features_of.values() for feature in features]
        made: dict[str, Table] = {}
        bags, keys = {}, []
        try:
            for config, mode in zip(tables, modes):
                given = {"embedding_dim": config.embedding_dim, "server": server, "name": f"{prefix}{config.name}", **options}
                given["dtype"] = _word_of("data_type", _DTYPES, getattr(config, "data_type", "FP32"))
                table, is_new = new_table(config.num_embeddings, given, None, None, frozen)
                if is_new:
                    made[config.name] = table
                for feature in features_of[config.name]:
                    key = feature if every.count(feature) == 1 else f"{feature}@{config.name}"
                    bags[key] = Bag(table, mode, include_last_offset=True)
                    keys.append((key, feature))
            super().__init__(bags, **own)
        except BaseException:
            for table in made.values():
                server.drop_table(table.name)
            raise
        self._configs = list(tables)
        self._keys = keys  # (key of the output, key of the input)
        self._is_weighted = weighted

    def _inputs(self, features: Any) -> dict[str, Input]:
        """Returns inputs by the key of their output."""
        try:
            jagged = {key: features[feature] for key, feature in self._keys}
        except (TypeError, KeyError, IndexError, ValueError) as error:
            raise TypeError(
                f"features must be a KeyedJaggedTensor with {', '.join(feature for _, feature in self._keys)}, not "
                f"{kind_of(features)} {shown(features)}"
            ) from error
        return {key: self._input(one) for key, one in jagged.items()}

    def _input(self, one: Any) -> Input:
        return one.values(), one.offsets(), one.weights_or_none() if self._is_weighted else None

    def _ids_of(self, inputs: Any) -> tuple[list[str], list[Table], list[torch.Tensor]]:
        return super()._ids_of(self._inputs(inputs))

    def load_weights(self, state_dict: dict[str, torch.Tensor], prefix: str = "") -> None:
        """Writes rows to the tables. @state_dict is that of one of TorchRec's collections, which has them under
        @prefix."""
        tables = self._tables_by_key(prefix)
        for key in tables:
            if key not in state_dict:
                raise KeyError(f"state_dict has no {key}")
            shape = tuple(getattr(state_dict[key], "shape", ()))
            if shape != (tables[key].rows, tables[key].dim):
                raise ValueError(f"{key} must be of shape {(tables[key].rows, tables[key].dim)}, not {shape}")
        for key, table in tables.items():
            table.set(range(table.rows), torch.as_tensor(state_dict[key]).detach().to("cpu", TORCH_DTYPES[table.dtype]))

    def weights(self, prefix: str = "") -> dict[str, torch.Tensor]:
        """Returns the rows of all tables, [rows, dim] each, with the keys of TorchRec's collection in its
        state_dict()."""
        return {key: as_tensor(table, table.get(range(table.rows))) for key, table in self._tables_by_key(prefix).items()}

    def _tables_by_key(self, prefix: str) -> dict[str, Table]:
        """Returns the tables in the order of the configurations, which is also that of the rows."""
        keys = [f"{prefix}{self._weights_are_in}.{config.name}.weight" for config in self._configs]
        return dict(zip(keys, [rows.table for rows in self.rows]))


class EmbeddingBagCollection(_Keyed):
    """torchrec.EmbeddingBagCollection with its rows in new tables, named @prefix and the name of the configuration.

    @tables: EmbeddingBagConfigs.
    @is_weighted: features have sample weights.
    @device: no effect.
    @options: those of :class:`embtier.torch.EmbeddingBagCollection` (lr=, update=, ...) and of
    :meth:`Server.create_table` (optimizer=, if_not_exists=, ...)."""

    _weights_are_in = "embedding_bags"

    def __init__(
        self, tables: Sequence[Any], is_weighted: bool = False, device: Any = None, *, server: Server, prefix: str = "",
        **options: Any,
    ) -> None:  # fmt: skip
        tables = several("tables", tables)
        modes = [_word_of("pooling", _MODES, getattr(config, "pooling", "SUM")) for config in tables]
        super().__init__(tables, server, prefix, options, modes, flag("is_weighted", is_weighted))

    def forward(self, features: Any) -> Any:  # type: ignore[override]
        """Returns a KeyedTensor, float32 [samples, sum of dims], with a key for each feature of each table in their
        order."""
        pooled = super().forward(self._inputs(features))
        jagged = importlib.import_module("torchrec.sparse.jagged_tensor")
        return jagged.KeyedTensor(
            keys=list(pooled), length_per_key=[one.shape[1] for one in pooled.values()], values=torch.cat(list(pooled.values()), 1)
        )

    def embedding_bag_configs(self) -> list[Any]:
        return self._configs

    def is_weighted(self) -> bool:
        return self._is_weighted


class EmbeddingCollection(_Keyed):
    """torchrec.EmbeddingCollection with its rows in new tables; see :class:`EmbeddingBagCollection`.

    @tables: EmbeddingConfigs, of one embedding_dim.
    @need_indices: results have the ids as weights."""

    _weights_are_in = "embeddings"

    def __init__(
        self, tables: Sequence[Any], device: Any = None, need_indices: bool = False, *, server: Server, prefix: str = "",
        **options: Any,
    ) -> None:  # fmt: skip
        tables = several("tables", tables)
        if len({config.embedding_dim for config in tables}) > 1:
            raise ValueError(f"tables must have one embedding_dim, not {shown([config.embedding_dim for config in tables])}")
        super().__init__(tables, server, prefix, options, ["sum"] * len(tables), False)
        self._need_indices = flag("need_indices", need_indices)

    def _input(self, one: Any) -> Input:
        ids = one.values()  # each id is a bag
        return ids, torch.arange(ids.shape[0] + 1, device=ids.device), None

    def forward(self, features: Any) -> dict[str, Any]:  # type: ignore[override]
        """Returns, by feature, a JaggedTensor whose values are the rows, float32 [ids, dim]."""
        rows = super().forward(self._inputs(features))
        jagged = importlib.import_module("torchrec.sparse.jagged_tensor")
        of_feature = dict(self._keys)
        return {
            key: jagged.JaggedTensor(
                values=one,
                lengths=features[of_feature[key]].lengths(),
                weights=features[of_feature[key]].values() if self._need_indices else None,
            )
            for key, one in rows.items()
        }

    def embedding_configs(self) -> list[Any]:
        return self._configs

    def embedding_dim(self) -> int:
        return self._configs[0].embedding_dim

    def need_indices(self) -> bool:
        return self._need_indices
