/* SPDX-License-Identifier: Apache-2.0 */
/* shard_new.h: makes a shard in a store that is open. Thread: the one that moves buckets. */
#ifndef EMBTIER_STORE_RESHARDING_SHARD_NEW_H
#define EMBTIER_STORE_RESHARDING_SHARD_NEW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "store/buckets/bucket_map.h"

struct database;
struct store;

struct shard_new {
    struct store *store;
    uint32_t number, place;
    const char *directory; /* borrowed */
    char *folder;
    struct database *databases[2];
    bool may_be_in_map; /* its files stay, whatever comes */
    bool is_given;
};

/* TOO_LARGE: the store can have no @count more. */
MUST_CHECK enum embtier_err shard_new_check(const struct bucket_map *map, uint32_t count,
                                            struct err_msg *msg);
/* Makes the databases of one more shard in directory @place, and adds it to @map. TOO_LARGE: the
 * store can have no more. */
MUST_CHECK enum embtier_err shard_new_make(struct shard_new *shard, struct bucket_map *map,
                                           uint32_t place, struct err_msg *msg);
/* Gives the databases to the store. The map on disk has the shard. */
void shard_new_give(struct shard_new *shard);
/* Closes and removes a shard that the store has not got. */
void shard_new_clear(struct shard_new *shard);

#endif
