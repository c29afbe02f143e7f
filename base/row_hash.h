/* SPDX-License-Identifier: Apache-2.0 */
/* row_hash.h: the one hash of (table, row), which gives the row's bucket, cache set and tag.
 *
 * A row's bucket follows from its hash, for the life of a store. A map on disk
 * (store/buckets/bucket_map.h) assigns buckets to shards, and the lane follows from the shard.
 *
 * The hash is keyed with a secret made with the data directories. So no client can aim all its ids
 * at one lane or one cache set. The secret is part of the data on disk, because it decides the
 * buckets. The hash is inline because it runs once for every id of every batch. */
#ifndef EMBTIER_BASE_ROW_HASH_H
#define EMBTIER_BASE_ROW_HASH_H

#include <stdint.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define ROW_HASH_KEY_BYTES 32

#define ROW_BUCKET_BITS 14
#define ROW_BUCKETS     (1 << ROW_BUCKET_BITS)

struct row_hasher {
    unsigned char secret[XXH3_SECRET_SIZE_MIN]; /* from the key, by XXH3_generateSecret */
};

void row_hasher_init(struct row_hasher *hasher, const unsigned char key[ROW_HASH_KEY_BYTES]);

static inline uint64_t row_hash(const struct row_hasher *hasher, uint32_t table_id, uint64_t row)
{
    const uint64_t input[2] = { row, table_id };

    return XXH3_64bits_withSecret(input, sizeof(input), hasher->secret, sizeof(hasher->secret));
}

/* Bits 50 to 63 are the bucket, bits 32 to 47 the cache's tag, the low half the cache's set. They
 * do not overlap, so a lane's share of the buckets fills all its sets evenly. */
static inline uint32_t row_bucket(uint64_t hash)
{
    return (uint32_t)(hash >> (64 - ROW_BUCKET_BITS));
}

#endif
