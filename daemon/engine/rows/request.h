/* SPDX-License-Identifier: Apache-2.0 */
/* request.h: a request for rows under way, split by lane.
 *
 * The home lane takes a request out of its client's region: an operation's begin() (op.h) copies
 * and checks the submission and the segments, request_take() copies, checks and hashes the ids, and
 * deals them out by lane. Each word is copied once. Nothing is done before all of it has been found
 * good, so a refused request changed nothing. Ids are taken some at a time, since a million of them
 * are milliseconds of work, in which the lane would do nothing for others. Each lane with ids in it
 * then gets a part; the last part done completes the request, on whatever lane that is. All of a
 * request lies in one block of request memory, which the home lane frees.
 *
 *   struct request | segments[] | parts[] (one per lane) | starts[] (lane by segment) | refs[] */
#ifndef EMBTIER_DAEMON_ENGINE_ROWS_REQUEST_H
#define EMBTIER_DAEMON_ENGINE_ROWS_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/row_hash.h"
#include "daemon/engine/mail/inbox.h"
#include "daemon/engine/sessions/session.h"
#include "proto/shm_layout.h"
#include "tiers/cache/row_cache.h"

struct cast_pair;
struct mailbox;
struct op;
struct request;
struct request_memory;
struct row_op;
struct row_routes;
struct table;
struct tables;
struct ticket;
struct ticket_memory;

struct request_segment {
    struct table *table;
    uint8_t *rows; /* in the client's arena; its bytes are the client's, never looked at as anything
                      but rows. A push has none */
    uint64_t ids_offset;
    uint32_t id_count;
    uint32_t row_bytes; /* of a row in `rows`: of the weights, or of weights and state */
};

/* One lane's share. Owned by that lane from MESSAGE_PART until it is done; on lines of its own. */
struct part {
    _Alignas(CACHE_LINE) struct message message;
    struct part *next; /* in the session's queue on this lane */
    struct request *request;
    struct row_ref *refs;   /* sorted by segment, in the request's order within each */
    const uint32_t *starts; /* segment s has refs[starts[s]] … refs[starts[s + 1] - 1] */
    uint32_t segment;       /* cursor: refs before `next_ref` have been looked up */
    uint32_t next_ref;      /* while ids are dealt out: how many this lane has got */
    uint32_t waiting;       /* refs that wait for SSD */
    uint32_t
        retry_first; /* refs that found no room to wait in, chained by link: index + 1, 0 is none */
    uint32_t retry_last;
    uint32_t hit_rows;
    uint64_t log_mark; /* of the write queue: where rows of logged tables are that it changed; 0:
                          nowhere */
};

struct request {
    struct message message; /* MESSAGE_REQUEST_DONE */
    struct session *session;
    uint32_t number;
    const struct op *op;         /* whose it is; its wave_done() gets it back */
    const struct row_op *row_op; /* what is done to its rows */
    uint32_t segment_count;
    uint32_t lane_count;
    struct row_ref *ids;      /* as they are taken, in the request's order */
    uint64_t id_count;        /* of all segments */
    uint64_t taken_ids;       /* copied and checked so far */
    uint64_t dealt_ids;       /* several lanes: and then dealt out */
    uint32_t taking_segment;  /* of which the next id is */
    uint32_t taking_position; /* in it */
    bool is_wave;             /* its operation answers the client, not the last part */
    bool is_cold;             /* its rows are in no core's cache, as far as one can tell; no wave */
    _Atomic uint32_t parts_left;
    _Atomic uint64_t hit_rows;
    _Atomic uint32_t err; /* the first that happened wins */
    uint32_t err_segment;
    uint64_t err_value;
    struct request_segment *segments;
    struct part *parts; /* lane_count; those without refs are not sent */
};

/* What splitting needs, and does not change. One per lane. */
struct request_rules {
    struct mailbox *mailbox; /* of the lane whose they are */
    const struct row_hasher *hasher;
    const struct store *store; /* may refuse changes */
    struct tables *tables;
    struct request_memory *memory;
    struct ticket_memory *ticket_memory;
    uint64_t ticket_ns; /* time limit of a ticket */
    const struct row_routes *routes;
    uint32_t lane_count;
    uint32_t max_batch_rows;
    struct shm_segment *scratch;   /* SHM_SEGMENTS_MAX */
    struct table **segment_tables; /* SHM_POOL_SEGMENTS_MAX, of a request that begins */
    uint32_t *table_marks;         /* by table index, all 0: for who needs some word for each */
};

/* Goes on with a request that is laid out for about @id_count ids. AGAIN: some are left. Any other
 * error: it is refused, and to be discarded. */
MUST_CHECK enum embtier_err request_take(const struct request_rules *rules, struct request *request,
                                         uint64_t id_count, struct refusal *ret_refusal);
/* The session's next request, or what needed memory, is over: it waits for none. */
void request_memory_forget(const struct request_rules *rules, struct session *session);
/* One that never had parts. */
void request_discard(const struct request_rules *rules, struct request *request);
/* One whose parts are done. */
void request_free(const struct request_rules *rules, struct request *request);

/* Any lane. */
void request_fail(struct request *request, enum embtier_err err, uint32_t segment, uint64_t value);
/* A part is done. True for the last one: the request is to go back to its home lane, and unless it
 * is a wave the client has been told. */
bool request_part_done(struct part *part);
/* Answers a request that never became one, or has no ids. @ticket: 0, or what a lookup got. */
void request_answer(struct session *session, uint32_t number, const struct refusal *refusal,
                    uint64_t hit_rows, uint64_t ticket);

/* Why @row_count rows of a table (at most, those twice in it counted twice) cannot be changed at
 * present; else OK. */
enum embtier_err request_change_refusal(const struct request_rules *rules,
                                        const struct table *table, uint64_t row_count);

/* The segment of part->refs[@index]. */
uint32_t part_segment_of(const struct part *part, uint32_t index);

/* What a request of @segments segments and @id_count ids needs behind its struct of @head_bytes,
 * which begins with a struct request and may be larger. */
uint64_t request_block_bytes(const struct request_rules *rules, uint64_t head_bytes,
                             uint32_t segments, uint64_t id_count);
/* What each id takes of that. */
uint64_t request_ref_bytes(const struct request_rules *rules);
/* Lays a request out in such a block. Its segments are zeros, to be filled in. */
void request_lay_out(const struct request_rules *rules, struct request *request,
                     uint64_t head_bytes, uint32_t segments, uint64_t id_count);

/* In the place of request_take(), for rows that are known: of the next segment, which is filled in,
 * one for each run of @pairs; @starts are those of its runs. Then, after the last segment, the rows
 * are dealt out. */
void request_put_runs(const struct request_rules *rules, struct request *request,
                      const struct cast_pair *pairs, const uint32_t *starts);
void request_deal(const struct request_rules *rules, struct request *request);

/* Memory for the session's next request, or a push's first wave. NULL: none now. How much it needs
 * is noted then, so that the request is not copied and checked again before that is there. */
void *request_memory_for(const struct request_rules *rules, struct session *session, uint64_t bytes,
                         enum request_memory_use use);

/* All refs of the part are served, or wait for a read. */
static inline bool part_is_looked_up(const struct part *part)
{
    return part->segment == part->request->segment_count && !part->retry_first;
}

#endif
