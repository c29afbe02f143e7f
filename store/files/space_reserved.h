/* SPDX-License-Identifier: Apache-2.0 */
/* space_reserved.h: bytes of a data directory's reserve (space.h), unless the configuration sets
 * them. On a small file system the reserve is less. Pure values. */
#ifndef EMBTIER_STORE_FILES_SPACE_RESERVED_H
#define EMBTIER_STORE_FILES_SPACE_RESERVED_H

#include <stdint.h>

#include "base/macros.h"

/* For catalogs, copies of logs and compaction, in addition to the flush of all write buffers. */
#define SPACE_RESERVE_MORE (32 * MIB)
/* The first piece of a log; every second database has one. */
#define SPACE_LOG_BYTES ((uint64_t)(512 * KIB))
/* Bytes to open a database: a MANIFEST with its blocks allocated ahead, options, an info log,
 * marks. */
#define SPACE_OPEN_BYTES ((uint64_t)(192 * KIB))

/* Returns the reserve without what only starts use. @databases: in this directory. */
static inline uint64_t space_reserve_wanted_bytes(uint64_t memtable_bytes, uint32_t directories,
                                                  uint64_t databases)
{
    return memtable_bytes / 4 * 5 / directories + SPACE_RESERVE_MORE + databases * SPACE_LOG_BYTES;
}

/* Returns the part that only starts use. */
static inline uint64_t space_opening_bytes(uint64_t databases)
{
    return databases * SPACE_OPEN_BYTES;
}

#endif
