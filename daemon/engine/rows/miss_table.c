/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/rows/miss_table.h"

#include <assert.h>
#include <stdlib.h>

#include "base/counter.h"
#include "daemon/engine/memory/reserved.h"

struct miss_table {
    struct miss *entries;
    uint32_t *buckets; /* index + 1 */
    uint32_t bucket_mask;
    uint32_t capacity;
    uint32_t free;  /* index + 1 */
    uint64_t count; /* a counter */
    uint32_t held[MISS_FLOWS];
};

static uint32_t *bucket_of(struct miss_table *misses, uint64_t hash)
{
    return &misses->buckets[(uint32_t)hash & misses->bucket_mask];
}

enum embtier_err miss_table_new(uint32_t capacity, struct miss_table **ret_table)
{
    _cleanup_(miss_table_freep) struct miss_table *misses = calloc(1, sizeof(*misses));
    uint32_t buckets = 1;

    if (!misses)
        return EMBTIER_NO_MEMORY;
    while (buckets < capacity)
        buckets <<= 1;
    misses->bucket_mask = buckets - 1;
    misses->capacity = capacity;
    misses->entries = reserved_new(capacity * sizeof(*misses->entries));
    misses->buckets = reserved_new(buckets * sizeof(*misses->buckets));
    if (!misses->entries || !misses->buckets)
        return EMBTIER_NO_MEMORY;
    for (uint32_t i = 0; i < capacity; i++)
        misses->entries[i].next = i + 1 < capacity ? i + 2 : 0;
    misses->free = 1;
    *ret_table = TAKE(misses);
    return EMBTIER_OK;
}

void miss_table_free(struct miss_table *misses)
{
    if (!misses)
        return;
    reserved_free(misses->entries, misses->capacity * sizeof(*misses->entries));
    reserved_free(misses->buckets, ((uint64_t)misses->bucket_mask + 1) * sizeof(*misses->buckets));
    free(misses);
}

struct miss *miss_table_find(struct miss_table *misses, const struct table *table, uint64_t hash,
                             uint64_t id)
{
    uint32_t link;

    if (misses->count == 0)
        return NULL;
    for (link = *bucket_of(misses, hash); link; link = misses->entries[link - 1].next_in_bucket) {
        struct miss *miss = &misses->entries[link - 1];

        if (miss->hash == hash && miss->id == id && miss->table == table)
            return miss;
    }
    return NULL;
}

struct miss *miss_table_add(struct miss_table *misses, struct table *table, uint64_t hash,
                            uint64_t id, uint64_t session_id)
{
    const uint32_t flow = session_id % MISS_FLOWS;
    uint32_t *const bucket = bucket_of(misses, hash);
    const uint32_t link = misses->free;
    struct miss *miss;

    if (misses->held[flow] >= (misses->capacity - misses->count) * MISS_HELD_PER_FREE)
        return NULL; /* also when none is free */
    assert(link > 0 && misses->count < misses->capacity);
    miss = &misses->entries[link - 1];
    misses->free = miss->next;
    *miss = (struct miss){
        .hash = hash,
        .id = id,
        .table = table,
        .next_in_bucket = *bucket,
        .state = miss->state,
        .flow = flow,
    };
    miss_set_state(miss, MISS_PENDING);
    *bucket = link;
    counter_add(&misses->count, 1);
    misses->held[flow]++;
    return miss;
}

void miss_table_remove(struct miss_table *misses, struct miss *miss)
{
    const uint32_t link = miss_table_index(misses, miss) + 1;
    uint32_t *at = bucket_of(misses, miss->hash);

    assert(misses->held[miss->flow] > 0);
    while (*at != link)
        at = &misses->entries[*at - 1].next_in_bucket;
    *at = miss->next_in_bucket;
    miss_set_state(miss, MISS_FREE);
    miss->next = misses->free;
    misses->free = link;
    counter_sub(&misses->count, 1);
    misses->held[miss->flow]--;
}

uint32_t miss_table_index(const struct miss_table *misses, const struct miss *miss)
{
    return (uint32_t)(miss - misses->entries);
}

struct miss *miss_table_at(struct miss_table *misses, uint32_t index)
{
    return &misses->entries[index];
}

uint32_t miss_table_count(const struct miss_table *misses)
{
    return (uint32_t)counter_get(&misses->count);
}

void miss_list_append(struct miss_table *misses, struct miss_list *list, struct miss *miss)
{
    const uint32_t link = miss_table_index(misses, miss) + 1;

    miss->next = 0;
    if (list->last)
        misses->entries[list->last - 1].next = link;
    else
        list->first = link;
    list->last = link;
}

struct miss *miss_list_first(struct miss_table *misses, const struct miss_list *list)
{
    return list->first ? &misses->entries[list->first - 1] : NULL;
}

void miss_list_pop(struct miss_table *misses, struct miss_list *list)
{
    assert(list->first > 0);
    list->first = misses->entries[list->first - 1].next;
    if (!list->first)
        list->last = 0;
}
