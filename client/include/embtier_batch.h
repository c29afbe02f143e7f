/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_batch.h: batches: ids and rows, or bags, in shared memory (embtier.h). */
#ifndef EMBTIER_BATCH_H
#define EMBTIER_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "embtier_common.h"

#ifdef __cplusplus
extern "C" {
#endif

struct embtier_part {
    struct embtier_table *table;
    uint32_t count; /* ids */
};

/* Takes room for ids and rows from the shared arena. ARENA_FULL, with the bytes needed and free in
 * the message: there is no room. TOO_LARGE: the ids are more than the server accepts in one
 * request. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_new(struct embtier *server, const struct embtier_part *parts, uint32_t part_count,
                  struct embtier_batch **ret_batch);
/* The same with whole rows: GET fills weights and state, SET stores both. A row has the layout of
 * the server: weight_bytes of weights, then state_bytes of state, which are f32 numbers whatever
 * the table's dtype. See embtier_batch_state(). */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_new_with_state(struct embtier *server, const struct embtier_part *parts,
                             uint32_t part_count, struct embtier_batch **ret_batch);
/* BUSY while the request is in flight; embtier_wait() first. NULL is allowed. */
EMBTIER_PUBLIC enum embtier_err embtier_batch_free(struct embtier_batch *batch);
/* Changes the number of ids of a part, up to the number it was made with; not while in flight. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_set_count(struct embtier_batch *batch, uint32_t part, uint32_t count);

/* A batch of embedding bags. Each part is one table, some ids, and bags; each bag has a run of
 * these ids. The server answers with one vector per bag. */
struct embtier_bag_part {
    struct embtier_table *table;
    uint32_t count; /* ids */
    uint32_t bag_count;
    enum embtier_pool mode;
    int weighted; /* nonzero: each id has a weight; not with EMBTIER_POOL_MAX */
};

/* As embtier_batch_new(), for embtier_get_pooled(). */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_new_bags(struct embtier *server, const struct embtier_bag_part *parts,
                       uint32_t part_count, struct embtier_batch **ret_batch);
/* Changes the numbers of ids and bags of a part, up to those it was made with; not while in
 * flight. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_set_bags(struct embtier_batch *batch, uint32_t part, uint32_t count,
                       uint32_t bag_count);
/* Shared memory, as ids and rows are; NULL in a batch that has none. Offsets are bag_count + 1
 * numbers: bag b has the ids from offsets[b] up to, but not including, offsets[b + 1]. The first is
 * 0 and the last is the number of ids. */
EMBTIER_PUBLIC uint32_t *embtier_batch_offsets(struct embtier_batch *batch, uint32_t part);
EMBTIER_PUBLIC float *embtier_batch_weights(struct embtier_batch *batch, uint32_t part);
/* bag_count x dim numbers, f32 whatever the table's dtype. A lookup writes its result here. If it
 * gave a ticket, the caller then writes gradients in their place for embtier_push(). */
EMBTIER_PUBLIC float *embtier_batch_bags(struct embtier_batch *batch, uint32_t part);
EMBTIER_PUBLIC uint32_t embtier_batch_bag_count(const struct embtier_batch *batch, uint32_t part);

/* The ticket of the last lookup, if that asked for one and the batch still has it; else 0. Under a
 * ticket the server keeps the ids, offsets and weights that were looked up, so the batch's own may
 * change. A push or a release takes the ticket when it is submitted; if it is refused, the batch
 * has the ticket back. While the batch has a ticket, other lookups and embtier_batch_set_bags() are
 * INVALID. A lookup in flight has no ticket before embtier_poll() or embtier_wait() has its result.
 *
 * The server keeps a ticket for a limited time; then it expires, as does the ticket of a batch that
 * is freed. Tickets end with their connection at the latest.
 *
 * For a batch made by embtier_batch_new_prefetch() this is the number of its prefetch, and all of
 * this applies to that. */
EMBTIER_PUBLIC uint64_t embtier_batch_ticket(const struct embtier_batch *batch);

/* The step of the batch's last request, if that was an applied push whose result embtier_poll() or
 * embtier_wait() has seen; else 0. A caller that was interrupted between a push and its own note of
 * the push can ask here. */
EMBTIER_PUBLIC uint64_t embtier_batch_pushed_step(const struct embtier_batch *batch);
/* @skipped nonzero: in the push by the batch's ticket, the part's gradients count as zeros,
 * whatever the memory holds. A table of which all parts are skipped does not change. Valid until
 * the next lookup. INVALID without a ticket. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_set_skipped(struct embtier_batch *batch, uint32_t part, int skipped);

/* As embtier_batch_new(), for a push by rows: the batch has ids, repeated or not, and gradients in
 * place of rows. embtier_batch_set_count() changes their number. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_new_push(struct embtier *server, const struct embtier_part *parts,
                       uint32_t part_count, struct embtier_batch **ret_batch);
/* As embtier_batch_new(), for embtier_prefetch(): the batch has ids, repeated or not, and no rows.
 * embtier_batch_set_count() changes their number while there is no prefetch. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_new_prefetch(struct embtier *server, const struct embtier_part *parts,
                           uint32_t part_count, struct embtier_batch **ret_batch);
/* Shared memory, aligned to 64 bytes, f32 whatever the table's dtype. A batch made for a push by
 * rows has count x dim numbers. A batch of bags has bag_count x dim numbers, in the memory of the
 * bags. NULL for other batches. */
EMBTIER_PUBLIC float *embtier_batch_gradients(struct embtier_batch *batch, uint32_t part);
/* Adds up the gradients of equal ids, in their order, over all parts of a table; for batches made
 * by embtier_batch_new_push(). Afterwards each id occurs once, in the part that had it first, ids
 * ascend and counts are lower. embtier_batch_set_count() may raise them again. The call is
 * optional: the server does the same to a push with repeated ids, with the same result to the byte.
 * With the call, the trainer does that work and sends less (the local half of local and global
 * gradient coalescing). NONFINITE then gives the place in the sums of a number that is not finite.
 * NO_MEMORY; BUSY in flight; INVALID for other batches. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_coalesce(struct embtier_batch *batch);

EMBTIER_PUBLIC uint32_t embtier_batch_part_count(const struct embtier_batch *batch);
EMBTIER_PUBLIC uint32_t embtier_batch_count(const struct embtier_batch *batch, uint32_t part);
/* Shared memory; ids aligned to 8 bytes, rows to 64. The caller must not touch it between submit
 * and completion. */
EMBTIER_PUBLIC uint64_t *embtier_batch_ids(struct embtier_batch *batch, uint32_t part);
EMBTIER_PUBLIC void *embtier_batch_rows(struct embtier_batch *batch, uint32_t part);
/* Distance from one row of a part to the next: weight_bytes, or with state weight_bytes +
 * state_bytes. 0 in a batch without rows. */
EMBTIER_PUBLIC uint32_t embtier_batch_row_bytes(const struct embtier_batch *batch, uint32_t part);
/* The state of a part's first row; that of each next row is embtier_batch_row_bytes() further. It
 * has as many f32 numbers as the optimizer keeps; adam keeps all first moments, then all second
 * moments. They are aligned to 4 bytes, but in f16 and bf16 tables of odd dim to 2 bytes: use
 * memcpy() there. NULL in a batch made without state, and for a table whose optimizer has none. */
EMBTIER_PUBLIC void *embtier_batch_state(struct embtier_batch *batch, uint32_t part);
/* Rows of the last finished request that were served from the server's cache. */
EMBTIER_PUBLIC uint64_t embtier_batch_hit_rows(const struct embtier_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
