/* SPDX-License-Identifier: Apache-2.0 */
/* reshard_plan.h: which buckets move for another number of shards. Arithmetic only. Thread: any. */
#ifndef EMBTIER_STORE_RESHARDING_RESHARD_PLAN_H
#define EMBTIER_STORE_RESHARDING_RESHARD_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "store/buckets/bucket_map.h"

#define RESHARD_PLAN_DONE UINT32_MAX

/* Chooses the shards that stay, at most @wanted: @kept[BUCKET_MAP_SHARDS_MAX]. The directory with
 * the most shards loses one first, and of its shards the youngest. So the choice is the same when
 * a job goes on after some buckets have left. Returns how many stay. */
uint32_t reshard_plan_keep(const struct bucket_map *map, uint32_t wanted, bool *kept);
/* Returns the directory for one more shard: that with the fewest of those in @takes, of which there
 * is one. @takes[CONFIG_DIRECTORIES_MAX]. */
uint32_t reshard_plan_place(const struct bucket_map *map, const bool *takes);

/* Makes @ret_after of @map: the kept shards have as many buckets as any other of them, give or take
 * one, and as few buckets as possible have moved. Only shards, not generation or strays, differ. */
void reshard_plan_balance(const struct bucket_map *map, const bool *kept,
                          struct bucket_map *ret_after);
/* Makes @ret_after of @map: of the moves to @goal only those out of one shard, which is returned.
 * RESHARD_PLAN_DONE: there are none. */
uint32_t reshard_plan_next(const struct bucket_map *map, const struct bucket_map *goal,
                           struct bucket_map *ret_after);

#endif
