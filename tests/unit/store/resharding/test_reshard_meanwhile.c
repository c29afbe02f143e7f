/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of what else happens while buckets move: targets take no rows for a time, tables are
 * dropped, options change, and somebody looks how far the job is. The linker wraps some functions,
 * so that a test can act in the middle of a job. */
#include <pthread.h>

#include "store/database/database_impl.h"
#include "store/database/database_moves.h"
#include "store/resharding/wave.h"
#include "tests/unit/store/resharding/reshard_fixture.h"

#define NEW_SHARD "/shard-0004/"
_Static_assert(SHARDS == 4, "the first new shard has this number");

/* ---- Hooks ---- */

static const char *_Atomic stalled_path; /* a database that takes no rows */
static void (*before_store)(void);
static void (*before_wave)(void); /* it is noted, and its view is not in force */
static void (*before_flush)(void);
static bool counts_room, refuses_room;
static uint64_t room_rows, room_bytes, paced_bytes; /* asked for since that was counted */
static _Atomic bool holds_drops, drop_waits;
static bool has_rewritten; /* a database of the new shard */

enum embtier_err __real_database_may_write(struct database *database, struct err_msg *msg);
enum embtier_err __wrap_database_may_write(struct database *database, struct err_msg *msg);
enum embtier_err __wrap_database_may_write(struct database *database, struct err_msg *msg)
{
    const char *const path = atomic_load(&stalled_path);

    if (path && strstr(database_path(database), path))
        return err_set(msg, EMBTIER_BUSY, "%s: busy for a test", database_path(database));
    return __real_database_may_write(database, msg);
}

enum embtier_err __real_database_store(struct database *database, const struct stored_row *rows,
                                       uint32_t count, struct err_msg *msg);
enum embtier_err __wrap_database_store(struct database *database, const struct stored_row *rows,
                                       uint32_t count, struct err_msg *msg);
enum embtier_err __wrap_database_store(struct database *database, const struct stored_row *rows,
                                       uint32_t count, struct err_msg *msg)
{
    if (before_store)
        before_store();
    return __real_database_store(database, rows, count, msg);
}

enum embtier_err __real_database_flush(struct database *database, struct err_msg *msg);
enum embtier_err __wrap_database_flush(struct database *database, struct err_msg *msg);
enum embtier_err __wrap_database_flush(struct database *database, struct err_msg *msg)
{
    if (before_flush)
        before_flush();
    return __real_database_flush(database, msg);
}

enum embtier_err __real_store_admit_copies(const struct store *store, uint64_t row_count,
                                           uint64_t row_bytes, bool logged,
                                           struct store_refusal *ret_refusal);
enum embtier_err __wrap_store_admit_copies(const struct store *store, uint64_t row_count,
                                           uint64_t row_bytes, bool logged,
                                           struct store_refusal *ret_refusal);
enum embtier_err __wrap_store_admit_copies(const struct store *store, uint64_t row_count,
                                           uint64_t row_bytes, bool logged,
                                           struct store_refusal *ret_refusal)
{
    room_rows += counts_room ? row_count : 0;
    room_bytes += counts_room ? row_bytes : 0;
    if (!refuses_room)
        return __real_store_admit_copies(store, row_count, row_bytes, logged, ret_refusal);
    *ret_refusal = (struct store_refusal){ .needed_bytes = row_bytes };
    return EMBTIER_NO_SPACE;
}

enum embtier_err __real_move_pace_take(struct move_pace *pace, uint64_t bytes, struct err_msg *msg);
enum embtier_err __wrap_move_pace_take(struct move_pace *pace, uint64_t bytes, struct err_msg *msg);
enum embtier_err __wrap_move_pace_take(struct move_pace *pace, uint64_t bytes, struct err_msg *msg)
{
    paced_bytes += counts_room ? bytes : 0;
    return __real_move_pace_take(pace, bytes, msg);
}

void __real_store_view_set(struct store_views *views, struct store_view *view);
void __wrap_store_view_set(struct store_views *views, struct store_view *view);
void __wrap_store_view_set(struct store_views *views, struct store_view *view)
{
    if (before_wave && view->wave)
        before_wave();
    __real_store_view_set(views, view);
}

enum embtier_err __real_database_delete_table(struct database *database, uint32_t table_id,
                                              struct err_msg *msg);
enum embtier_err __wrap_database_delete_table(struct database *database, uint32_t table_id,
                                              struct err_msg *msg);
enum embtier_err __wrap_database_delete_table(struct database *database, uint32_t table_id,
                                              struct err_msg *msg)
{
    while (table_id != DATABASE_ALL_TABLES && atomic_load(&holds_drops)) {
        atomic_store(&drop_waits, true);
        usleep(1000);
    }
    return __real_database_delete_table(database, table_id, msg);
}

enum embtier_err __real_database_rewrite(struct database *database,
                                         const struct database_ranges *ranges, uint32_t range,
                                         struct rocksdb_ext_stop *stop, struct err_msg *msg);
enum embtier_err __wrap_database_rewrite(struct database *database,
                                         const struct database_ranges *ranges, uint32_t range,
                                         struct rocksdb_ext_stop *stop, struct err_msg *msg);
enum embtier_err __wrap_database_rewrite(struct database *database,
                                         const struct database_ranges *ranges, uint32_t range,
                                         struct rocksdb_ext_stop *stop, struct err_msg *msg)
{
    has_rewritten = has_rewritten || strstr(database_path(database), NEW_SHARD);
    return __real_database_rewrite(database, ranges, range, stop, msg);
}

/* Returns true if @holds becomes true within a minute. */
static bool is_seen(const _Atomic bool *holds)
{
    const uint64_t until_ns = now_ns() + FIXTURE_WAIT_NS;

    while (!atomic_load(holds) && now_ns() < until_ns)
        usleep(1000);
    return atomic_load(holds);
}

static uint64_t count_stored(struct store_fixture *f, uint32_t shard, bool logged, uint32_t table)
{
    const struct row_key first = row_key_make(table, 0), end = row_key_make(table + 1, 0);
    struct database_walk *walk = NULL;
    struct err_msg msg = { { 0 } };
    struct stored_row row;
    uint64_t count = 0;

    must(database_walk_new(store_database_of(f->store, shard, logged), first, &walk, &msg), &msg);
    for (;; count++) {
        must(database_walk_row(walk, &row, &msg), &msg);
        if (!row.value || memcmp(&row.key, &end, sizeof(end)) >= 0)
            break;
        database_walk_next(walk);
    }
    database_walk_free(walk);
    return count;
}

/* ---- Targets that take no rows ---- */

struct stalls {
    enum reshard_step at;
    uint32_t version; /* of all rows */
    uint32_t waves, commits, missed;
};

/* Longer than writers wait for it. */
static void stall_and_write(struct job *job, enum reshard_step step)
{
    struct stalls *const stalls = job->context;

    stalls->waves += step == RESHARD_BEGUN;
    stalls->commits += step == RESHARD_CHECKPOINTED;
    if (step != stalls->at || job->moved > 0 || stalls->version > 1)
        return;
    atomic_store(&stalled_path, NEW_SHARD);
    write_both(job->f, ++stalls->version);
    fixture_write_all(job->f, TABLE, ROWS / 2, ROWS, ++stalls->version);
    write_both(job->f, stalls->version);
    stalls->missed = job->f->store->moves.wave->missed.count;
    atomic_store(&stalled_path, NULL);
}

static void stall_at(struct store_fixture *f, enum reshard_step step)
{
    struct stalls stalls = { .at = step, .version = 1 };
    struct err_msg msg = { { 0 } };
    struct job job;

    fixture_open(f);
    write_both(f, 1);
    job_init(&job, f, SHARDS + 1);
    job.act = stall_and_write;
    job.context = &stalls;
    must(reshard_run(f->store, &job.opts, &msg), &msg);
    assert_int_equal(stalls.version, 3);
    assert_true(stalls.missed > 0);
    assert_int_equal(stalls.waves, SHARDS); /* one for each that gives buckets, no more */
    assert_int_equal(stalls.commits, SHARDS);
    assert_both(f, 3);
    assert_no_strays(f, TABLE, ROWS);
    assert_no_strays(f, FIXTURE_LOGGED, ROWS);
    reopen(f, true);
    assert_both(f, 3);
}

static void test_a_target_that_stalls_keeps_what_was_copied(void **state)
{
    stall_at(*state, RESHARD_BEGUN);
}

/* No checkpoint is made that would lack rows. */
static void test_a_target_that_stalls_after_the_copy_gets_the_rest_before_the_switch(void **state)
{
    stall_at(*state, RESHARD_COPIED);
}

/* ---- Checkpoints beside missed rows ---- */

struct commits {
    struct job job;
    uint32_t calls, checkpoints, version;
    uint64_t older_id;     /* of a checkpoint from before the move */
    enum embtier_err told; /* by a switch with it, while rows are missed */
};

static void miss_rows(struct commits *commits)
{
    atomic_store(&stalled_path, NEW_SHARD);
    fixture_write_all(commits->job.f, TABLE, 0, ROWS, ++commits->version);
    atomic_store(&stalled_path, NULL);
    assert_true(commits->job.f->store->moves.wave->missed.count > 0);
}

static uint64_t make_checkpoint(struct commits *commits)
{
    assert_int_equal(commits->job.f->store->moves.wave->missed.count, 0);
    commits->checkpoints++;
    return fixture_checkpoint(commits->job.f);
}

static void move_with(struct store_fixture *f, struct commits *commits,
                      enum embtier_err (*commit_so)(void *context, struct err_msg *msg))
{
    struct err_msg msg = { { 0 } };

    fixture_open(f);
    write_both(f, 1);
    commits->version = 1;
    commits->older_id = fixture_checkpoint(f);
    job_init(&commits->job, f, SHARDS + 1);
    commits->job.opts.commit = commit_so;
    must(reshard_run(f->store, &commits->job.opts, &msg), &msg);
    assert_int_equal(commits->version, 2);
    reopen(f, true);
    assert_int_equal(fixture_count_right(f, TABLE, 0, ROWS, 2), ROWS);
    assert_int_equal(fixture_count_right(f, FIXTURE_LOGGED, 0, ROWS, 1), ROWS);
}

/* As the server does it: a switch is tried with the last checkpoint first. */
static enum embtier_err commit_twice(void *context, struct err_msg *msg)
{
    struct job *const job = context;
    struct commits *const commits = CONTAINER_OF(job, struct commits, job);
    uint64_t id;

    TRY(reshard_check_copied(job->f->store, msg));
    id = make_checkpoint(commits);
    if (commits->version == 1) {
        miss_rows(commits); /* the checkpoint was being made */
        commits->told = reshard_switch(job->f->store, commits->older_id, msg);
        return commits->told;
    }
    return reshard_switch(job->f->store, id, msg);
}

static void test_a_switch_tells_of_missed_rows_before_it_wants_another_checkpoint(void **state)
{
    struct commits commits = { .told = EMBTIER_OK };

    move_with(*state, &commits, commit_twice);
    assert_int_equal(commits.told, EMBTIER_AGAIN);
    assert_int_equal(commits.checkpoints, SHARDS + 1);
}

static struct commits *flushing;

/* The rows that were missed before have been copied. */
static void miss_rows_once(void)
{
    struct commits *const commits = TAKE(flushing);

    if (!commits)
        return;
    before_flush = NULL;
    miss_rows(commits);
}

/* The first round ends for a reason of the checkpoint's. */
static enum embtier_err commit_later(void *context, struct err_msg *msg)
{
    struct job *const job = context;
    struct commits *const commits = CONTAINER_OF(job, struct commits, job);

    if (commits->calls++ == 0) {
        flushing = commits;
        before_flush = miss_rows_once;
        return err_set(msg, EMBTIER_AGAIN, "later, for a test");
    }
    return reshard_switch(job->f->store, make_checkpoint(commits), msg);
}

static void test_a_second_round_of_copies_ends_without_missed_rows(void **state)
{
    struct commits commits = { .calls = 0 };

    move_with(*state, &commits, commit_later);
    assert_null(flushing);
    assert_int_equal(commits.checkpoints, SHARDS);
    assert_int_equal(commits.calls, SHARDS + 1);
}

/* ---- Costs of missed rows ---- */

#define LONG_BYTES 4096
#define LONG_TABLE 3
#define LONG_ROWS  200

static void write_long(struct store_fixture *f)
{
    static struct fixture_batch batch;
    static unsigned char bytes[LONG_BYTES];
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    for (uint32_t shard = 0; shard < store_shard_count(f->store); shard++) {
        assert_int_equal(fixture_gather(f, shard, LONG_TABLE, 0, LONG_ROWS, &batch), LONG_ROWS);
        for (uint32_t i = 0; i < batch.count; i++) {
            batch.rows[i].weight_bytes = LONG_BYTES - FIXTURE_STATE_BYTES;
            batch.rows[i].bytes = bytes;
        }
        while ((err = store_write(f->store, shard, batch.rows, batch.count, &msg)) == EMBTIER_BUSY)
            usleep(1000);
        must(err, &msg);
    }
}

struct costs {
    uint32_t missed, copies;
};

/* From here on, only the rows of a stall are copied, up to the next step. */
static void stall_long_rows(struct job *job, enum reshard_step step)
{
    struct costs *const costs = job->context;

    counts_room = false;
    if (step != RESHARD_COPIED || costs->copies++ > 0)
        return;
    atomic_store(&stalled_path, NEW_SHARD);
    write_long(job->f);
    atomic_store(&stalled_path, NULL);
    costs->missed = job->f->store->moves.wave->missed.count;
    room_rows = room_bytes = paced_bytes = 0;
    counts_room = true;
}

static enum embtier_err move_with_costs(struct store_fixture *f, struct costs *costs,
                                        void (*act)(struct job *job, enum reshard_step step),
                                        struct err_msg *msg)
{
    struct job job;
    enum embtier_err err;

    fixture_open(f);
    write_both(f, 1);
    write_long(f);
    job_init(&job, f, SHARDS + 1);
    job.act = act;
    job.context = costs;
    err = reshard_run(f->store, &job.opts, msg);
    counts_room = refuses_room = false;
    assert_true(costs->missed > 0);
    assert_both(f, 1);
    return err;
}

static void test_copies_of_missed_rows_are_admitted_and_paid_for_by_their_length(void **state)
{
    struct costs costs = { 0 };
    struct err_msg msg = { { 0 } };

    must(move_with_costs(*state, &costs, stall_long_rows, &msg), &msg);
    assert_true(costs.copies > 1);
    assert_int_equal(room_rows, costs.missed);
    assert_in_range(room_bytes, costs.missed * (uint64_t)LONG_BYTES,
                    costs.missed * (uint64_t)(LONG_BYTES + 64));
    assert_in_range(paced_bytes, costs.missed * (uint64_t)LONG_BYTES,
                    costs.missed * (uint64_t)(LONG_BYTES + 64));
}

static void refuse_room_for_missed(struct job *job, enum reshard_step step)
{
    stall_long_rows(job, step);
    refuses_room = counts_room;
}

static void test_missed_rows_for_which_there_is_no_space_end_the_move(void **state)
{
    struct store_fixture *const f = *state;
    struct costs costs = { 0 };
    struct err_msg msg = { { 0 } };

    assert_int_equal(move_with_costs(f, &costs, refuse_room_for_missed, &msg), EMBTIER_NO_SPACE);
    assert_non_null(strstr(msg.text, "no space to move rows"));
    reshard(f, SHARDS + 1);
    assert_both(f, 1);
    assert_spread(f, SHARDS + 1);
}

/* One database gets its rows at a time. */
static void test_missed_rows_are_few_and_told_apart(void **state)
{
    struct wave_missed missed = { 0 };
    struct missed_row row = { .target = 1 };

    (void)state;
    for (uint32_t i = 0; i < WAVE_MISSED_MAX; i++) {
        row.logged = i >= WAVE_MISSED_MAX - 3;
        assert_true(wave_missed_add(&missed, &row));
    }
    assert_false(wave_missed_add(&missed, &row));
    assert_int_equal(wave_missed_alike(&missed, 16), 3);
    missed.count -= 3;
    assert_int_equal(wave_missed_alike(&missed, 16), 16);
    missed.count = 2;
    missed.rows[0].target = 2;
    assert_int_equal(wave_missed_alike(&missed, 16), 1);
    wave_missed_clear(&missed);
}

/* Ids of hot rows are stored below one number again and again. */
static void drop_and_write_again(struct job *job, enum reshard_step step)
{
    uint32_t *const version = job->context;
    struct err_msg msg = { { 0 } };

    if (step != RESHARD_BEGUN || *version > 1)
        return;
    must(store_drop_table(job->f->store, FIXTURE_LOGGED, true, NULL, NULL, NULL, &msg), &msg);
    atomic_store(&stalled_path, NEW_SHARD);
    fixture_write_all(job->f, FIXTURE_LOGGED, 0, ROWS, ++*version);
    atomic_store(&stalled_path, NULL);
}

static void test_a_dropped_table_that_is_written_again_beside_a_stall_keeps_its_rows(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    uint32_t version = 1;
    struct job job;

    fixture_open(f);
    write_both(f, 1);
    job_init(&job, f, SHARDS + 1);
    job.act = drop_and_write_again;
    job.context = &version;
    must(reshard_run(f->store, &job.opts, &msg), &msg);
    assert_int_equal(version, 2);
    assert_int_equal(fixture_count_right(f, FIXTURE_LOGGED, 0, ROWS, 2), ROWS);
    reopen(f, true);
    assert_int_equal(fixture_count_right(f, FIXTURE_LOGGED, 0, ROWS, 2), ROWS);
}

/* ---- Looks ---- */

static struct store_fixture *looked_at;
static _Atomic bool has_looked;
static pthread_t looker, dropper;
static bool looks, looked_in_time;

static void *look_once(void *context)
{
    struct reshard_facts facts;

    reshard_look(context, &facts);
    atomic_store(&has_looked, facts.runs);
    return NULL;
}

static void *drop_once(void *context)
{
    struct err_msg msg = { { 0 } };

    if (store_drop_table(context, 2, false, NULL, NULL, NULL, &msg) != EMBTIER_OK)
        abort(); /* another thread must not assert */
    return NULL;
}

/* The thread that copies has the wave's lock here. A drop waits for it, with the lock of drops. */
static void look_while_copying(void)
{
    struct store *const store = looked_at->store;
    const uint64_t until_ns = now_ns() + FIXTURE_WAIT_NS;

    if (looks || !store->moves.wave || store->moves.wave->state != WAVE_COPIES)
        return;
    looks = true;
    assert_int_equal(pthread_create(&dropper, NULL, drop_once, store), 0);
    while (pthread_mutex_trylock(&store->moves.lock) == 0) {
        pthread_mutex_unlock(&store->moves.lock);
        assert_true(now_ns() < until_ns);
        usleep(1000);
    }
    assert_int_equal(pthread_create(&looker, NULL, look_once, store), 0);
    looked_in_time = is_seen(&has_looked);
}

static void test_a_look_does_not_wait_for_a_batch_of_copies(void **state)
{
    struct store_fixture *const f = *state;

    fixture_open(f);
    write_both(f, 1);
    looked_at = f;
    before_store = look_while_copying;
    reshard(f, SHARDS + 1);
    before_store = NULL;
    assert_true(looks);
    pthread_join(dropper, NULL);
    pthread_join(looker, NULL);
    assert_true(looked_in_time);
}

/* ---- Options that change ---- */

#define THREADS 12 /* a fourth of them flush */

static void change_options(struct job *job, enum reshard_step step)
{
    struct store *const store = job->f->store;
    struct err_msg msg = { { 0 } };

    if (step == RESHARD_SHARD_MADE) {
        must(store_set_threads(store, THREADS, &msg), &msg);
        compaction_scheduler_pause(store->scheduler, true);
    }
    if (step != RESHARD_SHARD_ADDED)
        return;
    for (uint32_t i = 0; i < store_database_count(store); i++) {
        struct database *const database = store_database_at(store, i);

        assert_int_equal(database_tuned(database, ROCKSDB_EXT_TUNING_COMPACTIONS),
                         THREADS - THREADS / 4);
        if (i >= SHARDS * DATABASE_KINDS)
            assert_true(atomic_load(&database->is_paused));
        database_set_paused(database, false);
    }
    compaction_scheduler_pause(store->scheduler, false);
}

static void test_options_that_change_are_those_of_new_shards_too(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    struct job job;

    fixture_open(f);
    write_both(f, 1);
    job_init(&job, f, SHARDS + 2);
    job.act = change_options;
    must(reshard_run(f->store, &job.opts, &msg), &msg);
    assert_both(f, 1);
}

static enum embtier_err grow_first(void *context, uint32_t done, uint32_t total,
                                   struct err_msg *msg)
{
    struct store_fixture **const f = context;
    struct store_fixture *const growing = TAKE(*f);

    (void)done, (void)total;
    return growing ? try_reshard(growing, SHARDS + 1, msg) : EMBTIER_OK;
}

static void test_a_shard_added_meanwhile_is_rewritten_too(void **state)
{
    struct store_fixture *const f = *state;
    struct store_fixture *growing = f;
    struct err_msg msg = { { 0 } };

    fixture_open(f);
    write_both(f, 1);
    has_rewritten = false;
    must(compaction_scheduler_rewrite(f->store->scheduler, grow_first, &growing, &msg), &msg);
    assert_null(growing);
    assert_true(has_rewritten);
    assert_both(f, 1);
}

/* ---- Drops ---- */

/* The drop has begun, has deleted nothing, and does not know of the new shard. */
static void let_drop_go_on(struct job *job, enum reshard_step step)
{
    if (step != RESHARD_COPIED || !atomic_load(&holds_drops))
        return;
    assert_int_equal(count_stored(job->f, SHARDS, false, 2), 0);
    assert_true(count_stored(job->f, SHARDS, false, TABLE) > 0);
    atomic_store(&holds_drops, false);
    pthread_join(dropper, NULL);
}

static struct store_fixture *dropping;

static void begin_drop(void)
{
    before_wave = NULL;
    atomic_store(&drop_waits, false);
    atomic_store(&holds_drops, true);
    assert_int_equal(pthread_create(&dropper, NULL, drop_once, dropping->store), 0);
    assert_true(is_seen(&drop_waits));
}

static void open_to_drop(struct store_fixture *f)
{
    fixture_open(f);
    write_both(f, 1);
    fixture_write_all(f, 2, 0, ROWS, 1);
    dropping = f;
}

static void move_and_drop(struct store_fixture *f)
{
    struct err_msg msg = { { 0 } };
    struct job job;

    job_init(&job, f, SHARDS + 1);
    job.act = let_drop_go_on;
    must(reshard_run(f->store, &job.opts, &msg), &msg);
    assert_true(atomic_load(&drop_waits));
    assert_false(atomic_load(&holds_drops));
    for (uint32_t s = 0; s < f->store->map->shard_count; s++)
        assert_int_equal(count_stored(f, s, false, 2), 0);
    assert_both(f, 1);
}

static void test_a_drop_begins_before_a_wave_and_ends_after_its_copy(void **state)
{
    open_to_drop(*state);
    begin_drop();
    move_and_drop(*state);
}

/* The wave knows of the drops before. Reads and writes still have the older view. */
static void test_a_drop_begins_between_a_wave_and_its_view(void **state)
{
    open_to_drop(*state);
    before_wave = begin_drop;
    move_and_drop(*state);
    assert_null(before_wave);
}

#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORE_TEST(test_a_target_that_stalls_keeps_what_was_copied),
        STORE_TEST(test_a_target_that_stalls_after_the_copy_gets_the_rest_before_the_switch),
        STORE_TEST(test_a_dropped_table_that_is_written_again_beside_a_stall_keeps_its_rows),
        STORE_TEST(test_a_switch_tells_of_missed_rows_before_it_wants_another_checkpoint),
        STORE_TEST(test_a_second_round_of_copies_ends_without_missed_rows),
        STORE_TEST(test_copies_of_missed_rows_are_admitted_and_paid_for_by_their_length),
        STORE_TEST(test_missed_rows_for_which_there_is_no_space_end_the_move),
        cmocka_unit_test(test_missed_rows_are_few_and_told_apart),
        STORE_TEST(test_a_look_does_not_wait_for_a_batch_of_copies),
        STORE_TEST(test_options_that_change_are_those_of_new_shards_too),
        STORE_TEST(test_a_shard_added_meanwhile_is_rewritten_too),
        STORE_TEST(test_a_drop_begins_before_a_wave_and_ends_after_its_copy),
        STORE_TEST(test_a_drop_begins_between_a_wave_and_its_view),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
