/* SPDX-License-Identifier: Apache-2.0 */
/* shard.h: one RocksDB database of rows. Thread: any, except open and close. */
#ifndef EMBTIER_STORE_SHARD_H
#define EMBTIER_STORE_SHARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "store/rocksdb_ext.h"
#include "store/rocksdb_setup.h"
#include "store/store.h"

struct shard;

struct shard_opts {
    const struct rocksdb_setup *setup; /* outlives the shard */
    struct rocksdb_ext_activity *activity;
    const char *path; /* of the database, such as /data/shard-0007/replay; copied */
    bool make;        /* else it has to be there */
    bool direct_io;
};

MUST_CHECK enum embtier_err shard_open(const struct shard_opts *opts, struct shard **ret_shard,
                                       struct err_msg *msg);
/* Flushes, and seals (shard_seal.h) if @complete. The shard is closed and freed whatever fails. */
MUST_CHECK enum embtier_err shard_close(struct shard *shard, bool complete, struct err_msg *msg);
bool shard_was_clean(const struct shard *shard);
/* Does not flush: what is in the write buffers may be lost. */
void shard_free(struct shard *shard);
DEFINE_CLEANUP(struct shard, shard_free)

const char *shard_path(const struct shard *shard);

/* As store_read(), store_write() and store_flush(). */
MUST_CHECK enum embtier_err shard_read(struct shard *shard, struct store_row *rows, uint32_t count,
                                       struct err_msg *msg);
MUST_CHECK enum embtier_err shard_write(struct shard *shard, const struct store_row *rows,
                                        uint32_t count, struct err_msg *msg);
MUST_CHECK enum embtier_err shard_flush(struct shard *shard, struct err_msg *msg);

/* Marks all rows of a table as gone, on disk. Their space is given back by
 * shard_compact_table(), which compacts whether or not automatic compactions are on. */
MUST_CHECK enum embtier_err shard_delete_table(struct shard *shard, uint32_t table_id,
                                               struct err_msg *msg);
MUST_CHECK enum embtier_err shard_compact_table(struct shard *shard, uint32_t table_id,
                                                struct err_msg *msg);

/* What compaction has to do in a shard. */
struct shard_debt {
    bool due;         /* RocksDB would compact if it was allowed to */
    uint32_t running; /* compactions at work */
    uint32_t level0_files;
    uint64_t pending_bytes; /* estimate */
};
/* Also tells shard_write() how near its limit the shard is. */
void shard_poll_debt(struct shard *shard, struct shard_debt *ret_debt);
MUST_CHECK enum embtier_err shard_set_compacting(struct shard *shard, bool on, struct err_msg *msg);

/* Whether flushes or compactions fail. */
bool shard_is_failed(struct shard *shard);
/* Tries to go on after such an error; blocks. */
MUST_CHECK enum embtier_err shard_resume(struct shard *shard, struct err_msg *msg);

/* Ends whoever waits for RocksDB's background work, which ends too: only closing is left. */
void shard_give_up(struct shard *shard);

/* Adds what the shard counts to @stats. */
void shard_add_stats(struct shard *shard, struct store_stats *stats);

#endif
