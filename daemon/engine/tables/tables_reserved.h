/* SPDX-License-Identifier: Apache-2.0 */
/* tables_reserved.h: how many tables may move or be filled side by side, and memory that writers of
 * rows take in addition to checkpoints.transfer_bytes, for the sum in daemon/budget/budget.h. The
 * code that takes the memory asserts that these numbers are not too small. */
#ifndef EMBTIER_DAEMON_ENGINE_TABLES_TABLES_RESERVED_H
#define EMBTIER_DAEMON_ENGINE_TABLES_TABLES_RESERVED_H

#include "base/embtier_types.h"
#include "base/macros.h"

/* Tables that move to another home at a time. */
#define HOME_MOVES_MAX 3

/* Rows of an import, a restore or an eager table that wait to be written (row_writer.c). */
#define ROW_WRITER_BYTES     (16 * MIB)
#define ROW_WRITER_ROWS      8192
#define ROW_WRITER_ROW_BYTES 64 /* for each row, in addition to its own */
#define ROW_WRITER_PARTS     8  /* the rows are in at least this many parts, written one by one */
#define ROW_WRITER_COPIES    3  /* copies of a part in memory while it is written */
#define ROW_WRITER_FILLS     4  /* eager tables made side by side, which share the memory */
#define ROW_WRITER_MOST      (24 * MIB) /* or a row for each shard, copy and table, if more */

/* Returns the memory for eager tables that are made at the same time. Their longest row is in f32,
 * with two more numbers of state for each weight. */
static inline uint64_t tables_eager_reserved_bytes(uint32_t shard_count)
{
    const uint64_t longest = (uint64_t)EMBTIER_DIM_MAX * 12 + ROW_WRITER_ROW_BYTES;

    return MAX(ROW_WRITER_MOST,
               align_up(ROW_WRITER_FILLS * (shard_count + ROW_WRITER_COPIES) * longest, MIB));
}

#endif
