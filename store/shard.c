/* SPDX-License-Identifier: Apache-2.0 */
#include "store/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "store/durable_file.h"
#include "store/rocksdb_err.h"
#include "store/row_format.h"
#include "store/shard_seal.h"

/* Rows of one MultiGet: enough to share index and filter blocks, few enough for the stack. */
#define READ_CHUNK_ROWS 128
/* Beside RocksDB's files, which it leaves alone; gone again when the question is answered. */
#define PROBE_FILE  "embtier-probe"
#define PROBE_SLACK (4 * MIB)

struct shard {
    char *path;
    bool was_clean; /* new, or closed cleanly before it was opened */
    const struct rocksdb_setup *setup;
    struct rocksdb_ext_watch *watch;
    rocksdb_t *db;
    rocksdb_column_family_handle_t *family;
    /* What shard_poll_debt() saw last; RocksDB itself has no limits while automatic compactions are
     * off. */
    _Atomic uint32_t level0_files;
    _Atomic uint64_t pending_bytes;
    _Atomic uint64_t rows_read;
    _Atomic uint64_t rows_absent;
    _Atomic uint64_t rows_written;
    _Atomic uint64_t row_bytes_written;
};

/* For counters that order nothing. */
static void count_add(_Atomic uint64_t *counter, uint64_t value)
{
    atomic_fetch_add_explicit(counter, value, memory_order_relaxed);
}

static uint64_t count_get(_Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* RocksDB would take a database without CURRENT for a new one, or for none. */
static enum embtier_err shard_check_there(const char *path, bool *ret_sealed, struct err_msg *msg)
{
    _cleanup_(freep) char *current = path_join(path, "CURRENT");

    if (!current)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    if (access(current, F_OK) == 0)
        return shard_seal_break(path, ret_sealed, msg);
    return errno == ENOENT ? err_set(msg, EMBTIER_CORRUPT, "%s: missing", current)
                           : err_set_errno(msg, errno, "%s", current);
}

/* RocksDB looks for a missing 000008.sst under its LevelDB name at last, and then names that one.
 */
static void rename_leveldb_files(char *error)
{
    for (char *at = error; at && (at = strstr(at, ".ldb"));)
        at[1] = 's', at[2] = 's', at[3] = 't';
}

enum embtier_err shard_open(const struct shard_opts *opts, struct shard **ret_shard,
                            struct err_msg *msg)
{
    _cleanup_(shard_freep) struct shard *shard = calloc(1, sizeof(*shard));
    const char *names[] = { "default" };
    const rocksdb_options_t *family_options[1];
    rocksdb_options_t *options;
    char *error = NULL;
    enum embtier_err err;

    if (!shard || !(shard->path = strdup(opts->path)))
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", opts->path);
    shard->was_clean = true;
    if (!opts->make)
        TRY(shard_check_there(opts->path, &shard->was_clean, msg));
    shard->setup = opts->setup;
    options = rocksdb_options_create_copy(opts->setup->options);
    shard->watch = rocksdb_ext_watch_new(opts->activity, options);
    rocksdb_ext_log_to(options, opts->path);
    rocksdb_options_set_create_if_missing(options, opts->make);
    rocksdb_options_set_use_direct_reads(options, opts->direct_io);
    rocksdb_options_set_use_direct_io_for_flush_and_compaction(options, opts->direct_io);
    family_options[0] = options;
    shard->db = rocksdb_open_column_families(options, opts->path, 1, names, family_options,
                                             &shard->family, &error);
    rocksdb_options_destroy(options);
    rename_leveldb_files(error);
    err = rocksdb_err_take(error, opts->path, msg);
    /* An argument that RocksDB refuses here can only be the user's. */
    if (err == EMBTIER_INVALID)
        err = EMBTIER_CONFIG;
    TRY(err);
    rocksdb_ext_watch_opened(shard->watch, shard->db);
    *ret_shard = TAKE(shard);
    return EMBTIER_OK;
}

static void shard_close_database(struct shard *shard)
{
    if (shard->family)
        rocksdb_column_family_handle_destroy(TAKE(shard->family));
    if (shard->db)
        rocksdb_close(TAKE(shard->db));
}

enum embtier_err shard_close(struct shard *shard, bool complete, struct err_msg *msg)
{
    enum embtier_err err = shard_flush(shard, msg);

    if (err != EMBTIER_OK) /* it may have heard of a flush that failed before this one */
        err = shard_flush(shard, msg);
    shard_close_database(shard);
    if (err == EMBTIER_OK && complete)
        err = shard_seal_write(shard->path, msg);
    shard_free(shard);
    return err;
}

void shard_free(struct shard *shard)
{
    if (!shard)
        return;
    shard_close_database(shard);
    rocksdb_ext_watch_free(shard->watch);
    free(shard->path);
    free(shard);
}

bool shard_was_clean(const struct shard *shard)
{
    return shard->was_clean;
}

const char *shard_path(const struct shard *shard)
{
    return shard->path;
}

/* Copies a stored value to its row after checking every byte of its head. */
static enum embtier_err row_unpack(const struct shard *shard, struct store_row *row,
                                   const char *value, size_t value_bytes, struct err_msg *msg)
{
    struct stored_row_head head;

    if (value_bytes < sizeof(head))
        return err_set(msg, EMBTIER_CORRUPT,
                       "%s: table %" PRIu32 " row %" PRIu64 ": stored in %zu bytes", shard->path,
                       row->table_id, row->id, value_bytes);
    memcpy(&head, value, sizeof(head));
    if (head.version != STORED_ROW_VERSION)
        return err_set(msg, EMBTIER_CORRUPT,
                       "%s: table %" PRIu32 " row %" PRIu64 ": stored in format %u", shard->path,
                       row->table_id, row->id, head.version);
    if (le32toh(head.weight_bytes_le) != row->weight_bytes ||
        le32toh(head.state_bytes_le) != row->state_bytes ||
        value_bytes != sizeof(head) + (size_t)row->weight_bytes + row->state_bytes)
        return err_set(msg, EMBTIER_CORRUPT,
                       "%s: table %" PRIu32 " row %" PRIu64 ": stored with %" PRIu32 " + %" PRIu32
                       " bytes, the table's rows have %" PRIu32 " + %" PRIu32,
                       shard->path, row->table_id, row->id, le32toh(head.weight_bytes_le),
                       le32toh(head.state_bytes_le), row->weight_bytes, row->state_bytes);
    memcpy(row->bytes, value + sizeof(head), value_bytes - sizeof(head));
    row->found = true;
    return EMBTIER_OK;
}

static enum embtier_err read_chunk(struct shard *shard, struct store_row *rows, uint32_t count,
                                   uint64_t *absent, struct err_msg *msg)
{
    struct row_key keys[READ_CHUNK_ROWS];
    const char *key_list[READ_CHUNK_ROWS];
    size_t key_bytes[READ_CHUNK_ROWS];
    rocksdb_pinnableslice_t *values[READ_CHUNK_ROWS];
    char *errors[READ_CHUNK_ROWS];
    enum embtier_err first = EMBTIER_OK;

    for (uint32_t i = 0; i < count; i++) {
        keys[i] = row_key_make(rows[i].table_id, rows[i].id);
        key_list[i] = (const char *)keys[i].bytes;
        key_bytes[i] = ROW_KEY_BYTES;
    }
    rocksdb_batched_multi_get_cf(shard->db, shard->setup->read, shard->family, count, key_list,
                                 key_bytes, values, errors, true);
    for (uint32_t i = 0; i < count; i++) {
        struct err_msg *row_msg = first == EMBTIER_OK ? msg : NULL;
        struct store_row *row = &rows[i];

        row->found = false;
        row->err = rocksdb_err_take(errors[i], shard->path, row_msg);
        if (row->err == EMBTIER_OK && values[i]) {
            size_t value_bytes;
            const char *value = rocksdb_pinnableslice_value(values[i], &value_bytes);

            row->err = row_unpack(shard, row, value, value_bytes, row_msg);
        } else if (row->err == EMBTIER_OK) {
            *absent += 1;
        }
        if (values[i])
            rocksdb_pinnableslice_destroy(values[i]);
        if (first == EMBTIER_OK)
            first = row->err;
    }
    return first;
}

enum embtier_err shard_read(struct shard *shard, struct store_row *rows, uint32_t count,
                            struct err_msg *msg)
{
    enum embtier_err first = EMBTIER_OK;
    uint64_t absent = 0;

    for (uint32_t done = 0; done < count;) {
        const uint32_t chunk = MIN(count - done, (uint32_t)READ_CHUNK_ROWS);
        const enum embtier_err err =
            read_chunk(shard, rows + done, chunk, &absent, first == EMBTIER_OK ? msg : NULL);

        if (first == EMBTIER_OK)
            first = err;
        done += chunk;
    }
    count_add(&shard->rows_read, count);
    count_add(&shard->rows_absent, absent);
    return first;
}

/* A write that would have had to wait says "busy". When the reason is that flushes or compactions
 * fail, that is no answer: trying again does not help before they do not. */
static enum embtier_err shard_why_busy(struct shard *shard, struct err_msg *msg)
{
    char *error = rocksdb_ext_watch_error(shard->watch);

    if (error)
        return rocksdb_err_take(error, shard->path, msg);
    return err_set(msg, EMBTIER_BUSY, "%s: write buffers are full, flush or compaction is behind",
                   shard->path);
}

static uint64_t shard_property(struct shard *shard, const char *name)
{
    uint64_t value = 0;

    return rocksdb_property_int(shard->db, name, &value) == 0 ? value : 0;
}

static bool shard_is_behind(struct shard *shard)
{
    return shard_property(shard, "rocksdb.num-immutable-mem-table") >= SHARD_WRITE_BUFFERS ||
           atomic_load_explicit(&shard->level0_files, memory_order_relaxed) >=
               SHARD_LEVEL0_FILES_MAX ||
           count_get(&shard->pending_bytes) >= SHARD_PENDING_BYTES_MAX;
}

static uint64_t batch_fill(rocksdb_writebatch_t *batch, const struct store_row *rows,
                           uint32_t count)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct row_key key = row_key_make(rows[i].table_id, rows[i].id);
        const struct stored_row_head head =
            stored_row_head_make(rows[i].weight_bytes, rows[i].state_bytes);
        const char *const key_parts[] = { (const char *)key.bytes };
        const size_t key_part_bytes[] = { sizeof(key) };
        const char *const value_parts[] = { (const char *)&head, rows[i].bytes };
        const size_t value_part_bytes[] = { sizeof(head),
                                            (size_t)rows[i].weight_bytes + rows[i].state_bytes };

        rocksdb_writebatch_putv(batch, ARRAY_LEN(key_parts), key_parts, key_part_bytes,
                                ARRAY_LEN(value_parts), value_parts, value_part_bytes);
        bytes += sizeof(key) + value_part_bytes[0] + value_part_bytes[1];
    }
    return bytes;
}

enum embtier_err shard_write(struct shard *shard, const struct store_row *rows, uint32_t count,
                             struct err_msg *msg)
{
    rocksdb_writebatch_t *batch;
    char *error = NULL;
    enum embtier_err err;
    uint64_t bytes;

    if (count == 0)
        return EMBTIER_OK;
    if (shard_is_behind(shard))
        return shard_why_busy(shard, msg);
    batch = rocksdb_writebatch_create();
    bytes = batch_fill(batch, rows, count);
    rocksdb_write(shard->db, shard->setup->write, batch, &error);
    rocksdb_writebatch_destroy(batch);
    err = rocksdb_err_take(error, shard->path, msg);
    if (err == EMBTIER_BUSY)
        return shard_why_busy(shard, msg);
    TRY(err);
    count_add(&shard->rows_written, count);
    count_add(&shard->row_bytes_written, bytes);
    return EMBTIER_OK;
}

enum embtier_err shard_flush(struct shard *shard, struct err_msg *msg)
{
    return rocksdb_err_take(rocksdb_ext_flush(shard->db, shard->watch), shard->path, msg);
}

/* The keys of table @table_id are [start, end). The last table id is never given out. */
static void table_range(uint32_t table_id, struct row_key *ret_start, struct row_key *ret_end)
{
    *ret_start = row_key_make(table_id, 0);
    *ret_end = row_key_make(table_id + 1, 0);
}

enum embtier_err shard_delete_table(struct shard *shard, uint32_t table_id, struct err_msg *msg)
{
    struct row_key start, end;
    char *error = NULL;

    if (shard_is_behind(shard) && shard_is_failed(shard))
        return shard_why_busy(shard, msg);
    table_range(table_id, &start, &end);
    rocksdb_delete_range_cf(shard->db, shard->setup->write_patient, shard->family,
                            (const char *)start.bytes, sizeof(start), (const char *)end.bytes,
                            sizeof(end), &error);
    TRY(rocksdb_err_take(error, shard->path, msg));
    return shard_flush(shard, msg);
}

enum embtier_err shard_compact_table(struct shard *shard, uint32_t table_id, struct err_msg *msg)
{
    struct row_key start, end;
    char *error;

    table_range(table_id, &start, &end);
    rocksdb_compact_range(shard->db, (const char *)start.bytes, sizeof(start),
                          (const char *)end.bytes, sizeof(end));
    /* It says nothing of how it went. */
    error = rocksdb_ext_watch_error(shard->watch);
    return rocksdb_err_take(error, shard->path, msg);
}

static uint32_t shard_level0_files(struct shard *shard)
{
    char *text = rocksdb_property_value(shard->db, "rocksdb.num-files-at-level0");
    const uint32_t files = text ? (uint32_t)strtoul(text, NULL, 10) : 0;

    rocksdb_free(text);
    return files;
}

void shard_poll_debt(struct shard *shard, struct shard_debt *ret_debt)
{
    /* Running last: what is due and not running now was not running when it was found due, or has
     * ended since; either way asking again finds it out. */
    ret_debt->due = shard_property(shard, "rocksdb.compaction-pending") != 0;
    ret_debt->level0_files = shard_level0_files(shard);
    ret_debt->pending_bytes = shard_property(shard, "rocksdb.estimate-pending-compaction-bytes");
    ret_debt->running = (uint32_t)shard_property(shard, "rocksdb.num-running-compactions");
    atomic_store_explicit(&shard->level0_files, ret_debt->level0_files, memory_order_relaxed);
    atomic_store_explicit(&shard->pending_bytes, ret_debt->pending_bytes, memory_order_relaxed);
}

enum embtier_err shard_set_compacting(struct shard *shard, bool on, struct err_msg *msg)
{
    const char *const keys[] = { "disable_auto_compactions" };
    const char *const values[] = { on ? "false" : "true" };
    char *error = NULL;

    rocksdb_set_options(shard->db, ARRAY_LEN(keys), keys, values, &error);
    return rocksdb_err_take(error, shard->path, msg);
}

bool shard_is_failed(struct shard *shard)
{
    char *error = rocksdb_ext_watch_error(shard->watch);
    const bool failed = error != NULL;

    free(error);
    return failed;
}

/* What is written first when a shard is resumed is its write buffers: it is not begun before there
 * is reason to think that the disk takes as much. */
static enum embtier_err shard_probe(struct shard *shard, struct err_msg *msg)
{
    const uint64_t buffers = shard_property(shard, "rocksdb.cur-size-all-mem-tables");
    const uint64_t bytes = buffers + buffers / 4 + PROBE_SLACK;
    _cleanup_(freep) char *path = path_join(shard->path, PROBE_FILE);
    _cleanup_(closep) int fd = -1;
    enum embtier_err err = EMBTIER_OK;
    struct statvfs room;

    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", shard->path);
    if (statvfs(shard->path, &room) == 0 && room.f_bavail * room.f_frsize < bytes)
        return err_set(msg, EMBTIER_NO_SPACE, "%s: room for less than %" PRIu64 " bytes",
                       shard->path, bytes);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set_errno(msg, errno, "%s", path);
    if (pwrite(fd, path, 1, (off_t)bytes) != 1 || fsync(fd) != 0) /* a hole, which takes no room */
        err = err_set_errno(msg, errno, "%s", path);
    unlink(path);
    return err;
}

enum embtier_err shard_resume(struct shard *shard, struct err_msg *msg)
{
    TRY(shard_probe(shard, msg));
    return rocksdb_err_take(rocksdb_ext_resume(shard->db, shard->watch), shard->path, msg);
}

void shard_give_up(struct shard *shard)
{
    rocksdb_cancel_all_background_work(shard->db, 0);
}

void shard_add_stats(struct shard *shard, struct store_stats *stats)
{
    stats->shards_unclean += !shard->was_clean;
    stats->rows_read += count_get(&shard->rows_read);
    stats->rows_absent += count_get(&shard->rows_absent);
    stats->rows_written += count_get(&shard->rows_written);
    stats->row_bytes_written += count_get(&shard->row_bytes_written);
    stats->stored_bytes += shard_property(shard, "rocksdb.live-sst-files-size");
    stats->pending_compaction_bytes +=
        shard_property(shard, "rocksdb.estimate-pending-compaction-bytes");
}
