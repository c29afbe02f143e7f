/* SPDX-License-Identifier: Apache-2.0 */
/* push_impl.h: how pushes and prefetches begin, and the turns of both. A prefetch
 * (prefetch/prefetch.h) goes through the ids and waves of a push. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_PUSH_PUSH_IMPL_H
#define EMBTIER_DAEMON_ENGINE_OPS_PUSH_PUSH_IMPL_H

#include "daemon/engine/ops/op.h"
#include "daemon/engine/ops/push/push.h"

/* A push or prefetch that is beginning. */
struct push_beginning {
    const struct request_rules *rules;
    struct session *session;
    uint32_t number;
    const struct op_submission *submission;
    const struct op *op;
    const struct row_op *row_op;
    struct group_member *member;
    struct ticket *ticket;                  /* the one that it is for, or that was made for it */
    struct ticket *prefetch;                /* for a push: the one that it releases, or NULL */
    const struct op_push_segment *segments; /* copies */
    uint32_t entered;                       /* segments whose tables are in rules->segment_tables */
    struct refusal *refusal;
};

/* Notes the table of a segment, for segment_copies_enter(). */
void push_note_table(struct push_beginning *b, uint32_t segment, struct table *table);
/* Returns segment @s of the struct push_beginning at @context as a part of the ticket of its ids,
 * for ticket_new(). */
struct ticket_part push_part_of(const void *context, uint32_t s);
/* Takes memory for a push and its first wave, once its tables are entered and its ticket is there.
 * The groups have their tables; the caller fills in the rest. The stage is PUSH_IDS. AGAIN: there
 * is no memory now. */
MUST_CHECK enum embtier_err push_new(const struct push_beginning *b, struct push **ret_push);

/* ---- Turns ---- */

/* PUSH_IDS: takes some ids for a cost of about *@left, leaves in it the cost that it did not need,
 * and has them cast. Goes on to stage @next with the last id. AGAIN: some are left. */
MUST_CHECK enum embtier_err push_ids_turn(struct op_lane *lane, struct push *push,
                                          enum push_stage next, uint64_t *left);
/* Takes the next runs into @wave, which is free, and sends it to the lanes. */
void push_start_wave(struct op_lane *lane, struct push *push, struct push_wave *wave);
/* As done() of struct op: ends a wave. */
void push_wave_done(struct op_lane *lane, struct request *request);

#endif
