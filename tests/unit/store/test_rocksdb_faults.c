/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which of the faults that the store works around the installed RocksDB still has.
 *
 * Each fault is provoked in plain RocksDB, without the store. It runs in its own process, since
 * many faults end the process. A test fails if the table in docs/internals/store/rocksdb.md is no
 * longer right: the workaround can go, or RocksDB has changed its habits. Thread: each child has
 * its own, and RocksDB's. */
#undef _FILE_OFFSET_BITS /* with it, open and open64 are one symbol */

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <rocksdb/c.h>

#include "store/rocksdb/rocksdb_ext.h"
#include "tests/unit/store/store_fixture.h"

/* ---- Calls that fail ---- */

/* The next @count calls of one kind fail, on files whose names contain @name. */
struct fault {
    const char *name;
    int error;
    _Atomic int count;
    _Atomic bool is_met; /* a call has failed */
};
static struct fault failing_write, failing_open, failing_access;
static _Atomic uint64_t free_bytes = UINT64_MAX; /* upper bound of what statvfs() reports */

static bool fails(struct fault *fault, const char *path)
{
    if (atomic_load(&fault->count) <= 0 || !strstr(path, fault->name))
        return false;
    atomic_fetch_sub(&fault->count, 1);
    atomic_store(&fault->is_met, true);
    errno = fault->error;
    return true;
}

static void fail_calls(struct fault *fault, const char *name, int error, int count)
{
    fault->name = name;
    fault->error = error;
    atomic_store(&fault->count, count);
}

/* RocksDB calls these in place of the C library's functions. */
#define INSTEAD __attribute__((visibility("default")))

INSTEAD ssize_t write(int fd, const void *bytes, size_t count)
{
    char link[64], path[PATH_MAX];
    ssize_t length;

    if (atomic_load(&failing_write.count) > 0) {
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        length = readlink(link, path, sizeof(path) - 1);
        path[length > 0 ? length : 0] = '\0';
        if (fails(&failing_write, path))
            return -1;
    }
    return syscall(SYS_write, fd, bytes, count);
}

INSTEAD int open(const char *path, int flags, ...)
{
    va_list args;
    mode_t mode;

    va_start(args, flags);
    mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails(&failing_open, path) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

INSTEAD int access(const char *path, int mode)
{
    return fails(&failing_access, path) ? -1 : (int)syscall(SYS_faccessat, AT_FDCWD, path, mode, 0);
}

INSTEAD int statvfs(const char *path, struct statvfs *ret_info)
{
    const uint64_t limit = atomic_load(&free_bytes);

    if (statvfs64(path, (struct statvfs64 *)ret_info) != 0)
        return -1;
    ret_info->f_bavail = MIN(ret_info->f_bavail, limit / ret_info->f_frsize);
    ret_info->f_bfree = MIN(ret_info->f_bfree, limit / ret_info->f_frsize);
    return 0;
}

/* ---- A database ---- */

#define CHILD_S 300 /* no child takes this long, unless RocksDB never returns */
#define ROWS    2000
#define VALUE   100
/* The head of a MANIFEST record: checksum, length and type. */
#define RECORD_HEAD 7

struct subject {
    const char *folder;
    rocksdb_options_t *options;
    rocksdb_t *db;
    rocksdb_writeoptions_t *logged;
    rocksdb_readoptions_t *reads;
    char *error; /* of the last failed call */
};

static bool failed(struct subject *s)
{
    const bool has_failed = s->error != NULL;

    rocksdb_free(TAKE(s->error));
    return has_failed;
}

/* Ends the child if a call failed that must work: the child has then shown nothing. */
static void must_work(struct subject *s)
{
    if (!s->error)
        return;
    fprintf(stderr, "RocksDB: %s\n", s->error);
    _exit(2);
}

static void subject_open(struct subject *s)
{
    s->db = rocksdb_open(s->options, s->folder, &s->error);
}

static void subject_reopen(struct subject *s, void (*between)(struct subject *s))
{
    rocksdb_close(s->db);
    between(s);
    subject_open(s);
}

static void put(struct subject *s, uint32_t row)
{
    char key[16], value[VALUE];

    snprintf(key, sizeof(key), "%08" PRIu32, row);
    for (size_t i = 0; i < sizeof(value); i++)
        value[i] = (char)(row * 2654435761U >> (i % 24));
    rocksdb_put(s->db, s->logged, key, 8, value, sizeof(value), &s->error);
}

static void flush(struct subject *s)
{
    rocksdb_flushoptions_t *options = rocksdb_flushoptions_create();

    rocksdb_flush(s->db, options, &s->error);
    rocksdb_flushoptions_destroy(options);
}

static void put_file(struct subject *s, uint32_t from, uint32_t count)
{
    for (uint32_t row = from; row < from + count; row++) {
        put(s, row);
        must_work(s);
    }
    flush(s);
    must_work(s);
}

static bool has(struct subject *s, uint32_t row)
{
    char key[16], *value;
    size_t bytes;

    snprintf(key, sizeof(key), "%08" PRIu32, row);
    value = rocksdb_get(s->db, s->reads, key, 8, &bytes, &s->error);
    must_work(s);
    rocksdb_free(value);
    return value != NULL;
}

static uint64_t property(struct subject *s, const char *name)
{
    uint64_t value = 0;

    if (rocksdb_property_int(s->db, name, &value) != 0)
        _exit(2);
    return value;
}

static uint64_t level0_files(struct subject *s)
{
    char *const text = rocksdb_property_value(s->db, "rocksdb.num-files-at-level0");
    const uint64_t count = strtoull(text, NULL, 10);

    rocksdb_free(text);
    return count;
}

static unsigned files_of(struct subject *s)
{
    const rocksdb_livefiles_t *files = rocksdb_livefiles(s->db);
    const int count = rocksdb_livefiles_count(files);

    rocksdb_livefiles_destroy(files);
    return (unsigned)count;
}

static void delete_range(struct subject *s, const char *start, const char *end)
{
    rocksdb_writebatch_t *batch = rocksdb_writebatch_create();

    rocksdb_writebatch_delete_range(batch, start, strlen(start), end, strlen(end));
    rocksdb_write(s->db, s->logged, batch, &s->error);
    rocksdb_writebatch_destroy(batch);
    must_work(s);
}

/* Finds the file whose name contains @part; the last of several. */
static void find_file(struct subject *s, const char *part, char ret_path[static PATH_MAX])
{
    if (fixture_shell(ret_path, PATH_MAX, "ls %s/*%s* | tail -1", s->folder, part) == 0)
        _exit(2);
    ret_path[strcspn(ret_path, "\n")] = '\0';
}

/* ---- Faults: each function returns true if the fault shows ---- */

/* A write of the info log fails, and then another. */
static bool info_log_ends_the_process(struct subject *s)
{
    subject_open(s);
    must_work(s);
    fail_calls(&failing_write, "/LOG", ENOSPC, 1000);
    for (uint32_t i = 0; i < 50; i++)
        put_file(s, i, 1);
    return false;
}

/* A read with fill_cache off reads parts of an index. */
static bool fill_cache_off_keeps_metadata_out(struct subject *s)
{
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
    rocksdb_cache_t *cache = rocksdb_cache_create_lru(64 * MIB);
    uint64_t before;

    rocksdb_block_based_options_set_block_cache(table, cache);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 1);
    rocksdb_block_based_options_set_index_type(
        table, rocksdb_block_based_table_index_type_two_level_index_search);
    rocksdb_block_based_options_set_metadata_block_size(table, 512);
    rocksdb_options_set_block_based_table_factory(s->options, table);
    subject_open(s);
    must_work(s);
    put_file(s, 0, ROWS);
    rocksdb_readoptions_set_fill_cache(s->reads, 0);
    has(s, 0);
    before = rocksdb_cache_get_usage(cache);
    for (uint32_t row = 0; row < ROWS; row++)
        has(s, row);
    return rocksdb_cache_get_usage(cache) - before < 1024;
}

/* Opens the MANIFEST. @ret_at: where the record begins that adds the file of row 1. */
static int find_record(struct subject *s, off_t *ret_at)
{
    char path[PATH_MAX], bytes[4096];
    uint32_t length;
    ssize_t count;
    int fd;

    find_file(s, "MANIFEST", path);
    fd = open(path, O_RDWR);
    count = pread(fd, bytes, sizeof(bytes), 0);
    for (ssize_t at = 0; at + RECORD_HEAD < count; at += RECORD_HEAD + length) {
        length = (uint8_t)bytes[at + 4] + 256U * (uint8_t)bytes[at + 5];
        *ret_at = at;
        if (memmem(bytes + at, RECORD_HEAD + length, "00000001", 8))
            return fd;
    }
    _exit(2);
}

static void cut_manifest(struct subject *s)
{
    off_t at;
    int fd = find_record(s, &at);

    if (ftruncate(fd, at + RECORD_HEAD + 5) != 0)
        _exit(2);
    close(fd);
}

static void change_length(struct subject *s)
{
    off_t at;
    int fd = find_record(s, &at);

    if (pwrite(fd, (unsigned char[]){ 0xff, 0x7f }, 2, at + 4) != 2)
        _exit(2);
    close(fd);
}

/* True if a damaged MANIFEST is accepted, without the row that it no longer has. */
static bool manifest_is_accepted(struct subject *s, void (*damage)(struct subject *s))
{
    rocksdb_writeoptions_disable_WAL(s->logged, 1);
    subject_open(s);
    must_work(s);
    put_file(s, 0, 1);
    put_file(s, 1, 1);
    subject_reopen(s, damage);
    return !failed(s) && has(s, 0) && !has(s, 1);
}

static bool cut_manifest_is_accepted(struct subject *s)
{
    return manifest_is_accepted(s, cut_manifest);
}

static bool wrong_length_at_the_end_is_accepted(struct subject *s)
{
    return manifest_is_accepted(s, change_length);
}

static void delete_log(struct subject *s)
{
    char path[PATH_MAX];

    find_file(s, ".log", path);
    if (unlink(path) != 0)
        _exit(2);
}

/* Has RocksDB write down which logs were synced. */
static void track_logs(struct subject *s)
{
    rocksdb_options_t *const options = rocksdb_options_create();

    rocksdb_get_options_from_string(s->options, "track_and_verify_wals_in_manifest=true", options,
                                    &s->error);
    must_work(s);
    rocksdb_options_destroy(s->options);
    s->options = options;
    rocksdb_writeoptions_set_sync(s->logged, 1);
}

static bool deleted_log_is_not_noticed(struct subject *s)
{
    track_logs(s);
    rocksdb_options_set_wal_recovery_mode(s->options, 1); /* absolute consistency */
    subject_open(s);
    must_work(s);
    put(s, 0);
    must_work(s);
    subject_reopen(s, delete_log);
    return !failed(s) && !has(s, 0);
}

/* access() fails with an error that RocksDB does not expect. */
static bool access_ends_the_process(struct subject *s)
{
    fail_calls(&failing_access, "CURRENT", EPERM, 1);
    subject_open(s);
    return false;
}

static void damage_properties(struct subject *s)
{
    char path[PATH_MAX], bytes[64 * KIB];
    const char *found;
    ssize_t count;
    int fd;

    find_file(s, ".sst", path);
    fd = open(path, O_RDWR);
    count = pread(fd, bytes, sizeof(bytes), 0);
    found = count > 0 ? memmem(bytes, (size_t)count, "entries", 7) : NULL;
    if (!found || pwrite(fd, "x", 1, found - bytes) != 1)
        _exit(2);
    close(fd);
}

static bool damaged_table_is_blamed_on_the_manifest(struct subject *s)
{
    bool is_blamed;

    subject_open(s);
    must_work(s);
    put_file(s, 0, 10);
    subject_reopen(s, damage_properties);
    is_blamed = s->error && strstr(s->error, "MANIFEST");
    return is_blamed;
}

/* Nothing else is in the database. */
static bool mark_of_a_deleted_range_stays(struct subject *s)
{
    subject_open(s);
    must_work(s);
    delete_range(s, "0", "1");
    flush(s);
    must_work(s);
    for (int i = 0; i < 2; i++)
        rocksdb_compact_range(s->db, NULL, 0, NULL, 0);
    return files_of(s) > 0;
}

/* Happens at the second try, with a deleted range in the write buffer. */
static bool log_that_cannot_be_made_ends_the_process(struct subject *s)
{
    subject_open(s);
    must_work(s);
    put(s, 0);
    must_work(s);
    delete_range(s, "1", "2");
    fail_calls(&failing_open, ".log", ENOSPC, 10);
    for (int i = 0; i < 3; i++) {
        flush(s);
        failed(s);
    }
    return false;
}

/* RocksDB refuses until there is twice the space of its files, though the result would fit in
 * less. */
static bool compaction_without_space_refuses_others(struct subject *s)
{
    rocksdb_options_set_disable_auto_compactions(s->options, 1);
    subject_open(s);
    must_work(s);
    for (int i = 0; i < 4; i++)
        put_file(s, 0, ROWS);
    atomic_store(&free_bytes, 2 * ROWS * VALUE);
    fail_calls(&failing_write, ".sst", ENOSPC, 1);
    for (int i = 0; i < 2; i++)
        rocksdb_compact_range(s->db, NULL, 0, NULL, 0);
    return level0_files(s) > 1;
}

/* Files remain to be compacted after a manual compaction has failed. */
static bool failed_compaction_is_not_counted_again(struct subject *s)
{
    struct rocksdb_ext_activity *activity = rocksdb_ext_activity_new();
    struct rocksdb_ext_watch *watch;

    rocksdb_options_set_disable_auto_compactions(s->options, 1);
    watch = rocksdb_ext_watch_new(activity, s->options, s->folder); /* hides the error */
    subject_open(s);
    must_work(s);
    rocksdb_ext_watch_opened(watch, s->db);
    for (int i = 0; i < 8; i++)
        put_file(s, 0, ROWS);
    if (!property(s, "rocksdb.compaction-pending"))
        _exit(2);
    fail_calls(&failing_write, ".sst", EIO, 1);
    rocksdb_compact_range(s->db, NULL, 0, NULL, 0);
    return level0_files(s) == 8 && !property(s, "rocksdb.compaction-pending");
}

static void wait_ms(unsigned ms)
{
    usleep(ms * 1000);
}

#define PATIENCE_TRIES 3000 /* of 20 ms: a minute, for slow threads */

/* Calls Resume() alone: rocksdb_ext_resume() does no more if the watch has no database and has seen
 * no failure. True if RocksDB answers with @error. */
static bool resume_fails(struct subject *s, struct rocksdb_ext_watch *watch, const char *error)
{
    char *const answer = rocksdb_ext_resume(s->db, watch);
    const bool is_same = answer && strcmp(answer, error) == 0;

    rocksdb_free(answer);
    return is_same;
}

/* RocksDB takes no more rows although the disk would. It answers Resume() with the error of the
 * flush. */
static bool failed_flush_is_for_good(struct subject *s)
{
    rocksdb_options_t *const none = rocksdb_options_create();
    struct rocksdb_ext_watch *watch =
        rocksdb_ext_watch_new(rocksdb_ext_activity_new(), none, s->folder);

    subject_open(s);
    must_work(s);
    put(s, 0);
    must_work(s);
    fail_calls(&failing_write, ".sst", EIO, 1);
    flush(s);
    failed(s);
    for (int i = 0; i < PATIENCE_TRIES; i++) {
        bool is_refused;

        put(s, 1);
        if (!s->error)
            return false;
        is_refused = resume_fails(s, watch, s->error);
        failed(s);
        if (is_refused) {
            put(s, 2);
            return failed(s);
        }
        wait_ms(20);
    }
    fprintf(stderr, "RocksDB takes no rows, and Resume() does not say why\n");
    _exit(2);
}

/* The write buffers are empty, and recovery does not begin another log. */
static bool broken_log_stays_in_use(struct subject *s)
{
    subject_open(s);
    must_work(s);
    put_file(s, 0, 1);
    fail_calls(&failing_write, ".log", ENOSPC, 1);
    put(s, 1);
    if (!failed(s))
        _exit(2);
    for (int i = 0; i < PATIENCE_TRIES; i++) {
        put(s, 2);
        if (!failed(s))
            return false;
        wait_ms(20);
    }
    return true;
}

/* All rows of the result are deleted, so RocksDB would delete its file at once. */
static bool compaction_that_leaves_nothing_ends_the_process(struct subject *s)
{
    subject_open(s);
    must_work(s);
    put_file(s, 0, 10);
    delete_range(s, "0", "1");
    flush(s);
    must_work(s);
    fail_calls(&failing_write, ".sst", EIO, 10);
    rocksdb_compact_range(s->db, NULL, 0, NULL, 0);
    return false;
}

/* ---- The table ---- */

/* A fault of RocksDB versions that were tried, and the first version without it. */
struct rocksdb_fault {
    bool (*shows)(struct subject *s);
    bool ends_the_process; /* by an assertion, which Debian's RocksDB has */
    const char *gone_in;   /* first version tried without it, or NULL */
};
#define FAULT_TABLE(X)                                                                             \
    X(info_log_ends_the_process, true, "8.8")                                                      \
    X(fill_cache_off_keeps_metadata_out, false, NULL)                                              \
    X(cut_manifest_is_accepted, false, NULL)                                                       \
    X(wrong_length_at_the_end_is_accepted, false, NULL)                                            \
    X(deleted_log_is_not_noticed, false, NULL)                                                     \
    X(access_ends_the_process, true, NULL)                                                         \
    X(damaged_table_is_blamed_on_the_manifest, false, NULL)                                        \
    X(mark_of_a_deleted_range_stays, false, NULL)                                                  \
    X(log_that_cannot_be_made_ends_the_process, true, "9.10")                                      \
    X(compaction_without_space_refuses_others, false, NULL)                                        \
    X(failed_compaction_is_not_counted_again, false, NULL)                                         \
    X(compaction_that_leaves_nothing_ends_the_process, true, NULL)                                 \
    X(failed_flush_is_for_good, false, NULL)                                                       \
    X(broken_log_stays_in_use, true, "9.10")

static bool is_before(const char *version, const char *other)
{
    const long major = strtol(version, NULL, 10), other_major = strtol(other, NULL, 10);

    return major != other_major ? major < other_major
                                : strtol(strchr(version, '.') + 1, NULL, 10) <
                                      strtol(strchr(other, '.') + 1, NULL, 10);
}

/* A child shows nothing if the failing call was never made. */
static bool was_met(const struct fault *fault)
{
    return !fault->name || atomic_load(&fault->is_met);
}

static void run_child(const struct rocksdb_fault *fault, const char *folder)
{
    struct subject s = { .folder = folder,
                         .options = rocksdb_options_create(),
                         .logged = rocksdb_writeoptions_create(),
                         .reads = rocksdb_readoptions_create() };

    bool is_there;

    alarm(CHILD_S);
    if (fault->ends_the_process) { /* an assertion's message would look like a failure */
        setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    }
    rocksdb_options_set_create_if_missing(s.options, 1);
    rocksdb_options_set_compression(s.options, rocksdb_no_compression);
    is_there = fault->shows(&s);
    if (!was_met(&failing_write) || !was_met(&failing_open) || !was_met(&failing_access)) {
        fprintf(stderr, "RocksDB did not make the calls that were to fail\n");
        _exit(2);
    }
    _exit(is_there);
}

/* Runs in a child, since RocksDB does not survive a fork. */
static bool shows(const struct rocksdb_fault *fault, const char *folder)
{
    const pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0)
        run_child(fault, folder);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (fault->ends_the_process && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT)
        return true;
    assert_true(WIFEXITED(status));
    assert_in_range(WEXITSTATUS(status), 0, 1);
    return WEXITSTATUS(status) == 1;
}

static void check_fault(const struct rocksdb_fault *fault, const char *name)
{
    const char *const version = rocksdb_ext_version();
    const bool expected = !fault->gone_in || is_before(version, fault->gone_in);
    struct store_fixture *f = fixture_new();
    bool is_there;

    is_there = shows(fault, f->made[0]);
    fixture_destroy(f);
    if (is_there == expected)
        return;
    print_message("RocksDB %s %s: %s; see docs/internals/store/rocksdb.md\n", version,
                  is_there ? "still has this" : "does not have this", name);
    if (!rocksdb_ext_is_tried(version)) /* such a version may also lack assertions */
        skip();
    fail();
}

#define X(name, ends_the_process, gone_in)                                                         \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        check_fault(&(struct rocksdb_fault){ name, ends_the_process, gone_in }, #name);            \
    }
FAULT_TABLE(X)
#undef X

int main(void)
{
    const struct CMUnitTest tests[] = {
#define X(name, ends_the_process, gone_in) cmocka_unit_test(test_##name),
        FAULT_TABLE(X)
#undef X
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
