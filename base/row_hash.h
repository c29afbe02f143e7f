/* SPDX-License-Identifier: Apache-2.0 */
/* row_hash.h: the one hash of (table, row), from which shard, lane, cache set and tag are taken.
 *
 * It is keyed with a secret made when the data directories are made, so that no client can aim all
 * its ids at one lane or one cache set. The secret is part of the data on disk: shards are chosen
 * by this hash. Inline because it runs once for every id of every batch. */
#ifndef EMBTIER_BASE_ROW_HASH_H
#define EMBTIER_BASE_ROW_HASH_H

#include <stdint.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define ROW_HASH_KEY_BYTES 32

struct row_hasher {
    unsigned char secret[XXH3_SECRET_SIZE_MIN]; /* from the key, by XXH3_generateSecret */
};

void row_hasher_init(struct row_hasher *hasher, const unsigned char key[ROW_HASH_KEY_BYTES]);

static inline uint64_t row_hash(const struct row_hasher *hasher, uint32_t table_id, uint64_t row)
{
    const uint64_t input[2] = { row, table_id };

    return XXH3_64bits_withSecret(input, sizeof(input), hasher->secret, sizeof(hasher->secret));
}

/* High half: the shard. Bits 32 to 47: the cache's tag. Low half: the cache's set. */
static inline uint32_t row_hash_shard(uint64_t hash, uint32_t shard_count)
{
    return (uint32_t)(((hash >> 32) * shard_count) >> 32);
}

#endif
