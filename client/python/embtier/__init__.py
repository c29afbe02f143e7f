# SPDX-License-Identifier: Apache-2.0
"""embtier: the Python client of the embedding server embtierd.

    import embtier

    with embtier.connect() as server:
        users = server.create_table("users", dim=64, init=("uniform", -0.1, 0.1))
        users.set([7], numpy.ones((1, 64)))
        with server.batch([(users, 2)]) as batch:
            batch.ids(0)[:] = [7, 9]
            rows = batch.get().rows(0)  # float32 [2, 64], in memory shared with the server
        with server.bag_batch([embtier.Bags(users, count=3, bag_count=2, mode="mean")]) as batch:
            batch.ids(0)[:] = [7, 9, 7]
            batch.offsets(0)[:] = [0, 2, 3]
            bags = batch.lookup().bags(0)  # float32 [2, 64]: the mean of rows 7 and 9, and row 7

To train in the server, a table has an optimizer, a lookup a ticket, and by it goes a push: see
:class:`BagBatch`, and :class:`PushBatch` for gradients by row. Rows of batches to come can be brought
into DRAM ahead of them: :class:`PrefetchBatch`. Trainers that train one model together are a
:class:`Group`. All tables as they are now are saved by :meth:`Server.checkpoint`, and one
becomes files for other programs, and is made of them, by :meth:`Server.export_table` and
:meth:`Server.import_table`, or of rows that the program has by :meth:`Server.load_table`.

:mod:`embtier.torch` has stand-ins for torch.nn.EmbeddingBag. It is imported by itself only: nothing
here needs torch.
"""

from ._batch import BagBatch, Bags, Batch, PrefetchBatch, PushBatch
from ._checkpoint import Checkpoint
from ._export import Exported, Imported
from ._group import Group
from ._library import lib as _lib
from ._server import Server, Table, connect
from ._types import TableSpec
from .errors import *  # noqa: F403
from .errors import __all__ as _errors

__version__ = _lib.embtier_version().decode()
__all__ = [
    "BagBatch", "Bags", "Batch", "Checkpoint", "Exported", "Group", "Imported", "PrefetchBatch", "PushBatch", "Server",
    "Table", "TableSpec", "connect", *_errors,
]  # fmt: skip
