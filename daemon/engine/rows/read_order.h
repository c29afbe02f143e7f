/* SPDX-License-Identifier: Apache-2.0 */
/* read_order.h: decides which of a lane's missed rows is read next.
 *
 * This is stochastic fair queueing. Rows that wait for a read job are kept by shard, since a job is
 * for one shard. Within a shard they are kept by flow: session n is in flow n % MISS_FLOWS. The
 * flows of a shard take turns row by row, the shards job by job. So a session that misses a few
 * rows waits for as many rows of every other session, not for all rows of a large batch. (A row
 * that another session already waits for keeps its place.)
 *
 * Thread: the lane. */
#ifndef EMBTIER_DAEMON_ENGINE_ROWS_READ_ORDER_H
#define EMBTIER_DAEMON_ENGINE_ROWS_READ_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/engine/rows/miss_table.h"

struct read_order;

MUST_CHECK enum embtier_err read_order_new(struct miss_table *misses, uint32_t shard_count,
                                           struct read_order **ret_order);
void read_order_free(struct read_order *order);
DEFINE_CLEANUP(struct read_order, read_order_free)

/* Adds a row behind those of the same shard and session. */
void read_order_add(struct read_order *order, uint32_t shard, uint64_t session_id,
                    struct miss *miss);
bool read_order_empty(const struct read_order *order);
/* Returns the next shard in turn that has rows; each call moves on by one. The order is not
 * empty. */
uint32_t read_order_next_shard(struct read_order *order);
/* Returns the row of @shard whose turn it is, or NULL. */
struct miss *read_order_first(struct read_order *order, uint32_t shard);
/* Removes that row. */
void read_order_pop(struct read_order *order, uint32_t shard);

#endif
