/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_record.h: the file that makes a checkpoint. It lists the databases, and their files
 * with lengths and checksums. It is written last, so a folder without it is no checkpoint. Its
 * first line is the checksum of the rest, which is JSON. Thread: any. */
#ifndef EMBTIER_STORE_CHECKPOINT_CHECKPOINT_RECORD_H
#define EMBTIER_STORE_CHECKPOINT_CHECKPOINT_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/embtier_types.h"
#include "base/err.h"
#include "store/buckets/bucket_map.h"
#include "store/store_identity.h"

/* The properties of a checkpoint that users see. */
#define CHECKPOINT_USER_MAX 64

struct checkpoint_info {
    uint64_t id;
    uint64_t created_ms; /* since 1970 */
    bool automatic;
    uint32_t uid; /* of the user that asked for it; if the record has none, of this process */
    char user[CHECKPOINT_USER_MAX + 1]; /* its name in the access file; "": it is a Unix user */
    bool has_step;
    uint64_t step; /* the trainer's */
    char metadata[EMBTIER_METADATA_MAX + 1];
    uint32_t table_count;
    uint64_t bytes;       /* of its files */
    uint64_t new_bytes;   /* of those not shared with the checkpoint before */
    uint64_t pause_us;    /* longest time in which no update was begun */
    uint64_t tries;       /* how many such pauses; 0: an older server made it, in one */
    uint64_t cut_updates; /* updates with only some of their rows in it */
    uint64_t held_rows;   /* times that an update found no room meanwhile, and waited */
    uint64_t spent_ms;
};

struct checkpoint_file {
    char name[64];
    uint64_t bytes;
    uint32_t sum;  /* rocksdb_ext.h */
    bool is_table; /* a second name is as good as a copy */
};

struct checkpoint_database {
    uint32_t shard;
    uint32_t place; /* index of its data directory; checkpoint_read() sets it in old records */
    bool logged;
    uint64_t sequence; /* RocksDB's number of the last write */
    uint32_t file_count;
    struct checkpoint_file *files;
};

struct checkpoint_record {
    struct checkpoint_info info;
    char store_uuid[STORE_UUID_CHARS + 1];
    uint32_t shard_count; /* numbers given out; those that have gone have no databases */
    /* Shards of buckets as they were, generation and format with them; NULL: no bucket had moved
     * yet, so shards have all rows that they hold. */
    struct bucket_map *map;
    uint32_t catalog_sum; /* of catalog.json beside the record, with the tables as they were */
    uint64_t catalog_bytes;
    uint32_t database_count;
    struct checkpoint_database *databases;
};

#define CHECKPOINT_RECORD_FILE "checkpoint.json"

/* Returns a database of the checkpoint, or NULL. */
const struct checkpoint_database *checkpoint_record_database(const struct checkpoint_record *record,
                                                             uint32_t shard, bool logged);
/* True if the shard was there. */
bool checkpoint_record_has(const struct checkpoint_record *record, uint32_t shard);
/* True if the shard has rows that count. Others in it belong to buckets that lay elsewhere. */
bool checkpoint_record_has_rows(const struct checkpoint_record *record, uint32_t shard);

void checkpoint_record_free(struct checkpoint_record *record);
DEFINE_CLEANUP(struct checkpoint_record, checkpoint_record_free)

/* @folder is the checkpoint's folder in the first data directory. */
MUST_CHECK enum embtier_err checkpoint_record_write(const struct checkpoint_record *record,
                                                    const char *folder, struct err_msg *msg);
/* Reads the record in @folder. NOT_FOUND: there is none. CORRUPT. VERSION: a newer program wrote
 * it. UNSUPPORTED: a machine of the other byte order wrote it. */
MUST_CHECK enum embtier_err checkpoint_record_read(const char *folder,
                                                   struct checkpoint_record **ret_record,
                                                   struct err_msg *msg);

#endif
