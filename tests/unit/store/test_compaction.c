/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that shards compact in turn and when they should, and that every row stays right. A full
 * disk must affect only its own shards, and the memory for metadata must hold metadata only.
 * RocksDB's own tool must be able to read a shard. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "store/database/compaction_scheduler.h"
#include "tests/unit/store/store_fixture.h"

#define ROWS   20000
#define ROUNDS 6

static struct store_stats stats_of(const struct store_fixture *f)
{
    struct store_stats stats;

    store_stats(f->store, &stats);
    return stats;
}

/* Loads all four shards with more level-0 files than they may keep, as a busy server does. */
static void load_all_shards(struct store_fixture *f)
{
    store_set_busy(f->store, true);
    for (uint32_t version = 1; version <= ROUNDS; version++) {
        fixture_write_all(f, 1, 0, ROWS, version);
        fixture_flush_all(f);
    }
}

/* Bytes of all rows if each is stored once. The stats do not tell the number of level-0 files, but
 * they show rows stored more than once. */
static uint64_t stored_once_bytes(void)
{
    return (uint64_t)ROWS * (12 + 12 + FIXTURE_ROW_BYTES);
}

static void wait_until_compacted(struct store_fixture *f)
{
    for (const uint64_t until_ns = now_ns() + FIXTURE_WAIT_NS; now_ns() < until_ns; usleep(50000)) {
        const struct store_stats stats = stats_of(f);

        if (stats.stored_bytes < stored_once_bytes() * 3 / 2 && stats.shards_compacting == 0)
            return;
    }
    fail_msg("%" PRIu64 " bytes are stored after two minutes", stats_of(f).stored_bytes);
}

static void compact_all(struct store_fixture *f, uint32_t parallel)
{
    f->config.rocksdb.compaction_parallel = parallel;
    f->config.rocksdb.background_threads = 8;
    fixture_open(f);
    load_all_shards(f);
    assert_int_equal(stats_of(f).compactions_run, 0);
    assert_true(stats_of(f).stored_bytes > stored_once_bytes() * (ROUNDS - 1));
    store_set_busy(f->store, false);
    wait_until_compacted(f);
    assert_true(stats_of(f).compactions_run >= store_shard_count(f->store));
    assert_int_equal(stats_of(f).pending_compaction_bytes, 0);
    assert_int_equal(fixture_count_right(f, 1, 0, ROWS, ROUNDS), ROWS);
}

static void test_two_shards_never_compact_at_once(void **state)
{
    struct store_fixture *f = *state;

    compact_all(f, 1);
    assert_int_equal(stats_of(f).shards_compacting_peak, 1);
    fixture_close(f);
    fixture_open(f);
    assert_int_equal(fixture_count_right(f, 1, 0, ROWS, ROUNDS), ROWS);
}

/* Shows that the test above would notice such a peak. */
static void test_two_shards_compact_at_once_where_that_is_allowed(void **state)
{
    struct store_fixture *f = *state;

    compact_all(f, 2);
    /* One shard may have finished before the next began. */
    for (unsigned tries = 0; tries < 20 && stats_of(f).shards_compacting_peak < 2; tries++) {
        load_all_shards(f);
        store_set_busy(f->store, false);
        wait_until_compacted(f);
    }
    assert_int_equal(stats_of(f).shards_compacting_peak, 2);
}

static void test_urgent_shards_compact_even_while_the_server_is_busy(void **state)
{
    struct store_fixture *f = *state;
    uint64_t until_ns;

    fixture_open(f);
    store_set_busy(f->store, true);
    for (uint32_t version = 1; version <= 60; version++) {
        fixture_write_all(f, 1, 0, 2000, version);
        fixture_flush_all(f);
    }
    until_ns = now_ns() + FIXTURE_WAIT_NS;
    while (stats_of(f).compactions_run == 0) {
        assert_true(now_ns() < until_ns);
        usleep(50000);
    }
    assert_int_equal(stats_of(f).shards_compacting_peak, 1);
    assert_int_equal(fixture_count_right(f, 1, 0, 2000, 60), 2000);
}

/* Adds a level-0 file with new rows of table 1 and one of table 2. Its first and last row are the
 * same as in all other such files. */
static void add_file(struct store_fixture *f, uint64_t round, struct fixture_batch *batch)
{
    struct err_msg msg = { { 0 } };
    const uint64_t first = round * 3000 + 1;

    fixture_gather(f, 0, 1, first, first + 3000, batch);
    assert_int_equal(batch->count, FIXTURE_BATCH_ROWS);
    batch->rows[0].id = 0;
    batch->rows[1].table_id = 2;
    batch->rows[batch->count - 1].id = UINT64_C(1) << 40;
    for (uint32_t i = 0; i < batch->count; i++)
        fixture_row_bytes(1, batch->rows[i].id, 1, batch->rows[i].bytes);
    must(store_write(f->store, 0, batch->rows, batch->count, &msg), &msg);
    must(store_flush(f->store, 0, &msg), &msg);
}

/* The limit lets flushes pass, but not a drop's compaction. That compaction had all files, and no
 * new one comes. */
static void test_what_a_compaction_had_that_failed_is_compacted_later(void **state)
{
    struct fixture_batch *const batch = malloc(sizeof(*batch));
    struct store_fixture *f = *state;
    uint64_t before, until_ns;

    fixture_open(f);
    store_set_busy(f->store, true);
    for (uint64_t round = 0; round < 16; round++)
        add_file(f, round, batch);
    free(batch);
    fixture_limit_files(FIXTURE_BATCH_ROWS * (FIXTURE_ROW_BYTES + 64) + 16 * KIB);
    assert_int_not_equal(store_drop_table(f->store, 2, false, NULL, NULL, NULL, NULL), EMBTIER_OK);
    fixture_limit_files(RLIM_INFINITY);
    before = stats_of(f).compactions_run;
    store_set_busy(f->store, false);
    until_ns = now_ns() + FIXTURE_WAIT_NS;
    while (stats_of(f).compactions_run == before) {
        assert_true(now_ns() < until_ns);
        usleep(10000);
    }
}

/* As on a nearly full disk: no disk has the reserve that this asks for. */
static void test_while_compaction_pauses_rows_are_taken_however_many_files_there_are(void **state)
{
    struct fixture_batch *const batch = malloc(sizeof(*batch));
    struct store_fixture *f = *state;

    f->config.data.reserve_bytes = UINT64_C(1) << 50;
    fixture_open(f);
    store_use_reserve(f->store);
    for (uint64_t round = 0; round < DATABASE_LEVEL0_FILES_MAX + 4; round++)
        add_file(f, round, batch);
    usleep(500000); /* time for the scheduler to see the files; without it the test shows less */
    add_file(f, DATABASE_LEVEL0_FILES_MAX + 4, batch);
    assert_int_equal(stats_of(f).compactions_run, 0);
    free(batch);
}

static void count_progress(void *context, uint32_t done, uint32_t total)
{
    uint32_t *calls = context;

    assert_int_equal(++*calls, done);
    assert_int_equal(total, 4);
}

static void test_dropped_table_gives_its_space_back_and_others_stay(void **state)
{
    struct store_fixture *f = *state;
    struct err_msg msg = { { 0 } };
    uint64_t with, without;
    uint32_t calls = 0;

    fixture_open(f);
    store_set_busy(f->store, true); /* a drop does not wait for idle times */
    fixture_write_all(f, 1, 0, 2000, 1);
    fixture_write_all(f, 2, 0, ROWS, 1);
    fixture_write_all(f, 3, 0, 2000, 1);
    fixture_flush_all(f);
    with = stats_of(f).stored_bytes;
    must(store_drop_table(f->store, 2, false, count_progress, &calls, NULL, &msg), &msg);
    without = stats_of(f).stored_bytes;
    assert_int_equal(calls, 4);
    assert_in_range(without, 0, with / 3);
    assert_int_equal(fixture_count_found(f, 2, 0, ROWS), 0);
    assert_int_equal(fixture_count_right(f, 1, 0, 2000, 1), 2000);
    assert_int_equal(fixture_count_right(f, 3, 0, 2000, 1), 2000);
    assert_int_equal(stats_of(f).shards_compacting_peak, 1);
    fixture_close(f);
    fixture_open(f);
    assert_int_equal(fixture_count_found(f, 2, 0, ROWS), 0);
    assert_int_equal(fixture_count_right(f, 3, 0, 2000, 1), 2000);
}

/* A table dropped before any flush leaves only the mark of its deletion, which overlaps no other
 * file. */
static void test_tables_that_come_and_go_leave_no_files(void **state)
{
    struct store_fixture *f = *state;
    struct err_msg msg = { { 0 } };
    uint64_t before;

    fixture_open(f);
    fixture_write_all(f, 1, 0, 2000, 1);
    fixture_flush_all(f);
    before = stats_of(f).stored_bytes;
    for (uint32_t table = 2; table < 22; table++) {
        fixture_write_all(f, table, 0, 100, 1);
        must(store_drop_table(f->store, table, false, NULL, NULL, NULL, &msg), &msg);
    }
    assert_in_range(stats_of(f).stored_bytes, 1, before + 4096);
    assert_int_equal(fixture_count_right(f, 1, 0, 2000, 1), 2000);
}

static uint64_t written_of(struct store_fixture *f, uint32_t table)
{
    struct store_written written;

    store_written(f->store, table, &written);
    return written.flush_bytes + written.compaction_bytes + written.import_bytes;
}

/* Tables come and go for years, and their numbers only rise. */
static void test_counts_of_dropped_tables_are_forgotten(void **state)
{
    struct store_fixture *f = *state;
    struct err_msg msg = { { 0 } };
    uint64_t all;

    fixture_open(f);
    fixture_write_all(f, 1, 0, 2000, 1);
    for (uint32_t table = 2; table < 22; table++) {
        fixture_write_all(f, table, 0, 100, 1);
        fixture_flush_all(f);
        assert_true(written_of(f, table) > 0);
        must(store_drop_table(f->store, table, false, NULL, NULL, NULL, &msg), &msg);
    }
    all = written_of(f, STORE_ALL_TABLES);
    for (uint32_t table = 2; table < 22; table++)
        assert_int_equal(written_of(f, table), 0);
    assert_true(written_of(f, 1) > 0);
    assert_true(all > written_of(f, 1));
}

static void *drop_table(void *context)
{
    struct store_fixture *f = context;
    struct err_msg msg = { { 0 } };

    return store_drop_table(f->store, 2, false, NULL, NULL, NULL, &msg) == EMBTIER_OK ? f : NULL;
}

static void test_drop_and_automatic_compactions_take_turns(void **state)
{
    struct store_fixture *f = *state;
    pthread_t thread;
    void *done;

    fixture_open(f);
    fixture_write_all(f, 2, 0, ROWS, 1);
    load_all_shards(f);
    store_set_busy(f->store, false);
    assert_int_equal(pthread_create(&thread, NULL, drop_table, f), 0);
    for (uint32_t version = 1; version <= 3; version++)
        fixture_write_all(f, 3, 0, 2000, version);
    assert_int_equal(pthread_join(thread, &done), 0);
    assert_non_null(done);
    wait_until_compacted(f);
    assert_int_equal(stats_of(f).shards_compacting_peak, 1);
    assert_int_equal(fixture_count_found(f, 2, 0, ROWS), 0);
    assert_int_equal(fixture_count_right(f, 1, 0, ROWS, ROUNDS), ROWS);
    assert_int_equal(fixture_count_right(f, 3, 0, 2000, 3), 2000);
}

/* ---- One directory's disk is full ---- */

/* RocksDB writes with these functions. The assembler name of pwrite() is spelled out, since the
 * headers may turn it into pwrite64(). */
#define VISIBLE __attribute__((visibility("default")))
VISIBLE ssize_t write(int fd, const void *bytes, size_t count);
VISIBLE ssize_t disk_pwrite(int fd, const void *bytes, size_t count,
                            off_t offset) __asm__("pwrite");

enum { DISK_WELL, DISK_FULL_FROM_NEXT_SST, DISK_FULL };
static _Atomic int disk_state;
static const char *disk_directory; /* set before @disk_state */

static bool disk_is_full(int fd)
{
    char name[40], path[500] = { 0 };
    int state = atomic_load(&disk_state);

    if (state == DISK_WELL)
        return false;
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    if (readlink(name, path, sizeof(path) - 1) < 0 ||
        strncmp(path, disk_directory, strlen(disk_directory)) != 0)
        return false;
    if (state == DISK_FULL_FROM_NEXT_SST && strstr(path, ".sst") &&
        atomic_compare_exchange_strong(&disk_state, &state, DISK_FULL))
        return true;
    return state == DISK_FULL;
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    if (!disk_is_full(fd))
        return syscall(SYS_write, fd, bytes, count);
    errno = ENOSPC;
    return -1;
}

ssize_t disk_pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    if (!disk_is_full(fd))
        return syscall(SYS_pwrite64, fd, bytes, count, offset);
    errno = ENOSPC;
    return -1;
}

/* Gives only @shard something to compact. */
static void load_one_shard(struct store_fixture *f, uint32_t shard)
{
    struct fixture_batch *batch = malloc(sizeof(*batch));
    struct err_msg msg = { { 0 } };

    store_set_busy(f->store, true);
    for (uint32_t version = 1; version <= ROUNDS; version++) {
        for (uint64_t id = 0; id < ROWS;) {
            id = fixture_gather(f, shard, 1, id, ROWS, batch);
            for (uint32_t i = 0; i < batch->count; i++)
                fixture_row_bytes(1, batch->rows[i].id, version, batch->rows[i].bytes);
            must(store_write(f->store, shard, batch->rows, batch->count, &msg), &msg);
        }
        must(store_flush(f->store, shard, &msg), &msg);
    }
    free(batch);
}

struct drop {
    struct store *store;
    uint32_t shards_done;
    enum embtier_err err;
    _Atomic bool ended;
};

static void count_shards(void *context, uint32_t done, uint32_t total)
{
    struct drop *const drop = context;

    (void)total;
    drop->shards_done = done;
}

static void *drop_seven(void *context)
{
    struct drop *const drop = context;
    struct err_msg msg = { { 0 } };

    drop->err = store_drop_table(drop->store, 7, false, count_shards, drop, NULL, &msg);
    atomic_store(&drop->ended, true);
    return NULL;
}

/* Shard 3 lies on a disk that fills up during a compaction, which then cannot even be turned
 * off. */
static void test_drop_goes_on_where_the_disk_is_not_full(void **state)
{
    struct store_fixture *f = *state;
    const uint64_t until_ns = now_ns() + 3 * FIXTURE_WAIT_NS;
    struct drop drop = { 0 };
    pthread_t thread;

    fixture_open(f);
    drop.store = f->store;
    fixture_write_all(f, 7, 0, 2000, 1);
    fixture_flush_all(f);
    load_one_shard(f, 3);
    disk_directory = f->made[1];
    atomic_store(&disk_state, DISK_FULL_FROM_NEXT_SST);
    store_set_busy(f->store, false);
    while (atomic_load(&disk_state) != DISK_FULL) {
        assert_true(now_ns() < until_ns);
        usleep(1000);
    }
    assert_int_equal(pthread_create(&thread, NULL, drop_seven, &drop), 0);
    while (!atomic_load(&drop.ended) && now_ns() < until_ns)
        usleep(1000);
    if (!atomic_load(&drop.ended)) {
        atomic_store(&disk_state, DISK_WELL);
        pthread_join(thread, NULL);
        fail_msg("the drop waits for a shard on another disk");
    }
    pthread_join(thread, NULL);
    assert_int_equal(drop.shards_done, 2);
    assert_int_equal(drop.err, EMBTIER_NO_SPACE);
    assert_int_equal(stats_of(f).shards_compacting, 0);

    /* All goes on by itself once there is room. */
    atomic_store(&disk_state, DISK_WELL);
    do {
        assert_true(now_ns() < until_ns);
        usleep(1000);
        drop_seven(&drop);
    } while (drop.err != EMBTIER_OK);
    while (stats_of(f).pending_compaction_bytes > 0 || stats_of(f).shards_compacting > 0) {
        assert_true(now_ns() < until_ns);
        usleep(50000);
    }
    assert_int_equal(stats_of(f).shards_compacting_peak, 1);
    assert_int_equal(fixture_count_found(f, 7, 0, 2000), 0);
    assert_in_range(fixture_count_right(f, 1, 0, ROWS, ROUNDS), ROWS / 5, ROWS / 3);
}

/* ---- Slots ---- */

static struct compaction_scheduler *scheduler_without_shards(uint32_t hold_patience_ms)
{
    struct compaction_scheduler *scheduler = NULL;
    struct err_msg msg = { { 0 } };

    must(compaction_scheduler_new(
             &(struct compaction_scheduler_opts){ .parallel = 1,
                                                  .hold_patience_ms = hold_patience_ms },
             &scheduler, &msg),
         &msg);
    return scheduler;
}

static void test_a_hold_without_a_slot_times_out(void **state)
{
    struct compaction_scheduler *scheduler = scheduler_without_shards(300);
    struct err_msg msg = { { 0 } };

    (void)state;
    must(compaction_scheduler_hold(scheduler, 0, NULL, &msg), &msg);
    assert_int_equal(compaction_scheduler_hold(scheduler, 0, NULL, &msg), EMBTIER_TIMEOUT);
    compaction_scheduler_release(scheduler, 0);
    must(compaction_scheduler_hold(scheduler, 0, NULL, &msg), &msg);
    compaction_scheduler_release(scheduler, 0);
    compaction_scheduler_free(scheduler);
}

struct holder {
    struct compaction_scheduler *scheduler;
    _Atomic bool stopping;
    enum embtier_err err;
};

static void *hold(void *context)
{
    struct holder *const holder = context;

    holder->err = compaction_scheduler_hold(holder->scheduler, 0, &holder->stopping, NULL);
    return NULL;
}

static void test_a_stop_ends_the_wait_for_a_slot(void **state)
{
    struct holder holder = { .scheduler = scheduler_without_shards(3600 * 1000) };
    struct err_msg msg = { { 0 } };
    pthread_t thread;

    (void)state;
    must(compaction_scheduler_hold(holder.scheduler, 0, NULL, &msg), &msg);
    assert_int_equal(pthread_create(&thread, NULL, hold, &holder), 0);
    usleep(50000);
    atomic_store(&holder.stopping, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(holder.err, EMBTIER_SHUTDOWN);
    compaction_scheduler_release(holder.scheduler, 0);
    compaction_scheduler_free(holder.scheduler);
}

/* ---- Metadata and tools ---- */

static void test_reads_cache_metadata_and_not_data(void **state)
{
    struct store_fixture *f = *state;
    struct store_stats before, after;
    const uint64_t data_bytes = stored_once_bytes();

    f->config.rocksdb.memtable_bytes = 4 * MIB;
    fixture_open(f);
    fixture_write_all(f, 1, 0, ROWS, 1);
    fixture_flush_all(f);
    fixture_count_right(f, 1, 0, ROWS, 1);
    before = stats_of(f);
    assert_int_equal(fixture_count_right(f, 1, 0, ROWS, 1), ROWS);
    after = stats_of(f);
    assert_true(after.metadata_hits > before.metadata_hits);
    assert_int_equal(after.metadata_misses, before.metadata_misses);
    /* About 1.5 bytes of filter and one of index per row; the data is 3 MB. */
    assert_in_range(after.metadata_cache_bytes, 1, data_bytes / 10);
    assert_int_equal(after.metadata_cache_bytes, before.metadata_cache_bytes);
    /* Every data block was read again. */
    assert_in_range(after.read_bytes - before.read_bytes, data_bytes, data_bytes * 5);
}

static void test_metadata_cache_that_is_too_small_stays_small(void **state)
{
    struct store_fixture *f = *state;

    f->config.rocksdb.metadata_cache_bytes = 64 * KIB;
    fixture_open(f);
    fixture_write_all(f, 1, 0, 5 * ROWS, 1);
    fixture_flush_all(f);
    assert_int_equal(fixture_count_right(f, 1, 0, 5 * ROWS, 1), 5 * ROWS);
    assert_in_range(stats_of(f).metadata_cache_bytes, 0, 2 * 64 * KIB);
}

static void test_absent_rows_are_told_by_filters_alone(void **state)
{
    struct store_fixture *f = *state;
    uint64_t read_before;

    fixture_open(f);
    /* Every other thousand, so that the absent rows lie within the files' ranges. */
    for (uint64_t id = 0; id < 40000; id += 2000)
        fixture_write_all(f, 1, id, id + 1000, 1);
    fixture_flush_all(f);
    fixture_count_found(f, 1, 0, 40000);
    read_before = stats_of(f).read_bytes;
    for (uint64_t id = 1000; id < 40000; id += 2000)
        assert_int_equal(fixture_count_found(f, 1, id, id + 1000), 0);
    /* Reads of 20000 absent rows would be 5 MB and more; the filters pass about 1% of them. */
    assert_in_range(stats_of(f).read_bytes - read_before, 0, 20000 * 4096 / 20);
}

/* ldb writes " : " between key and value, and " ==> " from RocksDB 8.7 on. */
static bool has_row(const char *output, const char *key, const char *value)
{
    const char *const found = strstr(output, key);
    const char *const rest = found ? found + strlen(key) + strspn(found + strlen(key), " :=>") : "";

    return strncmp(rest, value, strlen(value)) == 0;
}

static void test_ldb_reads_a_shard(void **state)
{
    struct store_fixture *f = *state;
    char output[4000];

    if (fixture_shell(output, sizeof(output), "command -v ldb") == 0)
        skip();
    f->config.data.directory_count = 1;
    f->config.data.shards_per_directory = 1;
    fixture_open(f);
    fixture_write_all(f, 0x01020304, 0x1122334455667788, 0x112233445566778a, 1);
    fixture_close(f);
    assert_true(fixture_shell(output, sizeof(output),
                              "ldb --db=%s/shard-0000/replay scan --key_hex --value_hex",
                              f->made[0]) > 0);
    /* Key, version, weight bytes, state bytes. */
    assert_true(has_row(output, "0x010203041122334455667788", "0x010000008000000004000000"));
    assert_true(has_row(output, "0x010203041122334455667789", "0x010000008000000004000000"));
    fixture_open(f); /* ldb did no harm */
    assert_int_equal(fixture_count_right(f, 0x01020304, 0x1122334455667788, 0x112233445566778a, 1),
                     2);
}

#define COMPACTION_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        COMPACTION_TEST(test_two_shards_never_compact_at_once),
        COMPACTION_TEST(test_two_shards_compact_at_once_where_that_is_allowed),
        COMPACTION_TEST(test_what_a_compaction_had_that_failed_is_compacted_later),
        COMPACTION_TEST(test_while_compaction_pauses_rows_are_taken_however_many_files_there_are),
        COMPACTION_TEST(test_urgent_shards_compact_even_while_the_server_is_busy),
        COMPACTION_TEST(test_dropped_table_gives_its_space_back_and_others_stay),
        COMPACTION_TEST(test_tables_that_come_and_go_leave_no_files),
        COMPACTION_TEST(test_counts_of_dropped_tables_are_forgotten),
        COMPACTION_TEST(test_drop_and_automatic_compactions_take_turns),
        COMPACTION_TEST(test_drop_goes_on_where_the_disk_is_not_full),
        cmocka_unit_test(test_a_hold_without_a_slot_times_out),
        cmocka_unit_test(test_a_stop_ends_the_wait_for_a_slot),
        COMPACTION_TEST(test_reads_cache_metadata_and_not_data),
        COMPACTION_TEST(test_metadata_cache_that_is_too_small_stays_small),
        COMPACTION_TEST(test_absent_rows_are_told_by_filters_alone),
        COMPACTION_TEST(test_ldb_reads_a_shard),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
