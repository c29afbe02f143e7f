/* SPDX-License-Identifier: Apache-2.0 */
/* push.h: a push under way: gradients on their way to their rows (Kwon et al., "Tensor Casting",
 * Algorithm 3).
 *
 * A push with a ticket has one gradient for each bag of a lookup; a push of rows has one for each
 * id. In both cases a ticket's casting says which gradients a row gets: its run. A push is checked
 * as a whole, numbers included, before any row changes. Then its rows are taken in waves of some
 * thousand, each a request for the rows of runs. The lane of a row adds up its gradients
 * (kernels/cpu/reduce/reduce.h) and lets the table's optimizer change it
 * (kernels/cpu/optimizer/optimizer.h). It does so where the row lies in the cache or, as for a SET,
 * when the row has been read.
 *
 *   PUSH_IDS     a push of rows: ids are copied and checked, and cast
 *   PUSH_NUMBERS gradients are searched for numbers that are not finite
 *   PUSH_CASTING until the casters are done, most often before the push comes
 *   PUSH_SETTLING in a group, until everything that the session sent before is done
 *   PUSH_ARRIVED in a group (group.h), until the others have come and the step is applied
 *   PUSH_TRYING  waves that change nothing, for tables whose rows may not stay finite
 *                (push_trial.h); mostly there are none
 *   PUSH_UPDATING waves; in a group, the leader's waves, which cover all members' runs
 *
 *   struct push | segments[] | groups[] | its first wave: struct push_wave | … as in request.h;
 *   in a group, no wave
 *
 * A prefetch (prefetch/prefetch.h) has the ids and waves of a push of rows, and changes nothing.
 *
 * Each row is changed once, by one lane, and no row depends on another. So neither lanes nor waves
 * show in the result. Thread: the home lane, except for the functions under "Any lane". */
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
/* Limit on the numbers of all gradients that one row gets. A row is changed in one piece, while its
 * lane serves no other session and a checkpoint may wait. Half a GiB of numbers takes some 20 to
 * 100 ms. */
#define PUSH_ROW_NUMBERS_MAX (UINT64_C(1) << 27)

struct group_member;

struct push_segment {
    struct table *table;
    const float *gradients;  /* in the client's arena; NULL: all are zero */
    float *weight_gradients; /* the same; NULL: the client does not want them */
    uint64_t ids_offset;     /* for a push of rows */
    uint32_t count;
    float greatest; /* greatest gradient found so far, in magnitude; not kept for tables that allow
                       NaN and infinity */
};

struct push_group {
    struct table *table;
    struct optimizer_push optimizer;
    double learning_rate;
    bool has_gradients; /* else its rows stay as they are */
    bool has_weight_gradients;
    bool is_tried; /* its rows are tried before they change (push_trial.h) */
};

/* A wave's share of a group. */
struct push_slice {
    uint32_t group;
    uint32_t first_run;
    uint32_t run_count;
};

struct push_wave {
    struct request request; /* segment i has the rows of slices[i] */
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

/* The stages that may follow one: the next, or one past stages that the push does not need. It goes
 * back when the group does not take a push that is ready. */
static inline bool push_stage_follows(enum push_stage from, enum push_stage to)
{
    switch (to) {
    case PUSH_IDS:
        return false;
    case PUSH_NUMBERS:
        return from == PUSH_IDS;
    case PUSH_CASTING:
        return from == PUSH_NUMBERS || from == PUSH_IDS;
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

/* The group's pushes have all arrived, and this one leads: to member 0's home lane. group_turns.c
 */
extern const struct message_kind message_lead;
/* The group is done with the push, which belongs to its session again. group_turns.c */
extern const struct message_kind message_step_done;

struct push {
    struct session *session;
    uint32_t number;
    uint32_t segment_count;
    const struct op *op;         /* of its waves: op_push, or op_prefetch */
    const struct row_op *row_op; /* of its waves, but those of a trial */
    struct push_segment *segments;
    struct push_group *groups; /* in the order of the ticket's */
    struct ticket *ticket;     /* lent to the push, or made of its ids */
    struct ticket *prefetch;   /* lent, and released when the push is done; or NULL */
    bool is_update;            /* its first wave has begun */
    enum update_kind kind;
    enum push_stage stage;

    struct group_member *member; /* the member whose part of a step it is, or NULL */
    struct message message;      /* message_lead, message_step_done */
    struct ticket *joint; /* only of the leader: the step's ticket, for the rows of all members */
    bool is_applied;      /* the step has been applied, or a part of it */
    bool is_answered;     /* the client has its answer, or its ticket will give it */
    bool has_tables;      /* the tables are entered; not while it waits for others */
    uint64_t block_bytes; /* of request memory */

    /* The cursor of the stage. */
    uint32_t segment;
    uint32_t id;      /* PUSH_IDS: in that segment */
    uint64_t checked; /* PUSH_NUMBERS: of that segment's numbers */
    uint32_t group;   /* PUSH_TRYING, PUSH_UPDATING */
    uint32_t run;     /* in that group */
    bool is_tried;    /* nothing is left to be tried */
    bool is_taken;    /* nothing is left to be taken, or will be */

    struct waves waves; /* none while in a group */
    uint32_t wave_rows; /* the size of its waves */
    uint32_t wave_slices;
    uint64_t hit_rows;
    struct refusal refusal; /* the first error */

    _Atomic uint64_t failed; /* in a trial: lowest failed group << 32 | run; set by lanes */
};

/* Begins a push for begin() of struct op; same contract. @member: the member whose part of a step
 * it is, or NULL. A push that is refused, here or for its numbers, leaves its ticket as it was. */
MUST_CHECK enum embtier_err push_begin(const struct request_rules *rules, struct session *session,
                                       uint32_t number, const struct op_submission *submission,
                                       struct group_member *member, struct push **ret_push,
                                       struct refusal *ret_refusal);
/* PUSH_IDS: takes ids for a cost of about *@cost (cost.h), and leaves in it the cost that it did
 * not need. AGAIN: some are left. */
MUST_CHECK enum embtier_err push_take_ids(struct push *push, uint64_t *cost,
                                          struct refusal *ret_refusal);
/* PUSH_NUMBERS: searches some gradients, with the same contract. */
MUST_CHECK enum embtier_err push_check_numbers(struct push *push, uint64_t *cost,
                                               struct refusal *ret_refusal);
/* Prepares the first wave when all is cast. Returns the cost. */
uint64_t push_prepare(struct push *push);
/* Checks the push's runs when they are known; of a leader, the step's. TOO_LARGE: a row gets more
 * than PUSH_ROW_NUMBERS_MAX. Adds the cost of the check to *@cost. */
MUST_CHECK enum embtier_err push_check_runs(const struct push *push, uint64_t *cost,
                                            struct refusal *ret_refusal);
/* Leaves its tables, so that they can be dropped while it waits for others. */
void push_leave_tables(struct push *push);
/* Called for the leader when all members' pushes have arrived. Enters all tables again, and makes
 * the step's ticket, which the caller has cast. MISMATCH: members give a table different learning
 * rates. Other errors: DROPPED, NO_TABLE, TICKETS_FULL, TOO_LARGE. */
MUST_CHECK enum embtier_err push_join(const struct request_rules *rules, struct push *leader,
                                      struct refusal *ret_refusal);
/* Returns LARGE if the push has more rows than a wave: a checkpoint may then cut it. A group's step
 * is a separate kind. */
enum update_kind push_kind(const struct push *push);
/* Notes its step in its tables, with its first wave. */
void push_note_steps(const struct push *push);
/* Returns a free wave, or NULL if there is none now. */
struct push_wave *push_free_wave(const struct request_rules *rules, struct push *push);
/* Takes the next runs into a wave: up to @most, at least one. Sets is_taken with the last run, or
 * is_tried in a trial; the wave may then have none. */
void push_take_wave(const struct request_rules *rules, struct push *push, struct push_wave *wave,
                    uint32_t most);
void push_end_wave(const struct request_rules *rules, struct push *push, struct push_wave *wave);
/* Answers the client, unless it is gone, with @ticket (0: none). Frees the push, but not its
 * ticket. */
void push_free(const struct request_rules *rules, struct push *push, uint64_t ticket);

static inline void push_set_stage(struct push *push, enum push_stage stage)
{
    assert(push_stage_follows(push->stage, stage));
    push->stage = stage;
}

/* The work on rows of a push's wave, or of its trial's (push_rows.c). */
extern const struct row_op row_op_push;
extern const struct row_op row_op_try;

/* Returns the push or prefetch that the session is taking, or NULL. */
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

/* push_group_of() returns the group that says how runs of @group are updated. push_runs() returns
 * the ticket whose runs the waves cover. */
const struct push_group *push_group_of(const struct push *push, uint32_t group);
static inline struct ticket *push_runs(const struct push *push)
{
    return push->joint ? push->joint : push->ticket;
}

/* ---- Any lane ---- */

/* Returns the pairs of @count neighbouring runs of @group, from @run on; @runs is its ticket. In a
 * step, counts the members' pairs. */
uint64_t push_run_pairs(const struct ticket *runs, const struct ticket_group *group, uint32_t run,
                        uint32_t count);
/* The same from the run of a wave's ref on. */
uint64_t push_pair_count(const struct request *request, uint32_t segment, uint32_t position,
                         uint32_t count);

/* The gradients of bags whose segment has none, while other segments of the table have some. */
extern const float push_zeros[EMBTIER_DIM_MAX];

/* Updates @count whole rows of the wave's slice @segment. @rows[i] is the row of @refs[i], or NULL
 * if it is not there. A wave of a trial leaves rows unchanged. @scratch: ROWS_GRADIENT_BYTES. */
void push_update(const struct request *request, uint32_t segment, const struct row_ref *refs,
                 void *const *rows, uint32_t count, float *scratch);

#endif
