/* SPDX-License-Identifier: Apache-2.0 */
/* table_size.h: the bytes that rows take in RocksDB's table files, worked out from the format.
 *
 * The files are block-based tables of format version 5, uncompressed, with a two-level index and
 * partitioned Bloom filters (rocksdb_setup.c sets this, with the constants below). The calculation
 * builds the blocks of a sample of rows in the way of RocksDB's BlockBuilder and flush policy, but
 * only counts their bytes. Pure values; RocksDB is not needed. */
#ifndef EMBTIER_STORE_ROCKSDB_TABLE_SIZE_H
#define EMBTIER_STORE_ROCKSDB_TABLE_SIZE_H

#include <stdbool.h>
#include <stdint.h>

#define TABLE_BLOCK_BYTES    4096
#define TABLE_FORMAT_VERSION 5
/* RocksDB's defaults, which the store keeps unless rocksdb.options change them: the size of a file,
 * the factor between levels, and the files that one compaction reads. */
#define TABLE_FILE_BYTES       (UINT64_C(64) << 20)
#define TABLE_LEVEL_FACTOR     10
#define TABLE_COMPACTION_FILES 25
/* Extra space, in hundredths of the rows, at which runs of the layout `universal` are all merged.
 */
#define TABLE_UNIVERSAL_PERCENT 200
/* The shortest value that the layout `blob` keeps apart from its key: the steps of tables stay. */
#define TABLE_BLOB_VALUE_BYTES 32

struct table_rows {
    uint64_t rows;        /* of one table in one database */
    uint64_t id_step;     /* from one id to the next, on average: 1 if no other shard has rows */
    uint32_t row_bytes;   /* weights and state */
    uint32_t filter_bits; /* of the Bloom filter, per row; 0: none */
    bool is_apart;        /* layout `blob` */
};

struct table_size {
    uint64_t data_bytes; /* keys, heads, rows, and the blocks around them */
    uint64_t index_bytes;
    uint64_t filter_bytes;
    uint64_t blob_bytes; /* rows in files of their own; then data_bytes are those of their keys */
};

struct table_size table_size_of(const struct table_rows *rows);
static inline uint64_t table_size_sum(const struct table_size *size)
{
    return size->data_bytes + size->index_bytes + size->filter_bytes + size->blob_bytes;
}

#endif
