/* SPDX-License-Identifier: Apache-2.0 */
/* database_files.h: write buffers of a database, and the bytes of its files that hold no rows, for
 * the setup and for `embtier size`. Pure values. */
#ifndef EMBTIER_STORE_ROCKSDB_DATABASE_FILES_H
#define EMBTIER_STORE_ROCKSDB_DATABASE_FILES_H

#include "base/macros.h"

/* Each database has one buffer that fills, and one that is being written. If more have to be
 * written, it takes no more writes. */
#define DATABASE_WRITE_BUFFERS 2
#define WRITE_BUFFER_BYTES_MIN (64 * KIB)  /* RocksDB takes no less */
#define WRITE_BUFFER_BYTES_MAX (256 * MIB) /* more only makes flushes and restarts slow */

/* File systems give blocks of this length. */
#define FILE_BLOCK_BYTES 4096
/* Each database: CURRENT, IDENTITY, MANIFEST, its seal and marks with a block each, and OPTIONS, of
 * which RocksDB keeps two, with two blocks each. Logs are not counted: they are empty or dropped
 * once the rows are in table files. */
#define DATABASE_FILES_BYTES (9 * FILE_BLOCK_BYTES)
/* Each data directory: the map of buckets, four characters a bucket, and the catalog, identity,
 * lock, history of writes and note of a clean stop. */
#define DIRECTORY_FILES_BYTES (17 * FILE_BLOCK_BYTES + 6 * FILE_BLOCK_BYTES)

#endif
