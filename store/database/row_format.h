/* SPDX-License-Identifier: Apache-2.0 */
/* row_format.h: the bytes of one stored row, key and value.
 *
 * Key: table id, then row id, both big-endian, so that RocksDB's bytewise order is the order of
 * (table, row). Value: struct stored_row_head, then weights, then optimizer state. The lengths in
 * the head make a row readable without the catalog. The format never changes without a new version
 * number. store.h says how the steps of tables are stored next to the rows. */
#ifndef EMBTIER_STORE_DATABASE_ROW_FORMAT_H
#define EMBTIER_STORE_DATABASE_ROW_FORMAT_H

#include <assert.h>
#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/embtier_types.h"

#define ROW_KEY_BYTES      12
#define STORED_ROW_VERSION 1
/* f32 weights with two f32 of state each: the longest row that a table may have. */
#define STORED_ROW_BYTES_MAX ((uint32_t)EMBTIER_DIM_MAX * 12)

struct row_key {
    unsigned char bytes[ROW_KEY_BYTES];
};

struct stored_row_head {
    uint8_t version;
    uint8_t reserved[3];      /* zero */
    uint32_t weight_bytes_le; /* little-endian, as all numbers after it */
    uint32_t state_bytes_le;
};

static_assert(sizeof(struct row_key) == 12, "keys have a fixed length on disk");
static_assert(sizeof(struct stored_row_head) == 12, "heads have a fixed length on disk");
static_assert(offsetof(struct stored_row_head, weight_bytes_le) == 4, "on disk");
static_assert(offsetof(struct stored_row_head, state_bytes_le) == 8, "on disk");

static inline struct row_key row_key_make(uint32_t table_id, uint64_t id)
{
    struct row_key key;
    const uint32_t table_be = htobe32(table_id);
    const uint64_t id_be = htobe64(id);

    memcpy(key.bytes, &table_be, sizeof(table_be));
    memcpy(key.bytes + sizeof(table_be), &id_be, sizeof(id_be));
    return key;
}

/* Returns the key of a table's step. */
static inline struct row_key step_key_make(uint32_t table_id)
{
    return row_key_make(0, table_id);
}

static inline uint64_t row_key_id(const void *key)
{
    uint64_t id_be;

    memcpy(&id_be, (const char *)key + sizeof(uint32_t), sizeof(id_be));
    return be64toh(id_be);
}

static inline struct stored_row_head stored_row_head_make(uint32_t weight_bytes,
                                                          uint32_t state_bytes)
{
    return (struct stored_row_head){ .version = STORED_ROW_VERSION,
                                     .weight_bytes_le = htole32(weight_bytes),
                                     .state_bytes_le = htole32(state_bytes) };
}

#endif
