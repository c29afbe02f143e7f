/* SPDX-License-Identifier: Apache-2.0 */
/* bucket_map.h: the shard of each bucket of rows, as the data directories say.
 *
 * A row's bucket follows from its hash (base/row_hash.h). The bucket's shard is read from a file,
 * buckets.json, and computed only once: when the store is made. So buckets can move to other
 * shards. Every data directory has a copy:
 *
 *   crc32c          of the whole text (files/summed_json.h)
 *   format_version  1
 *   store_uuid      as in embtier.json
 *   generation      1 when the store is made, one more with each change
 *   bucket_count    16384
 *   shard_count     of all directories
 *   shards          four hexadecimal digits for each bucket: the number of its shard
 *
 * Copies of one generation are the same. A change is first written to all directories and only then
 * takes effect. After a crash in between, rows can be found with either generation. The newest
 * whole copy is the map, and replaces copies that are older, damaged or missing. Without a whole
 * copy the store is not opened. */
#ifndef EMBTIER_STORE_BUCKET_MAP_H
#define EMBTIER_STORE_BUCKET_MAP_H

#include <stdint.h>

#include "base/err.h"
#include "base/row_hash.h"
#include "config/config.h"

#define BUCKET_MAP_FILE           "buckets.json"
#define BUCKET_MAP_FORMAT_VERSION 1
#define BUCKET_MAP_DIGITS         4 /* hexadecimal digits per bucket in the file */

_Static_assert(CONFIG_SHARDS_MAX <= ROW_BUCKETS, "each shard has a bucket");

struct store_identity;

struct bucket_map {
    uint64_t generation;
    uint32_t shard_count;
    uint16_t shards[ROW_BUCKETS]; /* of each bucket; each shard has at least one */
};

void bucket_map_free(struct bucket_map *map);
DEFINE_CLEANUP(struct bucket_map, bucket_map_free)

/* Makes generation 1: shards differ by at most one bucket. */
void bucket_map_balance(struct bucket_map *map, uint32_t shard_count);

/* Opens the map of a store whose directories are locked. While the store is being made, the map is
 * made and written to all directories. Otherwise copies that are older, damaged or missing are
 * replaced, with a log line each. On these errors nothing has been written:
 *   CORRUPT   no copy is whole, two of one generation differ, or one makes no sense
 *   MISMATCH  one belongs to another store or to another number of shards
 *   VERSION   one has a newer format */
MUST_CHECK enum embtier_err bucket_map_open(const struct store_identity *identity,
                                            uint32_t shard_count, struct bucket_map **ret_map,
                                            struct err_msg *msg);
/* Reads as bucket_map_open() does, with its errors; locks and writes nothing. */
MUST_CHECK enum embtier_err bucket_map_check(const struct store_identity *identity,
                                             uint32_t shard_count, struct err_msg *msg);

/* Replaces the copy in one directory of store @uuid. On failure the old copy stays. */
MUST_CHECK enum embtier_err bucket_map_write(const char *directory, const char *uuid,
                                             const struct bucket_map *map, struct err_msg *msg);

#endif
