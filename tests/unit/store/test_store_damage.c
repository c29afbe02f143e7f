/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a store refuses to start if a file is missing or cut short, and names the file. It
 * must keep its promises when it is killed, and when writes fail. */
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/unit/store/store_fixture.h"

#define EXIT_SKIPPED 77

/* Finds the largest file of shard 0's @database that matches @pattern. The name is relative to data
 * directory 0. */
static void find_file(const struct store_fixture *f, const char *database, const char *pattern,
                      char *ret_name, size_t capacity)
{
    char path[300];

    assert_true(fixture_shell(path, sizeof(path), "cd %s && ls -S shard-0000/%s/%s | head -1",
                              f->made[0], database, pattern) > 0);
    path[strcspn(path, "\n")] = '\0';
    snprintf(ret_name, capacity, "%s", path);
}

static void make_closed_store(struct store_fixture *f)
{
    fixture_open(f);
    fixture_write_all(f, 1, 0, 5000, 1);
    fixture_write_all(f, FIXTURE_LOGGED, 0, 5000, 1);
    fixture_close(f);
}

static const char *const databases[] = { "replay", "logged" };

static void test_missing_files_stop_the_start_and_are_named(void **state)
{
    static const char *const patterns[] = { "*.sst", "MANIFEST-*", "CURRENT" };
    char name[300];

    for (size_t i = 0; i < ARRAY_LEN(patterns) * 2; i++) {
        struct store_fixture *own = fixture_new();

        make_closed_store(own);
        find_file(own, databases[i % 2], patterns[i / 2], name, sizeof(name));
        fixture_remove(own, 0, name);
        fixture_refused(own, EMBTIER_CORRUPT, strrchr(name, '/') + 1);
        fixture_destroy(own);
    }
    (void)state;
}

static void test_missing_shard_stops_the_start_and_is_named(void **state)
{
    struct store_fixture *f = *state;

    make_closed_store(f);
    fixture_remove(f, 0, "shard-0001");
    fixture_refused(f, EMBTIER_CORRUPT, "shard-0001");
}

static void test_truncated_files_stop_the_start_and_are_named(void **state)
{
    static const char *const patterns[] = { "*.sst", "MANIFEST-*", "CURRENT" };
    char name[300];

    for (size_t i = 0; i < ARRAY_LEN(patterns) * 2; i++) {
        for (off_t bytes = 0; bytes < (i / 2 == 2 ? 16 : 180); bytes += 20) {
            struct store_fixture *own = fixture_new();

            make_closed_store(own);
            find_file(own, databases[i % 2], patterns[i / 2], name, sizeof(name));
            assert_true(fixture_file_bytes(own, 0, name) > bytes);
            fixture_truncate(own, 0, name, bytes);
            fixture_refused(own, EMBTIER_CORRUPT, strrchr(name, '/') + 1);
            fixture_destroy(own);
        }
    }
    (void)state;
}

static void test_bit_flip_in_a_row_is_found_and_not_served(void **state)
{
    struct store_fixture *f = *state;
    struct fixture_batch *batch = malloc(sizeof(*batch));
    struct err_msg msg = { { 0 } };
    char name[300], path[600];
    int fd;

    f->config.data.directory_count = 1;
    f->config.data.shards_per_directory = 1;
    make_closed_store(f);
    find_file(f, "replay", "*.sst", name, sizeof(name));
    snprintf(path, sizeof(path), "%s/%s", f->made[0], name);
    fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "oops", 4, 1000), 4); /* in the first block */
    assert_int_equal(close(fd), 0);
    fixture_open(f);
    fixture_gather(f, 0, 1, 0, 5000, batch);
    assert_int_equal(store_read(f->store, 0, batch->rows, batch->count, &msg), EMBTIER_CORRUPT);
    assert_non_null(strstr(msg.text, strrchr(name, '/')));
    assert_int_equal(batch->rows[0].err, EMBTIER_CORRUPT);
    assert_int_equal(batch->rows[batch->count - 1].err, EMBTIER_OK);
    assert_true(batch->rows[batch->count - 1].found);
    free(batch);
}

/* Runs this program once more, to do @part in the fixture's directories, since RocksDB does not
 * survive a fork. Its standard output is @output. */
static pid_t run_part(const struct store_fixture *f, const char *part, int output)
{
    const pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        dup2(output, STDOUT_FILENO);
        fixture_exec_self(f, part, NULL);
    }
    return child;
}

/* The next test's child runs this until it is killed. It writes rows 0 … 1999 in version after
 * version, and flushes some of them. */
static void write_until_killed(struct store_fixture *f)
{
    fixture_open(f);
    for (uint32_t version = 2;; version++) {
        fixture_write_all(f, 1, 0, 2000, version);
        if (version % 3 == 0)
            fixture_flush_all(f);
        if (write(STDOUT_FILENO, &version, sizeof(version)) != sizeof(version))
            _exit(1);
    }
}

static void test_after_sigkill_rows_are_those_of_the_checkpoint(void **state)
{
    struct store_fixture *f = *state;

    fixture_open(f);
    fixture_write_all(f, 1, 0, 2000, 1);
    fixture_checkpoint(f);
    fixture_close(f);
    for (unsigned run = 0; run < 5; run++) {
        struct store_recovery recovery;
        uint32_t version = 1;
        int progress[2];
        pid_t child;

        assert_int_equal(pipe2(progress, O_CLOEXEC), 0);
        child = run_part(f, "write_until_killed", progress[1]);
        close(progress[1]);
        while (version < 5 + run * 4)
            assert_int_equal(read(progress[0], &version, sizeof(version)), sizeof(version));
        usleep(run * 700); /* somewhere in the middle of the next version */
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        while (read(progress[0], &version, sizeof(version)) == sizeof(version))
            ;
        close(progress[0]);
        fixture_open(f);
        store_recovery(f->store, &recovery);
        assert_true(recovery.happened && recovery.after_crash);
        assert_int_equal(recovery.checkpoint.id, 1);
        assert_int_equal(fixture_count_right(f, 1, 0, 2000, 1), 2000);
        if (run % 2 == 0) /* otherwise as in a failed start: the next start recovers again */
            fixture_close(f);
        else
            store_free(TAKE(f->store));
    }
}

/* ---- Writes that fail ---- */

/* Writes versions of rows until a write fails. Returns that error, and sets @ret_version to the
 * last version taken as a whole. */
static enum embtier_err write_until_refused(struct store_fixture *f, uint32_t table, uint32_t shard,
                                            uint32_t *ret_version, struct err_msg *msg)
{
    struct fixture_batch *batch = malloc(sizeof(*batch));
    enum embtier_err err = EMBTIER_OK;

    fixture_gather(f, shard, table, 0, 1000, batch);
    for (uint32_t version = 2; err == EMBTIER_OK; version++) {
        for (uint32_t i = 0; i < batch->count; i++)
            fixture_row_bytes(table, batch->rows[i].id, version, batch->rows[i].bytes);
        for (const uint64_t until_ns = now_ns() + FIXTURE_WAIT_NS; now_ns() < until_ns;
             usleep(1000)) {
            err = fixture_write_batch(f, shard, table, batch, msg);
            if (err != EMBTIER_BUSY)
                break;
        }
        if (err == EMBTIER_OK)
            *ret_version = version;
    }
    free(batch);
    return err;
}

static void heals(struct store_fixture *f, uint32_t table, uint32_t shard, bool flush)
{
    struct fixture_batch *batch = malloc(sizeof(*batch));
    struct err_msg msg = { { 0 } };
    enum embtier_err err = EMBTIER_OK;

    fixture_gather(f, shard, table, 0, 1000, batch);
    for (uint32_t i = 0; i < batch->count; i++)
        fixture_row_bytes(table, batch->rows[i].id, 9999, batch->rows[i].bytes);
    for (const uint64_t until_ns = now_ns() + FIXTURE_WAIT_NS; now_ns() < until_ns; usleep(10000)) {
        err = fixture_write_batch(f, shard, table, batch, &msg);
        if (err == EMBTIER_OK && flush) /* a flush may be refused a little longer */
            err = store_flush(f->store, shard, &msg);
        if (err == EMBTIER_OK)
            break;
    }
    must(err, &msg);
    free(batch);
}

/* A limit on the length of files makes writes fail. RocksDB would get an error other than "no
 * space", but our file system turns it into that. */
static void limit_files(rlim_t bytes)
{
    const struct rlimit limit = { .rlim_cur = bytes, .rlim_max = RLIM_INFINITY };

    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* ---- Logs ---- */

/* The next test's child runs this until it is killed. It reports a version when all of its rows
 * have been acknowledged. */
static void log_until_killed(struct store_fixture *f)
{
    fixture_open(f);
    for (uint32_t version = 2;; version++) {
        fixture_write_all(f, FIXTURE_LOGGED, 0, 2000, version);
        if (version % 5 == 0)
            fixture_flush_all(f);
        if (write(STDOUT_FILENO, &version, sizeof(version)) != sizeof(version))
            _exit(1);
    }
}

static void test_after_sigkill_logged_rows_are_those_acknowledged(void **state)
{
    struct store_fixture *f = *state;

    fixture_open(f);
    fixture_write_all(f, FIXTURE_LOGGED, 0, 2000, 1);
    fixture_close(f);
    for (unsigned run = 0; run < 8; run++) {
        uint32_t version = 1;
        struct store_stats stats;
        int progress[2];
        pid_t child;

        assert_int_equal(pipe2(progress, O_CLOEXEC), 0);
        child = run_part(f, "log_until_killed", progress[1]);
        close(progress[1]);
        while (version < 3 + run * 2)
            assert_int_equal(read(progress[0], &version, sizeof(version)), sizeof(version));
        usleep(run * 700);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        while (read(progress[0], &version, sizeof(version)) == sizeof(version))
            ;
        close(progress[0]);
        fixture_open(f);
        store_stats(f->store, &stats);
        assert_int_equal(stats.shards_unclean, store_shard_count(f->store));
        /* Each fifth version is flushed, the last one perhaps before it was reported. */
        assert_true(version % 5 == 0 || (version + 1) % 5 == 0 || stats.recovered_log_bytes > 0);
        assert_int_equal(fixture_count_right(f, FIXTURE_LOGGED, 0, 2000, version) +
                             fixture_count_right(f, FIXTURE_LOGGED, 0, 2000, version + 1),
                         2000);
        fixture_write_all(f, FIXTURE_LOGGED, 0, 2000, 1);
        fixture_close(f);
    }
}

/* Writes versions 1 to 4, each as its own record of the log, and then dies. */
static void log_and_die(struct store_fixture *f)
{
    fixture_open(f);
    for (uint32_t version = 1; version <= 4; version++)
        fixture_write_all(f, FIXTURE_SYNCED, 0, 100, version);
    raise(SIGKILL);
}

/* The log's first record fails, and then the disk is well again. Acknowledged rows must be in a
 * working log. */
static void log_fails_then_die(struct store_fixture *f)
{
    uint32_t version;
    struct err_msg msg = { { 0 } };

    signal(SIGXFSZ, SIG_IGN);
    fixture_open(f);
    limit_files(16);
    for (uint32_t shard = 0; shard < store_shard_count(f->store); shard++)
        assert_int_equal(write_until_refused(f, FIXTURE_SYNCED, shard, &version, &msg),
                         EMBTIER_NO_SPACE);
    limit_files(RLIM_INFINITY);
    for (uint32_t shard = 0; shard < store_shard_count(f->store); shard++)
        heals(f, FIXTURE_SYNCED, shard, false);
    raise(SIGKILL);
}

static void test_what_is_acknowledged_after_a_log_has_failed_is_in_another(void **state)
{
    struct store_fixture *const f = *state;
    pid_t child;

    fixture_open(f);
    fixture_close(f);
    child = run_part(f, "log_fails_then_die", STDOUT_FILENO);
    assert_int_equal(waitpid(child, NULL, 0), child);
    fixture_open(f);
    assert_int_equal(fixture_count_right(f, FIXTURE_SYNCED, 0, 1000, 9999), 1000);
}

static void die_with_a_log(struct store_fixture *f, char *ret_name, size_t capacity)
{
    pid_t child;

    fixture_open(f);
    fixture_close(f);
    child = run_part(f, "log_and_die", STDOUT_FILENO);
    assert_int_equal(waitpid(child, NULL, 0), child);
    find_file(f, "logged", "*.log", ret_name, capacity);
}

/* Power was lost during the write of the last record. Cut short anywhere, it never existed. */
static void test_torn_end_of_a_log_is_no_record(void **state)
{
    char name[300];

    (void)state;
    for (off_t lost = 1; lost < 1000; lost += 83) {
        struct store_fixture *const f = fixture_new();
        struct fixture_batch *const batch = malloc(sizeof(*batch));

        die_with_a_log(f, name, sizeof(name));
        fixture_truncate(f, 0, name, fixture_file_bytes(f, 0, name) - lost);
        fixture_open(f);
        (void)fixture_gather(f, 0, FIXTURE_SYNCED, 0, 100, batch); /* the rows of this log */
        assert_int_equal(fixture_count_right(f, FIXTURE_SYNCED, 0, 100, 3), batch->count);
        assert_int_equal(fixture_count_right(f, FIXTURE_SYNCED, 0, 100, 4), 100 - batch->count);
        free(batch);
        fixture_destroy(f);
    }
}

/* A page of the last record never reached the disk. */
static void make_hole_in_a_log(struct store_fixture *f)
{
    char name[300], path[600];
    int fd;

    die_with_a_log(f, name, sizeof(name));
    snprintf(path, sizeof(path), "%s/%s", f->made[0], name);
    fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "\0\0\0\0", 4, fixture_file_bytes(f, 0, name) - 500), 4);
    assert_int_equal(close(fd), 0);
}

/* The page may also have rotted, so the start is refused. A user who knows better can have the log
 * cut off there. */
static void test_hole_in_a_log_is_cut_off_only_if_that_is_asked_for(void **state)
{
    struct store_fixture *const f = *state;
    struct fixture_batch *const batch = malloc(sizeof(*batch));
    char options[] = "wal_recovery_mode=kPointInTimeRecovery";

    make_hole_in_a_log(f);
    fixture_refused(f, EMBTIER_CORRUPT, options);
    f->config.rocksdb.options = options;
    fixture_open(f);
    (void)fixture_gather(f, 0, FIXTURE_SYNCED, 0, 100, batch);
    assert_int_equal(fixture_count_right(f, FIXTURE_SYNCED, 0, 100, 3), batch->count);
    assert_int_equal(fixture_count_right(f, FIXTURE_SYNCED, 0, 100, 4), 100 - batch->count);
    free(batch);
}

/* Damage of other files has no such way out; they are known by these names. */
static void test_names_in_a_path_do_not_hide_the_way_out(void **state)
{
    static const char *const names[] = { "MANIFEST", "CURRENT", "a.sst" };

    (void)state;
    for (unsigned i = 0; i < ARRAY_LEN(names); i++) {
        struct store_fixture *const f = fixture_named(names[i]);

        make_hole_in_a_log(f);
        fixture_refused(f, EMBTIER_CORRUPT, "wal_recovery_mode=kPointInTimeRecovery");
        fixture_destroy(f);
    }
}

static void test_damaged_or_missing_log_stops_the_start_and_is_named(void **state)
{
    char name[300], path[600];

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct store_fixture *const f = fixture_new();

        die_with_a_log(f, name, sizeof(name));
        if (i == 0) {
            (void)fixture_shell(path, sizeof(path), "rm %s/shard-0000/logged/*.log", f->made[0]);
        } else {
            int fd;

            snprintf(path, sizeof(path), "%s/%s", f->made[0], name);
            fd = open(path, O_WRONLY);
            assert_true(fd >= 0);
            assert_int_equal(pwrite(fd, "oops", 4, 1000), 4); /* in the first record */
            assert_int_equal(close(fd), 0);
        }
        fixture_refused(f, EMBTIER_CORRUPT, "shard-0000/logged");
        fixture_destroy(f);
    }
}

/* Flips bits in a byte of a record's head: the first record of a file's last block. */
static void flip_in_head(const struct store_fixture *f, const char *name, unsigned offset,
                         unsigned char bits)
{
    const off_t at = fixture_file_bytes(f, 0, name) / 32768 * 32768 + offset;
    unsigned char byte;
    char path[600];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", f->made[0], name);
    fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= bits;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    assert_int_equal(close(fd), 0);
}

static void refused_with_a_hint(const struct store_fixture *f, bool hint)
{
    struct store *store = NULL;
    struct err_msg msg = { { 0 } };

    assert_int_equal(store_open(&(struct store_opts){ .config = &f->config }, &store, &msg),
                     EMBTIER_CORRUPT);
    assert_int_equal(strstr(msg.text, "wal_recovery_mode") != NULL, hint);
}

static void test_wrong_length_or_type_of_a_record_is_no_end(void **state)
{
    static const struct {
        const char *database, *pattern;
        bool closed;
    } files[] = { { "replay", "MANIFEST-*", true },
                  { "logged", "MANIFEST-*", true },
                  { "logged", "MANIFEST-*", false },
                  { "logged", "*.log", false } };
    char name[300];

    (void)state;
    for (size_t turn = 0; turn < ARRAY_LEN(files) * 2; turn++) {
        struct store_fixture *const f = fixture_new();
        const size_t i = turn / 2;

        if (files[i].closed)
            make_closed_store(f);
        else
            die_with_a_log(f, name, sizeof(name));
        find_file(f, files[i].database, files[i].pattern, name, sizeof(name));
        if (turn % 2)
            flip_in_head(f, name, 5, 0x80); /* the length: RocksDB takes it for a torn end */
        else
            flip_in_head(f, name, 6, 0x04); /* the type: RocksDB takes it for a reused log's */
        fixture_refused(f, EMBTIER_CORRUPT, strrchr(name, '/') + 1);
        if (!files[i].closed) /* only logs get the hint about power loss */
            refused_with_a_hint(f, strstr(name, ".log") != NULL);
        fixture_destroy(f);
    }
}

static void test_seal_of_an_earlier_version_has_no_checksum(void **state)
{
    struct store_fixture *const f = *state;

    make_closed_store(f);
    fixture_replace_text(f, 0, "shard-0000/replay.seal", "\"manifest_sum\"", "\"unheard-of\"");
    fixture_open(f);
    assert_int_equal(fixture_count_right(f, 1, 0, 5000, 1), 5000);
}

/* Zeros are the end of a log only if nothing follows them. */
static void test_zeros_within_a_log_are_no_end(void **state)
{
    struct store_fixture *const f = *state;
    char name[300], path[600];
    int fd;

    die_with_a_log(f, name, sizeof(name));
    snprintf(path, sizeof(path), "%s/%s", f->made[0], name);
    fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "\0\0\0\0\0\0\0", 7, 0), 7); /* the first record's head */
    assert_int_equal(close(fd), 0);
    fixture_refused(f, EMBTIER_CORRUPT, strrchr(name, '/') + 1);
}

/* Reads go on. They see the last version that was taken (a batch holds half of the 1000 rows), or
 * in a logged table the refused one. */
static void check_taken(struct store_fixture *f, uint32_t table, uint32_t version)
{
    uint64_t right = fixture_count_right(f, table, 0, FIXTURE_BATCH_ROWS, version);

    if (table >= FIXTURE_LOGGED)
        right += fixture_count_right(f, table, 0, FIXTURE_BATCH_ROWS, version + 1);
    assert_int_equal(right, FIXTURE_BATCH_ROWS);
}

static bool put_text(const char *path, const char *text)
{
    _cleanup_(closep) int fd = open(path, O_WRONLY | O_CLOEXEC);

    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

/* Mounts a file system of 24 MiB that only this process sees. False if that is not allowed. */
static bool small_disk_mount(const char *path)
{
    char users[40], groups[40];

    snprintf(users, sizeof(users), "0 %d 1", (int)getuid());
    snprintf(groups, sizeof(groups), "0 %d 1", (int)getgid());
    return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && put_text("/proc/self/uid_map", users) &&
           put_text("/proc/self/setgroups", "deny") && put_text("/proc/self/gid_map", groups) &&
           mount("none", path, "tmpfs", 0, "size=24m") == 0;
}

static void fill_disk(const char *path)
{
    static const char block[65536];
    const int fd = open(path, O_CREAT | O_WRONLY, 0600);

    assert_true(fd >= 0);
    for (size_t bytes = sizeof(block); bytes > 0; bytes /= 2)
        while (write(fd, block, bytes) > 0)
            ;
    assert_int_equal(close(fd), 0);
}

static void full_disk(struct store_fixture *f, uint32_t table)
{
    struct err_msg msg = { { 0 } };
    enum embtier_err err;
    uint32_t version = 1; /* the last version taken */
    char ballast[400];

    f->config.data.directory_count = 1;
    f->config.data.shards_per_directory = 1;
    f->config.rocksdb.memtable_bytes = MIB;
    fixture_open(f);
    fixture_write_all(f, table, 0, 1000, 1);
    fixture_flush_all(f);
    snprintf(ballast, sizeof(ballast), "%s/ballast", f->made[0]);
    fill_disk(ballast);
    assert_int_equal(write_until_refused(f, table, 0, &version, &msg), EMBTIER_NO_SPACE);
    check_taken(f, table, version);
    if (table < FIXTURE_LOGGED) /* a logged table may have nothing in the write buffers */
        assert_int_equal(store_flush(f->store, 0, &msg), EMBTIER_NO_SPACE);
    assert_int_equal(unlink(ballast), 0);
    heals(f, table, 0, true);
    fixture_close(f);
    fixture_open(f);
    assert_int_equal(fixture_count_right(f, table, 0, FIXTURE_BATCH_ROWS, 9999),
                     FIXTURE_BATCH_ROWS);
    fixture_checkpoint(f);
    /* A close on a full disk says so, and ends. */
    fixture_write_all(f, table, 0, 1000, 3);
    fill_disk(ballast);
    err = store_close(TAKE(f->store), true, &msg);
    if (table < FIXTURE_LOGGED || err != EMBTIER_OK) /* a log returns room that it had reserved */
        assert_int_equal(err, EMBTIER_NO_SPACE);
    assert_int_equal(unlink(ballast), 0);
    fixture_open(f);
    assert_int_equal(
        fixture_count_right(f, table, 0, FIXTURE_BATCH_ROWS, table < FIXTURE_LOGGED ? 9999 : 3),
        FIXTURE_BATCH_ROWS);
}

static void check_full_disk(struct store_fixture *f, const char *part)
{
    const pid_t child = run_part(f, part, STDERR_FILENO);
    int status;

    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIPPED)
        skip();
    assert_int_equal(status, 0);
}

static void test_full_disk_refuses_writes_serves_reads_and_heals(void **state)
{
    check_full_disk(*state, "full_disk");
}

static void test_full_disk_of_a_log_refuses_writes_serves_reads_and_heals(void **state)
{
    check_full_disk(*state, "full_disk_logged");
}

static void io_error(struct store_fixture *f, uint32_t table)
{
    struct err_msg msg = { { 0 } };
    uint32_t version = 1; /* the last version taken */
    struct store_stats stats;

    signal(SIGXFSZ, SIG_IGN);
    f->config.data.directory_count = 1;
    f->config.data.shards_per_directory = 1;
    f->config.rocksdb.memtable_bytes = MIB;
    fixture_open(f);
    fixture_write_all(f, table, 0, 1000, 1);
    fixture_flush_all(f);
    limit_files(4096);
    assert_int_equal(write_until_refused(f, table, 0, &version, &msg), EMBTIER_NO_SPACE);
    check_taken(f, table, version);
    if (table < FIXTURE_LOGGED)
        assert_int_equal(store_flush(f->store, 0, &msg), EMBTIER_NO_SPACE);
    store_stats(f->store, &stats);
    assert_true(stats.memtable_bytes <= 2 * MIB);
    assert_true(stats.written.flush_bytes > 0);
    limit_files(RLIM_INFINITY);
    heals(f, table, 0, true);
    assert_int_equal(fixture_count_right(f, table, 0, FIXTURE_BATCH_ROWS, 9999),
                     FIXTURE_BATCH_ROWS);
    fixture_close(f);
    fixture_open(f);
    assert_int_equal(fixture_count_right(f, table, 0, FIXTURE_BATCH_ROWS, 9999),
                     FIXTURE_BATCH_ROWS);
    fixture_close(f);
}

static void check_io_error(struct store_fixture *f, const char *part)
{
    const pid_t child = run_part(f, part, STDERR_FILENO);
    int status;

    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_io_error_refuses_writes_serves_reads_and_heals(void **state)
{
    check_io_error(*state, "io_error");
}

static void test_io_error_of_a_log_refuses_writes_serves_reads_and_heals(void **state)
{
    check_io_error(*state, "io_error_logged");
}

static int part_main(const char *part, const char *root)
{
    struct store_fixture *f = fixture_at(root);
    int exit_code = 0;

    setenv("CMOCKA_TEST_ABORT", "1", 1); /* a failed assert ends the process */
    if (strcmp(part, "write_until_killed") == 0)
        write_until_killed(f);
    else if (strcmp(part, "log_until_killed") == 0)
        log_until_killed(f);
    else if (strcmp(part, "log_and_die") == 0)
        log_and_die(f);
    else if (strcmp(part, "log_fails_then_die") == 0)
        log_fails_then_die(f);
    else if (strcmp(part, "io_error") == 0)
        io_error(f, 1);
    else if (strcmp(part, "io_error_logged") == 0)
        io_error(f, FIXTURE_SYNCED);
    else if (small_disk_mount(f->made[0]))
        full_disk(f, strcmp(part, "full_disk") == 0 ? 1 : FIXTURE_SYNCED);
    else
        exit_code = EXIT_SKIPPED;
    fixture_free(f);
    return exit_code;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_files_stop_the_start_and_are_named),
        cmocka_unit_test_setup_teardown(test_missing_shard_stops_the_start_and_is_named,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test(test_truncated_files_stop_the_start_and_are_named),
        cmocka_unit_test_setup_teardown(test_bit_flip_in_a_row_is_found_and_not_served,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_after_sigkill_rows_are_those_of_the_checkpoint,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_after_sigkill_logged_rows_are_those_acknowledged,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(
            test_what_is_acknowledged_after_a_log_has_failed_is_in_another, fixture_setup,
            fixture_teardown),
        cmocka_unit_test(test_torn_end_of_a_log_is_no_record),
        cmocka_unit_test(test_names_in_a_path_do_not_hide_the_way_out),
        cmocka_unit_test_setup_teardown(test_hole_in_a_log_is_cut_off_only_if_that_is_asked_for,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test(test_damaged_or_missing_log_stops_the_start_and_is_named),
        cmocka_unit_test(test_wrong_length_or_type_of_a_record_is_no_end),
        cmocka_unit_test_setup_teardown(test_seal_of_an_earlier_version_has_no_checksum,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_zeros_within_a_log_are_no_end, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_full_disk_refuses_writes_serves_reads_and_heals,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(
            test_full_disk_of_a_log_refuses_writes_serves_reads_and_heals, fixture_setup,
            fixture_teardown),
        cmocka_unit_test_setup_teardown(
            test_io_error_of_a_log_refuses_writes_serves_reads_and_heals, fixture_setup,
            fixture_teardown),
        cmocka_unit_test_setup_teardown(test_io_error_refuses_writes_serves_reads_and_heals,
                                        fixture_setup, fixture_teardown),
    };

    if (argc == 3)
        return part_main(argv[1], argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
