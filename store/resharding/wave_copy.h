/* SPDX-License-Identifier: Apache-2.0 */
/* wave_copy.h: copies the rows of a wave to their targets, and removes strays. Thread: one. */
#ifndef EMBTIER_STORE_RESHARDING_WAVE_COPY_H
#define EMBTIER_STORE_RESHARDING_WAVE_COPY_H

#include "base/err.h"
#include "store/buckets/bucket_map.h"
#include "store/resharding/move_pace.h"
#include "store/resharding/wave.h"

/* Copies all rows and steps of tables that the targets lack, and flushes the targets. All writes
 * since have gone to both. A second call copies what targets have missed since. Returns the error
 * that failed the wave. */
MUST_CHECK enum embtier_err wave_copy(struct wave *wave, struct move_pace *pace,
                                      struct err_msg *msg);

/* Deletes the rows of @shard that belong to other shards by @map, and flushes it. Nobody writes
 * such rows. */
MUST_CHECK enum embtier_err strays_sweep(struct store *store, const struct bucket_map *map,
                                         uint32_t shard, struct move_pace *pace,
                                         struct err_msg *msg);
/* Does the same with a shard that has no bucket: all of its rows go at once, with their space. */
MUST_CHECK enum embtier_err strays_drop(struct store *store, uint32_t shard, struct err_msg *msg);

#endif
