/* SPDX-License-Identifier: Apache-2.0 */
/* bucket_map.h: the shard of each bucket of rows, as the data directories say.
 *
 * A row's bucket follows from its hash (base/row_hash.h). The bucket's shard is read from a file,
 * buckets.json, and computed only once: when the store is made. So buckets can move to other
 * shards. Every data directory has a copy:
 *
 *   crc32c           of the whole text (files/summed_json.h)
 *   format_version   1 until a bucket is to move, then 2
 *   store_uuid       as in embtier.json
 *   generation       1 when the store is made, one more with each change
 *   bucket_count     16384
 *   shard_count      of all directories; format 2: numbers given out so far
 *   shards           four hexadecimal digits for each bucket: the number of its shard
 * Format 2 only:
 *   places           for each number the index of its data directory; -1: the shard is gone
 *   strays           shards that may hold rows of buckets that lie elsewhere
 *   checkpoint_from  checkpoints with a smaller id do not fit: they lack rows where the map looks
 *
 * A number is never given out again, as checkpoints and logs name shards by it. Copies of one
 * generation are the same. A change is first written to all directories and only then takes effect.
 * After a crash in between, rows can be found with either generation. The newest whole copy is the
 * map, and replaces copies that are older, damaged or missing. Without a whole copy the store is
 * not opened. */
#ifndef EMBTIER_STORE_BUCKETS_BUCKET_MAP_H
#define EMBTIER_STORE_BUCKETS_BUCKET_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/row_hash.h"
#include "config/config.h"

#define BUCKET_MAP_FILE           "buckets.json"
#define BUCKET_MAP_FORMAT_VERSION 2    /* the newest */
#define BUCKET_MAP_FORMAT_FIXED   1    /* no bucket has ever moved */
#define BUCKET_MAP_DIGITS         4    /* hexadecimal digits per bucket in the file */
#define BUCKET_MAP_SHARDS_MAX     4096 /* numbers that a store gives out in its life */
#define BUCKET_MAP_GONE           UINT8_MAX

_Static_assert(CONFIG_SHARDS_MAX <= ROW_BUCKETS, "each shard has a bucket");
_Static_assert(CONFIG_DIRECTORIES_MAX < BUCKET_MAP_GONE, "a place is one byte");

struct store_identity;

struct bucket_map {
    uint64_t generation;
    uint64_t checkpoint_from;
    uint32_t format;
    uint32_t shard_count;                  /* numbers given out */
    uint16_t shards[ROW_BUCKETS];          /* of each bucket */
    uint8_t places[BUCKET_MAP_SHARDS_MAX]; /* index of its directory, or BUCKET_MAP_GONE */
    bool strays[BUCKET_MAP_SHARDS_MAX];
    uint16_t bucket_counts[BUCKET_MAP_SHARDS_MAX]; /* follow from @shards: bucket_map_count() */
};

void bucket_map_free(struct bucket_map *map);
DEFINE_CLEANUP(struct bucket_map, bucket_map_free)

/* Makes generation 1: shards differ by at most one bucket, and lie in one directory. */
void bucket_map_balance(struct bucket_map *map, uint32_t shard_count);
/* Deals the shards out to directories as a new store does. */
void bucket_map_place(struct bucket_map *map, uint32_t shards_per_directory);
/* Counts the buckets of each shard again. */
void bucket_map_count(struct bucket_map *map);
/* Returns a malloced copy; NULL: out of memory. */
MUST_CHECK struct bucket_map *bucket_map_copy(const struct bucket_map *map);

static inline bool bucket_map_has(const struct bucket_map *map, uint32_t shard)
{
    return shard < map->shard_count && map->places[shard] != BUCKET_MAP_GONE;
}

/* Returns how many shards are there. */
uint32_t bucket_map_present(const struct bucket_map *map);

/* Opens the map of a store whose directories are locked. While the store is being made, the map is
 * made and written to all directories. Otherwise copies that are older, damaged or missing are
 * replaced, with a log line each. @shard_count: as the store was made. On these errors nothing has
 * been written:
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

/* Puts @map in the place of @now in all directories. Both rise above *@generation, which rises with
 * them: if a copy cannot be written, @now is written again. If that fails too, *@ret_unknown is
 * true: the next start may find either. */
MUST_CHECK enum embtier_err bucket_map_change(const struct store_identity *identity,
                                              const struct bucket_map *now, struct bucket_map *map,
                                              uint64_t *generation, bool *ret_unknown,
                                              struct err_msg *msg);
/* Replaces the copies in all directories. After an error some may have been replaced. */
MUST_CHECK enum embtier_err bucket_map_write_all(const struct store_identity *identity,
                                                 const struct bucket_map *map, struct err_msg *msg);

#endif
