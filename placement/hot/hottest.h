/* SPDX-License-Identifier: Apache-2.0 */
/* hottest.h: the rows of one table that a trace looks up most often, with exact counts.
 *
 * Rows are counted in a hash table of fixed size. If the trace has more rows, each pass over it
 * counts those of a range of hashes, and the hottest of all passes are kept. So memory is bounded,
 * and time grows with the number of rows. Thread: any. */
#ifndef EMBTIER_PLACEMENT_HOT_HOTTEST_H
#define EMBTIER_PLACEMENT_HOT_HOTTEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/macros.h"
#include "placement/trace/trace_format.h"

#define HOTTEST_MEMORY_BYTES_MIN     ((uint64_t)(64 * KIB))
#define HOTTEST_MEMORY_BYTES_DEFAULT GIB
/* The passes over a trace have an end, whatever the trace says. */
#define HOTTEST_PASSES_MAX 1024

struct hot_row {
    uint64_t id;
    uint64_t lookups;
};

/* The rows with most lookups come first; rows with equally many come by id. */
struct hot_rows {
    struct trace_table table;
    uint64_t lookups;  /* of the whole table */
    uint64_t distinct; /* rows that were looked up at all */
    uint64_t count;
    struct hot_row *rows; /* @count */
};

struct hottest_opts {
    const char *table;
    uint64_t rows;         /* at most; at least 1 */
    uint64_t memory_bytes; /* for counting and for the rows, at most; 0: the default */
    /* May be NULL. Called now and then with the bytes of the trace that the work is worth so far,
     * and all of them; further passes count as parts of one. */
    void (*progress)(void *ctx, uint64_t done, uint64_t total, const char *unit);
    void *ctx;
};

/* Reads the trace at @path once or several times. NO_TABLE: the trace has no such table. TOO_LARGE:
 * the memory does not hold that many rows, or needs too many passes. INVALID: once did not suffice,
 * and @path is no file that can be read twice. MISMATCH: it changed between two passes. Else as
 * trace_reader_open() and trace_reader_next(). */
MUST_CHECK enum embtier_err hottest_rows(const char *path, const struct hottest_opts *opts,
                                         struct hot_rows **ret_rows, struct err_msg *msg);
void hot_rows_free(struct hot_rows *rows);
DEFINE_CLEANUP(struct hot_rows, hot_rows_free)

#endif
