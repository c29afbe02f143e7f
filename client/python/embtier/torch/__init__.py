# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for torch.nn.EmbeddingBag whose rows live in embtierd, which pools and trains them.

    users = server.create_table("users", dim=64, optimizer="adagrad", init=("normal", 0, 0.1))
    bag = embtier.torch.EmbeddingBag(users, mode="mean", lr=0.1)
    loss(bag(input, offsets)).backward()     # a pooled lookup in forward, a push of gradients in backward

A model with several tables uses :class:`EmbeddingBagCollection`, which makes one request per forward
and one per backward for all of them.

How rows are updated
    By the table's optimizer, in the server, once for each distinct row; what is chosen here is ``lr``
    and when:

    ``update="backward"`` (the default)
        Each backward pass is a step: one push of the gradients of the bags, by the ticket of the
        forward pass. Features whose output got no gradient stay as they are.
    ``update="step"``
        Gradients of any number of backward passes add up until :meth:`step` applies them, once, or zero_grad() forgets
        them, be it the module's, its parent's or an optimizer's. step() uses them up. They are gradients of rows, added
        up here: more work, and no mode "max" (ValueError). This is the way of torch: what is between backward() and
        step(), such as clip_grad_norm_ and a GradScaler, finds them in the module's parameters.

    A table with optimizer "none" is a ValueError, unless the module is made with ``frozen=True``; so is
    one with mode "max" in one bag and another mode in another.
parameters()
    One :class:`Rows` for each table, ``module.rows``: it stands for the table's rows, has no weight, and freezes the table
    with ``requires_grad_(False)``. Its ``grad`` are the gradients gathered with ``update="step"``, float32 [distinct rows,
    dim]: clip_grad_norm_(model.parameters()) has the same norm as with torch's modules. An optimizer of torch.optim that
    would step it raises RuntimeError; with ``update="backward"`` there is no gradient, and code that asks for one is warned
    once that it does not train the rows. ``ids`` says which rows a gradient is of. A member of a group sees its part of it.
One optimizer for the whole model
    ``CombinedOptimizer(torch.optim.Adam(model.parameters(), lr=1e-3), model)`` steps both what is here and the rows: schedulers,
    GradScaler and zero_grad() reach the whole model.
Learning rates, schedulers, steps
    ``lr`` is an attribute. ``optimizer`` is a torch.optim.Optimizer of the module's rows alone, whose learning rate is ``lr``
    and whose step() and zero_grad() are the module's. With ``update="backward"`` there is nothing left for step() to do, but
    schedulers want to see it called. ``steps`` counts the steps made, as Adam must know: a module begins with that of its tables; state_dict() has it.
GradScaler
    ``update="step"``: scaler.step() takes a CombinedOptimizer, or ``optimizer``, as any other. Gradients
    are where the outputs are: torch before 2.3 unscales nothing in the memory of the processor.
    ``update="backward"``: gradients are applied before a scaler could see them. Assign
    ``module.grad_scale = scaler.get_scale``: a number, or a function that returns one, by which gradients are divided as they
    arrive. Without it the scaler's unscale_() raises RuntimeError.
Gradients with NaN or infinity
    A push that the server refuses for them, or since it would make a finite row NaN or infinite
    (NonfiniteError), changes no row and is no step: it is
    counted in ``skipped_pushes``, with a warning the first time. Gradients of weights of samples that
    were to come with it are NaN. Tables made with ``allow_nonfinite`` take such gradients.
Several forward passes before a backward pass
    Each has its ticket, and each push is made to the rows as they are then. Rows are not copied here,
    so nobody's updates are lost.
The same table in several bags of a collection
    Its rows are updated once, by the sum of the gradients.
Backward twice through one graph (``retain_graph=True``)
    With ``update="step"`` adds up twice, as in torch. With ``update="backward"`` RuntimeError: the
    ticket is used up by the first. Gradients of gradients raise RuntimeError.
Graphs that no backward pass goes through
    Their tickets are given back with the next request, once the graph is gone. The server keeps
    tickets for a limited time: a backward pass that comes later raises TicketExpiredError.
no_grad(), inference_mode(), requires_grad_(False) on the module or its parent
    Lookups without a ticket; nothing is ever written. eval() changes nothing, as in torch.
Weights of samples (per_sample_weights)
    With "sum" as in torch, and with "mean": the weighted sum divided by the number of ids. Their
    gradients come with the push. Where there is none (the module is frozen, ``update="step"``,
    torch.autograd.grad() for the weights alone) one GET brings the rows, as they are at the time.
Rows that are read ahead
    :class:`Prefetcher` goes over a data loader and has the server bring the rows of its next batches into
    DRAM.
Groups of trainers
    Processes that each train a copy of the model with a part of every batch, data parallel, give each of
    its modules a group: ``group=server.join("model.items", size=world, member=rank)``. A push is then the
    member's part of a step: it returns when those of all have come, gradients are averaged over all, in the
    order of the members, and each row is changed once. torch.nn.parallel.DistributedDataParallel averages the
    gradients of the rest of the model in the same way, so the loss stays the mean over the member's part
    of the batch. ``reduce="sum"`` adds gradients up instead.

    * ``steps`` is the group's. A training that goes on joins with ``step=`` what was saved; load_state_dict()
      raises ValueError if the group is at another step.
    * Every member pushes every step: each backward pass through the module with ``update="backward"``, each
      step() with ``update="step"``. A member without ids, or without gradients, takes part with a push
      of nothing, but a backward pass that does not come to the module at all pushes nothing, and
      the others wait for it (``lanes.group_seconds`` of the server's configuration), as they do for one that
      has more batches than they have. To add up the gradients of several backward passes in one step,
      or of several forward passes, use ``update="step"``; with ``update="backward"`` each pass is a step,
      which is fine only if all members make the same number of them.
    * Each module has a group of its own (ValueError), with the same settings and learning rates on all
      members (MismatchError). Several on one connection push in the order of the backward pass, which is the
      same for the same model; if control flow depends on the data it may differ, and then members wait for
      each other until the time is over.
    * NaN or infinity in one member's gradients keep the step from all: all skip it, count it in
      ``skipped_pushes`` and go on with their next batches. A GradScaler's step(module.optimizer) with
      ``update="step"`` calls step() then too, to let the others know; the members' scales may
      differ after it, which does no harm. Tables made with ``allow_nonfinite`` take such gradients, with
      a scaler too. Other refusals raise GroupRefusedError on the others.
    * GroupBrokenError, TimeoutError: a member has gone, nothing was applied. All join anew, with
      ``step=module.steps``, and assign ``module.group``. A member that wants to begin anew calls ``module.group.leave()``.
    * Prefetches are released after the push, by a request of their own.
state_dict()
    Holds what the tables are and the number of steps, not the rows: these are the server's.
    load_state_dict() raises ValueError unless the module's tables are those that were saved, by their uuid, and warns if their
    rows are of another step than then.
torch.compile
    Has a pass of a module as one operator of its graph, also with ``fullgraph=True`` (torch 2.4 and newer; before, the graph
    breaks there). torch.jit, torch.export and torch.func raise RuntimeError.
copy.deepcopy(), pickle
    TypeError: two modules would update one table. Make another module of the same tables.
to(device), half(), double()
    Bags are fetched to the processor and moved to the device of the ids; results are float32 for
    tables of every dtype. A CUDA graph cannot have a pass of a module in it (RuntimeError); torch.compile, with
    mode="reduce-overhead" too, leaves it out of its graphs.
Ids
    int32 or int64 tensors; nested ones of the layout torch.jagged, [bags, lengths], have no offsets (torch 2.4 and newer). A
    negative id is a ValueError, one past the table's rows IdRangeError.
    Unbounded tables have ids up to 2**64 - 1, which torch has no dtype for (signed ones reach
    2**63 - 1): ``unsigned_ids=True`` takes ids as the bits of unsigned numbers, -1 as 2**64 - 1.

Threads: of the tables' connection, one at a time; a backward pass may run on threads of torch's, one for each device, while
its caller waits: these take turns. With groups and outputs on several devices use ``update="step"``: the order of the turns is
another on each member, which may then wait for each other. Graphs may be freed on any thread.
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
