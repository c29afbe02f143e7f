/* SPDX-License-Identifier: Apache-2.0 */
/* row_op.h: the work of an operation on the rows of a part, on the rows' lane.
 *
 * The machine of parts (part_turns.c, row_reads.c) is the same for all operations. It walks over
 * the refs in chunks, keeps their order, waits for reads and for room, and ends the part. For each
 * row it calls one of these functions. Thread: the lane. */
#ifndef EMBTIER_DAEMON_ENGINE_ROWS_ROW_OP_H
#define EMBTIER_DAEMON_ENGINE_ROWS_ROW_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/engine/rows/request.h"

struct row_ref;
struct rows;
struct store_row;

enum outcome {
    OUTCOME_DONE,
    OUTCOME_RETRY,   /* there was no room: to be tried again later */
    OUTCOME_REFUSED, /* it will not be done, and the request has the error */
    OUTCOME_MISSED,  /* the row is not there; the machine looks for it in the next place */
};

struct row_op {
    bool changes;  /* changes rows, rather than only reading them */
    bool is_whole; /* all rows are done or none, even if the client goes meanwhile */
    bool pins;     /* a row that finds no place in the cache waits until the epoch is over */
    bool places;   /* may bring a row into its home, where a later ref of the chunk then finds it */
    bool looks_up; /* clients read its rows, which count as looked up */

    /* Serves those of the next @count refs of part->segment whose rows are cached. Writes the
     * indexes of the others to rows->chunk_missed, and returns how many there are. */
    uint32_t (*chunk)(struct rows *rows, struct part *part, const struct row_ref *refs,
                      uint32_t count);
    /* Returns how many of the next @count refs the chunk may take for a cost of about @most; at
     * least one. Raises *@work to their cost if it is less. NULL: all of them, at the cost of their
     * bytes. */
    uint32_t (*limit)(const struct part *part, uint32_t count, uint64_t most, uint64_t *work);
    /* The next three serve a ref whose row was not cached. The machine asks in one order: home,
     * rows being read, write queue, SSD (part_turns.c).
     *
     * cached() serves a ref whose row may have come into its home since. MISSED: it has not. */
    enum outcome (*cached)(struct rows *rows, struct part *part, uint32_t segment,
                           const struct row_ref *ref);
    /* Serves a ref from @row, the newest version of its row, which is in the write queue. */
    enum outcome (*queued)(struct rows *rows, struct part *part, uint32_t segment,
                           const struct row_ref *ref, const void *row);
    /* Serves a ref whose row is on SSD, or nowhere. MISSED: the row must be read. NULL: always. */
    enum outcome (*stored)(struct rows *rows, struct part *part, uint32_t segment,
                           const struct row_ref *ref);
    /* Serves a ref whose row has been read into @row, before the row has a place. Returns the cost
     * beyond that of its bytes. NULL: nothing. */
    uint64_t (*read)(struct rows *rows, const struct part *part, uint32_t segment,
                     const struct row_ref *ref, void *row);
    /* Called when the row that part->refs[@index] waited for has a place, if it needs one. @row has
     * its hash and the ref's position. NULL: nothing. */
    void (*placed)(struct rows *rows, struct part *part, uint32_t index, const struct row_ref *row,
                   bool was_stored);
};

/* True if the request changes rows, rather than only reading them. */
static inline bool request_changes(const struct request *request)
{
    return request->row_op->changes;
}

/* True if the client is gone, so that its requests need not begin any more work. */
static inline bool part_is_abandoned(const struct part *part)
{
    return !part->request->row_op->is_whole &&
           atomic_load_explicit(&part->request->session->gone, memory_order_relaxed);
}

#endif
