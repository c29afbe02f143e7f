/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_record.h: the file that makes a checkpoint: which files of which databases it consists
 * of, how long they are and their checksums. It is written last, so a checkpoint without is none.
 * Its first line is the checksum of the rest, which is JSON. Thread: any. */
#ifndef EMBTIER_STORE_CHECKPOINT_CHECKPOINT_RECORD_H
#define EMBTIER_STORE_CHECKPOINT_CHECKPOINT_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/embtier_types.h"
#include "base/err.h"
#include "store/store_identity.h"

/* What a user is told of a checkpoint. */
struct checkpoint_info {
    uint64_t id;
    uint64_t created_ms; /* since 1970 */
    bool automatic;
    uint32_t uid; /* of the user who had it made; of records without it, that of this process */
    bool has_step;
    uint64_t step; /* the trainer's */
    char metadata[EMBTIER_METADATA_MAX + 1];
    uint32_t table_count;
    uint64_t bytes;       /* of its files */
    uint64_t new_bytes;   /* of those that the one before does not share */
    uint64_t pause_us;    /* no update was begun for so long, at most at a time */
    uint64_t tries;       /* so often that was; 0: a server before this one made it, in one */
    uint64_t cut_updates; /* of which some rows are in it and some are not */
    uint64_t held_rows;   /* how often an update found no room meanwhile, and waited */
    uint64_t spent_ms;
};

struct checkpoint_file {
    char name[64];
    uint64_t bytes;
    uint32_t sum;  /* rocksdb_ext.h */
    bool is_table; /* its second name is as good as a copy */
};

struct checkpoint_database {
    uint32_t shard;
    bool logged;
    uint64_t sequence; /* RocksDB's, of the last write */
    uint32_t file_count;
    struct checkpoint_file *files;
};

struct checkpoint_record {
    struct checkpoint_info info;
    char store_uuid[STORE_UUID_CHARS + 1];
    uint32_t shard_count;
    uint32_t catalog_sum; /* of the tables as they were: catalog.json beside the record */
    uint64_t catalog_bytes;
    uint32_t database_count;
    struct checkpoint_database *databases;
};

#define CHECKPOINT_RECORD_FILE "checkpoint.json"

void checkpoint_record_free(struct checkpoint_record *record);
DEFINE_CLEANUP(struct checkpoint_record, checkpoint_record_free)

/* @folder is the checkpoint's in the first data directory. */
MUST_CHECK enum embtier_err checkpoint_record_write(const struct checkpoint_record *record,
                                                    const char *folder, struct err_msg *msg);
/* NOT_FOUND: there is none. CORRUPT, VERSION (written by a newer program), UNSUPPORTED (by a
 * machine of the other byte order). */
MUST_CHECK enum embtier_err checkpoint_record_read(const char *folder,
                                                   struct checkpoint_record **ret_record,
                                                   struct err_msg *msg);

#endif
