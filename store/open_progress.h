/* SPDX-License-Identifier: Apache-2.0 */
/* open_progress.h: logs one line a second while a store is being opened: the step, and how far it
 * is. The lines go on during one long step: RocksDB reads a shard's log of gigabytes in one call.
 *
 * Thread: the one that opens the store calls these functions; another writes the lines. */
#ifndef EMBTIER_STORE_OPEN_PROGRESS_H
#define EMBTIER_STORE_OPEN_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct open_progress {
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* of all members that follow */
    pthread_cond_t ended;
    bool is_ended;
    uint64_t began_ns;
    const char *step; /* NULL before the first; a string that outlives the opening */
    uint32_t done;
    uint32_t of;
};

/* Cannot fail: if no thread can be made, nothing is logged. */
void open_progress_begin(struct open_progress *progress);
/* Notes that @done of @of parts of @step are done. @step must stay valid. */
void open_progress_set(struct open_progress *progress, const char *step, uint32_t done,
                       uint32_t of);
/* No line is written after this. */
void open_progress_end(struct open_progress *progress);

#endif
