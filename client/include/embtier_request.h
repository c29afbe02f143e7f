/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_request.h: requests, which look up, set, push and prefetch batches (embtier.h). */
#ifndef EMBTIER_REQUEST_H
#define EMBTIER_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#include "embtier_common.h"

#ifdef __cplusplus
extern "C" {
#endif

enum embtier_op {
    EMBTIER_GET = 1,        /* fills the rows */
    EMBTIER_SET = 2,        /* stores the rows; optimizer state stays, unless the batch has it */
    EMBTIER_GET_POOLED = 3, /* fills the bags; for batches made by embtier_batch_new_bags() */
    EMBTIER_PUSH = 4,       /* only through embtier_push() and embtier_submit_push() */
    EMBTIER_RELEASE = 5,    /* gives up the batch's ticket or prefetch */
    EMBTIER_GET_POOLED_TICKET = 6, /* like EMBTIER_GET_POOLED, with a ticket for a push */
    EMBTIER_PREFETCH =
        7, /* brings rows into DRAM; for batches made by embtier_batch_new_prefetch() */
};

/* Submit and wait; if no slot is free, they wait for one first. TIMEOUT: there was no answer for
 * the connection's request_timeout_ms. The request continues, as after embtier_wait(): the batch is
 * in flight, and its memory remains the server's, until embtier_poll() or embtier_wait() has
 * returned the result. BUSY: the slot did not become free in that time; nothing was submitted. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_get(struct embtier_batch *batch);
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_set(struct embtier_batch *batch);

/* Fills the bags. Sums are in the order of the ids, and every product and every addition is rounded
 * to f32 on its own. So the same bags of the same rows give the same bits. A mean is the sum
 * divided by the number of ids; a bag without ids is zeros. BAG_RANGE: offsets decrease, or do not
 * end at the number of ids. An id may occur any number of times. On failure the contents of the
 * bags are undefined. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_get_pooled(struct embtier_batch *batch);

/* As embtier_get_pooled(), and the batch has a ticket afterwards: see embtier_batch_ticket().
 * TICKETS_FULL: the server has no memory for it until other tickets have been used; BUSY: the
 * user's quota leaves none. UNSUPPORTED: some parts of one table are maxima and others are not. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_get_pooled_ticket(struct embtier_batch *batch);

struct embtier_push_options {
    size_t struct_bytes;          /* set by EMBTIER_PUSH_OPTIONS_INIT */
    double learning_rate;         /* finite, also in f32 */
    const double *learning_rates; /* one for each part, in place of learning_rate; the same for all
                                     parts of a table; or NULL */
    uint64_t step;                /* the training's step, 1 … 2^53 - 1; must be given */
    int weight_gradients;         /* nonzero: in a push by ticket, the gradients of the ids' weights
                                     overwrite embtier_batch_weights() of all parts that have weights */
    struct embtier_batch *prefetch; /* its prefetch is released when the push is done; or NULL */
    struct embtier_group *group;    /* the step's group; NULL: the push is a step by itself */
};
#define EMBTIER_PUSH_OPTIONS_INIT                                                                  \
    {                                                                                              \
        sizeof(struct embtier_push_options), 0, NULL, 0, 0, NULL, NULL                             \
    }

/* Sends the gradients in embtier_batch_gradients() to the optimizers of their tables. A batch of
 * bags is pushed by its ticket, and has one gradient for each bag that was looked up. The bag's
 * mode and weights turn that into one for each of its rows. A batch made by
 * embtier_batch_new_push() has one gradient for each id. Gradients of the same row within the batch
 * are added up, and the optimizer runs once for each distinct row of a table.
 *
 * INVALID: no ticket, or a step or learning rate not as above. UNSUPPORTED: a table without an
 * optimizer. NONFINITE, unless the table allows_nonfinite: a gradient has NaN or infinity, or the
 * update would make a finite row NaN or infinite. Gradients that add up to more than f32 holds are
 * refused too. No row has changed then. If requests of other connections change the same rows
 * meanwhile, a number that still overflows becomes the greatest number of its sign. Numbers that
 * the caller overwrites before the push is answered are not checked again. TOO_LARGE: a row gets
 * more than 2^27 numbers of gradients, over all its ids; no row has changed. In a group the
 * gradients of all members count, and all members get the error. Also SHAPE, NO_TICKET, TICKET_USED
 * and TICKET_EXPIRED; for a push by rows TICKETS_FULL; and the errors of SET. On failure the
 * contents of the weights are undefined.
 *
 * @prefetch: a batch of this connection that has a prefetch, else INVALID. BUSY if its last result
 * has not been asked for. The push takes the prefetch as it takes its ticket. A refused push
 * returns it to that batch. Until the push is done that batch is BUSY, also for
 * embtier_batch_free(). NO_TICKET, TICKET_USED and TICKET_EXPIRED may be about the prefetch. Then
 * the push has changed nothing, the batch has its ticket, and @prefetch no longer has a prefetch.
 *
 * @group: a group that has this connection as a member. The push is this member's part of @step,
 * which must be the group's last step + 1, else GROUP_STEP. The server answers when all members
 * have pushed that step. NONFINITE for all members: only the sum of their gradients makes a row
 * infinite or NaN. Batches keep their tickets, and all push that step again. A table's learning
 * rate must be the same for all members, else MISMATCH for all; tables may differ. A push that the
 * server refuses, for any reason, also counts as that member's part of the step. Nothing is then
 * applied, and the pushes of the others fail with GROUP_REFUSED (see
 * embtier_batch_blamed_member()). Batches keep their tickets, and all push that step again. A push
 * that this library refuses, because options are wrong or the batch is not ready, does not reach
 * the group. The others keep waiting. GROUP_BROKEN: a member is gone. TIMEOUT: a member has not
 * pushed in time (lanes.group_seconds of the server's configuration), which also breaks the group.
 * NO_GROUP: the membership ended with its session, before embtier_reconnect(); join again. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_push(struct embtier_batch *batch, const struct embtier_push_options *options);
/* Gives the batch's ticket or prefetch back when no push will follow. OK if the batch has none. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_release(struct embtier_batch *batch);

/* Brings the rows of the batch's ids into the server's first tier, DRAM, for lookups and pushes
 * that follow soon. The rows stay there until the prefetch expires, or embtier_release() or a push
 * that names it releases it. Other requests may change them meanwhile. After the call
 * embtier_batch_ticket() is the prefetch's number. While the batch has a prefetch,
 * embtier_prefetch() and embtier_batch_set_count() are INVALID; its ids may change.
 *
 * PINS_FULL: the rows do not fit with those of other prefetches. All clients together may use
 * half of the first tier, and one user three quarters of what other users leave of that. A row
 * counts in each prefetch that has it. TICKETS_FULL: the server has no memory for it until other
 * prefetches or tickets end. BUSY: a quota of the user leaves no room. Also ID_RANGE, DROPPED,
 * TOO_LARGE. The trainer can continue without the prefetch after any of these. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_prefetch(struct embtier_batch *batch);

/* Starts a request and returns. Slots are used in turn. BUSY: embtier_poll() or embtier_wait() has
 * not returned this batch's last result, or the request submitted max_in_flight requests ago is
 * still in flight. Later ones may be done. Over RPC, bytes that the system does not take at once
 * leave with the next embtier_poll() or embtier_wait() of the batch. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_submit(struct embtier_batch *batch,
                                                                  enum embtier_op op);
/* Starts a push, as embtier_submit() does. Options are copied. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_submit_push(struct embtier_batch *batch, const struct embtier_push_options *options);
/* Returns the request's result, or AGAIN while it is in flight; never waits. The result can be read
 * again until the next submit; INVALID before the first. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_poll(struct embtier_batch *batch);
/* Waits for the result, at most @timeout_ms (UINT32_MAX: for ever). Then it returns TIMEOUT, and
 * the request continues. If the server goes away, the wait ends with DISCONNECTED within a second.
 * TIMEOUT may also be the result of a group's push; embtier_poll() then returns TIMEOUT too, not
 * AGAIN. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_wait(struct embtier_batch *batch,
                                                                uint32_t timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
