/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that jobs which are cut short, by a cancel, an error or a kill at any step, lose no row and
 * take no row of before for a newer one. */
#include <sys/wait.h>

#include "store/database/database_moves.h"
#include "store/resharding/reshard_record.h"
#include "store/resharding/wave.h"
#include "tests/seed.h"
#include "tests/unit/store/resharding/reshard_fixture.h"

#define EXIT_KILLED 42

/* ---- Hooks ---- */

static uint32_t refused_shard; /* cannot be opened when it is made; 0: none */
static uint32_t stores_left;   /* so many batches later the target's disk is full, once; 0: never */

enum embtier_err __real_store_open_shard(struct store *store, uint32_t shard, uint32_t place,
                                         bool make, struct database *ret_databases[DATABASE_KINDS],
                                         struct err_msg *msg);
enum embtier_err __wrap_store_open_shard(struct store *store, uint32_t shard, uint32_t place,
                                         bool make, struct database *ret_databases[DATABASE_KINDS],
                                         struct err_msg *msg);
enum embtier_err __wrap_store_open_shard(struct store *store, uint32_t shard, uint32_t place,
                                         bool make, struct database *ret_databases[DATABASE_KINDS],
                                         struct err_msg *msg)
{
    TRY(__real_store_open_shard(store, shard, place, make, ret_databases, msg));
    return make && refused_shard > 0 && shard == refused_shard
               ? err_set(msg, EMBTIER_NO_SPACE, "shard %" PRIu32 ": full for a test", shard)
               : EMBTIER_OK;
}

enum embtier_err __real_database_store(struct database *database, const struct stored_row *rows,
                                       uint32_t count, struct err_msg *msg);
enum embtier_err __wrap_database_store(struct database *database, const struct stored_row *rows,
                                       uint32_t count, struct err_msg *msg);
enum embtier_err __wrap_database_store(struct database *database, const struct stored_row *rows,
                                       uint32_t count, struct err_msg *msg)
{
    if (stores_left > 0 && strstr(database_path(database), "/shard-0004/") && --stores_left == 0)
        return err_set(msg, EMBTIER_NO_SPACE, "%s: full for a test", database_path(database));
    return __real_database_store(database, rows, count, msg);
}

/* ---- Jobs that are cut short ---- */

/* Each try goes a step further; rows change in between. */
static void test_a_job_cancelled_at_any_step_goes_on_later(void **state)
{
    struct store_fixture *const f = *state;
    enum embtier_err err = EMBTIER_SHUTDOWN;
    struct err_msg msg = { { 0 } };
    uint32_t version = 1, tries = 0;
    struct job job;

    fixture_open(f);
    write_both(f, version);
    while (err == EMBTIER_SHUTDOWN) {
        struct reshard_record record = { 0 };

        job_init(&job, f, SHARDS + 1);
        job.stop_at = tries / 2 + 1;
        err = reshard_run(f->store, &job.opts, &msg);
        must(reshard_record_read(store_first_directory(f->store), &record, &msg), &msg);
        assert_int_equal(record.shards, err == EMBTIER_SHUTDOWN ? SHARDS + 1 : 0);
        assert_null(f->store->moves.wave);
        assert_both(f, version);
        write_both(f, ++version);
        assert_true(++tries < 200);
    }
    must(err, &msg);
    assert_spread(f, SHARDS + 1);
    assert_both(f, version);
    assert_no_strays(f, TABLE, 100);
    reopen(f, true);
    assert_both(f, version);
}

static enum embtier_err stop(void *context, struct err_msg *msg)
{
    (void)context;
    return err_shutdown(msg);
}

static enum embtier_err refuse(void *context, struct err_msg *msg)
{
    (void)context;
    return err_set(msg, EMBTIER_NO_SPACE, "no checkpoint for a test");
}

/* A job that is stopped before its checkpoint: targets have all rows, and do not count. */
static void copy_in_vain(struct store_fixture *f, uint32_t shards)
{
    struct err_msg msg = { { 0 } };
    struct job job;

    job_init(&job, f, shards);
    job.stop_step = RESHARD_COPIED;
    job.stops_at_step = true;
    job.opts.commit = stop;
    assert_int_equal(reshard_run(f->store, &job.opts, &msg), EMBTIER_SHUTDOWN);
    assert_int_equal(job.moved, 0);
}

/* The targets have rows of before. A job that took them for newer ones would lose those written
 * since. */
static void test_rows_left_in_a_target_are_not_taken_for_newer_ones(void **state)
{
    struct store_fixture *const f = *state;

    fixture_open(f);
    write_both(f, 1);
    for (uint32_t round = 0; round < 3; round++) {
        const uint32_t shards = round % 2 ? SHARDS : SHARDS - 1;

        copy_in_vain(f, shards);
        write_both(f, 2 + 2 * round);
        if (round > 0)
            reopen(f, round == 1);
        write_both(f, 3 + 2 * round);
        reshard(f, shards);
        assert_both(f, 3 + 2 * round);
        assert_no_strays(f, TABLE, 100);
        assert_no_strays(f, FIXTURE_LOGGED, 100);
    }
}

/* They had been swept away. The checkpoint has them. */
static void test_rows_that_a_crash_brings_back_are_not_taken_for_newer_ones(void **state)
{
    struct store_fixture *const f = *state;

    fixture_open(f);
    write_both(f, 1);
    copy_in_vain(f, SHARDS - 1);
    (void)fixture_checkpoint(f);
    reshard(f, SHARDS);
    assert_no_strays(f, TABLE, 100);
    reopen(f, false);
    write_both(f, 2);
    reshard(f, SHARDS - 1);
    assert_both(f, 2);
    /* The same with the source of a wave that was put in force. */
    reshard(f, SHARDS);
    reopen(f, false);
    write_both(f, 3);
    reshard(f, SHARDS - 1);
    assert_both(f, 3);
}

static void test_a_job_without_a_checkpoint_moves_nothing_and_can_be_tried_again(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    struct job job;

    fixture_open(f);
    write_both(f, 1);
    for (uint32_t i = 0; i < 3; i++) {
        struct reshard_facts facts;

        job_init(&job, f, SHARDS + 1);
        job.opts.commit = refuse;
        assert_int_equal(reshard_run(f->store, &job.opts, &msg), EMBTIER_NO_SPACE);
        assert_int_equal(job.moved, 0);
        reshard_look(f->store, &facts);
        assert_true(facts.has_failed && !facts.runs);
        write_both(f, 2 + i);
    }
    reshard(f, SHARDS + 1);
    assert_both(f, 4);
    assert_spread(f, SHARDS + 1);
}

static enum embtier_err commit_old(void *context, struct err_msg *msg)
{
    struct job *const job = context;

    return reshard_switch(job->f->store, 1, msg);
}

static void test_a_checkpoint_from_before_does_not_do(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    struct job job;

    fixture_open(f);
    write_both(f, 1);
    assert_int_equal(fixture_checkpoint(f), 1);
    job_init(&job, f, SHARDS + 1);
    job.opts.commit = commit_old;
    assert_int_equal(reshard_run(f->store, &job.opts, &msg), EMBTIER_MISMATCH);
    assert_non_null(strstr(msg.text, "checkpoint 1 was begun before their rows were copied"));
    assert_both(f, 1);
}

/* ---- What a failure leaves ---- */

static uint64_t count_folders(const struct store_fixture *f)
{
    char output[16] = { 0 };

    assert_true(fixture_shell(output, sizeof(output), "ls -d %s/d?/shard-* | wc -l", f->root) > 0);
    return strtoull(output, NULL, 10);
}

static uint64_t count_stored(struct store_fixture *f, uint32_t shard)
{
    struct err_msg msg = { { 0 } };
    uint64_t count = 0;

    for (uint32_t kind = 0; kind < DATABASE_KINDS; kind++) {
        struct database_walk *walk = NULL;
        struct stored_row row;

        must(database_walk_new(store_database_of(f->store, shard, kind == DATABASE_LOGGED),
                               STORED_ROWS_FIRST, &walk, &msg),
             &msg);
        for (;; count++) {
            must(database_walk_row(walk, &row, &msg), &msg);
            if (!row.value)
                break;
            database_walk_next(walk);
        }
        database_walk_free(walk);
    }
    return count;
}

static void test_a_growth_that_cannot_make_a_shard_keeps_none(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };

    fixture_open(f);
    write_both(f, 1);
    refused_shard = SHARDS + 1; /* the second of three */
    assert_int_equal(try_reshard(f, SHARDS + 3, &msg), EMBTIER_NO_SPACE);
    refused_shard = 0;
    assert_non_null(strstr(msg.text, "full for a test"));
    assert_int_equal(bucket_map_present(f->store->map), SHARDS);
    assert_int_equal(store_database_count(f->store), SHARDS * DATABASE_KINDS);
    assert_int_equal(count_folders(f), SHARDS);
    assert_both(f, 1);
    write_both(f, 2);
    reshard(f, SHARDS + 3);
    assert_spread(f, SHARDS + 3);
    assert_both(f, 2);
}

/* The wave to a shard without buckets, and one to a shard that has some by then. */
static void test_a_growth_that_fails_keeps_no_copies(void **state)
{
    static const uint32_t batches[] = { 2, 7 };
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };

    fixture_open(f);
    for (uint32_t i = 0; i < ARRAY_LEN(batches); i++) {
        write_both(f, 1 + i);
        stores_left = batches[i];
        assert_int_equal(try_reshard(f, SHARDS + 1, &msg), EMBTIER_NO_SPACE);
        assert_int_equal(stores_left, 0);
        assert_int_equal(f->store->map->bucket_counts[SHARDS] > 0, i > 0);
        assert_false(f->store->map->strays[SHARDS]);
        if (i == 0)
            assert_int_equal(count_stored(f, SHARDS), 0);
        assert_no_strays(f, TABLE, ROWS);
        assert_no_strays(f, FIXTURE_LOGGED, ROWS);
        assert_both(f, 1 + i);
    }
    reshard(f, SHARDS + 1);
    assert_spread(f, SHARDS + 1);
    assert_both(f, 2);
}

static enum embtier_err look_for_cancel(void *context, struct err_msg *msg)
{
    struct job *const job = context;

    return atomic_load(&job->gives_up) ? err_set(msg, EMBTIER_CANCELLED, "cancelled for a test")
                                       : EMBTIER_OK;
}

static void test_a_growth_that_is_cancelled_keeps_no_copies_in_new_shards(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    struct job job;

    fixture_open(f);
    write_both(f, 1);
    job_init(&job, f, SHARDS + 1);
    job.pace.look = look_for_cancel;
    job.stop_step = RESHARD_COPIED;
    job.stops_at_step = true;
    job.opts.commit = look_for_cancel;
    assert_int_equal(reshard_run(f->store, &job.opts, &msg), EMBTIER_CANCELLED);
    assert_int_equal(count_stored(f, SHARDS), 0);
    assert_both(f, 1);
}

/* ---- A walk ---- */

#define WALK_TABLES 4
#define WALK_ROWS   400
#define WALK_STEPS  120

/* Versions of all rows, as they are and as in the newest checkpoint; 0: the row was never written.
 * Tables 0 and 1 have no log. */
struct walk {
    struct store_fixture *f;
    uint64_t seed;
    uint32_t ids[WALK_TABLES]; /* of the present table in each place */
    uint32_t next_id;
    uint32_t version;
    uint32_t now[WALK_TABLES][WALK_ROWS];
    uint32_t then[WALK_TABLES][WALK_ROWS];
    uint32_t then_ids[WALK_TABLES];
    uint32_t actions, cancels, crashes, drops;
};

static uint64_t walk_next(struct walk *w)
{
    w->seed ^= w->seed << 13;
    w->seed ^= w->seed >> 7;
    w->seed ^= w->seed << 17;
    return w->seed >> 8;
}

static uint32_t walk_table(const struct walk *w, uint32_t place)
{
    return (place >= 2 ? FIXTURE_LOGGED : 0) + w->ids[place];
}

static void walk_write(struct walk *w)
{
    const uint32_t place = (uint32_t)(walk_next(w) % WALK_TABLES);
    const uint64_t first = walk_next(w) % WALK_ROWS;
    const uint64_t end = MIN(first + walk_next(w) % 200, (uint64_t)WALK_ROWS);

    fixture_write_all(w->f, walk_table(w, place), first, end, ++w->version);
    for (uint64_t id = first; id < end; id++)
        w->now[place][id] = w->version;
}

static void walk_drop(struct walk *w)
{
    const uint32_t place = (uint32_t)(walk_next(w) % WALK_TABLES);
    struct err_msg msg = { { 0 } };

    must(store_drop_table(w->f->store, walk_table(w, place), place >= 2, NULL, NULL, NULL, &msg),
         &msg);
    memset(w->now[place], 0, sizeof(w->now[place]));
    w->ids[place] = w->next_id++;
    w->drops++;
}

static void walk_check_row(struct walk *w, uint32_t place, uint64_t id)
{
    const uint32_t version = w->now[place][id];

    if (fixture_count_found(w->f, walk_table(w, place), id, id + 1) != (version > 0) ||
        (version > 0 && fixture_count_right(w->f, walk_table(w, place), id, id + 1, version) != 1))
        fail_msg("table %u row %" PRIu64 " is not of version %u", place, id, version);
}

static void walk_check_some(struct walk *w)
{
    for (uint32_t i = 0; i < 20; i++)
        walk_check_row(w, (uint32_t)(walk_next(w) % WALK_TABLES), walk_next(w) % WALK_ROWS);
}

static void walk_check_all(struct walk *w)
{
    for (uint32_t place = 0; place < WALK_TABLES; place++)
        for (uint64_t id = 0; id < WALK_ROWS; id++)
            walk_check_row(w, place, id);
}

static uint64_t walk_checkpoint(struct walk *w)
{
    const uint64_t id = fixture_checkpoint(w->f);

    memcpy(w->then, w->now, sizeof(w->then));
    memcpy(w->then_ids, w->ids, sizeof(w->then_ids));
    return id;
}

/* Tables that were dropped since are dropped again, as a server would. */
static void walk_reopen(struct walk *w)
{
    const bool is_clean = walk_next(w) % 2;
    /* No row of a table without a log was written since the last clean stop: nothing goes back. */
    const bool is_kept = atomic_load(&w->f->store->closed_file);

    reopen(w->f, is_clean);
    if (is_clean || is_kept)
        return;
    w->crashes++;
    for (uint32_t place = 0; place < 2; place++)
        if (w->then_ids[place] == w->ids[place])
            memcpy(w->now[place], w->then[place], sizeof(w->now[place]));
        else
            memset(w->now[place], 0, sizeof(w->now[place]));
}

static enum embtier_err walk_commit(void *context, struct err_msg *msg)
{
    struct job *const job = context;

    if (walk_next(job->context) % 8 == 0)
        return err_set(msg, EMBTIER_NO_SPACE, "no checkpoint for a test");
    return reshard_switch(job->f->store, walk_checkpoint(job->context), msg);
}

static void walk_act(struct job *job, enum reshard_step step)
{
    struct walk *const w = job->context;

    w->actions++;
    switch (walk_next(w) % 10) {
    case 0:
        atomic_store(&job->gives_up, true);
        break;
    case 1:
        walk_drop(w);
        break;
    case 2:
        if (step < RESHARD_COPIED)
            (void)walk_checkpoint(w);
        break;
    case 3:
        walk_check_some(w);
        break;
    default:
        walk_write(w);
        break;
    }
}

static void walk_reshard(struct walk *w)
{
    struct err_msg msg = { { 0 } };
    enum embtier_err err;
    struct job job;

    job_init(&job, w->f, 1 + (uint32_t)(walk_next(w) % 8));
    job.opts.commit = walk_commit;
    job.act = walk_act;
    job.context = w;
    err = reshard_run(w->f->store, &job.opts, &msg);
    if (err == EMBTIER_SHUTDOWN || err == EMBTIER_NO_SPACE)
        w->cancels++;
    else
        must(err, &msg);
}

static void test_random_jobs_writes_drops_and_crashes_lose_nothing(void **state)
{
    struct walk *const w = test_calloc(1, sizeof(*w));

    w->f = *state;
    w->seed = seed_of_test(__func__, seed_random()) | 1;
    w->next_id = 1;
    for (uint32_t place = 0; place < WALK_TABLES; place++)
        w->ids[place] = w->next_id++;
    fixture_open(w->f);
    (void)walk_checkpoint(w);
    for (uint32_t i = 0; i < WALK_STEPS; i++) {
        switch (walk_next(w) % 6) {
        case 0:
            walk_reopen(w);
            break;
        case 1:
            (void)walk_checkpoint(w);
            break;
        case 2:
        case 3:
            walk_reshard(w);
            break;
        default:
            walk_write(w);
            break;
        }
        walk_check_some(w);
    }
    walk_check_all(w);
    printf("%u actions within jobs, %u jobs cut short, %u crashes, %u drops\n", w->actions,
           w->cancels, w->crashes, w->drops);
    test_free(w);
}

/* ---- The map on disk ---- */

static void spoil_map(struct job *job, enum reshard_step step)
{
    char path[400];

    snprintf(path, sizeof(path), "%s/" BUCKET_MAP_FILE ".tmp", job->f->made[1]);
    if (step == RESHARD_CHECKPOINTED)
        assert_int_equal(mkdir(path, 0700), 0); /* the copy there cannot be written */
}

static void test_a_map_that_cannot_be_written_everywhere_is_taken_back(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    char path[400];
    struct job job;

    snprintf(path, sizeof(path), "%s/" BUCKET_MAP_FILE ".tmp", f->made[1]);
    fixture_open(f);
    write_both(f, 1);
    job_init(&job, f, SHARDS + 1);
    job.act = spoil_map;
    job.stops_at_step = true;
    job.stop_step = RESHARD_CHECKPOINTED; /* it would try until it succeeds */
    assert_int_not_equal(reshard_run(f->store, &job.opts, &msg), EMBTIER_OK);
    /* Neither map is known to be on disk, so rows go to both shards until the job goes on. */
    assert_non_null(f->store->moves.wave);
    assert_int_equal(f->store->moves.wave->state, WAVE_SWITCHES);
    write_both(f, 2);
    assert_both(f, 2);
    assert_int_equal(rmdir(path), 0);
    reshard(f, SHARDS + 1);
    assert_spread(f, SHARDS + 1);
    assert_both(f, 2);
    reopen(f, true);
    assert_both(f, 2);
}

static void test_a_stop_between_two_maps_loses_nothing(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    char path[400];
    struct job job;

    snprintf(path, sizeof(path), "%s/" BUCKET_MAP_FILE ".tmp", f->made[1]);
    fixture_open(f);
    write_both(f, 1);
    job_init(&job, f, SHARDS + 1);
    job.act = spoil_map;
    job.stops_at_step = true;
    job.stop_step = RESHARD_CHECKPOINTED;
    assert_int_not_equal(reshard_run(f->store, &job.opts, &msg), EMBTIER_OK);
    write_both(f, 2);
    must(store_close(TAKE(f->store), true, &msg), &msg);
    assert_int_equal(rmdir(path), 0);
    fixture_open(f);
    assert_both(f, 2);
    write_both(f, 3);
    reshard(f, SHARDS + 1);
    assert_both(f, 3);
}

/* ---- Kills ---- */

#define KILL_ROWS 10

static uint32_t kill_at;

/* Rows of a part of the logged table tell how far the job came. */
static void die(struct job *job, enum reshard_step step)
{
    (void)step;
    if (job->steps == kill_at)
        _exit(EXIT_KILLED);
    fixture_write_all(job->f, FIXTURE_LOGGED, (uint64_t)job->steps * KILL_ROWS,
                      (uint64_t)(job->steps + 1) * KILL_ROWS, 100 + job->steps);
}

/* Writes the number of steps if it comes to its end. */
static int part_main(const char *root, uint32_t at, uint32_t shards)
{
    struct store_fixture *const f = fixture_at(root);
    struct err_msg msg = { { 0 } };
    struct job job;

    kill_at = at;
    fixture_open(f);
    write_both(f, 2);
    job_init(&job, f, shards);
    job.act = die;
    must(reshard_run(f->store, &job.opts, &msg), &msg);
    if (write(STDOUT_FILENO, &job.steps, sizeof(job.steps)) != sizeof(job.steps))
        return 1;
    _exit(0); /* does not close the store, as if the process had died a moment later */
}

static uint32_t run_part(const struct store_fixture *f, uint32_t shards, uint32_t at)
{
    char part[16], number[16];
    uint32_t count = 0;
    int pipes[2], status;
    pid_t child;

    snprintf(part, sizeof(part), "%u", shards);
    snprintf(number, sizeof(number), "%u", at);
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(pipes[1], STDOUT_FILENO);
        fixture_exec_self(f, part, number);
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

/* Asserts what a job that died at step @at must have left. */
static void check_killed(struct store_fixture *f, uint32_t at)
{
    uint64_t right;

    for (uint32_t step = 1; step < at; step++)
        assert_int_equal(fixture_count_right(f, FIXTURE_LOGGED, (uint64_t)step * KILL_ROWS,
                                             (uint64_t)(step + 1) * KILL_ROWS, 100 + step),
                         KILL_ROWS);
    assert_int_equal(fixture_count_right(f, FIXTURE_LOGGED, 0, KILL_ROWS, 2), KILL_ROWS);
    assert_int_equal(
        fixture_count_right(f, FIXTURE_LOGGED, (uint64_t)MAX(at, 1u) * KILL_ROWS, ROWS, 2),
        ROWS - (uint64_t)MAX(at, 1u) * KILL_ROWS);
    /* Rows of the other table are as in the newest checkpoint, the first or one of the job's. */
    right = fixture_count_right(f, TABLE, 0, ROWS, 1);
    if (right == 0)
        right = fixture_count_right(f, TABLE, 0, ROWS, 2);
    assert_int_equal(right, ROWS);
    assert_int_equal(fixture_count_found(f, TABLE, 0, ROWS), ROWS);
}

/* Lets the job die at each step, and be finished by another. */
static void kill_everywhere(uint32_t shards)
{
    const char *const is_long = getenv("EMBTIER_TEST_LONG");
    const uint32_t stride = is_long && strcmp(is_long, "1") == 0 ? 1 : 3;
    const uint64_t seed = seed_of_test(__func__, seed_random());
    uint32_t steps = 0;

    for (uint32_t at = 1 + (uint32_t)(seed % stride); steps == 0; at += stride) {
        struct store_fixture *const f = fixture_new();

        fixture_open(f);
        write_both(f, 1);
        assert_int_equal(fixture_checkpoint(f), 1);
        fixture_close(f);
        steps = run_part(f, shards, at);
        fixture_open(f);
        check_killed(f, steps > 0 ? steps + 1 : at);
        write_both(f, 3);
        assert_both(f, 3);
        reshard(f, shards);
        assert_spread(f, shards);
        assert_both(f, 3);
        assert_no_strays(f, TABLE, 50);
        assert_no_strays(f, FIXTURE_LOGGED, 50);
        /* Back to the newest checkpoint, which may be from before the last switch. */
        write_both(f, 4);
        reopen(f, false);
        assert_int_equal(fixture_count_right(f, FIXTURE_LOGGED, 0, ROWS, 4), ROWS);
        assert_int_equal(fixture_count_found(f, TABLE, 0, ROWS), ROWS);
        write_both(f, 5);
        reshard(f, shards == SHARDS + 1 ? 2 : 7);
        assert_both(f, 5);
        fixture_destroy(f);
    }
    printf("%u steps\n", steps);
    assert_true(steps >= 8);
}

static void test_killed_at_any_step_of_a_growth_nothing_is_lost(void **state)
{
    (void)state;
    kill_everywhere(SHARDS + 1);
}

static void test_killed_at_any_step_of_a_shrinkage_nothing_is_lost(void **state)
{
    (void)state;
    kill_everywhere(SHARDS - 1);
}

#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        STORE_TEST(test_a_job_cancelled_at_any_step_goes_on_later),
        STORE_TEST(test_rows_left_in_a_target_are_not_taken_for_newer_ones),
        STORE_TEST(test_rows_that_a_crash_brings_back_are_not_taken_for_newer_ones),
        STORE_TEST(test_a_job_without_a_checkpoint_moves_nothing_and_can_be_tried_again),
        STORE_TEST(test_a_checkpoint_from_before_does_not_do),
        STORE_TEST(test_a_growth_that_cannot_make_a_shard_keeps_none),
        STORE_TEST(test_a_growth_that_fails_keeps_no_copies),
        STORE_TEST(test_a_growth_that_is_cancelled_keeps_no_copies_in_new_shards),
        STORE_TEST(test_random_jobs_writes_drops_and_crashes_lose_nothing),
        STORE_TEST(test_a_map_that_cannot_be_written_everywhere_is_taken_back),
        STORE_TEST(test_a_stop_between_two_maps_loses_nothing),
        cmocka_unit_test(test_killed_at_any_step_of_a_growth_nothing_is_lost),
        cmocka_unit_test(test_killed_at_any_step_of_a_shrinkage_nothing_is_lost),
    };

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 4)
        return part_main(argv[2], (uint32_t)strtoul(argv[3], NULL, 10),
                         (uint32_t)strtoul(argv[1], NULL, 10));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
