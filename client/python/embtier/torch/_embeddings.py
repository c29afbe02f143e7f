# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for torch.nn's modules of one table, with the same arguments and attributes."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .. import errors
from .._arguments import flag, integer, kind_of, number, short, shown
from .._group import Group
from .._server import Server, Table
from .._types import one_of
from ._bags import Bag, Input
from ._modules import TIMEOUT_S, EmbeddingBagCollection
from ._nested import flat_ids, is_jagged, like

_DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
TORCH_DTYPES = {word: dtype for dtype, word in _DTYPES.items()}
_PIECE_BYTES = 16 << 20  # of weights that are drawn here and set at a time


class _OneTable(EmbeddingBagCollection):
    """The common part of both modules."""

    max_norm = None
    norm_type = 2.0
    scale_grad_by_freq = False
    sparse = False

    def __init__(self, made: tuple[Table, bool], bags: Callable[[Table], dict[str, Bag]], **options: Any) -> None:
        """Takes over a table and whether it is new. If the module cannot be made, a new table is dropped."""
        table, is_new = made
        try:
            super().__init__(bags(table), **options)
        except BaseException:
            if is_new:
                table.server.drop_table(table.name)
            raise
        self.has_new_table = is_new  #: the table was made with the module, not found

    @property
    def table(self) -> Table:
        return next(iter(self.bags.values())).table

    @property
    def num_embeddings(self) -> int | None:
        """The number of rows; None: the table is unbounded."""
        return self.table.rows

    @property
    def embedding_dim(self) -> int:
        return self.table.dim

    @property
    def padding_idx(self) -> int | None:
        return next(iter(self.bags.values())).padding_idx

    def reset_parameters(self) -> None:
        """Draws all rows again from the normal distribution, as torch does, and sets the row of padding_idx to 0."""
        rows = self.table.rows
        if rows is None:
            raise TypeError(f"table {self.table.name!r} is unbounded: its init draws each row when it is first used")
        many = max(1, _PIECE_BYTES // (4 * self.table.dim))
        for begin in range(0, rows, many):
            drawn = torch.randn(min(many, rows - begin), self.table.dim, dtype=torch.float32, device="cpu")
            self.table.set(range(begin, begin + len(drawn)), drawn.to(TORCH_DTYPES[self.table.dtype]))
        if self.padding_idx is not None:
            set_to_zero(self.table, self.padding_idx)


def set_to_zero(table: Table, row: int) -> None:
    table.set([row], torch.zeros(1, table.dim, dtype=TORCH_DTYPES[table.dtype], device="cpu"))


def _refuse(max_norm: Any, norm_type: Any, scale_grad_by_freq: Any, sparse: Any, device: Any) -> None:
    """Refuses arguments of torch's modules that ours do not support. Gradients are always sparse."""
    if device is not None and not isinstance(device, (str, int, torch.device)):
        raise TypeError(f"device must be a torch.device or None, not {kind_of(device)} {shown(device)}")
    number("norm_type", norm_type)
    if max_norm is not None:
        raise ValueError(
            "max_norm is not supported: torch scales rows in a lookup, and here a lookup changes no row; clip_norm= "
            "bounds gradients"
        )
    if flag("scale_grad_by_freq", scale_grad_by_freq):
        raise ValueError(
            "scale_grad_by_freq is not supported: a push adds up the gradients of a row, however often it occurs"
        )
    flag("sparse", sparse)


def new_table(
    num_embeddings: int | Table, given: dict[str, Any], weight: Any, padding_idx: Any, frozen: Any
) -> tuple[Table, bool]:
    """Returns the table given as @num_embeddings, or a new one made from the other arguments, @given, which are None if
    omitted. The second result is true for a new one."""
    given = {key: value for key, value in given.items() if value is not None}
    if isinstance(num_embeddings, Table):
        if weight is not None or given:
            raise ValueError(
                f"{', '.join(given) or '_weight'}: for a table that is made, and table {num_embeddings.name!r} is there"
            )
        return num_embeddings, False
    if isinstance(num_embeddings, bool) or not hasattr(num_embeddings, "__index__"):
        raise TypeError(
            f"num_embeddings must be a count of rows, or an embtier.Table, not {kind_of(num_embeddings)} {shown(num_embeddings)}"
        )
    rows = integer("num_embeddings", num_embeddings, 1)
    if padding_idx is not None:
        padding_idx = integer("padding_idx", padding_idx)
    missing = [one for one in ("embedding_dim", "server", "name") if one not in given]
    if missing:
        raise ValueError(
            f"a new table needs {' and '.join(missing)}; give an existing table in place of num_embeddings"
        )
    server, name, dim = given.pop("server"), given.pop("name"), given.pop("embedding_dim")
    if not isinstance(server, Server):
        raise TypeError(f"server must be an embtier.Server, not {kind_of(server)} {shown(server)}")
    dtype = given.get("dtype", "f32")
    if isinstance(dtype, torch.dtype) and dtype not in _DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(map(str, _DTYPES))}, not {dtype}")
    given["dtype"] = _DTYPES[dtype] if isinstance(dtype, torch.dtype) else one_of("dtype", TORCH_DTYPES, dtype)
    unknown = given.keys() - inspect.signature(server.create_table).parameters.keys()
    if unknown:
        instead = "; betas are given as beta1= and beta2=" if "betas" in unknown else ""
        raise TypeError(f"unexpected arguments: {short(', '.join(sorted(unknown)))}{instead}")
    given = {"optimizer": "none" if flag("frozen", frozen) else "sgd", **given}
    may_be_there = flag("if_not_exists", given.pop("if_not_exists", False))
    init = {"init": ("normal", 0.0, 1.0) if weight is None else "zeros"}
    deadline = time.monotonic() + TIMEOUT_S
    with contextlib.ExitStack() as stack:
        import_it = None if weight is None else stack.enter_context(_import_of(server, name, rows, dim, weight, dict(given)))
        while True:  # another trainer may be making the table, and may fail
            try:
                if may_be_there:
                    found = _opened(server, name, dim, rows, {**init, **given})
                    if found is not None:
                        return found, False  # with the rows it has
                if import_it is not None:
                    return import_it(), True
                table = server.create_table(name, dim, rows, **{**init, **given})
                break
            except (errors.ExistsError, errors.BusyError):  # type: ignore[attr-defined]
                if not may_be_there or time.monotonic() > deadline:
                    raise
            time.sleep(0.02)
    if padding_idx is not None and -rows <= padding_idx < rows:
        try:
            set_to_zero(table, padding_idx % rows)
        except BaseException:
            server.drop_table(name)
            raise
    return table, True


def _opened(server: Server, name: str, dim: int, rows: int, given: dict[str, Any]) -> Table | None:
    """Returns an existing table if it is as @given; None: there is none. BusyError: it is still being made."""
    try:
        server.open_table(name)
    except errors.NoTableError:  # type: ignore[attr-defined]
        return None
    return server.create_table(name, dim, rows, if_not_exists=True, **given)


@contextlib.contextmanager
def _import_of(
    server: Server, name: str, rows: int, dim: int, weight: torch.Tensor, options: dict[str, Any]
) -> Iterator[Callable[[], Table]]:  # fmt: skip
    """Gives a function that imports @weight from a file, which is written once. So there is a table with all of it or
    none in any case."""
    if not isinstance(weight, torch.Tensor):
        raise TypeError(f"_weight must be a torch.Tensor, not {kind_of(weight)} {shown(weight)}")
    if tuple(weight.shape) != (rows, dim):
        raise ValueError(f"_weight must be of shape {(rows, dim)}, not {tuple(weight.shape)}")
    dtype = options.pop("dtype")
    options.pop("eager", None)  # an import writes all rows
    told = weight.detach().to("cpu")
    stored = told.to(TORCH_DTYPES[dtype]).contiguous()
    if not torch.equal(stored.isfinite(), told.isfinite()):
        raise ValueError(f"_weight has numbers that do not fit in {dtype}")
    header = json.dumps({"weight": {
        "dtype": dtype.upper(), "shape": [rows, dim], "data_offsets": [0, stored.numel() * stored.element_size()]
    }}).encode()  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="embtier-weight.") as folder:
        path = f"{folder}/weight.safetensors"

        def import_it() -> Table:
            if not os.path.exists(path):
                with open(path, "wb") as file:
                    file.write(len(header).to_bytes(8, "little") + header)
                    (stored.view(torch.int16) if dtype == "bf16" else stored).numpy().tofile(file)
            server.import_table(path, name, **options)
            return server.open_table(name)

        yield import_it


def _pretrained(embeddings: Any, freeze: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a module made of @embeddings."""
    if not isinstance(embeddings, torch.Tensor):
        raise TypeError(f"embeddings must be a torch.Tensor, not {kind_of(embeddings)} {shown(embeddings)}")
    if embeddings.dim() != 2 or not embeddings.is_floating_point():
        raise ValueError(
            f"embeddings must be floating-point numbers of 2 dimensions, not {embeddings.dtype} {tuple(embeddings.shape)}"
        )
    own = {"num_embeddings": len(embeddings), "embedding_dim": embeddings.shape[1], "dtype": embeddings.dtype}
    return {**own, "_weight": embeddings, "frozen": flag("freeze", freeze), **options}


class EmbeddingBag(_OneTable):
    """torch.nn.EmbeddingBag with its rows in a table.

    The first argument may be an existing :class:`Table`, without embedding_dim. Otherwise a table is made with @server,
    @name, and further options of :meth:`Server.create_table`. Its optimizer is "sgd", or "none" if the module is
    @frozen. Its init is ("normal", 0, 1) as in torch, and the row of padding_idx is 0. With ``if_not_exists=True`` an
    existing table of this name and description is used with its rows. @dtype is the dtype of the rows, torch's or a
    word such as "f16"; results are float32. @device has no effect: results are on the device of the ids. max_norm and
    scale_grad_by_freq are refused (ValueError); sparse has no effect. Further arguments:
    :class:`EmbeddingBagCollection`.
    """

    def __init__(
        self,
        num_embeddings: int | Table,
        embedding_dim: int | None = None,
        max_norm: None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: torch.Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: torch.dtype | str | None = None,
        *,
        server: Server | None = None,
        name: str | None = None,
        unsigned_ids: bool = False,
        lr: float | None = None,
        update: str = "backward",
        frozen: bool = False,
        group: Group | None = None,
        reduce: str = "mean",
        timeout: float | None = TIMEOUT_S,
        **options: Any,
    ) -> None:
        _refuse(max_norm, norm_type, scale_grad_by_freq, sparse, device)
        given = {"embedding_dim": embedding_dim, "server": server, "name": name, "dtype": dtype, **options}
        super().__init__(
            new_table(num_embeddings, given, _weight, padding_idx, frozen),
            lambda table: {"bag": Bag(table, mode, include_last_offset, padding_idx, unsigned_ids)},
            lr=lr, update=update, frozen=frozen, group=group, reduce=reduce, timeout=timeout,
        )  # fmt: skip

    @classmethod
    def from_pretrained(cls, embeddings: torch.Tensor, freeze: bool = True, **options: Any) -> EmbeddingBag:
        """Returns a module with a new table that has the rows @embeddings, [rows, dim], and their dtype. Needs server=
        and name=, and lr= unless it is frozen."""
        return cls(**_pretrained(embeddings, freeze, options))

    @property
    def mode(self) -> str:
        return self.bags["bag"].mode

    @property
    def include_last_offset(self) -> bool:
        return self.bags["bag"].include_last_offset

    def forward(  # type: ignore[override]
        self,
        input: torch.Tensor,
        offsets: torch.Tensor | None = None,
        per_sample_weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Does the work of torch.nn.EmbeddingBag.forward: returns float32 [bags, dim]."""
        return super().forward({"bag": (input, offsets, per_sample_weights)})["bag"]

    def _ids_of(self, inputs: Input) -> tuple[list[str], list[Table], list[torch.Tensor]]:  # type: ignore[override]
        return super()._ids_of({"bag": inputs})


class Embedding(_OneTable):
    """torch.nn.Embedding with its rows in a table: ids of any shape give one row each.

    The row of @padding_idx is returned unchanged, and its gradient is 0. Other arguments: :class:`EmbeddingBag`.
    """

    def __init__(
        self,
        num_embeddings: int | Table,
        embedding_dim: int | None = None,
        padding_idx: int | None = None,
        max_norm: None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: torch.Tensor | None = None,
        device: Any = None,
        dtype: torch.dtype | str | None = None,
        *,
        server: Server | None = None,
        name: str | None = None,
        unsigned_ids: bool = False,
        lr: float | None = None,
        update: str = "backward",
        frozen: bool = False,
        group: Group | None = None,
        reduce: str = "mean",
        timeout: float | None = TIMEOUT_S,
        **options: Any,
    ) -> None:
        _refuse(max_norm, norm_type, scale_grad_by_freq, sparse, device)
        given = {"embedding_dim": embedding_dim, "server": server, "name": name, "dtype": dtype, **options}
        super().__init__(
            new_table(num_embeddings, given, _weight, padding_idx, frozen),
            lambda table: {"rows": Bag(table, "sum", False, padding_idx, unsigned_ids)},
            lr=lr, update=update, frozen=frozen, group=group, reduce=reduce, timeout=timeout,
        )  # fmt: skip
        self._padding_idx = self.bags["rows"].padding_idx
        self.bags["rows"].padding_idx = None  # a bag would leave the row out

    @property
    def padding_idx(self) -> int | None:
        return self._padding_idx

    def _description(self) -> dict[str, dict[str, Any]]:
        return {k: {**one, "padding_idx": self._padding_idx} for k, one in super()._description().items()}

    @classmethod
    def from_pretrained(cls, embeddings: torch.Tensor, freeze: bool = True, **options: Any) -> Embedding:
        """As :meth:`EmbeddingBag.from_pretrained`."""
        return cls(**_pretrained(embeddings, freeze, options))

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Does the work of torch.nn.Embedding.forward: returns float32 [*, dim] for ids of any shape, also for nested
        tensors of the layout torch.jagged."""
        if not isinstance(input, torch.Tensor):
            raise TypeError(f"the ids must be a torch.Tensor, not {kind_of(input)} {shown(input)}")
        ids = flat_ids(input)
        rows = super().forward({"rows": ids.reshape(-1, 1)})["rows"]
        if self._padding_idx is not None:
            padding = (self._padding_idx + 2**63) % 2**64 - 2**63  # as in ids: the bits of an unsigned number
            rows = torch.where(ids.reshape(-1, 1).to(torch.int64) == padding, rows.detach(), rows)
        rows = rows.view(*ids.shape, self.embedding_dim)
        return like(input, rows) if is_jagged(input) else rows

    def _ids_of(self, inputs: torch.Tensor) -> tuple[list[str], list[Table], list[torch.Tensor]]:  # type: ignore[override]
        return super()._ids_of({"rows": flat_ids(inputs).reshape(-1, 1)})
