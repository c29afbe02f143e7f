/* SPDX-License-Identifier: Apache-2.0 */
#include "store/database/database.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/database/database_seal.h"
#include "store/database/log_damage.h"
#include "store/database/log_ends.h"
#include "store/database/row_format.h"
#include "store/files/durable_file.h"
#include "store/files/file_tree.h"
#include "store/rocksdb/rocksdb_err.h"

/* Rows of one MultiGet: enough to share index and filter blocks, few enough for the stack. */
#define READ_CHUNK_ROWS 128
/* Beside RocksDB's files, which it leaves alone; gone again when the question is answered. */
#define PROBE_FILE        "embtier-probe"
#define PROBE_SLACK       (4 * MIB)
#define NS_PER_MS         UINT64_C(1000000)
#define FLUSH_PATIENCE_MS 60000 /* while writes are stopped for want of compaction */
/* A flush that could as well be left is: level 0 is nearly full. */
#define SHORTEN_LEVEL0_FILES (DATABASE_LEVEL0_FILES_MAX / 2)
/* For write buffers that are being flushed, before one more is. */
#define FLUSHES_PATIENCE_NS (UINT64_C(5) * 1000 * 1000 * 1000)
#define FLUSHES_PAUSE_NS    (5L * 1000 * 1000)

struct database {
    char *path;
    bool was_clean; /* new, or closed cleanly before it was opened */
    bool logged;
    struct log_marks marks;
    uint64_t recovered_bytes; /* of its log, when it was opened */
    uint64_t recovery_ns;
    const struct rocksdb_setup *setup;
    struct rocksdb_ext_watch *watch;
    rocksdb_t *db;
    rocksdb_column_family_handle_t *family;
    /* What database_poll_debt() saw last; RocksDB itself has no limits while automatic compactions
     * are off. */
    _Atomic uint32_t level0_files;
    _Atomic uint64_t pending_bytes;
    _Atomic bool is_paused; /* the server lets it compact nothing */
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
static enum embtier_err database_check_there(const char *path, bool *ret_sealed,
                                             struct err_msg *msg)
{
    _cleanup_(freep) char *current = path_join(path, "CURRENT");
    bool is_there;

    if (!current)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    TRY(path_is_there(current, &is_there, msg));
    return is_there ? database_seal_break(path, ret_sealed, msg)
                    : err_set(msg, EMBTIER_CORRUPT, "%s: missing", current);
}

struct log_count {
    uint32_t files;
    uint64_t bytes; /* of all of them */
    uint64_t newest;
};

/* A database that was open has at least one log, of which RocksDB notices only when an older one is
 * missing. */
static enum embtier_err count_logs(const char *path, struct log_count *ret_count,
                                   struct err_msg *msg)
{
    DIR *const folder = opendir(path);
    enum embtier_err err = EMBTIER_OK;
    const struct dirent *file;
    struct log_count count = { 0 };

    if (!folder)
        return err_set_errno(msg, errno, "%s", path);
    while (err == EMBTIER_OK && (file = folder_next(folder, path, &err, msg))) {
        struct stat info = { 0 };
        uint64_t number;

        if (!log_number(file->d_name, &number))
            continue;
        if (fstatat(dirfd(folder), file->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            err = err_set_errno(msg, errno, "%s/%s", path, file->d_name);
        count.bytes += (uint64_t)info.st_size;
        count.newest = MAX(count.newest, number);
        count.files++;
    }
    closedir(folder);
    TRY(err);
    if (count.files == 0)
        return err_set(msg, EMBTIER_CORRUPT, "%s: its log is missing", path);
    *ret_count = count;
    return EMBTIER_OK;
}

/* RocksDB looks for a missing 000008.sst under its LevelDB name at last, and then names that one.
 */
static void rename_leveldb_files(char *error)
{
    for (char *at = error; at && (at = strstr(at, ".ldb"));)
        at[1] = 's', at[2] = 's', at[3] = 't';
}

static void name_damaged_table(const char *path, struct err_msg *msg)
{
    _cleanup_(freep) char *error = rocksdb_ext_table_error(path);

    if (error)
        (void)err_set(msg, EMBTIER_CORRUPT, "%s/%s", path, error);
}

/* The way that is left for a damaged log, other than to go back to a checkpoint. Other files,
 * which messages name, have no such way. */
static void add_hint(struct err_msg *msg)
{
    if (strstr(msg->text, "MANIFEST") || strstr(msg->text, "CURRENT") || strstr(msg->text, ".sst"))
        return;
    err_append(
        msg, " (\"rocksdb.options: wal_recovery_mode=kPointInTimeRecovery\" starts with what lies "
             "before the damage; what lies behind it is gone then, although it was acknowledged)");
}

/* Has RocksDB look for what may go; after a flush it does so too early. */
static enum embtier_err delete_old_logs(struct database *database, struct err_msg *msg)
{
    char *error = NULL;

    rocksdb_disable_file_deletions(database->db, &error);
    TRY(rocksdb_err_take(error, database->path, msg));
    error = rocksdb_ext_enable_file_deletions(database->db);
    return rocksdb_err_take(error, database->path, msg);
}

/* RocksDB is done with logs when what was in them has been flushed. Of one that is damaged where it
 * begins nothing is, when a start takes what lies before the damage: it would stay in use, each
 * checkpoint fail for it, and the next start find the damage again. So something is flushed. */
static enum embtier_err leave_old_logs(struct database *database, struct err_msg *msg)
{
    const struct row_key key = row_key_make(UINT32_MAX, 0); /* no table has that id */
    struct log_count count = { 0 };
    char *error = NULL;

    TRY(count_logs(database->path, &count, msg));
    if (count.files == 1)
        return EMBTIER_OK;
    rocksdb_delete_cf(database->db, database->setup->log_patient, database->family,
                      (const char *)key.bytes, sizeof(key), &error);
    TRY(rocksdb_err_take(error, database->path, msg));
    TRY(database_flush(database, msg));
    return delete_old_logs(database, msg);
}

/* A user who has the log cut where it is damaged does not want it refused for that. */
static bool logs_are_checked(const struct database_opts *opts)
{
    return opts->logged && rocksdb_options_get_wal_recovery_mode(opts->setup->options) ==
                               rocksdb_tolerate_corrupted_tail_records_recovery;
}

/* What RocksDB would take for the torn end of its MANIFEST or log, and what of a log it would not.
 * Another MANIFEST may be a new one, not yet whole and not yet used. */
static enum embtier_err check_records(const struct database_opts *opts, struct err_msg *msg)
{
    _cleanup_(freep) char *name = NULL;
    _cleanup_(freep) char *manifest = NULL;

    TRY(database_manifest(opts->path, &name, msg));
    manifest = path_join(opts->path, name);
    if (!manifest)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", opts->path);
    TRY(log_damage_find(manifest, msg));
    return logs_are_checked(opts) ? log_ends_mend(opts->path, &opts->marks, msg) : EMBTIER_OK;
}

/* All logs that are written from now on have marks. Without that being known, as on a disk that is
 * full, a crash goes as with those of earlier versions. */
static void note_marks(const struct database *database)
{
    struct err_msg msg = { { 0 } };
    struct log_count count = { 0 };
    enum embtier_err err = count_logs(database->path, &count, &msg);

    if (err == EMBTIER_OK)
        err = log_note_write(database->path, count.newest, &msg);
    if (err != EMBTIER_OK)
        log_warn("after a loss of power the next start may be refused for the unfinished end of a "
                 "log",
                 "database=%s err=%s why=%s", LOG_QUOTED(database->path), err_name(err),
                 LOG_QUOTED(msg.text));
}

/* Before RocksDB sees it. A clean close has sealed all that a crash may have torn. *@log_count
 * stays 0 unless there is something in logs. */
static enum embtier_err database_check(struct database *database, const struct database_opts *opts,
                                       uint32_t *log_count, struct err_msg *msg)
{
    struct log_count count = { 0 };
    enum embtier_err err;

    if (!opts->make)
        TRY(database_check_there(opts->path, &database->was_clean, msg));
    if (opts->make || opts->put_back || database->was_clean)
        return EMBTIER_OK;
    if (opts->logged)
        TRY(count_logs(opts->path, &count, msg));
    *log_count = count.files;
    database->recovered_bytes = count.bytes;
    err = check_records(opts, msg);
    if (err == EMBTIER_CORRUPT && opts->logged && msg)
        add_hint(msg);
    return err;
}

enum embtier_err database_open(const struct database_opts *opts, struct database **ret_database,
                               struct err_msg *msg)
{
    _cleanup_(database_freep) struct database *database = calloc(1, sizeof(*database));
    const char *names[] = { "default" };
    const rocksdb_options_t *family_options[1];
    rocksdb_options_t *options;
    uint32_t log_count = 0;
    char *error = NULL;
    enum embtier_err err;

    if (!database || !(database->path = strdup(opts->path)))
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", opts->path);
    database->was_clean = !opts->put_back;
    TRY(database_check(database, opts, &log_count, msg));
    database->setup = opts->setup;
    database->logged = opts->logged;
    database->marks = opts->marks;
    options = rocksdb_options_create_copy(opts->setup->options);
    database->watch = rocksdb_ext_watch_new(opts->activity, options, opts->path);
    rocksdb_ext_log_to(options, opts->path);
    rocksdb_options_set_create_if_missing(options, opts->make);
    rocksdb_options_set_use_direct_reads(options, opts->direct_io);
    rocksdb_options_set_use_direct_io_for_flush_and_compaction(options, opts->direct_io);
    family_options[0] = options;
    database->recovery_ns = clock_now_ns(&clock_monotonic);
    database->db = rocksdb_open_column_families(options, opts->path, 1, names, family_options,
                                                &database->family, &error);
    rocksdb_options_destroy(options);
    rename_leveldb_files(error);
    err = rocksdb_err_take(error, opts->path, msg);
    /* An argument that RocksDB refuses here can only be the user's. */
    if (err == EMBTIER_INVALID)
        err = EMBTIER_CONFIG;
    if (err == EMBTIER_CORRUPT && msg && !strstr(msg->text, ".sst"))
        name_damaged_table(opts->path, msg);
    if (err == EMBTIER_CORRUPT && database->recovered_bytes > 0 && msg)
        add_hint(msg);
    /* Nothing was lost by a start that failed. */
    if (err != EMBTIER_OK && !opts->make && database->was_clean &&
        database_seal_write(opts->path, NULL) != EMBTIER_OK)
        log_warn("the next start will not know that the last end was clean", "database=%s",
                 LOG_QUOTED(opts->path));
    TRY(err);
    database->recovery_ns = clock_now_ns(&clock_monotonic) - database->recovery_ns;
    rocksdb_ext_watch_opened(database->watch, database->db);
    if (log_count > 0)
        TRY(leave_old_logs(database, msg));
    if (opts->logged)
        note_marks(database);
    *ret_database = TAKE(database);
    return EMBTIER_OK;
}

static void close_rocksdb(struct database *database)
{
    if (database->family)
        rocksdb_column_family_handle_destroy(TAKE(database->family));
    if (database->db)
        rocksdb_close(TAKE(database->db));
}

enum embtier_err database_close(struct database *database, bool complete, struct err_msg *msg)
{
    enum embtier_err err = database_flush(database, msg);

    if (err != EMBTIER_OK) /* it may have heard of a flush that failed before this one */
        err = database_flush(database, msg);
    if (err == EMBTIER_OK)
        err = rocksdb_err_take(rocksdb_ext_renew_manifest(database->db, database->watch),
                               database->path, msg);
    close_rocksdb(database);
    if (err == EMBTIER_OK && complete)
        err = database_seal_write(database->path, msg);
    database_free(database);
    return err;
}

void database_free(struct database *database)
{
    if (!database)
        return;
    close_rocksdb(database);
    rocksdb_ext_watch_free(database->watch);
    free(database->path);
    free(database);
}

bool database_was_clean(const struct database *database)
{
    return database->was_clean;
}

const char *database_name(bool logged)
{
    return logged ? "logged" : "replay";
}

enum embtier_err database_files(struct database *database, struct rocksdb_ext_files **ret_files,
                                struct err_msg *msg)
{
    char *error = NULL;

    *ret_files = rocksdb_ext_files_new(database->db, database->watch, &error);
    return rocksdb_err_take(error, database->path, msg);
}

uint64_t database_sequence(const struct database *database)
{
    return rocksdb_get_latest_sequence_number(database->db);
}

const char *database_path(const struct database *database)
{
    return database->path;
}

enum embtier_err stored_row_check(const char *path, const struct store_row *row, const char *value,
                                  size_t value_bytes, struct err_msg *msg)
{
    struct stored_row_head head;

    if (value_bytes < sizeof(head))
        return err_set(msg, EMBTIER_CORRUPT,
                       "%s: table %" PRIu32 " row %" PRIu64 ": stored in %zu bytes", path,
                       row->table_id, row->id, value_bytes);
    memcpy(&head, value, sizeof(head));
    if (head.version != STORED_ROW_VERSION)
        return err_set(msg, EMBTIER_CORRUPT,
                       "%s: table %" PRIu32 " row %" PRIu64 ": stored in format %u", path,
                       row->table_id, row->id, head.version);
    if (le32toh(head.weight_bytes_le) != row->weight_bytes ||
        le32toh(head.state_bytes_le) != row->state_bytes ||
        value_bytes != sizeof(head) + (size_t)row->weight_bytes + row->state_bytes)
        return err_set(msg, EMBTIER_CORRUPT,
                       "%s: table %" PRIu32 " row %" PRIu64 ": stored with %" PRIu32 " + %" PRIu32
                       " bytes, the table's rows have %" PRIu32 " + %" PRIu32,
                       path, row->table_id, row->id, le32toh(head.weight_bytes_le),
                       le32toh(head.state_bytes_le), row->weight_bytes, row->state_bytes);
    return EMBTIER_OK;
}

/* Copies a stored value to its row after checking every byte of its head. */
static enum embtier_err row_unpack(const struct database *database, struct store_row *row,
                                   const char *value, size_t value_bytes, struct err_msg *msg)
{
    const size_t head_bytes = sizeof(struct stored_row_head);

    TRY(stored_row_check(database->path, row, value, value_bytes, msg));
    memcpy(row->bytes, value + head_bytes, value_bytes - head_bytes);
    row->found = true;
    return EMBTIER_OK;
}

enum embtier_err database_table_steps(struct database *database,
                                      void (*note)(void *context, uint32_t table_id, uint64_t step),
                                      void *context, struct err_msg *msg)
{
    const struct row_key start = row_key_make(0, 0), end = row_key_make(1, 0);
    rocksdb_readoptions_t *const read = rocksdb_readoptions_create();
    enum embtier_err err = EMBTIER_OK;
    rocksdb_iterator_t *at;
    char *error = NULL;

    rocksdb_readoptions_set_iterate_upper_bound(read, (const char *)end.bytes, sizeof(end));
    at = rocksdb_create_iterator(database->db, read);
    for (rocksdb_iter_seek(at, (const char *)start.bytes, sizeof(start)); rocksdb_iter_valid(at);
         rocksdb_iter_next(at)) {
        size_t key_bytes, value_bytes;
        const char *const key = rocksdb_iter_key(at, &key_bytes);
        const char *const value = rocksdb_iter_value(at, &value_bytes);
        uint64_t step_le;

        if (key_bytes != sizeof(start) || value_bytes != sizeof(step_le)) {
            err = err_set(msg, EMBTIER_CORRUPT, "%s: a table's step is stored in %zu bytes",
                          database->path, value_bytes);
            break;
        }
        memcpy(&step_le, value, sizeof(step_le));
        note(context, (uint32_t)row_key_id(key), le64toh(step_le));
    }
    rocksdb_iter_get_error(at, &error);
    rocksdb_iter_destroy(at);
    rocksdb_readoptions_destroy(read);
    TRY(err);
    return rocksdb_err_take(error, database->path, msg);
}

static enum embtier_err read_chunk(struct database *database, struct store_row *rows,
                                   uint32_t count, uint64_t *absent, struct err_msg *msg)
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
    rocksdb_batched_multi_get_cf(database->db, database->setup->read, database->family, count,
                                 key_list, key_bytes, values, errors, true);
    for (uint32_t i = 0; i < count; i++) {
        struct err_msg *row_msg = first == EMBTIER_OK ? msg : NULL;
        struct store_row *row = &rows[i];

        row->found = false;
        row->err = rocksdb_err_take(errors[i], database->path, row_msg);
        if (row->err == EMBTIER_OK && values[i]) {
            size_t value_bytes;
            const char *value = rocksdb_pinnableslice_value(values[i], &value_bytes);

            row->err = row_unpack(database, row, value, value_bytes, row_msg);
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

enum embtier_err database_read(struct database *database, struct store_row *rows, uint32_t count,
                               struct err_msg *msg)
{
    enum embtier_err first = EMBTIER_OK;
    uint64_t absent = 0;

    for (uint32_t done = 0; done < count;) {
        const uint32_t chunk = MIN(count - done, (uint32_t)READ_CHUNK_ROWS);
        const enum embtier_err err =
            read_chunk(database, rows + done, chunk, &absent, first == EMBTIER_OK ? msg : NULL);

        if (first == EMBTIER_OK)
            first = err;
        done += chunk;
    }
    count_add(&database->rows_read, count);
    count_add(&database->rows_absent, absent);
    return first;
}

/* A write that would have had to wait says "busy". When the reason is that flushes or compactions
 * fail, that is no answer: trying again does not help before they do not. */
static enum embtier_err database_why_busy(struct database *database, struct err_msg *msg)
{
    char *error = rocksdb_ext_watch_error(database->watch);

    if (error)
        return rocksdb_err_take(error, database->path, msg);
    return err_set(msg, EMBTIER_BUSY, "%s: write buffers are full, flush or compaction is behind",
                   database->path);
}

static uint64_t database_property(struct database *database, const char *name)
{
    uint64_t value = 0;

    return rocksdb_property_int(database->db, name, &value) == 0 ? value : 0;
}

static bool database_is_behind(struct database *database)
{
    if (database_property(database, "rocksdb.num-immutable-mem-table") >= DATABASE_WRITE_BUFFERS)
        return true;
    if (atomic_load_explicit(&database->is_paused, memory_order_relaxed))
        return false;
    return atomic_load_explicit(&database->level0_files, memory_order_relaxed) >=
               DATABASE_LEVEL0_FILES_MAX ||
           count_get(&database->pending_bytes) >= DATABASE_PENDING_BYTES_MAX;
}

/* Into a batch for the log: false if there is nothing to be said. */
static bool batch_mark(struct database *database, rocksdb_writebatch_t *batch,
                       struct rocksdb_ext_synced *ret_synced)
{
    unsigned char mark[LOG_MARK_BYTES];

    if (!database->logged || !rocksdb_ext_watch_synced(database->watch, ret_synced))
        return false;
    log_mark_make(&database->marks,
                  &(struct log_position){ ret_synced->first, ret_synced->log, ret_synced->bytes },
                  mark);
    rocksdb_writebatch_put_log_data(batch, (const char *)mark, sizeof(mark));
    return true;
}

/* The step that the table of @row is at goes into the batch, too. */
static void batch_step(rocksdb_writebatch_t *batch, const struct store_row *row)
{
    const struct row_key key = step_key_make(row->table_id);
    const uint64_t step_le = htole64(row->table_step);

    if (row->table_step > 0)
        rocksdb_writebatch_put(batch, (const char *)key.bytes, sizeof(key), (const char *)&step_le,
                               sizeof(step_le));
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

static uint64_t log_failures(const struct database *database)
{
    return rocksdb_ext_watch_log_failures(database->watch);
}

/* Whether more may be written, and all that has been written since log_failures() said @failures is
 * in the log. */
static enum embtier_err log_check(const struct database *database, uint64_t failures,
                                  struct err_msg *msg)
{
    if (!database->logged)
        return EMBTIER_OK;
    return rocksdb_err_take(rocksdb_ext_watch_log_error(database->watch, failures), database->path,
                            msg);
}

enum embtier_err database_write(struct database *database, const struct store_row *rows,
                                uint32_t count, struct err_msg *msg)
{
    const struct rocksdb_setup *const setup = database->setup;
    const uint64_t failures = log_failures(database);
    struct rocksdb_ext_synced synced = { 0 };
    rocksdb_writebatch_t *batch;
    char *error = NULL;
    enum embtier_err err;
    uint64_t bytes;
    bool is_marked;

    if (count == 0)
        return EMBTIER_OK;
    if (database_is_behind(database))
        return database_why_busy(database, msg);
    TRY(log_check(database, failures, msg));
    if (!rocksdb_ext_begin_write(database->watch))
        return database_why_busy(database, msg);
    batch = rocksdb_writebatch_create();
    is_marked = batch_mark(database, batch, &synced);
    bytes = batch_fill(batch, rows, count);
    for (uint32_t i = 0; database->logged && i < count; i++)
        if (i + 1 == count || rows[i + 1].table_id != rows[i].table_id)
            batch_step(batch, &rows[i]);
    rocksdb_write(database->db, database->logged ? setup->log : setup->write, batch, &error);
    rocksdb_writebatch_destroy(batch);
    rocksdb_ext_end_write(database->watch);
    err = rocksdb_err_take(error, database->path, msg);
    if (err == EMBTIER_BUSY)
        return database_why_busy(database, msg);
    TRY(err);
    TRY(log_check(database, failures, msg));
    if (is_marked)
        rocksdb_ext_watch_marked(database->watch, &synced);
    count_add(&database->rows_written, count);
    count_add(&database->row_bytes_written, bytes);
    return EMBTIER_OK;
}

enum embtier_err databases_sync_logs(struct database *const *databases, uint32_t count,
                                     bool by_syncer, struct err_msg *msg)
{
    struct rocksdb_ext_watch *watches[DATABASES_SYNC_MAX] = { NULL };
    uint64_t failures[DATABASES_SYNC_MAX];

    assert(count <= DATABASES_SYNC_MAX);
    for (uint32_t i = 0; i < count; i++) {
        watches[i] = databases[i]->watch;
        failures[i] = log_failures(databases[i]);
    }
    rocksdb_ext_sync_logs(watches, count, databases[0]->setup->io_uring, by_syncer);
    for (uint32_t i = 0; i < count; i++)
        TRY(log_check(databases[i], failures[i], msg));
    return EMBTIER_OK;
}

void database_mark_log(struct database *database)
{
    struct rocksdb_ext_synced synced = { 0 };
    rocksdb_writebatch_t *const batch = rocksdb_writebatch_create();
    char *error = NULL;

    if (log_check(database, log_failures(database), NULL) == EMBTIER_OK &&
        batch_mark(database, batch, &synced) && rocksdb_ext_begin_write(database->watch)) {
        rocksdb_write(database->db, database->setup->log, batch, &error);
        rocksdb_ext_end_write(database->watch);
        if (rocksdb_err_take(error, database->path, NULL) == EMBTIER_OK)
            rocksdb_ext_watch_marked(database->watch, &synced);
    }
    rocksdb_writebatch_destroy(batch);
}

enum embtier_err database_flush(struct database *database, struct err_msg *msg)
{
    return rocksdb_err_take(rocksdb_ext_flush(database->db, database->watch, FLUSH_PATIENCE_MS),
                            database->path, msg);
}

/* So that one more is no reason to refuse writes (database_is_behind()). RocksDB would not wait, as
 * it has no limit of its own (WRITE_BUFFERS_NO_LIMIT). */
static enum embtier_err await_flushes(struct database *database, const _Atomic bool *give_up,
                                      struct err_msg *msg)
{
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);

    for (;;) {
        if (give_up && atomic_load(give_up))
            return err_set(msg, EMBTIER_SHUTDOWN, "the server is shutting down");
        if (database_property(database, "rocksdb.num-immutable-mem-table") == 0)
            return EMBTIER_OK;
        if (database_is_failed(database) ||
            clock_now_ns(&clock_monotonic) - began_ns > FLUSHES_PATIENCE_NS)
            return database_why_busy(database, msg);
        nanosleep(&(struct timespec){ .tv_nsec = FLUSHES_PAUSE_NS }, NULL);
    }
}

enum embtier_err database_shorten_log(struct database *database, uint64_t most_bytes,
                                      const _Atomic bool *give_up, struct err_msg *msg)
{
    if (database_property(database, "rocksdb.cur-size-all-mem-tables") <= most_bytes)
        return delete_old_logs(database, msg);
    if (atomic_load_explicit(&database->level0_files, memory_order_relaxed) >= SHORTEN_LEVEL0_FILES)
        return err_set(msg, EMBTIER_BUSY, "%s: compaction is behind", database->path);
    TRY(await_flushes(database, give_up, msg));
    /* A log that has failed is followed by another in database_resume() only. */
    TRY(log_check(database, log_failures(database), msg));
    if (database_property(database, "rocksdb.cur-size-active-mem-table") > most_bytes)
        TRY(rocksdb_err_take(rocksdb_ext_flush(database->db, database->watch, 0), database->path,
                             msg));
    return delete_old_logs(database, msg);
}

/* The keys of table @table_id are [start, end). The last table id is never given out. */
static void table_range(uint32_t table_id, struct row_key *ret_start, struct row_key *ret_end)
{
    *ret_start = row_key_make(table_id, 0);
    *ret_end = row_key_make(table_id + 1, 0);
}

/* BUSY when it had to wait. */
static enum embtier_err try_delete_table(struct database *database, uint32_t table_id,
                                         struct err_msg *msg)
{
    const struct row_key step = step_key_make(table_id);
    struct row_key start, end;
    rocksdb_writebatch_t *batch;
    char *error = NULL;

    if (database_is_behind(database) && database_is_failed(database))
        return database_why_busy(database, msg);
    TRY(log_check(database, log_failures(database), msg));
    if (!rocksdb_ext_begin_write(database->watch))
        return err_set(msg, EMBTIER_BUSY, "%s: it is getting over an error", database->path);
    table_range(table_id, &start, &end);
    batch = rocksdb_writebatch_create();
    rocksdb_writebatch_delete_range(batch, (const char *)start.bytes, sizeof(start),
                                    (const char *)end.bytes, sizeof(end));
    if (database->logged)
        rocksdb_writebatch_delete(batch, (const char *)step.bytes, sizeof(step));
    rocksdb_write(database->db, database->logged ? database->setup->log : database->setup->write,
                  batch, &error);
    rocksdb_writebatch_destroy(batch);
    rocksdb_ext_end_write(database->watch);
    return rocksdb_err_take(error, database->path, msg);
}

enum embtier_err database_delete_table(struct database *database, uint32_t table_id,
                                       struct err_msg *msg)
{
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);
    enum embtier_err err;

    /* It waits here, not in RocksDB: who resumes the database waits for who writes to it. */
    while ((err = try_delete_table(database, table_id, msg)) == EMBTIER_BUSY &&
           clock_now_ns(&clock_monotonic) - began_ns < FLUSH_PATIENCE_MS * NS_PER_MS)
        nanosleep(&(struct timespec){ .tv_nsec = FLUSHES_PAUSE_NS }, NULL);
    TRY(err);
    return database_flush(database, msg); /* after which it need not be in the log */
}

enum embtier_err database_compact_table(struct database *database, uint32_t table_id,
                                        struct err_msg *msg)
{
    struct row_key start, end;
    char *error = NULL;

    table_range(table_id, &start, &end);
    /* Files with nothing else in them go first, which takes no space. */
    rocksdb_delete_file_in_range_cf(database->db, database->family, (const char *)start.bytes,
                                    sizeof(start), (const char *)end.bytes, sizeof(end), &error);
    TRY(rocksdb_err_take(error, database->path, msg));
    TRY(rocksdb_err_take(rocksdb_ext_compact_range(database->db, (const char *)start.bytes,
                                                   sizeof(start), (const char *)end.bytes,
                                                   sizeof(end)),
                         database->path, msg));
    error = rocksdb_ext_watch_error(database->watch); /* of others' work, such as a flush */
    return rocksdb_err_take(error, database->path, msg);
}

static uint32_t database_level0_files(struct database *database)
{
    char *text = rocksdb_property_value(database->db, "rocksdb.num-files-at-level0");
    const uint32_t files = text ? (uint32_t)strtoul(text, NULL, 10) : 0;

    rocksdb_free(text);
    return files;
}

void database_poll_debt(struct database *database, struct database_debt *ret_debt)
{
    /* Running last: what is due and not running now was not running when it was found due, or has
     * ended since; either way asking again finds it out. */
    ret_debt->due = database_property(database, "rocksdb.compaction-pending") != 0;
    ret_debt->level0_files = database_level0_files(database);
    ret_debt->pending_bytes =
        database_property(database, "rocksdb.estimate-pending-compaction-bytes");
    ret_debt->running = (uint32_t)database_property(database, "rocksdb.num-running-compactions");
    atomic_store_explicit(&database->level0_files, ret_debt->level0_files, memory_order_relaxed);
    atomic_store_explicit(&database->pending_bytes, ret_debt->pending_bytes, memory_order_relaxed);
}

enum embtier_err database_set_compacting(struct database *database, bool on, struct err_msg *msg)
{
    return rocksdb_err_take(rocksdb_ext_set_option(database->db, database->watch,
                                                   "disable_auto_compactions",
                                                   on ? "false" : "true"),
                            database->path, msg);
}

void database_set_paused(struct database *database, bool is_paused)
{
    atomic_store(&database->is_paused, is_paused);
}

bool database_is_failed(struct database *database)
{
    char *error = rocksdb_ext_watch_error(database->watch);
    const bool failed = error != NULL;

    free(error);
    return failed;
}

/* What is written first when a database is resumed is its write buffers: it is not begun before
 * there is reason to think that the disk takes as much. */
static enum embtier_err database_probe(struct database *database, struct err_msg *msg)
{
    const uint64_t buffers = database_property(database, "rocksdb.cur-size-all-mem-tables");
    const uint64_t bytes = buffers + buffers / 4 + PROBE_SLACK;
    _cleanup_(freep) char *path = path_join(database->path, PROBE_FILE);
    _cleanup_(closep) int fd = -1;
    enum embtier_err err = EMBTIER_OK;
    struct statvfs room;

    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", database->path);
    if (statvfs(database->path, &room) == 0 && room.f_bavail * room.f_frsize < bytes)
        return err_set(msg, EMBTIER_NO_SPACE, "%s: room for less than %" PRIu64 " bytes",
                       database->path, bytes);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set_errno(msg, errno, "%s", path);
    if (pwrite(fd, path, 1, (off_t)bytes) != 1 || fsync(fd) != 0) /* a hole, which takes no room */
        err = err_set_errno(msg, errno, "%s", path);
    unlink(path);
    return err;
}

enum embtier_err database_resume(struct database *database, struct err_msg *msg)
{
    TRY(database_probe(database, msg));
    return rocksdb_err_take(rocksdb_ext_resume(database->db, database->watch), database->path, msg);
}

void database_give_up(struct database *database)
{
    rocksdb_cancel_all_background_work(database->db, 0);
}

void database_add_stats(struct database *database, struct store_stats *stats)
{
    stats->shards_unclean += !database->logged && !database->was_clean;
    stats->recovered_log_bytes += database->recovered_bytes;
    stats->log_recovery_ns += database->recovered_bytes > 0 ? database->recovery_ns : 0;
    stats->rows_read += count_get(&database->rows_read);
    stats->rows_absent += count_get(&database->rows_absent);
    stats->rows_written += count_get(&database->rows_written);
    stats->row_bytes_written += count_get(&database->row_bytes_written);
    stats->stored_bytes += database_property(database, "rocksdb.live-sst-files-size");
    stats->pending_compaction_bytes +=
        database_property(database, "rocksdb.estimate-pending-compaction-bytes");
}
