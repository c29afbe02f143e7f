/* SPDX-License-Identifier: Apache-2.0 */
/* row_op.h: what an operation does to the rows of a part, on the rows' lane.
 *
 * The machine of parts (part_turns.c, row_reads.c) is the same for all operations: it walks over
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
    OUTCOME_RETRY,   /* there was no room: it must be tried again later */
    OUTCOME_REFUSED, /* it will not be done, and the request knows */
};

struct row_op {
    bool changes;  /* rows, other than only reading them */
    bool is_whole; /* all rows are done or none, though the client may be gone meanwhile */
    bool pins;     /* a row that finds no place in the cache waits until an epoch is over */

    /* Does those of the next @count refs of part->segment whose rows are cached. Puts the indexes
     * of the others into rows->chunk_missed; returns how many. */
    uint32_t (*chunk)(struct rows *rows, struct part *part, const struct row_ref *refs,
                      uint32_t count);
    /* The chunk may have so many of the next @count refs, one at least, for about @most; makes
     * *@work as much as they cost, if it is less. NULL: all of them, whose cost is that of their
     * bytes. */
    uint32_t (*limit)(const struct part *part, uint32_t count, uint64_t most, uint64_t *work);
    /* Does one that was not cached: where it is on its way, or has it read. */
    enum outcome (*missed)(struct rows *rows, struct part *part, uint32_t segment,
                           struct row_ref *ref);
    /* The same of one that is tried again. NULL: missed(). */
    enum outcome (*retried)(struct rows *rows, struct part *part, uint32_t segment,
                            struct row_ref *ref);
    /* Does one that has been read into @row, before it has a place. Returns what that cost beside
     * its bytes. NULL: nothing. */
    uint64_t (*read)(struct rows *rows, const struct part *part, uint32_t segment,
                     const struct row_ref *ref, void *row);
    /* The row that part->refs[@index] waited for has a place now, if it needs one. @row: its hash,
     * and the ref's position. NULL: nothing. */
    void (*placed)(struct rows *rows, struct part *part, uint32_t index, const struct row_ref *row,
                   bool was_stored);
};

/* Rows are changed by the request, not only read. */
static inline bool request_changes(const struct request *request)
{
    return request->row_op->changes;
}

/* The client is gone: what is not begun of its requests need not be. */
static inline bool part_is_abandoned(const struct part *part)
{
    return !part->request->row_op->is_whole &&
           atomic_load_explicit(&part->request->session->gone, memory_order_relaxed);
}

#endif
