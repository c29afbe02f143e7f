/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that checkpoints which are made, or given up, while buckets move can be read, and fit. */
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/store/resharding/reshard_fixture.h"

static struct store_fixture *growing; /* gets a shard in the middle of the next flush */

static void crash(struct store_fixture *f)
{
    struct err_msg msg = { { 0 } };

    must(store_close(TAKE(f->store), false, &msg), &msg);
}

static void add_shard(struct store_fixture *f)
{
    struct err_msg msg = { { 0 } };
    struct job job;

    job_init(&job, f, SHARDS + 1);
    job.stop_step = RESHARD_SHARD_ADDED;
    job.stops_at_step = true;
    assert_int_equal(reshard_run(f->store, &job.opts, &msg), EMBTIER_SHUTDOWN);
}

enum embtier_err __real_database_flush(struct database *database, struct err_msg *msg);
enum embtier_err __wrap_database_flush(struct database *database, struct err_msg *msg);
enum embtier_err __wrap_database_flush(struct database *database, struct err_msg *msg)
{
    struct store_fixture *const f = TAKE(growing);

    if (f)
        add_shard(f);
    return __real_database_flush(database, msg);
}

/* Its databases are all in the checkpoint, or none is. */
static void test_a_shard_is_made_while_a_checkpoint_is_captured(void **state)
{
    struct store_fixture *const f = *state;

    fixture_open(f);
    write_both(f, 1);
    growing = f;
    assert_int_equal(fixture_checkpoint(f), 1);
    assert_null(growing);
    assert_scan(f, TABLE, 1);
    assert_scan(f, FIXTURE_LOGGED, 1);
    write_both(f, 2);
    crash(f);
    fixture_open(f);
    assert_int_equal(fixture_count_right(f, TABLE, 0, ROWS, 1), ROWS);
    reshard(f, SHARDS + 1);
    assert_int_equal(fixture_count_right(f, TABLE, 0, ROWS, 1), ROWS);
}

static enum embtier_err give_up_and_commit(void *context, struct err_msg *msg)
{
    struct job *const job = context;

    checkpoint_draft_free(TAKE(*(struct checkpoint_draft **)job->context));
    return commit(context, msg);
}

/* The id of its folder is given out again, and is that of the wave's own. */
static void test_a_checkpoint_is_given_up_during_a_wave(void **state)
{
    struct store_fixture *const f = *state;
    struct checkpoint_draft *draft = NULL;
    struct err_msg msg = { { 0 } };
    struct job job;

    fixture_open(f);
    write_both(f, 1);
    must(checkpoint_begin(store_shelf(f->store), &draft, &msg), &msg);
    job_init(&job, f, SHARDS - 1);
    job.opts.commit = give_up_and_commit;
    job.context = &draft;
    must(reshard_run(f->store, &job.opts, &msg), &msg);
    assert_null(draft);
    assert_spread(f, SHARDS - 1);
    assert_both(f, 1);
}

/* Leaves a draft as a server does that is killed. */
static void leave_draft(const struct store_fixture *f)
{
    struct checkpoint_draft *draft = NULL;
    struct err_msg msg = { { 0 } };
    const pid_t child = fork();
    int status;

    if (child == 0)
        _exit(checkpoint_begin(store_shelf(f->store), &draft, &msg) == EMBTIER_OK ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* A start that restores a checkpoint also removes what is left of a draft. */
static void test_a_draft_is_left_when_a_checkpoint_is_restored(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };

    fixture_open(f);
    write_both(f, 1);
    assert_int_equal(fixture_checkpoint(f), 1);
    reshard(f, SHARDS - 1);
    leave_draft(f);
    crash(f);
    must(store_open(&(struct store_opts){ .config = &f->config, .restore_id = 1 }, &f->store, &msg),
         &msg);
    must(store_restore_done(f->store, &msg), &msg);
    assert_both(f, 1);
    (void)fixture_checkpoint(f);
    write_both(f, 2);
    crash(f);
    fixture_open(f);
    assert_int_equal(fixture_count_right(f, TABLE, 0, ROWS, 1), ROWS);
    assert_int_equal(fixture_count_right(f, FIXTURE_LOGGED, 0, ROWS, 2), ROWS);
}

#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORE_TEST(test_a_shard_is_made_while_a_checkpoint_is_captured),
        STORE_TEST(test_a_checkpoint_is_given_up_during_a_wave),
        STORE_TEST(test_a_draft_is_left_when_a_checkpoint_is_restored),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
