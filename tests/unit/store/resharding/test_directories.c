/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that data directories are added to an open store and removed from it without loss, whatever
 * the configuration of the next start says, also if the job is killed at any step. */
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "store/files/durable_file.h"
#include "store/members/identity_impl.h"
#include "store/members/join_leave.h"
#include "store/members/members.h"
#include "store/rocksdb/rocksdb_ext.h"
#include "tests/seed.h"
#include "tests/unit/store/resharding/reshard_fixture.h"

#define EXIT_KILLED 42

/* ---- A configuration that a start settles ---- */

static void name_directory(struct store_fixture *f, const char *name)
{
    char **const more =
        realloc(f->config.data.directories == f->directories ? NULL : f->config.data.directories,
                (f->config.data.directory_count + 1) * sizeof(*more));

    assert_non_null(more);
    f->config.data.directories = more;
    assert_true(asprintf(&more[f->config.data.directory_count], "%s/%s", f->root, name) > 0);
    f->config.data.directory_count++;
}

static void forget_names(struct store_fixture *f)
{
    for (uint32_t i = 0;
         f->config.data.directories != f->directories && i < f->config.data.directory_count; i++)
        free(f->config.data.directories[i]);
    if (f->config.data.directories != f->directories)
        free(f->config.data.directories);
    f->config.data.directories = f->directories;
    f->config.data.directory_count = 0;
}

/* Opens the store as a server does whose configuration names these directories: "d0 d1". */
static void open_named(struct store_fixture *f, const char *names)
{
    char *const copy = strdup(names);
    struct err_msg msg = { { 0 } };

    forget_names(f);
    assert_non_null(copy);
    for (char *rest = copy, *name; (name = strsep(&rest, " "));)
        name_directory(f, name);
    free(copy);
    must(store_settle_directories(&f->config, &msg), &msg);
    must(store_open(&(struct store_opts){ .config = &f->config }, &f->store, &msg), &msg);
}

static int teardown(void **state)
{
    struct store_fixture *const f = *state;

    store_free(TAKE(f->store));
    forget_names(f);
    return fixture_teardown(state);
}

/* ---- Jobs ---- */

static enum embtier_err make_checkpoint(void *context, struct err_msg *msg)
{
    const struct job *const job = context;

    (void)msg;
    (void)fixture_checkpoint(job->f);
    return EMBTIER_OK;
}

static enum embtier_err drop_checkpoint(void *context, uint64_t id, struct err_msg *msg)
{
    const struct job *const job = context;

    return checkpoint_delete(store_shelf(job->f->store), id, msg);
}

struct order {
    struct job job;
    char path[400];
};

static void order_init(struct order *order, struct store_fixture *f, enum reshard_order kind,
                       const char *name)
{
    job_init(&order->job, f, 0);
    snprintf(order->path, sizeof(order->path), "%s%s%s", name[0] == '/' ? "" : f->root,
             name[0] == '/' ? "" : "/", name);
    order->job.opts.order = kind;
    order->job.opts.directory = order->path;
    order->job.opts.deletes_checkpoints = true;
    order->job.opts.checkpoint = make_checkpoint;
    order->job.opts.drop = drop_checkpoint;
}

static void carry_out(struct store_fixture *f, enum reshard_order kind, const char *name)
{
    struct err_msg msg = { { 0 } };
    struct order order;

    order_init(&order, f, kind, name);
    must(reshard_run(f->store, &order.job.opts, &msg), &msg);
}

static uint32_t buckets_in(const struct store_fixture *f, uint32_t place)
{
    const struct bucket_map *const map = f->store->map;
    uint32_t count = 0;

    for (uint32_t s = 0; s < map->shard_count; s++)
        if (map->bucket_counts[s] > 0 && map->places[s] == place)
            count += map->bucket_counts[s];
    return count;
}

static uint64_t reserve_bytes(const struct store_fixture *f)
{
    struct space_stats stats;

    space_stats(f->store->space, &stats);
    return stats.reserve_bytes;
}

/* ---- A full disk ---- */

static _Atomic bool is_full;

/* meson sets _FILE_OFFSET_BITS, so programs call this one. */
int __wrap_statvfs64(const char *path, struct statvfs *ret_info);
int __real_statvfs64(const char *path, struct statvfs *ret_info);
int __wrap_statvfs64(const char *path, struct statvfs *ret_info)
{
    const int rc = __real_statvfs64(path, ret_info);

    if (rc == 0 && atomic_load(&is_full))
        ret_info->f_bavail = 0;
    return rc;
}

/* ---- Ways that go well ---- */

static void test_rows_move_to_a_directory_that_is_added(void **state)
{
    struct store_fixture *const f = *state;

    open_named(f, "d0 d1");
    write_both(f, 1);
    carry_out(f, RESHARD_ADD, "d2");
    assert_spread(f, SHARDS + 2);
    for (uint32_t place = 0; place < 3; place++)
        assert_in_range(buckets_in(f, place), ROW_BUCKETS / 3 - 2, ROW_BUCKETS / 3 + 2);
    assert_both(f, 1);
    assert_no_strays(f, TABLE, 50);
    write_both(f, 2);
    fixture_close(f);
    open_named(f, "d0 d1"); /* the configuration does not know of it yet */
    assert_int_equal(f->config.data.directory_count, 3);
    assert_both(f, 2);
    (void)fixture_checkpoint(f);
    assert_scan(f, TABLE, 2);
    must(store_close(TAKE(f->store), false, NULL), &(struct err_msg){ { 0 } });
    open_named(f, "d2 d0 d1");
    assert_both(f, 2);
    carry_out(f, RESHARD_ADD, "d3");
    assert_both(f, 2);
    for (uint32_t place = 0; place < 4; place++)
        assert_in_range(buckets_in(f, place), ROW_BUCKETS / 4 - 2, ROW_BUCKETS / 4 + 2);
}

static void test_a_directory_can_be_taken_away_when_it_was_removed(void **state)
{
    struct store_fixture *const f = *state;

    open_named(f, "d0 d1");
    write_both(f, 1);
    (void)fixture_checkpoint(f);
    carry_out(f, RESHARD_REMOVE, "d1");
    assert_int_equal(buckets_in(f, 1), 0);
    assert_int_equal(buckets_in(f, 0), ROW_BUCKETS);
    assert_both(f, 1);
    write_both(f, 2);
    (void)fixture_checkpoint(f); /* with the emptied databases still open */
    assert_scan(f, TABLE, 2);
    must(store_close(TAKE(f->store), false, NULL), &(struct err_msg){ { 0 } });
    fixture_remove(f, 1, "");
    open_named(f, "d0 d1"); /* the configuration does not know of it yet */
    assert_int_equal(f->config.data.directory_count, 1);
    assert_both(f, 2);
    assert_scan(f, FIXTURE_LOGGED, 2);
    fixture_make_directory(f, 1);
    reopen(f, true);
    carry_out(f, RESHARD_ADD, "d1"); /* another drive in its place */
    assert_both(f, 2);
    assert_spread(f, SHARDS);
    fixture_close(f);
    open_named(f, "d0 d1");
    assert_int_equal(f->config.data.directory_count, 2);
    assert_both(f, 2);
    carry_out(f, RESHARD_REMOVE, "d1");
    fixture_close(f);
    open_named(f, "d0");
    assert_both(f, 2);
}

/* Its drive is gone, and with it what the link leads to, or its mount point is left. */
static void test_a_removed_directory_is_known_by_any_name(void **state)
{
    struct store_fixture *const f = *state;
    char path[400];

    snprintf(path, sizeof(path), "%s/link", f->root);
    assert_int_equal(symlink("d1", path), 0);
    open_named(f, "d0 link");
    write_both(f, 1);
    carry_out(f, RESHARD_REMOVE, "link");
    fixture_close(f);
    fixture_remove(f, 1, "");
    for (uint32_t round = 0; round < 2; round++) {
        open_named(f, round == 0 ? "d0 link" : "d0 .//d1/");
        assert_int_equal(f->config.data.directory_count, 1);
        assert_both(f, 1);
        fixture_close(f);
        if (round == 0)
            fixture_make_directory(f, 1);
    }
    open_named(f, "d0 link");
    assert_int_equal(f->config.data.directory_count, 1);
}

static void remove_path(const struct store_fixture *f, const char *name)
{
    char path[400];

    snprintf(path, sizeof(path), "%s/%s", f->root, name);
    assert_int_equal(nftw(path, fixture_unlink_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* The directory that stays has no shard: it must get some. */
static void test_the_directory_with_all_rows_can_be_removed(void **state)
{
    struct store_fixture *const f = *state;

    open_named(f, "d0 d1");
    write_both(f, 1);
    carry_out(f, RESHARD_ADD, "d2");
    reshard(f, 1);
    fixture_close(f);
    open_named(f, "d0 d1 d2"); /* emptied shards go */
    assert_int_equal(buckets_in(f, 2), ROW_BUCKETS);
    carry_out(f, RESHARD_REMOVE, "d2");
    assert_int_equal(buckets_in(f, 2), 0);
    assert_both(f, 1);
    fixture_close(f);
    remove_path(f, "d2");
    open_named(f, "d0 d1");
    assert_both(f, 1);
}

static void stop_at(struct store_fixture *f, enum reshard_order kind, const char *name,
                    enum reshard_step step)
{
    struct err_msg msg = { { 0 } };
    struct order order;

    order_init(&order, f, kind, name);
    order.job.stops_at_step = true;
    order.job.stop_step = step;
    assert_int_equal(reshard_run(f->store, &order.job.opts, &msg), EMBTIER_SHUTDOWN);
}

/* The reserve is of directories that have rows, and as large as that of a start. */
static void test_the_space_of_those_with_rows_counts(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    uint64_t each, all;

    open_named(f, "d0 d1");
    write_both(f, 1);
    each = reserve_bytes(f) / 2;
    stop_at(f, RESHARD_ADD, "d2", RESHARD_JOINED);
    assert_int_equal(reserve_bytes(f), 2 * each);
    stop_at(f, RESHARD_ADD, "d2", RESHARD_SWITCHED); /* some rows are there */
    assert_int_equal(reserve_bytes(f), 3 * each);
    carry_out(f, RESHARD_ADD, "d2");
    must(store_set_memtables(f->store, &f->config, &msg), &msg);
    all = reserve_bytes(f);
    fixture_close(f);
    open_named(f, "d0 d1 d2");
    assert_int_equal(reserve_bytes(f), all);
    carry_out(f, RESHARD_REMOVE, "d1");
    assert_int_equal(reserve_bytes(f), all / 3 * 2);
    carry_out(f, RESHARD_REMOVE, "d2");
    assert_int_equal(reserve_bytes(f), all / 3);
    assert_both(f, 1);
}

/* ---- Refusals ---- */

static void refuse_order(struct store_fixture *f, enum reshard_order kind, const char *name,
                         enum embtier_err err, const char *words)
{
    struct reshard_record record = { 0 };
    struct err_msg msg = { { 0 } };
    struct reshard_facts facts;
    struct order order;
    enum embtier_err got;

    order_init(&order, f, kind, name);
    order.job.opts.deletes_checkpoints = false;
    if (strcmp(name, "relative") == 0)
        order.job.opts.directory = name;
    got = reshard_run(f->store, &order.job.opts, &msg);
    if (got != err || !strstr(msg.text, words))
        fail_msg("%s: %s; expected %s: … %s …", err_name(got), msg.text, err_name(err), words);
    must(reshard_record_read(store_first_directory(f->store), &record, &msg), &msg);
    assert_int_equal(record.shards, 0); /* the next start has nothing to go on with */
    reshard_look(f->store, &facts);
    assert_false(facts.has_failed);
}

static void test_mistakes_are_told_and_change_nothing(void **state)
{
    struct store_fixture *const f = *state;
    char path[400];
    int fd;

    open_named(f, "d0 d1");
    write_both(f, 1);
    snprintf(path, sizeof(path), "%s/full", f->root);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/full/letter", f->root);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    refuse_order(f, RESHARD_ADD, "relative", EMBTIER_INVALID, "absolute path");
    refuse_order(f, RESHARD_ADD, "d1", EMBTIER_EXISTS, "already data directory 1");
    refuse_order(f, RESHARD_ADD, "d1/", EMBTIER_EXISTS, "already data directory 1");
    refuse_order(f, RESHARD_ADD, "d1/new", EMBTIER_INVALID, "one in the other");
    refuse_order(f, RESHARD_ADD, "", EMBTIER_INVALID, "one in the other");
    refuse_order(f, RESHARD_ADD, "full", EMBTIER_MISMATCH, "not empty");
    refuse_order(f, RESHARD_ADD, "full/letter", EMBTIER_INVALID, "no directory");
    refuse_order(f, RESHARD_ADD, "none/new", EMBTIER_NOT_FOUND, "none");
    refuse_order(f, RESHARD_REMOVE, "relative", EMBTIER_INVALID, "absolute path");
    refuse_order(f, RESHARD_REMOVE, "d7", EMBTIER_NOT_FOUND, "no data directory of this store");
    refuse_order(f, RESHARD_REMOVE, "d0", EMBTIER_INVALID, "first data directory");
    (void)fixture_checkpoint(f);
    refuse_order(f, RESHARD_REMOVE, "d1", EMBTIER_EXISTS, "checkpoint 1, which a user made");
    carry_out(f, RESHARD_REMOVE, "d1");
    refuse_order(f, RESHARD_REMOVE, "d0", EMBTIER_INVALID, "only data directory");
    refuse_order(f, RESHARD_REMOVE, "d1", EMBTIER_NOT_FOUND, "no data directory of this store");
    refuse_order(f, RESHARD_ADD, "d1", EMBTIER_MISMATCH, "belongs to a store, or did so");
    assert_both(f, 1);
}

/* Makes the record of checkpoint 1 one of a newer server. */
static void make_newer(const struct store_fixture *f)
{
    struct rocksdb_ext_sum *const sum = rocksdb_ext_sum_new();
    char folder[400], *text = NULL, *at;
    struct err_msg msg = { { 0 } };

    snprintf(folder, sizeof(folder), "%s/d0/checkpoints/000001", f->root);
    must(durable_file_read(folder, CHECKPOINT_RECORD_FILE, &text, &msg), &msg);
    at = strstr(text, "format_version");
    assert_non_null(at);
    at[strcspn(at, "0123456789")] = '9';
    at = strchr(text, '\n') + 1;
    rocksdb_ext_sum_add(sum, at, strlen(at) - 1);
    snprintf(text, (size_t)(at - text), "crc32c %08x", rocksdb_ext_sum_end(sum));
    at[-1] = '\n';
    must(durable_file_write(folder, CHECKPOINT_RECORD_FILE, text, &msg), &msg);
    free(text);
}

/* Another server can read it. A damaged one helps nobody. */
static void test_a_checkpoint_that_cannot_be_read_is_not_given_up(void **state)
{
    struct store_fixture *const f = *state;
    char record[400];

    open_named(f, "d0 d1");
    write_both(f, 1);
    (void)fixture_checkpoint(f);
    refuse_order(f, RESHARD_REMOVE, "d1", EMBTIER_EXISTS, "checkpoint 1, which a user made");
    make_newer(f);
    refuse_order(f, RESHARD_REMOVE, "d1", EMBTIER_VERSION, "a newer embtierd made it");
    snprintf(record, sizeof(record), "%s/d0/checkpoints/000001/checkpoint.json", f->root);
    assert_int_equal(truncate(record, 100), 0);
    carry_out(f, RESHARD_REMOVE, "d1");
    assert_both(f, 1);
}

/* The directory would join, and then get no shards, or no start would succeed. */
static void test_no_directory_is_added_above_the_limits_of_shards(void **state)
{
    struct store_fixture *const f = *state;
    uint32_t *per_directory, given;
    struct bucket_map *map;

    open_named(f, "d0 d1");
    per_directory = &f->store->identity->directories[0].record.shards_per_directory;
    *per_directory = CONFIG_SHARDS_MAX / 3 + 1;
    refuse_order(f, RESHARD_ADD, "d2", EMBTIER_TOO_LARGE, "3 times 342 is above 1024");
    *per_directory = CONFIG_SHARDS_MAX / 3;
    map = f->store->map;
    given = map->shard_count;
    map->shard_count = BUCKET_MAP_SHARDS_MAX - 1;
    refuse_order(f, RESHARD_ADD, "d2", EMBTIER_TOO_LARGE, "cannot have 2 more shards");
    map->shard_count = given;
    assert_int_equal(store_identity_directory_count(f->store->identity), 2);
    carry_out(f, RESHARD_ADD, "d2");
}

static void test_a_full_disk_takes_no_rows_of_others(void **state)
{
    struct store_fixture *const f = *state;

    open_named(f, "d0 d1");
    write_both(f, 1);
    atomic_store(&is_full, true);
    refuse_order(f, RESHARD_ADD, "d2", EMBTIER_NO_SPACE, "MiB are free");
    refuse_order(f, RESHARD_REMOVE, "d1", EMBTIER_NO_SPACE, "MiB are free");
    atomic_store(&is_full, false);
    assert_both(f, 1);
    assert_int_equal(store_identity_directory_count(f->store->identity), 2);
}

static void test_a_start_without_a_directory_of_the_list_is_refused(void **state)
{
    struct store_fixture *const f = *state;
    char path[400], aside[400];

    open_named(f, "d0 d1");
    write_both(f, 1);
    carry_out(f, RESHARD_ADD, "d2");
    fixture_close(f);
    snprintf(path, sizeof(path), "%s/d2", f->root);
    snprintf(aside, sizeof(aside), "%s/aside", f->root);
    assert_int_equal(rename(path, aside), 0);
    forget_names(f);
    name_directory(f, "d0");
    name_directory(f, "d1");
    must(store_settle_directories(&f->config, NULL), &(struct err_msg){ { 0 } });
    fixture_refused(f, EMBTIER_MISMATCH, "directory 2 of the store is missing");
    open_named(f, "d0 d1 aside"); /* mounted elsewhere */
    assert_both(f, 1);
}

static void copy_tree(const struct store_fixture *f, const char *from, const char *to)
{
    char output[100];

    (void)fixture_shell(output, sizeof(output), "cp -a %s/%s %s/%s", f->root, from, f->root, to);
}

/* The list in a copy tells where the original's directories are. */
static void test_a_copied_store_does_not_open_the_original(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };

    open_named(f, "d0 d1");
    write_both(f, 1);
    carry_out(f, RESHARD_ADD, "d2");
    fixture_close(f);
    copy_tree(f, "d0", "c0");
    copy_tree(f, "d1", "c1");
    copy_tree(f, "d2", "c2");
    forget_names(f);
    name_directory(f, "c0");
    name_directory(f, "c1");
    must(store_settle_directories(&f->config, &msg), &msg);
    assert_int_equal(f->config.data.directory_count, 2);
    fixture_refused(f, EMBTIER_MISMATCH, "copied or moved, name it where it is now");
    open_named(f, "c0 c1 c2");
    assert_both(f, 1);
    carry_out(f, RESHARD_ADD, "c3"); /* the list now tells where the copy is */
    write_both(f, 2);
    fixture_close(f);
    open_named(f, "c0 c1");
    assert_int_equal(f->config.data.directory_count, 4);
    assert_both(f, 2);
    fixture_close(f);
    open_named(f, "d0 d1");
    assert_int_equal(f->config.data.directory_count, 3);
    assert_both(f, 1);
}

static void test_copies_of_the_list_are_mended(void **state)
{
    struct store_fixture *const f = *state;
    struct members members = { 0 };
    struct err_msg msg = { { 0 } };

    open_named(f, "d0 d1");
    write_both(f, 1);
    carry_out(f, RESHARD_ADD, "d2");
    fixture_close(f);
    fixture_remove(f, 0, MEMBERS_FILE);
    fixture_truncate(f, 1, MEMBERS_FILE, 20);
    open_named(f, "d0 d1 d2");
    assert_both(f, 1);
    for (uint32_t i = 0; i < 2; i++) {
        must(members_read(f->made[i], &members, &msg), &msg);
        assert_int_equal(members_count(&members), 3);
        members_clear(&members);
    }
}

/* ---- Jobs that are cut short ---- */

static void test_an_order_that_is_cancelled_at_any_step_goes_on_later(void **state)
{
    struct store_fixture *const f = *state;
    uint32_t version = 1, tries = 0;

    open_named(f, "d0 d1");
    write_both(f, version);
    for (uint32_t round = 0; round < 2; round++) {
        enum embtier_err err = EMBTIER_SHUTDOWN;
        struct err_msg msg = { { 0 } };

        for (tries = 0; err == EMBTIER_SHUTDOWN; tries++) {
            struct order order;

            order_init(&order, f, round == 0 ? RESHARD_ADD : RESHARD_REMOVE, "d2");
            order.job.stop_at = tries / 2 + 1;
            err = reshard_run(f->store, &order.job.opts, &msg);
            assert_both(f, version);
            write_both(f, ++version);
            assert_true(tries < 200);
        }
        must(err, &msg);
        assert_spread(f, round == 0 ? SHARDS + 2 : SHARDS);
    }
    assert_int_equal(buckets_in(f, 2), 0);
    fixture_close(f);
    open_named(f, "d0 d1");
    assert_both(f, version);
}

/* Somebody edits the file when the command has begun, and the server stops before it ends. */
static void test_a_start_during_a_removal_need_not_name_the_directory(void **state)
{
    struct store_fixture *const f = *state;

    open_named(f, "d0 d1");
    write_both(f, 1);
    stop_at(f, RESHARD_REMOVE, "d1", RESHARD_BEGUN);
    assert_true(buckets_in(f, 1) > 0);
    fixture_close(f);
    open_named(f, "d0");
    assert_both(f, 1);
    carry_out(f, RESHARD_REMOVE, "d1");
    assert_both(f, 1);
    assert_int_equal(buckets_in(f, 0), ROW_BUCKETS);
}

static void fill_new_directory(struct job *job, enum reshard_step step)
{
    char path[400];

    if (step != RESHARD_PLANNED)
        return;
    snprintf(path, sizeof(path), "%s/d2", job->f->root);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/d2/letter", job->f->root);
    assert_int_equal(mkdir(path, 0700), 0);
}

/* The order of a removal stays until it has been carried out, whatever comes between. */
static void test_an_order_outlives_links_and_others_that_fail(void **state)
{
    struct store_fixture *const f = *state;
    struct reshard_record record = { 0 };
    struct err_msg msg = { { 0 } };
    struct order order;
    char path[400];

    snprintf(path, sizeof(path), "%s/link", f->root);
    assert_int_equal(symlink("d1", path), 0);
    open_named(f, "d0 link");
    write_both(f, 1);
    stop_at(f, RESHARD_REMOVE, "link", RESHARD_BEGUN);
    order_init(&order, f, RESHARD_ADD, "d2");
    order.job.act = fill_new_directory;
    assert_int_equal(reshard_run(f->store, &order.job.opts, &msg), EMBTIER_MISMATCH);
    f->store->identity->joining.path = path;
    order.job.act = NULL;
    remove_path(f, "d2");
    assert_int_equal(reshard_run(f->store, &order.job.opts, &msg), EMBTIER_BUSY);
    f->store->identity->joining.path = NULL;
    fixture_close(f);
    assert_int_equal(unlink(path), 0);
    open_named(f, "d0");
    must(reshard_record_read(store_first_directory(f->store), &record, &msg), &msg);
    assert_int_equal(record.order, RESHARD_REMOVE);
    carry_out(f, RESHARD_REMOVE, record.directory);
    assert_int_equal(buckets_in(f, 0), ROW_BUCKETS);
    assert_both(f, 1);
}

static uint32_t kill_at;

static void die(struct job *job, enum reshard_step step)
{
    (void)step;
    if (job->steps == kill_at)
        _exit(EXIT_KILLED);
}

/* Writes the number of steps if it comes to its end. */
static int part_main(const char *root, uint32_t at, enum reshard_order kind)
{
    struct store_fixture *const f = fixture_at(root);
    struct err_msg msg = { { 0 } };
    struct order order;

    kill_at = at;
    open_named(f, kind == RESHARD_ADD ? "d0 d1" : "d0 d1 d2");
    write_both(f, 2);
    order_init(&order, f, kind, "d2");
    order.job.act = die;
    must(reshard_run(f->store, &order.job.opts, &msg), &msg);
    if (write(STDOUT_FILENO, &order.job.steps, sizeof(order.job.steps)) != sizeof(order.job.steps))
        return 1;
    _exit(0); /* does not close the store, as if the process had died a moment later */
}

static uint32_t run_part(const struct store_fixture *f, enum reshard_order kind, uint32_t at)
{
    char number[16];
    uint32_t count = 0;
    int pipes[2], status;
    pid_t child;

    snprintf(number, sizeof(number), "%u", at);
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(pipes[1], STDOUT_FILENO);
        fixture_exec_self(f, kind == RESHARD_ADD ? "add" : "remove", number);
    }
    close(pipes[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (read(pipes[0], &count, sizeof(count)) != sizeof(count))
        count = 0;
    close(pipes[0]);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), count > 0 ? 0 : EXIT_KILLED);
    return count;
}

/* The start that follows has the old configuration or the new one. A directory that is added is
 * named only when the command is done. */
static void check_killed(struct store_fixture *f, enum reshard_order kind, bool is_old)
{
    uint64_t right;

    open_named(f, kind == RESHARD_REMOVE && is_old ? "d0 d1 d2" : "d0 d1");
    assert_int_equal(fixture_count_right(f, FIXTURE_LOGGED, 0, ROWS, 2), ROWS);
    right = fixture_count_right(f, TABLE, 0, ROWS, 1);
    if (right == 0)
        right = fixture_count_right(f, TABLE, 0, ROWS, 2);
    assert_int_equal(right, ROWS);
    write_both(f, 3);
}

static bool is_member(const struct store_fixture *f)
{
    char path[400];

    snprintf(path, sizeof(path), "%s/d2", f->root);
    return store_identity_find(f->store->identity, path) != DIRECTORY_NONE;
}

static void kill_everywhere(enum reshard_order kind)
{
    const char *const is_long = getenv("EMBTIER_TEST_LONG");
    const uint32_t stride = is_long && strcmp(is_long, "1") == 0 ? 1 : 4;
    const uint64_t seed = seed_of_test(__func__, seed_random());
    uint32_t steps = 0;

    for (uint32_t at = 1 + (uint32_t)(seed % stride); steps == 0; at += stride) {
        struct store_fixture *const f = fixture_new();

        open_named(f, "d0 d1");
        write_both(f, 1);
        if (kind == RESHARD_REMOVE)
            carry_out(f, RESHARD_ADD, "d2");
        (void)fixture_checkpoint(f);
        fixture_close(f);
        steps = run_part(f, kind, at);
        check_killed(f, kind, seed / 7 % 2);
        /* A start goes on with what is written down; one that has come to its end is done. */
        if (steps == 0 && (kind == RESHARD_ADD || is_member(f)))
            carry_out(f, kind, "d2");
        assert_both(f, 3);
        /* Sweeps strays that the crash brought back, if the job had come to its end. */
        reshard(f, kind == RESHARD_ADD ? SHARDS + 2 : SHARDS);
        assert_spread(f, kind == RESHARD_ADD ? SHARDS + 2 : SHARDS);
        assert_int_equal(is_member(f), kind == RESHARD_ADD);
        fixture_close(f);
        if (kind == RESHARD_REMOVE)
            remove_path(f, "d2");
        open_named(f, "d0 d1");
        assert_both(f, 3);
        reshard(f, 3);
        assert_both(f, 3);
        store_free(TAKE(f->store));
        forget_names(f);
        fixture_destroy(f);
    }
    printf("%u steps\n", steps);
    assert_true(steps >= 8);
}

static void test_killed_at_any_step_of_an_addition_nothing_is_lost(void **state)
{
    (void)state;
    kill_everywhere(RESHARD_ADD);
}

static void test_killed_at_any_step_of_a_removal_nothing_is_lost(void **state)
{
    (void)state;
    kill_everywhere(RESHARD_REMOVE);
}

#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        STORE_TEST(test_rows_move_to_a_directory_that_is_added),
        STORE_TEST(test_a_directory_can_be_taken_away_when_it_was_removed),
        STORE_TEST(test_a_removed_directory_is_known_by_any_name),
        STORE_TEST(test_the_directory_with_all_rows_can_be_removed),
        STORE_TEST(test_the_space_of_those_with_rows_counts),
        STORE_TEST(test_mistakes_are_told_and_change_nothing),
        STORE_TEST(test_a_checkpoint_that_cannot_be_read_is_not_given_up),
        STORE_TEST(test_no_directory_is_added_above_the_limits_of_shards),
        STORE_TEST(test_a_full_disk_takes_no_rows_of_others),
        STORE_TEST(test_a_start_without_a_directory_of_the_list_is_refused),
        STORE_TEST(test_a_copied_store_does_not_open_the_original),
        STORE_TEST(test_copies_of_the_list_are_mended),
        STORE_TEST(test_an_order_that_is_cancelled_at_any_step_goes_on_later),
        STORE_TEST(test_a_start_during_a_removal_need_not_name_the_directory),
        STORE_TEST(test_an_order_outlives_links_and_others_that_fail),
        cmocka_unit_test(test_killed_at_any_step_of_an_addition_nothing_is_lost),
        cmocka_unit_test(test_killed_at_any_step_of_a_removal_nothing_is_lost),
    };

    if (argc == 2)
        cmocka_set_test_filter(argv[1]);
    if (argc == 4)
        return part_main(argv[2], (uint32_t)strtoul(argv[3], NULL, 10),
                         strcmp(argv[1], "add") == 0 ? RESHARD_ADD : RESHARD_REMOVE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
