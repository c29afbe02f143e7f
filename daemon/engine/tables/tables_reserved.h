/* SPDX-License-Identifier: Apache-2.0 */
/* tables_reserved.h: memory that writers of rows take beside checkpoints.transfer_bytes, for the
 * sum of all (daemon/budget/budget.h). The code that takes it asserts that the numbers are not too
 * small. */
#ifndef EMBTIER_DAEMON_ENGINE_TABLES_TABLES_RESERVED_H
#define EMBTIER_DAEMON_ENGINE_TABLES_TABLES_RESERVED_H

#include "base/embtier_types.h"
#include "base/macros.h"

/* Rows that wait to be written: of an import, a restore, an eager table (row_writer.c).
 */
#define ROW_WRITER_BYTES     (16 * MIB)
#define ROW_WRITER_ROWS      8192
#define ROW_WRITER_ROW_BYTES 64         /* of each row, beside its own */
#define ROW_WRITER_PARTS     8          /* so many parts at least are written one by one … */
#define ROW_WRITER_COPIES    3          /* … and are there so many times more meanwhile */
#define ROW_WRITER_FILLS     4          /* eager tables made side by side, which share them */
#define ROW_WRITER_MOST      (24 * MIB) /* or a row for each shard, copy and table, if more */

/* For the tables that are made at a time with all their rows: f32, and two more numbers of state.
 */
static inline uint64_t tables_eager_reserved_bytes(uint32_t shard_count)
{
    const uint64_t longest = (uint64_t)EMBTIER_DIM_MAX * 12 + ROW_WRITER_ROW_BYTES;

    return MAX(ROW_WRITER_MOST,
               align_up(ROW_WRITER_FILLS * (shard_count + ROW_WRITER_COPIES) * longest, MIB));
}

#endif
