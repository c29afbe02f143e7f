/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_batch.h: batches, which hold ids and rows, or bags, in shared memory (embtier.h). */
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

/* Makes a batch, with room for ids and rows from the shared arena. ARENA_FULL: there is no room;
 * the message has the bytes needed and free. TOO_LARGE: the ids are more than the server accepts in
 * one request. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_new(struct embtier *server, const struct embtier_part *parts, uint32_t part_count,
                  struct embtier_batch **ret_batch);
/* As embtier_batch_new(), with whole rows: GET fills weights and state, SET stores both. A row has
 * the layout of the server: weight_bytes of weights, then state_bytes of state, which are f32
 * numbers for every dtype. See embtier_batch_state(). */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_new_with_state(struct embtier *server, const struct embtier_part *parts,
                             uint32_t part_count, struct embtier_batch **ret_batch);
/* Frees the batch and its room in the arena. BUSY while the request is in flight; call
 * embtier_wait() first. NULL is allowed. */
EMBTIER_PUBLIC enum embtier_err embtier_batch_free(struct embtier_batch *batch);
/* Changes the number of ids of a part, up to the number it was made with. BUSY while in flight. */
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
/* Changes the numbers of ids and bags of a part, up to those it was made with. BUSY while in
 * flight. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_set_bags(struct embtier_batch *batch, uint32_t part, uint32_t count,
                       uint32_t bag_count);
/* Return shared memory, as for ids and rows, or NULL in a batch that has none. Offsets are
 * bag_count + 1 numbers: bag b has the ids from offsets[b] up to, but not including, offsets[b+1].
 * The first is 0 and the last is the number of ids. */
EMBTIER_PUBLIC uint32_t *embtier_batch_offsets(struct embtier_batch *batch, uint32_t part);
EMBTIER_PUBLIC float *embtier_batch_weights(struct embtier_batch *batch, uint32_t part);
/* Returns bag_count x dim numbers, f32 for every dtype of the table. A lookup writes its result
 * here. If it gave a ticket, the caller then writes gradients in their place for embtier_push(). */
EMBTIER_PUBLIC float *embtier_batch_bags(struct embtier_batch *batch, uint32_t part);
EMBTIER_PUBLIC uint32_t embtier_batch_bag_count(const struct embtier_batch *batch, uint32_t part);

/* Returns the last lookup's ticket, or 0 if it asked for none or the batch no longer has it. Under
 * a ticket the server keeps the ids, offsets and weights that were looked up, so the batch's own
 * may change. A push or a release takes the ticket when it is submitted. If it is refused, the
 * batch gets the ticket back. While the batch has a ticket, other lookups and
 * embtier_batch_set_bags() are INVALID. A lookup in flight has no ticket before embtier_poll() or
 * embtier_wait() has its result.
 *
 * A ticket expires after a limited time, also if its batch has been freed by then. Tickets end with
 * their connection at the latest.
 *
 * For a batch made by embtier_batch_new_prefetch() this is the prefetch's number, and all of the
 * above applies to it. */
EMBTIER_PUBLIC uint64_t embtier_batch_ticket(const struct embtier_batch *batch);

/* Returns the step of the batch's last request, or 0. The request must be an applied push whose
 * result embtier_poll() or embtier_wait() has seen. A caller that was interrupted between a push
 * and its own note of the push can ask here. */
EMBTIER_PUBLIC uint64_t embtier_batch_pushed_step(const struct embtier_batch *batch);
/* @skipped nonzero: in the push by the batch's ticket, the part's gradients count as zeros, and the
 * memory is not read. A table does not change if all its parts are skipped. Valid until the next
 * lookup. INVALID without a ticket. */
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
/* Returns shared memory, aligned to 64 bytes; f32 for every dtype of the table. A batch made for a
 * push by rows has count x dim numbers. A batch of bags has bag_count x dim numbers, in the memory
 * of the bags. NULL for other batches. */
EMBTIER_PUBLIC float *embtier_batch_gradients(struct embtier_batch *batch, uint32_t part);
/* For batches made by embtier_batch_new_push(): adds up the gradients of equal ids, in their order,
 * over all parts of a table. Afterwards each id occurs once, in the part that had it first. Ids
 * ascend, and counts are lower. embtier_batch_set_count() may raise them again. The call is
 * optional: the server does the same to a push with repeated ids, with the same result to the byte.
 * With the call, the trainer does that work and sends less (the local half of local and global
 * gradient coalescing). NONFINITE then gives the place in the sums of a number that is not finite.
 * NO_MEMORY; BUSY in flight; INVALID for other batches. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_coalesce(struct embtier_batch *batch);

EMBTIER_PUBLIC uint32_t embtier_batch_part_count(const struct embtier_batch *batch);
EMBTIER_PUBLIC uint32_t embtier_batch_count(const struct embtier_batch *batch, uint32_t part);
/* Return shared memory: ids aligned to 8 bytes, rows to 64. The caller must not touch it between
 * submit and completion. */
EMBTIER_PUBLIC uint64_t *embtier_batch_ids(struct embtier_batch *batch, uint32_t part);
EMBTIER_PUBLIC void *embtier_batch_rows(struct embtier_batch *batch, uint32_t part);
/* Returns the distance in bytes from one row of a part to the next: weight_bytes, or with state
 * weight_bytes + state_bytes. 0 in a batch without rows. */
EMBTIER_PUBLIC uint32_t embtier_batch_row_bytes(const struct embtier_batch *batch, uint32_t part);
/* Returns the state of a part's first row. Each next row's state is embtier_batch_row_bytes()
 * further. The state has as many f32 numbers as the optimizer keeps; adam keeps all first moments,
 * then all second moments. The numbers are aligned to 4 bytes, or to 2 bytes in f16 and bf16 tables
 * of odd dim: use memcpy() there. NULL in a batch made without state, and for a table whose
 * optimizer has none. */
EMBTIER_PUBLIC void *embtier_batch_state(struct embtier_batch *batch, uint32_t part);
/* Returns how many rows of the last finished request were served from memory, without a read from
 * SSD. */
EMBTIER_PUBLIC uint64_t embtier_batch_hit_rows(const struct embtier_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
