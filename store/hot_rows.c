/* SPDX-License-Identifier: Apache-2.0 */
#include "store/hot_rows.h"

#include <assert.h>
#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/row_hash.h"
#include "store/buckets/bucket_map.h"
#include "store/catalog.h"
#include "store/database/row_format.h"
#include "store/store.h"

_Static_assert(HOT_ROWS_CHUNK_BYTES <= STORED_ROW_BYTES_MAX, "a chunk is stored as a row");

static uint32_t stored_id(uint32_t table_id)
{
    assert(table_id < CATALOG_TABLE_IDS);
    return table_id | CATALOG_TABLE_IDS;
}

static struct store_row row_of(uint32_t table_id, uint64_t chunk, void *bytes)
{
    return (struct store_row){ .table_id = stored_id(table_id),
                               .weight_bytes = HOT_ROWS_CHUNK_BYTES,
                               .logged = true,
                               .id = chunk,
                               .bytes = bytes };
}

/* Chunks are spread over the shards, as rows are. */
static uint32_t shard_of(const struct store *store, const struct store_row *row)
{
    const uint64_t hash = row_hash(store_hasher(store), row->table_id, row->id);

    return store_bucket_map(store)->shards[row_bucket(hash)];
}

uint64_t hot_rows_sum(const uint64_t *ids, uint32_t count)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < count; i++)
        sum += XXH3_64bits(&ids[i], sizeof(ids[i]));
    return sum;
}

enum embtier_err hot_rows_write(struct store *store, uint32_t table_id, uint64_t chunk,
                                const uint64_t *ids, uint32_t count, struct err_msg *msg)
{
    _cleanup_(freep) uint64_t *stored = calloc(HOT_ROWS_CHUNK, sizeof(*stored));
    const struct store_row row = row_of(table_id, chunk, stored);

    assert(count <= HOT_ROWS_CHUNK);
    if (!stored)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < count; i++)
        stored[i] = htole64(ids[i]);
    return store_write(store, shard_of(store, &row), &row, 1, msg);
}

enum embtier_err hot_rows_read(struct store *store, uint32_t table_id, uint64_t chunk,
                               uint64_t *ret_ids, struct err_msg *msg)
{
    struct store_row row = row_of(table_id, chunk, ret_ids);

    TRY(store_read(store, shard_of(store, &row), &row, 1, msg));
    if (!row.found)
        return err_set(msg, EMBTIER_NOT_FOUND,
                       "the hot rows of table %" PRIu32 " are not stored from number %" PRIu64
                       " on",
                       table_id, chunk * HOT_ROWS_CHUNK);
    for (uint32_t i = 0; i < HOT_ROWS_CHUNK; i++)
        ret_ids[i] = le64toh(ret_ids[i]);
    return EMBTIER_OK;
}

enum embtier_err hot_rows_drop(struct store *store, uint32_t table_id, const _Atomic bool *give_up,
                               struct err_msg *msg)
{
    return store_drop_table(store, stored_id(table_id), true, NULL, NULL, give_up, msg);
}
