/* SPDX-License-Identifier: Apache-2.0 */
/* database.c: opens a database, after checks for damage that RocksDB would not notice, and closes
 * it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "store/database/database_impl.h"
#include "store/database/database_seal.h"
#include "store/database/logs/log_damage.h"
#include "store/database/logs/log_ends.h"
#include "store/database/row_format.h"
#include "store/files/durable_file.h"
#include "store/files/file_tree.h"

#define FILES_PER_OPENING_THREAD 8

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

/* A database that was open has at least one log. RocksDB notices a missing log only if it was
 * synced and is not the newest. */
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

/* RocksDB finally looks for a missing 000008.sst under its LevelDB name, and its error names
 * that. */
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

/* True if a message about the database at @path names such a file. The path itself may contain
 * @name, and does not count. */
static bool names_file(const struct err_msg *msg, const char *path, const char *name)
{
    const size_t length = strlen(path);

    for (const char *at = msg->text; *at;) {
        const bool is_path = strncmp(at, path, length) == 0;

        if (!is_path && strncmp(at, name, strlen(name)) == 0)
            return true;
        at += is_path ? length : 1;
    }
    return false;
}

/* Adds the way out of a damaged log, other than going back to a checkpoint. Damage of other files,
 * which the message names, has no such way. */
static void add_hint(const char *path, struct err_msg *msg)
{
    if (names_file(msg, path, "MANIFEST") || names_file(msg, path, "CURRENT") ||
        names_file(msg, path, ".sst"))
        return;
    err_append(msg, " (\"rocksdb.options: wal_recovery_mode=kPointInTimeRecovery\" starts with the "
                    "data before the damage; acknowledged data behind it is lost then)");
}

/* RocksDB drops a log when its contents have been flushed. If a log is damaged at its beginning, a
 * start that takes the data before the damage flushes nothing of it. The log would stay in use:
 * each checkpoint would fail because of it, and the next start would find the damage again. So this
 * flushes a deletion. */
static enum embtier_err leave_old_logs(struct database *database, struct err_msg *msg)
{
    const struct row_key key = row_key_make(UINT32_MAX, 0); /* no table has this id */
    struct log_count count = { 0 };
    char *error = NULL;

    TRY(count_logs(database->path, &count, msg));
    if (count.files == 1)
        return EMBTIER_OK;
    rocksdb_delete_cf(database->db, database->setup->log_patient, database->family,
                      (const char *)key.bytes, sizeof(key), &error);
    TRY(rocksdb_err_take(error, database->path, msg));
    TRY(database_flush(database, msg));
    return database_delete_old_logs(database, msg);
}

/* False if the user has chosen a mode that cuts logs where they are damaged: damage then refuses no
 * start. */
static bool logs_are_checked(const struct database_opts *opts)
{
    return opts->logged && rocksdb_options_get_wal_recovery_mode(opts->setup->options) ==
                               rocksdb_tolerate_corrupted_tail_records_recovery;
}

/* Refuses damage that RocksDB would take for the torn end of its MANIFEST or log. Mends ends of
 * logs that RocksDB would not take for torn. Only the current MANIFEST is checked: another one may
 * be new, incomplete and not yet used. */
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

/* Notes that all logs written from now on have marks. Without the note, as on a full disk, a crash
 * is handled as with logs of earlier versions. */
static void note_marks(const struct database *database)
{
    struct err_msg msg = { { 0 } };
    struct log_count count = { 0 };
    enum embtier_err err = count_logs(database->path, &count, &msg);

    if (err == EMBTIER_OK)
        err = log_note_write(database->path, count.newest, &msg);
    if (err != EMBTIER_OK)
        log_warn("after a loss of power, the unfinished end of a log may make the next start fail",
                 "database=%s err=%s why=%s", LOG_QUOTED(database->path), err_name(err),
                 LOG_QUOTED(msg.text));
}

/* Checks the files before RocksDB opens them. After a clean close the seal is enough. *@log_count
 * stays 0 unless there are logs to recover. */
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
        add_hint(opts->path, msg);
    return err;
}

/* RocksDB starts all its threads that open files, even for few files or none. Each shard has two
 * databases, so a start would make hundreds of threads that have no work. */
static int opening_threads(const struct database_opts *opts)
{
    const int threads_max = rocksdb_options_get_max_file_opening_threads(opts->setup->options);
    DIR *const folder = opts->make ? NULL : opendir(opts->path);
    int threads = 1, files = 0;

    if (folder) {
        while (readdir(folder))
            files++; /* few of them are not tables */
        closedir(folder);
    }
    threads += files / FILES_PER_OPENING_THREAD;
    return MIN(threads, threads_max);
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

    if (!database)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", opts->path);
    pthread_mutex_init(&database->sync_lock, NULL);
    if (!(database->path = strdup(opts->path)))
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", opts->path);
    database->was_clean = !opts->put_back;
    TRY(database_check(database, opts, &log_count, msg));
    database->setup = opts->setup;
    database->logged = opts->logged;
    database->marks = opts->marks;
    options = rocksdb_options_create_copy(opts->setup->options);
    database->activity = opts->activity;
    database->watch = rocksdb_ext_watch_new(opts->activity, options, opts->path);
    rocksdb_ext_log_to(options, opts->path);
    rocksdb_options_set_create_if_missing(options, opts->make);
    rocksdb_options_set_max_file_opening_threads(options, opening_threads(opts));
    rocksdb_options_set_use_direct_reads(options, opts->direct_io);
    rocksdb_options_set_use_direct_io_for_flush_and_compaction(options, opts->direct_io);
    family_options[0] = options;
    database->recovery_ns = clock_now_ns(&clock_monotonic);
    database->db = rocksdb_open_column_families(options, opts->path, 1, names, family_options,
                                                &database->family, &error);
    rocksdb_options_destroy(options);
    rename_leveldb_files(error);
    err = rocksdb_err_take(error, opts->path, msg);
    /* Only the user's options can make RocksDB refuse an argument here. */
    if (err == EMBTIER_INVALID)
        err = EMBTIER_CONFIG;
    if (err == EMBTIER_CORRUPT && msg && !names_file(msg, opts->path, ".sst"))
        name_damaged_table(opts->path, msg);
    if (err == EMBTIER_CORRUPT && database->recovered_bytes > 0 && msg)
        add_hint(opts->path, msg);
    /* Seals it again: a start that failed has lost nothing. */
    if (err != EMBTIER_OK && !opts->make && database->was_clean &&
        database_seal_write(opts->path, NULL) != EMBTIER_OK)
        log_warn("the next start will treat this clean stop as a crash", "database=%s",
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

    if (err != EMBTIER_OK) /* the first may report an earlier flush's failure */
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
    pthread_mutex_destroy(&database->sync_lock);
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
