/* SPDX-License-Identifier: Apache-2.0 */
/* open_progress.h: while a store is being opened, a line a second in the log that says how far it
 * is, also where one part of that takes long: a shard's log of gigabytes is one call of RocksDB's.
 *
 * Thread: one opens the store and calls these; the lines are written by another. */
#ifndef EMBTIER_STORE_OPEN_PROGRESS_H
#define EMBTIER_STORE_OPEN_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct open_progress {
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t ended;
    bool is_ended;
    uint64_t began_ns;
    const char *step; /* NULL before the first */
    uint32_t done;
    uint32_t of;
};

/* Nothing fails: without a thread nothing is told. */
void open_progress_begin(struct open_progress *progress);
/* So many of all that there are have been done of a step, whose name stays there. */
void open_progress_set(struct open_progress *progress, const char *step, uint32_t done,
                       uint32_t of);
/* No line is written any more. */
void open_progress_end(struct open_progress *progress);

#endif
