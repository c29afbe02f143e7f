/* SPDX-License-Identifier: Apache-2.0 */
/* store_types.h: rows on their way to or from SSD, and figures of the store. Its databases use them
 * too. */
#ifndef EMBTIER_STORE_STORE_TYPES_H
#define EMBTIER_STORE_STORE_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "store/resharding/reshard_facts.h"

/* One row on its way to or from SSD. */
struct store_row {
    uint32_t table_id;
    uint32_t weight_bytes; /* as the table says; a stored row of other lengths is CORRUPT */
    uint32_t state_bytes;
    bool logged;         /* its table's durability is not `replay` */
    uint64_t table_step; /* store_write(), of logged rows: the present step of their table */
    uint64_t id;
    void *bytes;          /* weights, then state; owned by the caller */
    bool found;           /* set by store_read() */
    enum embtier_err err; /* set by store_read(): a row's own failure */
};

/* Bytes that this process has written to SSD, by cause. Bytes of rows count when their file is
 * complete or has failed. */
struct store_written {
    uint64_t flush_bytes;
    uint64_t compaction_bytes;
    uint64_t log_bytes;        /* RocksDB's write-ahead logs: none in durability `replay`; of one
                                  table: its rows' bytes, without the log's own */
    uint64_t blob_bytes;       /* RocksDB's blob files, if rocksdb.layout is blob */
    uint64_t checkpoint_bytes; /* copies that checkpoints and restores make */
    uint64_t import_bytes;     /* table files made elsewhere and taken in */
    uint64_t other_bytes;      /* catalog, manifests and others; of no table */
};

struct store_stats {
    struct store_written written;
    uint64_t read_bytes; /* by reads of rows, from SST files */
    uint64_t reading_ns; /* for which at least one read of rows ran */
    uint64_t rows_read;
    uint64_t rows_absent; /* asked for, never written */
    uint64_t rows_written;
    uint64_t row_bytes_written;  /* handed to RocksDB, keys and heads included */
    uint64_t stored_bytes;       /* live SST files, and blob files */
    uint64_t blob_bytes;         /* on disk, of files of rows apart from their keys */
    uint64_t capacity_bytes;     /* of the file systems of the data directories */
    uint64_t reserve_bytes;      /* for work that frees space, as it should be */
    uint64_t reserve_held_bytes; /* the same, as it is */
    uint64_t room_bytes;         /* free for rows until updates are refused */
    uint64_t space_refusals;
    bool is_refusing; /* for want of space, in the last minute */
    uint64_t memtable_bytes;
    uint64_t metadata_cache_bytes;
    uint64_t metadata_hits;   /* index and filter blocks found in the cache */
    uint64_t metadata_misses; /* such blocks read from SSD */
    uint64_t pending_compaction_bytes;
    uint64_t compactions_run;
    uint32_t shards_compacting;
    uint32_t shards_compacting_peak;
    uint32_t shards_unclean; /* without a clean last close: a crash, power loss, a failed stop */
    uint64_t recovered_log_bytes; /* read from logs at the open after an unclean close */
    uint64_t log_recovery_ns;     /* the time that took */
    struct reshard_facts moves;
    bool io_uring;
    bool direct_io; /* in all directories; false if one cannot, or if the config says so */
};

#endif
