/* SPDX-License-Identifier: Apache-2.0 */
/* miss_table.h: the rows of one lane that are being read from SSD. Two requests that miss the same
 * row share one read and take effect in order.
 *
 * The table has a fixed number of entries, found by hash. Sessions share them fairly: each may hold
 * MISS_HELD_PER_FREE times as many entries as are free. These are the dynamic thresholds of
 * Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998.
 * So one session alone may have most entries. But however many it wants, or cannot release while
 * its SETs wait for a disk, others still find some. The refs that wait for a row are chained
 * through their `link` in request memory, oldest first. Thread: the lane, but miss_table_count().
 */
#ifndef EMBTIER_DAEMON_ENGINE_ROWS_MISS_TABLE_H
#define EMBTIER_DAEMON_ENGINE_ROWS_MISS_TABLE_H

#include <assert.h>
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
    MISS_PARKED,  /* read, but neither cache nor write queue had room for the row that a SET made of
                     it. It is read again when there may be room */
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
    uint32_t flow; /* flow of the session that added it */
};

/* True if a miss in state @from may change to state @to. Any that is not free may become free. */
static inline bool miss_may_become(enum miss_state from, enum miss_state to)
{
    switch (to) {
    case MISS_FREE:
        return from != MISS_FREE;
    case MISS_PENDING:
        return from == MISS_FREE || from == MISS_READING || from == MISS_PARKED;
    case MISS_READING:
        return from == MISS_PENDING;
    case MISS_PARKED:
        return from == MISS_READING;
    }
    return false;
}

static inline void miss_set_state(struct miss *miss, enum miss_state to)
{
    assert(miss_may_become(miss->state, to));
    miss->state = to;
}

/* A list of misses, oldest first; a miss is in at most one list. All zeros: empty. */
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
/* Returns a new entry in state PENDING without waiters. NULL: all are taken, or the session has its
 * share of them. */
struct miss *miss_table_add(struct miss_table *misses, struct table *table, uint64_t hash,
                            uint64_t id, uint64_t session_id);
void miss_table_remove(struct miss_table *misses, struct miss *miss);

uint32_t miss_table_index(const struct miss_table *misses, const struct miss *miss);
struct miss *miss_table_at(struct miss_table *misses, uint32_t index);
/* Any thread. */
uint32_t miss_table_count(const struct miss_table *misses);

void miss_list_append(struct miss_table *misses, struct miss_list *list, struct miss *miss);
/* Returns NULL if the list is empty. */
struct miss *miss_list_first(struct miss_table *misses, const struct miss_list *list);
void miss_list_pop(struct miss_table *misses, struct miss_list *list);

#endif
