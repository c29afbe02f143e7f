/* SPDX-License-Identifier: Apache-2.0 */
/* ticket.h: the record that a pooled lookup leaves for the push after it: which rows are in which
 * bags. It is cast for the backward pass while the trainer computes. Casting needs no gradient, so
 * it is hidden behind the forward pass (Kwon et al., "Tensor Casting", section IV).
 *
 * Segments of one table are a group: their rows get one gradient each, whatever segments they are
 * in. The home lane writes pairs down as it takes the lookup's ids. When the last pair of a group
 * is there, a caster (caster.h) sorts it; if they are few, the lane does so itself. A push without
 * a ticket makes one itself, with a bag for each id.
 *
 *   struct ticket | segments[] | order[] | groups[] | lanes[] | of each group: pairs[] |
 *   bag_places[] | starts[] | scales[] | offsets[] | winners[] | pinned[] | scratch[]
 *
 * A prefetch leaves a ticket behind, too. It says which rows are pinned until the ticket is
 * released, or until the push that names it is done. The rows' lanes take pins and give them back.
 *
 * A whole ticket is one block of the tickets' memory (ticket_memory.h), whose size is known before
 * the lookup begins. A ticket that is not used within the time limit (lanes.ticket_seconds) is
 * freed. Thread: the session's home lane. A group belongs to its caster while it is being cast, and
 * all lanes may read it in a push. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_TICKETS_TICKET_H
#define EMBTIER_DAEMON_ENGINE_OPS_TICKETS_TICKET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/embtier_types.h"
#include "daemon/engine/mail/inbox.h"
#include "daemon/engine/rows/request.h"
#include "kernels/cpu/cast/cast.h"

struct mailbox;
struct push;
struct ticket;

enum ticket_kind {
    TICKET_OF_BAGS, /* also of a push of rows */
    TICKET_OF_PREFETCH,
    TICKET_OF_STEP, /* of a group's step (group.h). Its pairs stand for runs of members' tickets:
                       struct member_run. Its segments are the members' groups, in member order */
};

/* In a step: one member's pairs of one row, which are a run of that member's ticket. */
struct member_run {
    uint32_t run;
    uint32_t segment; /* the member's, of the step's ticket */
};

/* cast_sort() and cast_runs() look at a pair's row only. So a step's pairs carry a member's run in
 * the place of a bag and a position, which only these two functions know. */
static inline struct cast_pair member_run_pair(uint64_t row, struct member_run run)
{
    return (struct cast_pair){ .row = row, .bag = run.run, .position = run.segment };
}
static inline struct member_run member_run_of(const struct cast_pair *pair)
{
    return (struct member_run){ .run = pair->bag, .segment = pair->position };
}

/* The runs that a segment of a step's ticket stands for. */
struct ticket_source {
    const struct push *push;
    const struct ticket_group *group; /* of the push's ticket */
};

struct ticket_segment {
    uint32_t group;
    enum embtier_pool mode;
    uint32_t id_count;
    uint32_t bag_count;
    uint32_t first_position; /* place in the group of its first id */
    uint32_t first_bag;      /* place in the group of its first bag */
    bool has_nonfinite;      /* one of the samples' weights is NaN or infinite */
    float greatest_weight; /* greatest finite weight, in magnitude; 1 for samples without weights */
};

/* A caster has cast the group. tickets.c */
extern const struct message_kind message_cast;

struct ticket_group {
    struct message message; /* message_cast, from a caster */
    struct ticket *ticket;
    uint64_t table; /* handle */
    uint32_t dim;
    uint32_t id_count;
    uint32_t bag_count;
    uint32_t segment_count;
    uint32_t segments_left;  /* not taken yet */
    const uint32_t *order;   /* its segments, segment_count */
    struct cast_pair *pairs; /* id_count; sorted by row once cast. For a step: member_run_of() */
    uint32_t *starts;        /* run_count + 1 (kernels/cpu/cast/cast.h), once cast */
    uint32_t run_count;
    float *scales;     /* by position, with a mean's divisor once cast; NULL: all are 1 */
    uint32_t *offsets; /* bag_count + 1: position of each bag's first row */
    uint32_t *winners; /* for a maximum: bag_count x dim (kernels/cpu/pool/pool.h); else NULL */
    const float **bag_places;  /* for a push, bag_count; NULL: there is one segment */
    uint8_t *pinned;           /* for a prefetch, by run: 1 if pinned; written by the rows' lanes */
    bool takes_pins;           /* for a prefetch: its rows are counted in the user's account */
    struct cast_pair *scratch; /* for a step, which may exceed a caster's scratch */
};

/* Unpin the rows that this lane has pinned. prefetch_rows.c */
extern const struct message_kind message_unpin;
/* The lane has done so. tickets.c */
extern const struct message_kind message_unpinned;

/* A lane's work at the end of a prefetch: it unpins its rows. */
struct ticket_lane {
    struct message message; /* message_unpin, to the lane; message_unpinned, back */
    struct ticket *ticket;
    struct ticket_lane *next;
    uint32_t group; /* cursor */
    uint32_t run;
};

struct ticket {
    enum ticket_kind kind;
    uint64_t number; /* session id << 32 | a rising number; 0: made by a push of rows */
    struct session *session;
    struct mailbox *home; /* the home lane's */
    struct ticket *older; /* in the home lane's list of waiting tickets */
    struct ticket *newer;
    uint64_t issued_ns;
    uint32_t segment_count;
    uint32_t group_count;
    uint32_t segments_taken;
    uint32_t casts_left;    /* groups that are with a caster */
    uint32_t lanes_left;    /* lanes that are unpinning rows */
    bool is_issued;         /* in the session's slot, and in the lane's list unless it is lent */
    bool is_lent;           /* a push has it */
    bool has_pins;          /* only of a prefetch: its lanes may have pinned some of its rows */
    bool is_ended;          /* freed as soon as no caster and no lane has any of it */
    bool answers;           /* when its pins are gone, it answers a refused prefetch */
    uint32_t request;       /* the number of that prefetch */
    struct refusal refusal; /* its answer */
    uint64_t pinned_bytes;  /* of a prefetch's rows, counted in the user's account */
    struct ticket_segment *segments;
    struct ticket_group *groups;
    struct ticket_lane *lanes;     /* for a prefetch, one for each lane; else NULL */
    struct ticket_source *sources; /* for a step, by segment; else NULL */
};

static inline bool ticket_is_prefetch(const struct ticket *ticket)
{
    return ticket->kind == TICKET_OF_PREFETCH;
}

/* One part of the lookup, or of the push of rows, that a ticket is made for. */
struct ticket_part {
    struct table *table;
    enum embtier_pool mode;
    uint32_t id_count;
    uint32_t bag_count;
    bool is_weighted;
    struct ticket_source source; /* for a step */
};

/* Makes a ticket of @count parts, part s being @part_of(@context, s). TICKETS_FULL: there is no
 * memory; BUSY: that is for the user's quota. It does not wait for any, since the request that
 * would make room may stand behind this one. UNSUPPORTED: parts of one table are maxima and sums.
 */
MUST_CHECK enum embtier_err
ticket_new(const struct request_rules *rules, struct session *session, enum ticket_kind kind,
           uint32_t count, struct ticket_part (*part_of)(const void *context, uint32_t s),
           const void *context, struct ticket **ret_ticket, struct refusal *ret_refusal);
/* Counts the rows of a prefetch, @bytes of them, in its user's account until they are unpinned.
 * PINS_FULL: the user would have more than its part; BUSY: than its quota. */
MUST_CHECK enum embtier_err ticket_pin(const struct request_rules *rules, struct ticket *ticket,
                                       uint64_t bytes, struct refusal *ret_refusal);
void ticket_unpinned(const struct request_rules *rules, struct ticket *ticket);

/* The caller makes sure that no caster has any of it. */
void ticket_free(const struct request_rules *rules, struct ticket *ticket);

static inline struct ticket_group *ticket_group_of(struct ticket *ticket, uint32_t segment)
{
    return &ticket->groups[ticket->segments[segment].group];
}
/* Returns the segment of the group that @bag lies in. */
uint32_t ticket_segment_of(const struct ticket_group *group, uint32_t bag);

/* Bags of a segment: @bag_count of them from @bag on. Bag b of these has the ids from @offsets[b]
 * up to @offsets[b + 1]. */
struct ticket_bags {
    uint32_t segment;
    uint32_t bag;
    uint32_t bag_count;
    uint32_t begun; /* ids of the first bag that were written down before */
    const uint32_t *offsets;
    uint32_t first_id; /* place of the first id in the segment */
    const uint64_t *ids;
    uint32_t id_stride;   /* distance between ids, in words */
    const float *weights; /* by id, or NULL */
};
void ticket_note(struct ticket *ticket, const struct ticket_bags *bags);

/* Sorts a group and finds its runs. A caster does this or, for a small group, its lane. @scratch:
 * id_count pairs. */
void ticket_cast(struct ticket_group *group, struct cast_pair *scratch);

/* Puts the ticket where the session's pushes find it. TICKETS_FULL: the session has TICKETS_MAX. */
MUST_CHECK enum embtier_err ticket_issue(struct ticket *ticket, uint64_t now_ns);
/* Takes the ticket from there. */
void ticket_take(struct ticket *ticket);
/* Finds the session's ticket with that @number. Errors: NO_TICKET, TICKET_USED (also by a push
 * under way), TICKET_EXPIRED. */
MUST_CHECK enum embtier_err ticket_find(const struct session *session, uint64_t number,
                                        struct ticket **ret_ticket);

#endif
