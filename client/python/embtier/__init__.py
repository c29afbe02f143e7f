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

To train in the server, create a table with an optimizer, look up with a ticket, and push by that ticket: see
:class:`BagBatch`, and :class:`PushBatch` for gradients by row. :class:`PrefetchBatch` brings rows of later batches into
DRAM ahead of time. Trainers that train one model together are a :class:`Group`. :meth:`Server.checkpoint` saves all
tables as they are now. :meth:`Server.export_table` writes one to files for other programs; :meth:`Server.import_table`
makes one from files, and :meth:`Server.load_table` from rows of the program. A :class:`TraceWriter` records the lookups
of a run, and :meth:`Server.start_profile` those of a running server, for ``embtier profile show``.
:meth:`Server.move_table` moves a table between the row cache and an array.

:mod:`embtier.torch` has stand-ins for torch.nn.EmbeddingBag. It is imported separately: nothing here needs torch.
"""

from ._batch import BagBatch, Bags, Batch, PrefetchBatch, PushBatch
from ._checkpoint import Checkpoint
from ._connect import connect
from ._export import Exported, Imported
from ._group import Group
from ._library import lib as _lib
from ._profile import ProfileState
from ._server import Server, Table
from ._trace import TraceTable, TraceWriter
from ._types import TableSpec
from .errors import *  # noqa: F403
from .errors import __all__ as _errors

__version__ = _lib.embtier_version().decode()
__all__ = [
    "BagBatch", "Bags", "Batch", "Checkpoint", "Exported", "Group", "Imported", "PrefetchBatch", "ProfileState", "PushBatch", "Server",
    "Table", "TableSpec", "TraceTable", "TraceWriter", "connect", *_errors,
]  # fmt: skip
