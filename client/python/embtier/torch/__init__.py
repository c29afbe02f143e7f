# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for torch.nn.EmbeddingBag. Their rows live in embtierd, which pools and trains them.

    users = server.create_table("users", dim=64, optimizer="adagrad", init=("normal", 0, 0.1))
    bag = embtier.torch.EmbeddingBag(users, mode="mean", lr=0.1)
    loss(bag(input, offsets)).backward()     # a pooled lookup in forward, a push of gradients in backward

For a model with several tables, :class:`EmbeddingBagCollection` makes one request per forward pass and one per backward
pass for all of them.

How rows are updated
    The table's optimizer updates them in the server, once for each distinct row. The module chooses ``lr`` and the
    moment of the update:

    ``update="backward"`` (the default)
        Each backward pass is a step: one push of the bags' gradients, by the ticket of the forward pass. Rows of
        features whose output got no gradient do not change.
    ``update="step"``
        Gradients of any number of backward passes add up until :meth:`step` applies them once, or until zero_grad()
        of the module, its parent or an optimizer forgets them. They are gradients of rows, added up in this process.
        That is more work, and excludes mode "max" (ValueError). Code between backward() and step(), such as
        clip_grad_norm_ and a GradScaler, finds the gradients in the module's parameters, as in torch.

    A table with optimizer "none" is a ValueError, unless the module is made with ``frozen=True``. So is a table with mode
    "max" in one bag and another mode in another bag.
parameters()
    One :class:`Rows` for each table, ``module.rows``. It stands for the table's rows, has no weight, and freezes the
    table with ``requires_grad_(False)``. Its ``grad`` holds the gradients gathered with ``update="step"``, float32
    [distinct rows, dim], and ``ids`` their rows: clip_grad_norm_(model.parameters()) has the same norm as with
    torch's modules. An optimizer of torch.optim that would step it raises RuntimeError. With ``update="backward"``
    there is no gradient, and code that asks for one is warned once that it does not train the rows. A member of a
    group sees its own part of the gradient.
One optimizer for the whole model
    ``CombinedOptimizer(torch.optim.Adam(model.parameters(), lr=1e-3), model)`` steps the parameters of this process
    and the rows. So schedulers, GradScaler and zero_grad() reach the whole model.
Learning rates, schedulers, steps
    ``lr`` is an attribute. ``optimizer`` is a torch.optim.Optimizer of the module's rows alone. Its learning rate is
    ``lr``, and its step() and zero_grad() are the module's. With ``update="backward"`` step() has nothing to do, but
    schedulers expect the call. ``steps`` counts the steps, which Adam needs. A module begins with the step of its
    tables, and state_dict() has the number.
GradScaler
    ``update="step"``: scaler.step() takes a CombinedOptimizer, or ``optimizer``, like any other. Gradients are on the
    device of the outputs; torch before 2.3 does not unscale gradients on the CPU.
    ``update="backward"``: gradients are applied before a scaler could see them. Assign
    ``module.grad_scale = scaler.get_scale``: gradients are divided on arrival by this number, or by the function's
    result. Without it the scaler's unscale_() raises RuntimeError.
Gradients with NaN or infinity
    The server refuses a push with such gradients, or one that would make a finite row NaN or infinite
    (NonfiniteError). It changes no row and is not a step: ``skipped_pushes`` counts it, with a warning the first
    time. Gradients of sample weights that would come with the push are NaN. Tables made with ``allow_nonfinite`` accept
    such gradients.
Several forward passes before a backward pass
    Each pass has its own ticket, and each push changes the rows as they are at that time. The module does not copy rows, so no
    updates are lost.
The same table in several bags of a collection
    Its rows are updated once, by the sum of the gradients.
Backward twice through one graph (``retain_graph=True``)
    With ``update="step"`` gradients add up twice, as in torch. With ``update="backward"`` the first pass uses up the
    ticket, and the second raises RuntimeError. Gradients of gradients raise RuntimeError.
Graphs without a backward pass
    Once the graph is gone, its ticket is given back with the next request. The server keeps tickets for a limited time;
    a backward pass after that raises TicketExpiredError.
no_grad(), inference_mode(), requires_grad_(False) on the module or its parent
    Lookups take no ticket, and nothing is written. eval() has no effect, as in torch.
Weights of samples (per_sample_weights)
    "sum" as in torch, and "mean": the weighted sum divided by the number of ids. Their gradients come with the push.
    If there is no push (the module is frozen, ``update="step"``, torch.autograd.grad() for the weights alone), one
    GET reads the rows as they are at that time.
Rows that are read ahead
    :class:`Prefetcher` iterates over a data loader, and lets the server bring the rows of the next batches into DRAM.
Groups of trainers
    In data-parallel training, each process trains a copy of the model with a part of every batch. Each module of the
    model then needs a group: ``group=server.join("model.items", size=world, member=rank)``. A push is then the
    member's part of a step. It returns when the pushes of all members have arrived. Gradients are averaged over all
    members, in their order, and each row is changed once. In the same way torch.nn.parallel.DistributedDataParallel
    averages the gradients of the rest of the model. So the loss stays the mean over the member's part of the batch.
    ``reduce="sum"`` adds gradients up instead.

    * ``steps`` is the group's. Resumed training joins with the saved step as ``step=``; load_state_dict() raises
      ValueError if the group is at another step.
    * Every member pushes every step: each backward pass through the module with ``update="backward"``, each
      step() with ``update="step"``. A member without ids or gradients takes part with an empty push. A backward pass
      that does not reach the module pushes nothing, and the others wait for it (``lanes.group_seconds`` of the
      server's configuration). Members with more batches wait for those with fewer in the same way. To add up the
      gradients of several backward or forward passes in one step, use ``update="step"``. With
      ``update="backward"`` each pass is a step, which works only if all members make the same number of passes.
    * Each module has a group of its own (ValueError), with the same settings and learning rates on all
      members (MismatchError). Several modules on one connection push in the order of the backward pass, which is the
      same for the same model. If control flow depends on the data, the order may differ, and members wait for each
      other until the time limit.
    * If one member's gradients have NaN or infinity, all members skip the step, count it in ``skipped_pushes`` and
      continue with their next batches. With ``update="step"`` a GradScaler's step(module.optimizer) then also calls
      step(), which informs the others. The members' scales may differ afterwards, which is harmless. Tables made with
      ``allow_nonfinite`` accept such gradients, with a scaler too. Other refusals raise GroupRefusedError on the
      others.
    * GroupBrokenError, TimeoutError: a member is gone, and nothing was applied. All must join again, with
      ``step=module.steps``, and assign ``module.group``. A member that wants to start afresh calls
      ``module.group.leave()``.
    * Prefetches are released after the push, by a separate request.
state_dict()
    It has the description of the tables and the number of steps, but not the rows, which are in the server.
    ``load_state_dict()`` raises ValueError unless the module's tables have the saved uuids. It warns if their rows are
    of another step than the saved one.
torch.compile
    A pass of a module is one operator of the compiled graph, also with ``fullgraph=True`` (torch 2.4 and newer; in
    older versions the graph breaks there). torch.jit, torch.export and torch.func raise RuntimeError.
copy.deepcopy(), pickle
    TypeError, because two modules would update one table. Make another module with the same tables.
to(device), half(), double()
    Bags arrive on the CPU and are moved to the device of the ids. Results are float32 for tables of every dtype. A
    CUDA graph cannot contain a pass of a module (RuntimeError); torch.compile leaves the pass out of its CUDA graphs,
    also with mode="reduce-overhead".
Ids
    int32 or int64 tensors; nested ones of the layout torch.jagged, [bags, lengths], have no offsets (torch 2.4 and
    newer). A negative id is a ValueError, an id past the table's rows an IdRangeError.
    Unbounded tables have ids up to 2**64 - 1, for which torch has no dtype (signed ones reach 2**63 - 1):
    ``unsigned_ids=True`` takes ids as the bits of unsigned numbers, -1 as 2**64 - 1.

Threads: the tables' connection serves one thread at a time. A backward pass may run on torch's threads, one for each
device, while its caller waits; these threads take turns. With groups and outputs on several devices use
``update="step"``. Otherwise the order of turns may differ between members, which then wait for each other. Graphs may
be freed on any thread.
"""

from ._bags import MODES, Bag, Input
from ._combined import CombinedOptimizer
from ._embeddings import Embedding, EmbeddingBag
from ._modules import UPDATES, EmbeddingBagCollection, rows
from ._optimizer import Optimizer
from ._prefetcher import Prefetcher
from ._replace import Replaced, replace
from ._rows import Rows

__all__ = [
    "MODES", "UPDATES", "Bag", "CombinedOptimizer", "Embedding", "EmbeddingBag", "EmbeddingBagCollection", "Input", "Optimizer",
    "Prefetcher", "Replaced", "Rows", "replace", "rows",
]  # fmt: skip
