/* SPDX-License-Identifier: Apache-2.0 */
/* The format: RocksDB's table/block_based/block_builder.cc, flush_block_policy.cc,
 * index_builder.cc, filter_policy.cc, table/format.h, and db/blob/blob_log_format.h, which
 * versions 7.8 to 9.10 share. */
#include "store/rocksdb/table_size.h"

#include "base/macros.h"
#include "store/database/row_format.h"

/* Behind each key: the number of its change, and its kind. */
#define SEQUENCE_BYTES 8
#define RESTART_ROWS   16 /* rows of a data block from one whole key to the next */
#define RESTART_BYTES  4  /* the place of each whole key, at the block's end */
#define COUNT_BYTES    4  /* their number */
#define TRAILER_BYTES  5  /* behind each block: its compression and its checksum */
/* A block ends before it is full if the next row would not fit and it is fuller than this. */
#define FULL_PERCENT 90
/* A block's or partition's place in a file: an offset of up to 256 MiB and a size. */
#define HANDLE_OFFSET_BYTES 4
/* A filter: lines of the processor's cache, and its own numbers. */
#define FILTER_LINE_BYTES 64
#define FILTER_HEAD_BYTES 5
/* In front of each key and value in a file of values; and the place of one: its kind and
 * compression, the number of a file and an offset of up to 256 MiB. Its length follows. */
#define BLOB_HEAD_BYTES  32
#define BLOB_PLACE_BYTES (2 + 2 + HANDLE_OFFSET_BYTES)
/* The blocks of so many rows are built, and the others are taken to be like them. */
#define SAMPLE_ROWS (UINT64_C(1) << 16)

static uint32_t varint_bytes(uint64_t value)
{
    uint32_t bytes = 1;

    for (; value >= 0x80; value >>= 7)
        bytes++;
    return bytes;
}

/* Returns the first bytes that two keys of one table have in common. */
static uint32_t shared_bytes(uint64_t id, uint64_t before)
{
    return id == before ? ROW_KEY_BYTES
                        : (uint32_t)(ROW_KEY_BYTES - sizeof(id)) +
                              (uint32_t)__builtin_clzll(id ^ before) / 8;
}

struct block {
    uint64_t bytes;
    uint32_t rows_since_restart;
    uint64_t rows;
};

static struct block block_begin(void)
{
    return (struct block){ .bytes = RESTART_BYTES + COUNT_BYTES };
}

/* True if the block ends before another row. */
static bool block_is_full(const struct block *block, uint64_t value_bytes)
{
    const uint64_t key_bytes = ROW_KEY_BYTES + SEQUENCE_BYTES;
    uint64_t with_row = block->bytes + key_bytes + value_bytes + sizeof(int32_t) +
                        varint_bytes(key_bytes) + varint_bytes(value_bytes);

    if (block->rows_since_restart >= RESTART_ROWS)
        with_row += RESTART_BYTES;
    return block->rows > 0 && (block->bytes >= TABLE_BLOCK_BYTES ||
                               (with_row > TABLE_BLOCK_BYTES &&
                                block->bytes * 100 > (uint64_t)TABLE_BLOCK_BYTES * FULL_PERCENT));
}

static void block_add(struct block *block, uint64_t id, uint64_t before, uint64_t value_bytes)
{
    uint32_t shared = 0;

    if (block->rows == 0 || block->rows_since_restart >= RESTART_ROWS) {
        block->bytes += block->rows == 0 ? 0 : RESTART_BYTES;
        block->rows_since_restart = 0;
    } else {
        shared = shared_bytes(id, before);
    }
    block->bytes += varint_bytes(shared) + varint_bytes(ROW_KEY_BYTES + SEQUENCE_BYTES - shared) +
                    varint_bytes(value_bytes) + ROW_KEY_BYTES + SEQUENCE_BYTES - shared +
                    value_bytes;
    block->rows_since_restart++;
    block->rows++;
}

/* Returns the bytes of an entry that names a block: its last key, whole, and its place. */
static uint64_t index_entry_bytes(uint64_t block_bytes)
{
    return varint_bytes(0) + varint_bytes(ROW_KEY_BYTES) + ROW_KEY_BYTES + HANDLE_OFFSET_BYTES +
           varint_bytes(block_bytes) + RESTART_BYTES;
}

/* Returns the bytes of a block of metadata beside its entries, with the entry that names it. */
static uint64_t partition_bytes(void)
{
    return COUNT_BYTES + TRAILER_BYTES + index_entry_bytes(TABLE_BLOCK_BYTES);
}

/* Adds filters of one block each, and the index, which is cut where they are. */
static void add_metadata(const struct table_rows *rows, uint64_t entries_bytes,
                         struct table_size *size)
{
    const uint64_t line_bits = UINT64_C(8) * FILTER_LINE_BYTES;
    const uint64_t part_lines = (TABLE_BLOCK_BYTES - FILTER_HEAD_BYTES) / FILTER_LINE_BYTES;
    uint64_t parts = div_round_up(entries_bytes, TABLE_BLOCK_BYTES);

    if (rows->filter_bits > 0) {
        const uint64_t lines = div_round_up(rows->rows * rows->filter_bits, line_bits);
        const uint64_t filters = div_round_up(lines, part_lines);

        parts = MAX(parts, filters);
        size->filter_bytes =
            lines * FILTER_LINE_BYTES + filters * (FILTER_HEAD_BYTES + partition_bytes());
    }
    size->index_bytes = entries_bytes + parts * partition_bytes();
}

struct table_size table_size_of(const struct table_rows *rows)
{
    const uint64_t row_bytes = sizeof(struct stored_row_head) + rows->row_bytes;
    const bool is_apart = rows->is_apart && row_bytes >= TABLE_BLOB_VALUE_BYTES;
    const uint64_t value_bytes = is_apart ? BLOB_PLACE_BYTES + varint_bytes(row_bytes) : row_bytes;
    const uint64_t sample = MIN(rows->rows, SAMPLE_ROWS);
    /* A double holds the counts of a petabyte's rows exactly enough. */
    const double factor = sample > 0 ? (double)rows->rows / (double)sample : 0;
    struct table_size size = { 0 };
    struct block block = block_begin();
    uint64_t data_bytes = 0, entries_bytes = 0;

    for (uint64_t i = 0; i < sample; i++) {
        if (block_is_full(&block, value_bytes)) {
            data_bytes += block.bytes + TRAILER_BYTES;
            entries_bytes += index_entry_bytes(block.bytes);
            block = block_begin();
        }
        block_add(&block, i * rows->id_step, (i - 1) * rows->id_step, value_bytes);
    }
    if (block.rows > 0) {
        data_bytes += block.bytes + TRAILER_BYTES;
        entries_bytes += index_entry_bytes(block.bytes);
    }
    if (is_apart)
        size.blob_bytes = rows->rows * (BLOB_HEAD_BYTES + ROW_KEY_BYTES + row_bytes);
    size.data_bytes = (uint64_t)(factor * (double)data_bytes);
    add_metadata(rows, (uint64_t)(factor * (double)entries_bytes), &size);
    return size;
}
