/* SPDX-License-Identifier: Apache-2.0 */
/* trace_format.h: the bytes of a trace file (docs/internals/placement/trace-format.md).
 *
 * A trace holds the lookups of a training or serving run, batch by batch. A header with the list of
 * tables comes first, then blocks of lookups, then one end block. All numbers are little-endian.
 * Checksums are XXH3's 64 bits. */
#ifndef EMBTIER_PLACEMENT_TRACE_TRACE_FORMAT_H
#define EMBTIER_PLACEMENT_TRACE_TRACE_FORMAT_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/embtier_types.h"
#include "base/spec/table_spec.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "structs are written as they lie");

#define TRACE_MAGIC   "EMBTRACE"
#define TRACE_VERSION 1

/* Limits, so that a hostile file cannot fill memory. */
#define TRACE_TABLES_MAX     8192
#define TRACE_BLOCK_IDS_MAX  (1u << 16)
#define TRACE_BLOCK_BAGS_MAX (1u << 16)

struct trace_file_header {
    char magic[8];
    uint32_t version;
    uint32_t table_count;  /* 1 to TRACE_TABLES_MAX */
    uint32_t tables_bytes; /* of all table records, which follow */
    uint32_t reserved;     /* 0 */
};
static_assert(sizeof(struct trace_file_header) == 24, "file format");

/* The name follows, padded with zero bytes to a multiple of 8. A checksum of all bytes before it
 * follows the last record. */
struct trace_file_table {
    uint64_t rows; /* 0: unbounded, any 64-bit id is a row */
    uint32_t dim;
    uint8_t dtype; /* enum embtier_dtype */
    uint8_t name_bytes;
    uint16_t reserved; /* 0 */
};
static_assert(sizeof(struct trace_file_table) == 16, "file format");
static_assert(EMBTIER_TABLE_NAME_MAX <= UINT8_MAX, "file format");

enum trace_block_kind { TRACE_BLOCK_LOOKUPS = 1, TRACE_BLOCK_END = 2 };

#define TRACE_BLOCK_MAGIC 0x4b4c4245u /* "EBLK" */

enum trace_block_flags {
    TRACE_FLAG_UPDATE = 1,    /* the rows are updated after the lookup */
    TRACE_FLAG_CONTINUES = 2, /* the first bag goes on from the block before */
};

/* A lookup block's payload follows: bag_ends[bag_count] of 32 bits, padding to a multiple of 8 with
 * zero bytes, ids[id_count] of 64 bits. Bag i has the ids from bag_ends[i - 1] up to bag_ends[i]. A
 * checksum of header and payload comes last. */
struct trace_block_header {
    uint32_t magic;
    uint32_t kind;
    uint64_t batch; /* never falls */
    uint32_t table; /* index into the list of tables */
    uint32_t flags;
    uint32_t bag_count;
    uint32_t id_count;
};
static_assert(sizeof(struct trace_block_header) == 32, "file format");

/* The last block. A file without it was cut short. */
struct trace_end_block {
    uint32_t magic;
    uint32_t kind;
    uint64_t block_count; /* of lookups */
    uint64_t bag_count;   /* a bag of several blocks counts once */
    uint64_t id_count;
};
static_assert(sizeof(struct trace_end_block) == sizeof(struct trace_block_header), "file format");

#define TRACE_CHECKSUM_BYTES sizeof(uint64_t)
#define TRACE_BLOCK_BYTES_MAX                                                                      \
    (sizeof(struct trace_block_header) + sizeof(uint32_t) * TRACE_BLOCK_BAGS_MAX +                 \
     sizeof(uint64_t) * TRACE_BLOCK_IDS_MAX + TRACE_CHECKSUM_BYTES)

static inline size_t trace_bag_ends_bytes(uint32_t bag_count)
{
    return (size_t)align_up(sizeof(uint32_t) * (uint64_t)bag_count, 8);
}

/* Returns the bytes of a whole block. */
static inline size_t trace_block_bytes(uint32_t bag_count, uint32_t id_count)
{
    return sizeof(struct trace_block_header) + trace_bag_ends_bytes(bag_count) +
           sizeof(uint64_t) * (size_t)id_count + TRACE_CHECKSUM_BYTES;
}

/* A table of a trace. */
struct trace_table {
    char name[EMBTIER_TABLE_NAME_MAX + 1]; /* table_name_is_valid(); no other table's */
    uint64_t rows;                         /* 0: unbounded */
    uint32_t dim;
    enum embtier_dtype dtype;
};

/* Lookups of one table in one batch. */
struct trace_lookups {
    uint64_t batch;
    uint32_t table;
    bool is_update; /* the batch updates these rows after the lookup */
    bool continues; /* the first bag goes on from the lookups before */
    uint32_t bag_count;
    uint32_t id_count;
    const uint32_t *bag_ends; /* @bag_count; they never fall, and the last one is @id_count */
    const uint64_t *ids;      /* @id_count */
};

#endif
