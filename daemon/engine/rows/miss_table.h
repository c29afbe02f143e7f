/* SPDX-License-Identifier: Apache-2.0 */
/* miss_table.h: the rows of one lane that are being read from SSD, so that two requests that miss
 * the same row share one read and take effect in order.
 *
 * A fixed number of entries, found by hash. Sessions share them fairly, by dynamic thresholds
 * (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998):
 * each may hold so many times as many as are free. So one alone may have most of them, and however
 * many it wants, or cannot get rid of while its SETs wait for a disk, others find some. The refs
 * that wait for a row are chained through their `link` in request memory, oldest first. Thread: the
 * lane. */
#ifndef EMBTIER_DAEMON_ENGINE_ROWS_MISS_TABLE_H
#define EMBTIER_DAEMON_ENGINE_ROWS_MISS_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define MISS_FLOWS         64 /* session n is in flow n % MISS_FLOWS */
#define MISS_HELD_PER_FREE 4

struct table;

enum miss_state {
    MISS_FREE,
    MISS_PENDING, /* waits for a free read job */
    MISS_READING, /* in a read job */
    MISS_PARKED,  /* read, but for what a SET makes of it neither the cache nor the write queue had
                     room: it is read again when there may be some */
};

struct miss {
    uint64_t hash;
    uint64_t id;
    struct table *table;
    uint32_t first_waiter; /* request_memory_link() of a row_ref; 0: none */
    uint32_t last_waiter;
    uint32_t next_in_bucket; /* index + 1 */
    uint32_t next;           /* index + 1, in a miss_list; also chains free entries */
    enum miss_state state;
    uint32_t flow; /* of the session that added it */
};

/* Some of the misses, each in at most one list, oldest first. All zeros: empty. */
struct miss_list {
    uint32_t first; /* index + 1 */
    uint32_t last;
};

struct miss_table;

MUST_CHECK enum embtier_err miss_table_new(uint32_t capacity, struct miss_table **ret_table);
void miss_table_free(struct miss_table *misses);
DEFINE_CLEANUP(struct miss_table, miss_table_free)

struct miss *miss_table_find(struct miss_table *misses, const struct table *table, uint64_t hash,
                             uint64_t id);
/* A new entry in state PENDING without waiters, or NULL when all are taken, or the session has its
 * share of them. */
struct miss *miss_table_add(struct miss_table *misses, struct table *table, uint64_t hash,
                            uint64_t id, uint64_t session_id);
void miss_table_remove(struct miss_table *misses, struct miss *miss);

uint32_t miss_table_index(const struct miss_table *misses, const struct miss *miss);
struct miss *miss_table_at(struct miss_table *misses, uint32_t index);
uint32_t miss_table_count(const struct miss_table *misses);

void miss_list_append(struct miss_table *misses, struct miss_list *list, struct miss *miss);
/* NULL: empty. */
struct miss *miss_list_first(struct miss_table *misses, const struct miss_list *list);
void miss_list_pop(struct miss_table *misses, struct miss_list *list);

#endif
