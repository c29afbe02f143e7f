/* SPDX-License-Identifier: Apache-2.0 */
/* request.h: a request for rows under way, split by lane.
 *
 * The home lane takes a request out of its client's region. An operation's begin() (op.h) copies
 * and checks the submission and the segments. request_take() copies, checks and hashes the ids, and
 * deals them out by lane. Each word is copied once. No work on rows starts before everything has
 * passed the checks, so a refused request changed nothing. Ids are taken some at a time: a million
 * of them need milliseconds, during which the lane would serve no other session. Each lane that has
 * ids in the request then gets a part. The last part to finish completes the request, on whatever
 * lane that is. The whole request lies in one block of request memory, which the home lane frees.
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
#include "proto/ops.h"
#include "tiers/cache/row_cache.h"

struct cast_pair;
struct clock;
struct mailbox;
struct op;
struct request;
struct request_memory;
struct row_op;
struct row_routes;
struct sampler_lane;
struct table;
struct tables;
struct ticket;
struct ticket_memory;

struct request_segment {
    struct table *table;
    uint8_t *rows; /* in the client's region, or of a wave in the daemon's own memory; the daemon
                      treats the bytes as rows and nothing else. A push has none */
    uint64_t ids_offset;
    uint32_t id_count;
    uint32_t row_bytes; /* of a row in `rows`: weights, or weights and state */
};

/* One lane's share of a request. The lane owns it from message_part until it is done. It shares
 * no cache line. */
struct part {
    _Alignas(CACHE_LINE) struct message message;
    struct part *next; /* in the session's queue on this lane */
    struct request *request;
    struct row_ref *refs;   /* sorted by segment, in the request's order within each */
    const uint32_t *starts; /* segment s has refs[starts[s]] … refs[starts[s + 1] - 1] */
    uint32_t segment;       /* cursor: refs before `next_ref` have been looked up */
    uint32_t next_ref;      /* while ids are dealt out: how many this lane has so far */
    uint32_t waiting;       /* refs that wait for SSD */
    uint32_t retry_first;   /* first ref that found no room to wait in; they are chained by link,
                               index + 1; 0: none */
    uint32_t retry_last;
    uint32_t hit_rows;
    uint64_t ssd_since_ns; /* all its rows have been looked up, and some wait for SSD; 0: never */
    uint64_t log_mark; /* position in the write queue when it last served rows of a logged table,
                          which is behind those that it changed; 0: it served none */
};

/* Asks the lane for its share. part_turns.c */
extern const struct message_kind message_part;

struct request {
    struct message message; /* of its operation: all parts are done (op_own() in ops/op.h) */
    struct session *session;
    uint32_t number;
    const struct op *op;         /* the operation; its done() gets the request back */
    const struct row_op *row_op; /* the work on its rows */
    uint32_t segment_count;
    uint32_t lane_count;
    struct row_ref *ids;      /* in the request's order, as far as they are taken */
    uint64_t id_count;        /* of all segments */
    uint64_t taken_ids;       /* copied and checked so far */
    uint64_t dealt_ids;       /* with several lanes: dealt out so far */
    uint32_t taking_segment;  /* segment of the next id */
    uint32_t taking_position; /* position of the next id in that segment */
    uint32_t sampled_batch;   /* its number in a profile (sampler.h), or 0 */
    bool is_update; /* it changes rows, and looks none up, as far as a profile is concerned */
    bool is_wave;   /* its operation answers the client, not the last part */
    bool is_cold;   /* its rows are probably in no core's cache; never set for a wave */
    _Atomic uint32_t parts_left;
    _Atomic uint64_t hit_rows;
    _Atomic uint32_t err; /* the first error wins */
    uint32_t err_segment;
    uint64_t err_value;
    struct request_segment *segments;
    struct part *parts; /* lane_count; parts without refs are not sent */
};

/* The context for splitting requests, which splitting does not change. One per lane. Only the lane
 * itself sets `sampler` and `ticket_ns`. */
struct request_rules {
    struct mailbox *mailbox; /* of the rules' own lane */
    const struct row_hasher *hasher;
    const struct store *store; /* may refuse changes */
    struct tables *tables;
    struct request_memory *memory;
    struct ticket_memory *ticket_memory;
    uint64_t ticket_ns; /* time limit of a ticket */
    const struct row_routes *routes;
    const struct clock *clock;
    struct latencies *latencies; /* of the rules' own lane, as is the next */
    struct slow_log *slow_log;
    uint32_t lane_count;
    uint32_t max_batch_rows;
    struct op_segment *scratch;    /* OP_SEGMENTS_MAX */
    struct table **segment_tables; /* OP_POOL_SEGMENTS_MAX, for the request that begins */
    struct sampler_lane *sampler;  /* NULL: no profile is made */
    uint32_t *table_marks; /* by table index, all 0 between uses: scratch words for code that needs
                              one per table */
};

/* Takes about @id_count more ids of a request that is laid out. AGAIN: some are left. Any other
 * error: the request is refused, and the caller discards it. */
MUST_CHECK enum embtier_err request_take(const struct request_rules *rules, struct request *request,
                                         uint64_t id_count, struct refusal *ret_refusal);
/* Stops waiting for memory: the session's next request, or whatever else needed memory, is over. */
void request_memory_forget(const struct request_rules *rules, struct session *session);
/* Frees a request that never had parts, and leaves its tables. */
void request_discard(const struct request_rules *rules, struct request *request);
/* Frees a request whose parts are done. */
void request_free(const struct request_rules *rules, struct request *request);

/* Records an error; the first one wins. Any lane. */
void request_fail(struct request *request, enum embtier_err err, uint32_t segment, uint64_t value);
/* Ends a part. True for the last one: the caller sends the request back to its home lane. Unless it
 * is a wave, the client has been told. */
bool request_part_done(const struct request_rules *rules, struct part *part);
/* Answers a request, and counts its time. @rules: of the lane that this is. @ticket: 0, or the
 * number of the ticket that a lookup got. */
void request_answer(const struct request_rules *rules, struct session *session, uint32_t number,
                    const struct refusal *refusal, uint64_t hit_rows, uint64_t ticket);

/* Refuses a change of @row_count rows of a segment's table if it cannot be made at present.
 * @row_count is an upper bound: it counts a row as often as it occurs. */
enum embtier_err request_admit_change(const struct request_rules *rules, uint32_t segment,
                                      const struct table *table, uint64_t row_count,
                                      struct refusal *refusal);

/* Returns the segment of part->refs[@index]. */
uint32_t part_segment_of(const struct part *part, uint32_t index);

/* Returns the bytes that a request of @segments segments and @id_count ids needs, head included.
 * The head has @head_bytes; it begins with a struct request and may be larger. */
uint64_t request_block_bytes(const struct request_rules *rules, uint64_t head_bytes,
                             uint32_t segments, uint64_t id_count);
/* Returns the share of each id in that. */
uint64_t request_ref_bytes(const struct request_rules *rules);
/* Lays a request out in such a block. Its segments are zeros, for the caller to fill in. */
void request_lay_out(const struct request_rules *rules, struct request *request,
                     uint64_t head_bytes, uint32_t segments, uint64_t id_count);

/* These two replace request_take() for rows that are known. request_put_runs() adds the rows of the
 * next segment, which the caller has filled in: one row for each run of @pairs. @starts has the
 * starts of these runs. request_deal() deals the rows out after the last segment. */
void request_put_runs(const struct request_rules *rules, struct request *request,
                      const struct cast_pair *pairs, const uint32_t *starts);
void request_deal(const struct request_rules *rules, struct request *request);

/* Returns memory for the session's next request, or for a push's first wave. NULL: none now. The
 * size is then noted, so that the request is copied and checked again only when the memory is
 * there. */
void *request_memory_for(const struct request_rules *rules, struct session *session, uint64_t bytes,
                         enum request_memory_use use);

/* True if all refs of the part are served, or wait for a read. */
static inline bool part_is_looked_up(const struct part *part)
{
    return part->segment == part->request->segment_count && !part->retry_first;
}

#endif
