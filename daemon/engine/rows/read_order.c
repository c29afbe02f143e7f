/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/rows/read_order.h"

#include <assert.h>

#include "daemon/engine/memory/engine_reserved.h"
#include "daemon/engine/memory/reserved.h"

struct flow {
    struct miss_list rows;
    uint32_t next; /* flow + 1, in the ring of the shard's flows that have rows */
};

struct shard_reads {
    uint32_t first; /* flow + 1 */
    uint32_t last;
    struct flow flows[MISS_FLOWS];
};

_Static_assert(sizeof(struct shard_reads) <= LANE_SHARD_BYTES, "the configuration counts it");

struct read_order {
    struct miss_table *misses;
    uint32_t shard_count;
    uint32_t turn; /* the last shard that had its turn */
    uint64_t count;
    struct shard_reads shards[];
};

static uint64_t order_bytes(uint32_t shard_count)
{
    return sizeof(struct read_order) + shard_count * sizeof(struct shard_reads);
}

enum embtier_err read_order_new(struct miss_table *misses, uint32_t shard_count,
                                struct read_order **ret_order)
{
    struct read_order *const order = reserved_new(order_bytes(shard_count));

    if (!order)
        return EMBTIER_NO_MEMORY;
    order->misses = misses;
    order->shard_count = shard_count;
    *ret_order = order;
    return EMBTIER_OK;
}

void read_order_free(struct read_order *order)
{
    if (order)
        reserved_free(order, order_bytes(order->shard_count));
}

static void flow_append(struct shard_reads *shard, uint32_t link)
{
    shard->flows[link - 1].next = 0;
    if (shard->last)
        shard->flows[shard->last - 1].next = link;
    else
        shard->first = link;
    shard->last = link;
}

void read_order_add(struct read_order *order, uint32_t shard, uint64_t session_id,
                    struct miss *miss)
{
    struct shard_reads *const reads = &order->shards[shard];
    const uint32_t f = (uint32_t)(session_id % MISS_FLOWS);

    if (!reads->flows[f].rows.first)
        flow_append(reads, f + 1);
    miss_list_append(order->misses, &reads->flows[f].rows, miss);
    assert(miss->state == MISS_PENDING);
    order->count++;
}

bool read_order_empty(const struct read_order *order)
{
    return order->count == 0;
}

uint32_t read_order_next_shard(struct read_order *order)
{
    assert(order->count > 0);
    do {
        order->turn = (order->turn + 1) % order->shard_count;
    } while (!order->shards[order->turn].first);
    return order->turn;
}

struct miss *read_order_first(struct read_order *order, uint32_t shard)
{
    const struct shard_reads *const reads = &order->shards[shard];

    return reads->first ? miss_list_first(order->misses, &reads->flows[reads->first - 1].rows)
                        : NULL;
}

void read_order_pop(struct read_order *order, uint32_t shard)
{
    struct shard_reads *const reads = &order->shards[shard];
    const uint32_t link = reads->first;
    struct flow *const flow = &reads->flows[link - 1];

    assert(link > 0 && order->count > 0);
    miss_list_pop(order->misses, &flow->rows);
    order->count--;
    reads->first = flow->next;
    if (!reads->first)
        reads->last = 0;
    if (flow->rows.first)
        flow_append(reads, link);
}
