/* SPDX-License-Identifier: Apache-2.0 */
#include "store/checkpoint/checkpoint_rows.h"

#include <stdlib.h>
#include <string.h>

#include "store/database/database.h"
#include "store/database/row_format.h"
#include "store/rocksdb/rocksdb_err.h"
#include "store/rocksdb/rocksdb_ext.h"
#include "store/store_identity.h"
#include "store/store_reserved.h"

/* Bytes read ahead in each file being read. These are all files of level 0 and one of each other
 * level, in each shard of the store at once. */
#define READAHEAD_MOST  ((size_t)(2 * MIB))
#define READAHEAD_LEAST ((size_t)(16 << 10))
#define READAHEAD_ALL   ((size_t)(16 * MIB)) /* of all shards together */
#define LEVELS_MAX      7
#define READ_FILES      54
#define ARENA_BYTES     ((size_t)(64 << 10)) /* of rows in its log, at a time */
#define CACHE_BYTES     ((size_t)MIB)
#define ROWS_HELD       2  /* of each file: the present row, and one ahead */
#define ENTRY_BYTES     11 /* RocksDB's for a row: sequence number and lengths */
/* The size of each sample: many blocks of a file. */
#define SAMPLES      4
#define SAMPLE_ROWS  256
#define SAMPLE_BYTES MIB

struct checkpoint_rows {
    char *path;
    struct store_row like;
    struct row_key start, end;
    bool has_strays;                 /* else all rows count */
    uint8_t is_own[ROW_BUCKETS / 8]; /* a bit for each bucket: it lay in this shard */
    struct row_hasher hasher;
    rocksdb_options_t *options;
    rocksdb_readoptions_t *read;
    rocksdb_t *db;
    rocksdb_iterator_t *at;
    bool has_begun;
};

void checkpoint_rows_free(struct checkpoint_rows *rows)
{
    if (!rows)
        return;
    if (rows->at)
        rocksdb_iter_destroy(rows->at);
    if (rows->db)
        rocksdb_close(rows->db);
    rocksdb_readoptions_destroy(rows->read);
    rocksdb_options_destroy(rows->options);
    free(rows->path);
    free(rows);
}

/* Lets the cache drop indexes and filters once they have been read: each file is read once. */
static void table_options_apply(rocksdb_options_t *options, rocksdb_cache_t *cache)
{
    rocksdb_block_based_table_options_t *const table = rocksdb_block_based_options_create();
    rocksdb_cache_t *const own = cache ? NULL : rocksdb_cache_create_lru(CACHE_BYTES);

    rocksdb_block_based_options_set_block_cache(table, cache ? cache : own);
    if (own) /* the table options keep it */
        rocksdb_cache_destroy(own);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 1);
    rocksdb_options_set_block_based_table_factory(options, table);
    rocksdb_block_based_options_destroy(table);
}

/* Returns a database's memory for rows in its logs, and for one row of each table file that is read
 * at the same time. */
static uint64_t held_bytes(const struct checkpoint_database *database, uint64_t row_bytes)
{
    uint64_t log_bytes = 0, tables = 0;

    for (uint32_t i = 0; i < database->file_count; i++) {
        const struct checkpoint_file *const file = &database->files[i];
        const char *const end = strrchr(file->name, '.');

        tables += file->is_table;
        log_bytes += end && strcmp(end, ".log") == 0 ? file->bytes : 0;
    }
    return SCAN_LOG_FACTOR * log_bytes +
           MIN(tables, (uint64_t)DATABASE_LEVEL0_FILES_MAX + LEVELS_MAX) * ROWS_HELD * row_bytes;
}

uint64_t checkpoint_rows_bytes(const struct checkpoint_record *record, uint32_t shard,
                               const struct store_row *like)
{
    uint64_t bytes = SCAN_SHARD_BYTES;

    for (uint32_t i = 0; i < record->database_count; i++)
        if (record->databases[i].shard == shard && record->databases[i].logged == like->logged)
            bytes += held_bytes(&record->databases[i], like->weight_bytes + like->state_bytes);
    return bytes;
}

/* Returns how many files are read at the same time. */
static size_t count_sources(rocksdb_t *db)
{
    const rocksdb_livefiles_t *const files = rocksdb_livefiles(db);
    const int count = rocksdb_livefiles_count(files);
    bool has[LEVELS_MAX] = { false };
    size_t sources = 0;

    for (int i = 0; i < count; i++) {
        const int level = rocksdb_livefiles_level(files, i);

        sources += level == 0 || (level < LEVELS_MAX && !has[level]);
        if (level < LEVELS_MAX)
            has[level] = true;
    }
    rocksdb_livefiles_destroy(files);
    return MAX(sources, (size_t)1);
}

/* Returns how many shards are read at the same time. */
static size_t count_shards(const struct checkpoint_record *record)
{
    size_t count = 0;

    for (uint32_t s = 0; s < record->shard_count; s++)
        count += checkpoint_record_has_rows(record, s);
    return MAX(count, (size_t)1);
}

/* Keeps what it needs of the map, as readers outlive the record. */
static void note_buckets(struct checkpoint_rows *rows, const struct bucket_map *map, uint32_t shard)
{
    rows->has_strays = map != NULL;
    for (uint32_t bucket = 0; map && bucket < ROW_BUCKETS; bucket++)
        if (map->shards[bucket] == shard)
            rows->is_own[bucket / 8] |= (uint8_t)(1U << bucket % 8);
}

enum embtier_err checkpoint_rows_open(const struct checkpoint_shelf *shelf,
                                      const struct checkpoint_record *record, uint32_t shard,
                                      const struct store_row *like, rocksdb_cache_t *cache,
                                      struct checkpoint_rows **ret_rows, struct err_msg *msg)
{
    _cleanup_(checkpoint_rows_freep) struct checkpoint_rows *rows = calloc(1, sizeof(*rows));
    char *error = NULL;

    if (!rows)
        return err_set(msg, EMBTIER_NO_MEMORY, "checkpoint: out of memory");
    rows->like = *like;
    rows->options = rocksdb_options_create();
    rows->read = rocksdb_readoptions_create();
    note_buckets(rows, record->map, shard);
    row_hasher_init(&rows->hasher, store_identity_hash_key(shelf->identity));
    TRY(checkpoint_check_logs(shelf, record, shard, like->logged, msg));
    rows->path = checkpoint_database_path(shelf, record->info.id,
                                          checkpoint_record_database(record, shard, like->logged));
    if (!rows->path)
        return err_set(msg, EMBTIER_NO_MEMORY, "checkpoint: out of memory");
    rocksdb_ext_log_nowhere(rows->options);
    rocksdb_ext_check_logs(rows->options);
    /* Files are read once, in order. RocksDB counts ten more for itself, which this database does
     * not have. */
    rocksdb_options_set_max_open_files(
        rows->options, (int)(shelf->read_files > 0 ? shelf->read_files : READ_FILES) + 10);
    rocksdb_options_set_table_cache_numshardbits(rows->options, 0);
    /* Otherwise RocksDB makes threads for that, and ends the process if it can make none. */
    rocksdb_options_set_max_file_opening_threads(rows->options, 1);
    rocksdb_options_set_arena_block_size(rows->options, ARENA_BYTES);
    table_options_apply(rows->options, cache);
    rocksdb_options_set_wal_recovery_mode(rows->options,
                                          rocksdb_tolerate_corrupted_tail_records_recovery);
    rows->db = rocksdb_open_for_read_only(rows->options, rows->path, false, &error);
    TRY(rocksdb_err_take(error, rows->path, msg));
    rows->start = row_key_make(like->table_id, 0);
    rows->end = row_key_make(like->table_id + 1, 0);
    rocksdb_readoptions_set_iterate_upper_bound(rows->read, (const char *)rows->end.bytes,
                                                sizeof(rows->end));
    rocksdb_readoptions_set_readahead_size(
        rows->read,
        MIN(MAX(READAHEAD_ALL / count_shards(record) / count_sources(rows->db), READAHEAD_LEAST),
            READAHEAD_MOST));
    rocksdb_readoptions_set_fill_cache(rows->read, false);
    rows->at = rocksdb_create_iterator(rows->db, rows->read);
    rocksdb_iter_seek(rows->at, (const char *)rows->start.bytes, sizeof(rows->start));
    *ret_rows = TAKE(rows);
    return EMBTIER_OK;
}

/* Returns the bytes of one row in a file. */
static uint64_t entry_bytes(const struct checkpoint_rows *rows)
{
    return ROW_KEY_BYTES + ENTRY_BYTES + sizeof(struct stored_row_head) + rows->like.weight_bytes +
           rows->like.state_bytes;
}

/* Returns the bytes in files of the rows from @start up to @end. */
static uint64_t bytes_between(const struct checkpoint_rows *rows, const struct row_key *start,
                              const struct row_key *end)
{
    const char *const from = (const char *)start->bytes;
    const char *const to = (const char *)end->bytes;
    const size_t key_bytes = sizeof(*start);
    uint64_t bytes = 0;
    char *error = NULL;

    rocksdb_approximate_sizes(rows->db, 1, &from, &key_bytes, &to, &key_bytes, &bytes, &error);
    free(error); /* on an error, 0 is as good an estimate as any */
    return bytes;
}

uint64_t checkpoint_rows_estimate(const struct checkpoint_rows *rows)
{
    return bytes_between(rows, &rows->start, &rows->end) / entry_bytes(rows);
}

/* Reads at most @most rows from the iterator's row on. Returns their number, and adds their bytes
 * in files to *@bytes. */
static uint64_t sample_rows(struct checkpoint_rows *rows, uint64_t most, uint64_t *bytes)
{
    struct row_key start, end = rows->end;
    size_t key_bytes;
    uint64_t count = 0;

    if (!rocksdb_iter_valid(rows->at))
        return 0;
    memcpy(start.bytes, rocksdb_iter_key(rows->at, &key_bytes), sizeof(start.bytes));
    for (; count < most && rocksdb_iter_valid(rows->at); count++)
        rocksdb_iter_next(rows->at);
    if (rocksdb_iter_valid(rows->at))
        memcpy(end.bytes, rocksdb_iter_key(rows->at, &key_bytes), sizeof(end.bytes));
    *bytes += bytes_between(rows, &start, &end);
    return count;
}

/* Returns the id of the iterator's row; 0 if it is at none. */
static uint64_t id_at(const struct checkpoint_rows *rows)
{
    size_t key_bytes;

    return rocksdb_iter_valid(rows->at) ? row_key_id(rocksdb_iter_key(rows->at, &key_bytes)) : 0;
}

uint64_t checkpoint_rows_sample(struct checkpoint_rows *rows)
{
    const uint64_t estimate = checkpoint_rows_estimate(rows);
    const uint64_t most = SAMPLE_BYTES / entry_bytes(rows) + SAMPLE_ROWS;
    const uint64_t first = id_at(rows);
    uint64_t count = 0, bytes = 0;
    uint64_t last;

    if (!rocksdb_iter_valid(rows->at))
        return 0;
    rocksdb_iter_seek_for_prev(rows->at, (const char *)rows->end.bytes, sizeof(rows->end));
    last = id_at(rows);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        const struct row_key key =
            row_key_make(rows->like.table_id, first + (last - first) / SAMPLES * i);
        uint64_t found;

        rocksdb_iter_seek(rows->at, (const char *)key.bytes, sizeof(key));
        found = sample_rows(rows, most, &bytes);
        count += found;
        if (i == 0 && found < most) { /* these were all rows, including those in logs */
            rocksdb_iter_seek(rows->at, (const char *)rows->start.bytes, sizeof(rows->start));
            return found;
        }
    }
    rocksdb_iter_seek(rows->at, (const char *)rows->start.bytes, sizeof(rows->start));
    if (bytes <= count * entry_bytes(rows))
        return estimate;
    return (uint64_t)((double)estimate * (double)(count * entry_bytes(rows)) / (double)bytes);
}

/* True if the row's bucket lay in another shard: copies of it that were not needed yet, or any
 * more, when the checkpoint was made. */
static bool is_stray(const struct checkpoint_rows *rows)
{
    uint32_t bucket;
    size_t key_bytes;
    const char *key;

    if (!rows->has_strays || !rocksdb_iter_valid(rows->at))
        return false;
    key = rocksdb_iter_key(rows->at, &key_bytes);
    if (key_bytes != ROW_KEY_BYTES)
        return false;
    bucket = row_bucket(row_hash(&rows->hasher, rows->like.table_id, row_key_id(key)));
    return !(rows->is_own[bucket / 8] >> bucket % 8 & 1);
}

enum embtier_err checkpoint_rows_next(struct checkpoint_rows *rows, uint64_t *ret_id,
                                      const void **ret_bytes, struct err_msg *msg)
{
    size_t key_bytes, value_bytes;
    char *error = NULL;
    const char *key;

    do {
        if (rows->has_begun)
            rocksdb_iter_next(rows->at);
        rows->has_begun = true;
    } while (is_stray(rows));
    *ret_bytes = NULL;
    if (!rocksdb_iter_valid(rows->at)) {
        rocksdb_iter_get_error(rows->at, &error);
        return rocksdb_err_take(error, rows->path, msg);
    }
    key = rocksdb_iter_key(rows->at, &key_bytes);
    if (key_bytes != ROW_KEY_BYTES)
        return err_set(msg, EMBTIER_CORRUPT, "%s: a key of %zu bytes", rows->path, key_bytes);
    rows->like.id = row_key_id(key);
    *ret_id = rows->like.id;
    rows->like.bytes = (void *)(uintptr_t)rocksdb_iter_value(rows->at, &value_bytes);
    TRY(stored_row_check(rows->path, &rows->like, rows->like.bytes, value_bytes, msg));
    *ret_bytes = (const char *)rows->like.bytes + sizeof(struct stored_row_head);
    return EMBTIER_OK;
}
