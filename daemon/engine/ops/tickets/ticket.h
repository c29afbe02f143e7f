/* SPDX-License-Identifier: Apache-2.0 */
/* ticket.h: what a pooled lookup leaves behind for the push that comes after it: which rows are in
 * which bags, cast for the backward pass while the trainer computes (Kwon et al., "Tensor Casting",
 * section IV: casting needs no gradient, so it is hidden behind the forward pass).
 *
 * Segments of one table are a group: their rows get one gradient each, whatever segments they are
 * in. The home lane writes pairs down as it takes the lookup's ids; when the last pair of a group
 * is there a caster (caster.h) sorts it, or if they are few the lane itself. A push without a
 * ticket makes one of its own, with a bag for each id.
 *
 *   struct ticket | segments[] | order[] | groups[] | lanes[] | of each group: pairs[] |
 * bag_places[] | starts[] | scales[] | offsets[] | winners[] | pinned[] | scratch[]
 *
 * A prefetch leaves a ticket behind, too: which rows are pinned until it is released, or the push
 * is done that names it. Pins are taken and given back by the rows' lanes.
 *
 * All of it is one block of the tickets' memory (ticket_memory.h), which is known before the lookup
 * begins. Who is not used within the time limit (lanes.ticket_seconds) is freed. Thread: the
 * session's home lane; a group is its caster's while it is being cast, and may be read by all lanes
 * in a push. */
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
    TICKET_OF_BAGS, /* or of a push's rows */
    TICKET_OF_PREFETCH,
    TICKET_OF_STEP, /* of a group's (group.h): its pairs are runs of members' tickets, one for each
                       run and member; its segments are the members' groups, in member order */
};

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
    uint32_t first_position; /* in the group, of its first id … */
    uint32_t first_bag;      /* … and bag */
    bool has_nonfinite;      /* one of the samples' weights is NaN or infinite */
    float greatest_weight;   /* of the finite ones, in magnitude; 1: of samples without */
};

struct ticket_group {
    struct message message; /* MESSAGE_CAST, from a caster */
    struct ticket *ticket;
    uint64_t table; /* handle */
    uint32_t dim;
    uint32_t id_count;
    uint32_t bag_count;
    uint32_t segment_count;
    uint32_t segments_left;  /* not taken yet */
    const uint32_t *order;   /* its segments, segment_count */
    struct cast_pair *pairs; /* id_count; sorted by row once cast. Of a step: its bag is the
                                member's run, its position the segment */
    uint32_t *starts;        /* run_count + 1 (kernels/cpu/cast/cast.h), once cast */
    uint32_t run_count;
    float *scales;     /* by position, with a mean's divisor once cast; NULL: all are 1 */
    uint32_t *offsets; /* bag_count + 1: position of each bag's first row */
    uint32_t *winners; /* of a maximum: bag_count x dim (kernels/cpu/pool/pool.h); else NULL */
    const float **bag_places;  /* for a push, bag_count; NULL: there is one segment */
    uint8_t *pinned;           /* of a prefetch, by run: is it; written by the rows' lanes */
    struct cast_pair *scratch; /* of a step, which may have more pairs than a caster has */
};

/* A lane's work at the end of a prefetch: it unpins its rows. */
struct ticket_lane {
    struct message message; /* MESSAGE_UNPIN, to the lane; MESSAGE_UNPINNED, back */
    struct ticket *ticket;
    struct ticket_lane *next;
    uint32_t group; /* cursor */
    uint32_t run;
};

struct ticket {
    uint64_t number; /* session id << 32 | a number that rises; 0: of a push of rows */
    struct session *session;
    struct mailbox *home; /* the home lane's */
    struct ticket *older; /* of the home lane's that wait for their push */
    struct ticket *newer;
    uint64_t issued_ns;
    uint32_t segment_count;
    uint32_t group_count;
    uint32_t segments_taken;
    uint32_t casts_left;    /* groups that are with a caster */
    uint32_t lanes_left;    /* that are unpinning rows */
    bool is_issued;         /* in the session's slot, and in the lane's list unless it is … */
    bool is_lent;           /* … with a push */
    bool has_pins;          /* of a prefetch: its lanes may have pinned rows of it */
    bool is_ended;          /* freed as soon as no caster and no lane has any of it */
    bool answers;           /* a prefetch that was refused, when it has no pins any more … */
    uint32_t request;       /* … its request … */
    struct refusal refusal; /* … with this */
    uint64_t pinned_bytes;  /* of a prefetch: of its rows, counted in the user's account */
    struct ticket_segment *segments;
    struct ticket_group *groups;
    struct ticket_lane *lanes;     /* of a prefetch, one for each lane; else NULL */
    struct ticket_source *sources; /* of a step, by segment; else NULL */
};

static inline bool ticket_is_prefetch(const struct ticket *ticket)
{
    return ticket->lanes != NULL;
}

/* What a ticket is made of: one part of a lookup, or of a push of rows. */
struct ticket_part {
    struct table *table;
    enum embtier_pool mode;
    uint32_t id_count;
    uint32_t bag_count;
    bool is_weighted;
    struct ticket_source source; /* of a step */
};

/* Makes a ticket of @count parts, part s being @part_of(@context, s). TICKETS_FULL (no waiting:
 * what would make room may stand behind this request), UNSUPPORTED: parts of one table are maxima
 * and sums. */
MUST_CHECK enum embtier_err
ticket_new(const struct request_rules *rules, struct session *session, enum ticket_kind kind,
           uint32_t count, struct ticket_part (*part_of)(const void *context, uint32_t s),
           const void *context, struct ticket **ret_ticket, struct refusal *ret_refusal);
/* Counts the rows of a prefetch in its user's account, @bytes of them, until they are unpinned.
 * PINS_FULL: the user would have more than its part. */
MUST_CHECK enum embtier_err ticket_pin(const struct request_rules *rules, struct ticket *ticket,
                                       uint64_t bytes, struct refusal *ret_refusal);
void ticket_unpinned(const struct request_rules *rules, struct ticket *ticket);

/* Not while a caster has any of it. */
void ticket_free(const struct request_rules *rules, struct ticket *ticket);

static inline struct ticket_group *ticket_group_of(struct ticket *ticket, uint32_t segment)
{
    return &ticket->groups[ticket->segments[segment].group];
}
/* The segment of its group that @bag lies in. */
uint32_t ticket_segment_of(const struct ticket_group *group, uint32_t bag);

/* Bags of a segment: @bag_count of them from @bag on; bag b has the ids from @offsets[b] up to
 * @offsets[b + 1]. */
struct ticket_bags {
    uint32_t segment;
    uint32_t bag;
    uint32_t bag_count;
    uint32_t begun; /* ids of the first bag that were written down before */
    const uint32_t *offsets;
    uint32_t first_id; /* the first one's place in the segment */
    const uint64_t *ids;
    uint32_t id_stride;   /* from one to the next, in words */
    const float *weights; /* by id, or NULL */
};
void ticket_note(struct ticket *ticket, const struct ticket_bags *bags);

/* Sorts a group and finds its runs: the caster's work, or if it is small its lane's. @scratch:
 * id_count pairs. */
void ticket_cast(struct ticket_group *group, struct cast_pair *scratch);

/* Puts the ticket where the session's pushes find it. TICKETS_FULL: it has TICKETS_MAX. */
MUST_CHECK enum embtier_err ticket_issue(struct ticket *ticket, uint64_t now_ns);
/* Takes it from there. */
void ticket_take(struct ticket *ticket);
/* The session's ticket of that @number; NO_TICKET, TICKET_USED (by a push under way, too),
 * TICKET_EXPIRED. */
MUST_CHECK enum embtier_err ticket_find(const struct session *session, uint64_t number,
                                        struct ticket **ret_ticket);

#endif
