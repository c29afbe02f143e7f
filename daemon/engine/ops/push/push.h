/* SPDX-License-Identifier: Apache-2.0 */
/* push.h: gradients under way to the rows they are of (Kwon et al., "Tensor Casting", Algorithm 3).
 *
 * By ticket there is one gradient for each bag of a lookup, else one for each id. Either way it is
 * a ticket's casting that says which gradients a row gets: its run. What a push asks for is checked
 * as a whole, numbers included, before any row changes. Then its rows are taken in waves of some
 * thousand, each a request for the rows of runs: the lane of a row adds up its gradients (kernels/
 * reduce.h) and lets the table's optimizer change it (kernels/cpu/optimizer/optimizer.h), where it
 * lies in the cache, or when it has been read, as a SET would.
 *
 *   PUSH_IDS     a push of rows: ids are copied and checked, and cast
 *   PUSH_NUMBERS gradients are looked through for what is not finite
 *   PUSH_CASTING until the casters are done, most often before the push comes
 *   PUSH_SETTLING in a group, until all is done that the session sent before
 *   PUSH_ARRIVED in a group (group.h), until the others have come and the step is applied …
 *   PUSH_TRYING  waves that change nothing, of the tables whose rows may not stay finite
 *                (push_trial.h); mostly there are none
 *   PUSH_UPDATING waves; in a group, those of the leader, which are of all members' runs
 *
 *   struct push | segments[] | groups[] | its first wave: struct push_wave | … as in request.h;
 *   in a group, no wave
 *
 * A prefetch is a push that changes nothing: its rows are brought in and pinned, and the ticket
 * that it makes of its ids stays, to say which.
 *
 * Each row is changed once, by one lane, and no row depends on another: neither lanes nor waves
 * show in the result. Thread: the home lane, but for push_update(). */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_PUSH_PUSH_H
#define EMBTIER_DAEMON_ENGINE_OPS_PUSH_PUSH_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/engine/ops/op_table.h"
#include "daemon/engine/ops/tickets/ticket.h"
#include "daemon/engine/ops/waves.h"
#include "daemon/engine/rows/request.h"
#include "daemon/engine/rows/rows.h"
#include "kernels/cpu/optimizer/optimizer.h"

/* The most in one wave. */
#define PUSH_WAVE_ROWS   4096
#define PUSH_WAVE_SLICES 64
/* Of the gradients that one row gets, all together: a row is changed in one piece, while its lane
 * serves nobody else and a checkpoint may wait. Half a GiB of numbers takes some 20 to 100 ms. */
#define PUSH_ROW_NUMBERS_MAX (UINT64_C(1) << 27)

struct group_member;

struct push_segment {
    struct table *table;
    const float *gradients;  /* in the client's arena; NULL: all are zero */
    float *weight_gradients; /* the same; NULL: nobody wants them */
    uint64_t ids_offset;     /* of a push of rows */
    uint32_t count;
    float greatest; /* gradient, in magnitude, of those looked through; not of tables that allow NaN
                       and infinity */
};

struct push_group {
    struct table *table;
    struct optimizer_push optimizer;
    double learning_rate;
    bool has_gradients; /* else its rows stay as they are */
    bool has_weight_gradients;
    bool is_tried; /* its rows are, before they change (push_trial.h) */
};

/* A wave's share of a group. */
struct push_slice {
    uint32_t group;
    uint32_t first_run;
    uint32_t run_count;
};

struct push_wave {
    struct request request; /* of segment i are the rows of slices[i] */
    struct push *push;
    bool is_trial; /* its rows stay as they are (push_trial.h) */
    uint32_t slice_count;
    struct push_slice slices[PUSH_WAVE_SLICES];
};

enum push_stage {
    PUSH_IDS,
    PUSH_NUMBERS,
    PUSH_CASTING,
    PUSH_SETTLING,
    PUSH_ARRIVED,
    PUSH_TRYING,
    PUSH_UPDATING,
};

/* The stages that may follow one: to the next, or past those that it does not need; and back, when
 * the group does not take a push that is ready. */
static inline bool push_stage_follows(enum push_stage from, enum push_stage to)
{
    switch (to) {
    case PUSH_IDS:
        return false;
    case PUSH_NUMBERS:
        return from == PUSH_IDS;
    case PUSH_CASTING:
        return from == PUSH_NUMBERS;
    case PUSH_SETTLING:
        return from == PUSH_CASTING || from == PUSH_ARRIVED;
    case PUSH_ARRIVED:
        return from == PUSH_SETTLING;
    case PUSH_TRYING:
        return from == PUSH_CASTING || from == PUSH_ARRIVED;
    case PUSH_UPDATING:
        return from == PUSH_CASTING || from == PUSH_ARRIVED || from == PUSH_TRYING;
    }
    return false;
}

#define PUSH_NONE_FAILED UINT64_MAX

struct push {
    struct session *session;
    uint32_t number;
    uint32_t segment_count;
    struct push_segment *segments;
    struct push_group *groups; /* as the ticket's */
    struct ticket *ticket;     /* lent to the push; or its own, of a push of rows or a prefetch */
    struct ticket *prefetch;   /* lent, to be released when the push is done; or NULL */
    bool is_prefetch;
    bool is_update; /* its first wave has begun */
    enum update_kind kind;
    enum push_stage stage;

    struct group_member *member; /* whose part of a step it is; or NULL */
    struct message message;      /* MESSAGE_LEAD, MESSAGE_STEP_DONE */
    struct ticket *joint;        /* of the leader: the step's, with what all members change */
    bool is_applied;             /* the step, or a part of it */
    bool is_answered;            /* or will be, by its ticket */
    bool has_tables;             /* entered; not while it waits for others */
    uint64_t block_bytes;        /* of request memory */

    /* Where the stage stands. */
    uint32_t segment;
    uint32_t id;      /* PUSH_IDS: of that segment */
    uint64_t checked; /* PUSH_NUMBERS: of that segment's numbers */
    uint32_t group;   /* PUSH_TRYING, PUSH_UPDATING */
    uint32_t run;     /* of that group */
    bool is_tried;    /* nothing is left to be tried */
    bool is_taken;    /* nothing is left to be taken, or will be */

    struct waves waves; /* in a group it has none of its own */
    uint32_t wave_rows; /* how large they are */
    uint32_t wave_slices;
    uint64_t hit_rows;
    struct refusal refusal; /* the first error */

    _Atomic uint64_t
        failed; /* in a trial: the lowest group << 32 | run that did; written by lanes */
};

/* As begin() of struct op, which calls it. @member: whose part of a step it is, or NULL. A push
 * that is refused, here or for its numbers, leaves its ticket as it was. */
MUST_CHECK enum embtier_err push_begin(const struct request_rules *rules, struct session *session,
                                       uint32_t number, const struct shm_submission *submission,
                                       bool is_prefetch, struct group_member *member,
                                       struct push **ret_push, struct refusal *ret_refusal);
/* PUSH_IDS: takes ids for about *@cost (cost.h), of which it leaves what it did not need.
 * AGAIN: some are left. */
MUST_CHECK enum embtier_err push_take_ids(struct push *push, uint64_t *cost,
                                          struct refusal *ret_refusal);
/* PUSH_NUMBERS: looks through some of them, likewise. */
MUST_CHECK enum embtier_err push_check_numbers(struct push *push, uint64_t *cost,
                                               struct refusal *ret_refusal);
/* Counts the rows of a prefetch, each once, when all is cast. PINS_FULL: its user has too many. */
MUST_CHECK enum embtier_err push_pin(const struct request_rules *rules, struct push *push,
                                     struct refusal *ret_refusal);
/* Before the first wave, when all is cast. Returns what it cost. */
uint64_t push_prepare(struct push *push);
/* TOO_LARGE: a row gets more than PUSH_ROW_NUMBERS_MAX. Once its runs are known, or those of the
 * step that it leads. What it has cost to see that is added to *@cost. */
MUST_CHECK enum embtier_err push_check_runs(const struct push *push, uint64_t *cost,
                                            struct refusal *ret_refusal);
/* It is to wait for others, and tables may be dropped meanwhile. */
void push_leave_tables(struct push *push);
/* Of the leader, when all members' pushes have arrived: enters all tables again, and makes the
 * step's ticket, which is to be cast. MISMATCH: members give a table different learning rates.
 * DROPPED, NO_TABLE, TICKETS_FULL, TOO_LARGE. */
MUST_CHECK enum embtier_err push_join(const struct request_rules *rules, struct push *leader,
                                      struct refusal *ret_refusal);
/* Whether it has more rows than a wave: then a checkpoint may cut it. Not a group's step. */
enum update_kind push_kind(const struct push *push);
/* Its tables are at its step: with its first wave. */
void push_note_steps(const struct push *push);
/* A wave that is free, or NULL: there is none now. */
struct push_wave *push_free_wave(const struct request_rules *rules, struct push *push);
/* Takes the next runs into it, @most at most, one at least. Sets is_taken with the last, in a trial
 * is_tried; it may have none. */
void push_take_wave(const struct request_rules *rules, struct push *push, struct push_wave *wave,
                    uint32_t most);
void push_end_wave(const struct request_rules *rules, struct push *push, struct push_wave *wave);
/* Answers the client, unless it is gone, and frees the push, but not its ticket. */
void push_free(const struct request_rules *rules, struct push *push);

static inline void push_set_stage(struct push *push, enum push_stage stage)
{
    assert(push_stage_follows(push->stage, stage));
    push->stage = stage;
}

/* What is done to rows of a wave: of a push, of a push that is tried (push_rows.c), and of a
 * prefetch (prefetch_rows.c). */
extern const struct row_op row_op_push;
extern const struct row_op row_op_try;
extern const struct row_op row_op_pin;

/* The push, or prefetch, that the session is with, or NULL. */
static inline struct push *push_being_taken(const struct session *session)
{
    return session->taking.op == &op_push || session->taking.op == &op_prefetch
               ? session->taking.what
               : NULL;
}

static inline struct push_wave *push_wave_of(const struct request *request)
{
    return CONTAINER_OF(request, struct push_wave, request);
}

/* Whose runs the waves are of; and what a group of those is updated with. */
const struct push_group *push_group_of(const struct push *push, uint32_t group);
static inline struct ticket *push_runs(const struct push *push)
{
    return push->joint ? push->joint : push->ticket;
}

/* ---- Any lane ---- */

/* Pairs of @count neighbouring runs of @group, one of @runs; in a step those of the members. */
uint64_t push_run_pairs(const struct ticket *runs, const struct ticket_group *group, uint32_t run,
                        uint32_t count);
/* The row of a prefetch's ref is pinned. */
void push_note_pin(const struct request *request, uint32_t segment, uint32_t position);

/* The same from the run on that a ref of a wave is of. */
uint64_t push_pair_count(const struct request *request, uint32_t segment, uint32_t position,
                         uint32_t count);
/* Updates @count rows, whole, of the wave's slice @segment: @rows[i] is that of @refs[i], NULL if
 * it is not there. A wave of a trial leaves them as they are. @scratch: ROWS_GRADIENT_BYTES. */
void push_update(const struct request *request, uint32_t segment, const struct row_ref *refs,
                 void *const *rows, uint32_t count, float *scratch);

#endif
