/* SPDX-License-Identifier: Apache-2.0 */
/* row_writer.h: writes many rows of a table that is not in use yet straight to the store: first
 * values of an eager table, or rows of a checkpoint. Rows are dealt out by shard, and a shard's
 * rows are written when there are enough of them. Thread: one that may wait for SSD. */
#ifndef EMBTIER_DAEMON_ENGINE_TABLES_ROW_WRITER_H
#define EMBTIER_DAEMON_ENGINE_TABLES_ROW_WRITER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct progress_sink;
struct row_routes;
struct row_writer;
struct store;
struct table;

/* Returns how much memory a writer takes at most. */
uint64_t row_writer_bytes(uint32_t shard_count, uint64_t row_bytes);

struct row_writer_opts {
    struct store *store;
    const struct row_routes *routes;
    const struct table *table;
    const _Atomic bool *give_up;          /* if this becomes true: SHUTDOWN */
    const struct progress_sink *progress; /* may be NULL; asked if the work is to go on */
    pthread_rwlock_t *hold; /* held shared during each write. A checkpoint holds it while it takes
                               its point, so that little has to be synced then */
    bool is_small;          /* has its part only of the memory that ROW_WRITER_FILLS tables share */
    /* If not NULL: fills in @count rows that were added without bytes. */
    void (*fill)(const struct table *table, const uint64_t *ids, uint32_t count, void *const *rows);
};

MUST_CHECK enum embtier_err row_writer_new(const struct row_writer_opts *opts,
                                           struct row_writer **ret_writer, struct err_msg *msg);
void row_writer_free(struct row_writer *writer);
DEFINE_CLEANUP(struct row_writer, row_writer_free)

/* Adds a row. @bytes: weights and state, copied; NULL: fill() makes them. */
MUST_CHECK enum embtier_err row_writer_add(struct row_writer *writer, uint64_t id,
                                           const void *bytes, struct err_msg *msg);
/* Writes the rest, and flushes. */
MUST_CHECK enum embtier_err row_writer_end(struct row_writer *writer, struct err_msg *msg);

#endif
