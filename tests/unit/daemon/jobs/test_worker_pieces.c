/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that long imports share their threads with others, and end when no client wants them. The
 * test's own load decides when a piece ends and whether more follows. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/engine/tables/progress.h"
#include "daemon/jobs/transfer/load_job.h"
#include "daemon/jobs/worker.h"

#define LIMIT_S 60
#define ALICE   1000 /* users */
#define BOB     1001
#define CAROL   1002

struct load {
    struct load_job rows;
    sem_t begun;           /* posted with each piece */
    sem_t held;            /* if is_held, each piece waits for this */
    sem_t told;            /* posted when the load has ended */
    bool is_held;          /* set before it is submitted */
    _Atomic bool is_whole; /* true: the next piece is the last */
    _Atomic uint32_t pieces;
    _Atomic uint32_t refused; /* pieces refused, since the job must stop */
};

static struct load *loads[4]; /* loads of a test that have not ended */

static void await(sem_t *what)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LIMIT_S;
    assert_int_equal(sem_timedwait(what, &until), 0);
}

enum embtier_err __wrap_load_add(struct load *load, struct load_batch *batch,
                                 const struct progress_sink *progress, struct err_msg *msg);

enum embtier_err __wrap_load_add(struct load *load, struct load_batch *batch,
                                 const struct progress_sink *progress, struct err_msg *msg)
{
    const enum embtier_err err = progress_look(progress, msg);

    if (err != EMBTIER_OK) {
        atomic_fetch_add(&load->refused, 1);
        return err;
    }
    atomic_fetch_add(&load->pieces, 1);
    sem_post(&load->begun);
    if (load->is_held)
        sem_wait(&load->held);
    if (atomic_load(&load->is_whole))
        batch->count = 0;
    return EMBTIER_OK;
}

static void send(void *owner, struct message *message)
{
    struct job *const job = CONTAINER_OF(message, struct job, done_message);

    (void)owner;
    sem_post(&CONTAINER_OF(job, struct load_job, job)->load->told);
}

static int setup(void **state)
{
    struct worker *worker = NULL;

    if (worker_new(&(struct job_parts){ .checkpoints = NULL }, send, NULL, &worker, NULL) !=
        EMBTIER_OK)
        return -1;
    *state = worker;
    return 0;
}

static void load_free_one(struct load *load)
{
    sem_destroy(&load->begun);
    sem_destroy(&load->held);
    sem_destroy(&load->told);
    free(load);
}

/* Ends loads that a failed test has left: they would go on for ever. */
static int teardown(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(loads); i++)
        if (loads[i]) {
            atomic_store(&loads[i]->is_whole, true);
            sem_post(&loads[i]->held);
        }
    worker_free(*state);
    for (size_t i = 0; i < ARRAY_LEN(loads); i++)
        if (loads[i])
            load_free_one(TAKE(loads[i]));
    return 0;
}

/* Submits the rows of an import of @uid. More rows follow without end until it is whole. */
static struct load *submit(struct worker *worker, uid_t uid, bool is_held, bool is_whole)
{
    struct load *const load = calloc(1, sizeof(*load));
    size_t i = 0;

    assert_non_null(load);
    while (loads[i])
        assert_in_range(++i, 1, ARRAY_LEN(loads) - 1);
    loads[i] = load;
    sem_init(&load->begun, 0, 0);
    sem_init(&load->held, 0, 0);
    sem_init(&load->told, 0, 0);
    load->is_held = is_held;
    atomic_init(&load->is_whole, is_whole);
    load->rows.job.kind = &load_rows_job;
    load->rows.job.user = uid;
    load->rows.job.owner = load;
    load->rows.load = load;
    load->rows.batch.count = 1;
    assert_int_equal(worker_submit(worker, &load->rows.job, NULL), EMBTIER_OK);
    return load;
}

static void finish(struct load *load, enum embtier_err err)
{
    atomic_store(&load->is_whole, true);
    await(&load->told);
    assert_int_equal(load->rows.job.err, err);
    if (err == EMBTIER_OK)
        assert_int_equal(load->rows.batch.count, 0);
    for (size_t i = 0; i < ARRAY_LEN(loads); i++)
        if (loads[i] == load)
            load_free_one(TAKE(loads[i]));
}

static bool is_said_to_run(struct worker *worker, const struct load *load)
{
    struct job_info *infos = NULL;
    bool more, runs = false;
    uint32_t count;

    assert_int_equal(worker_list(worker, load->rows.job.id - 1, 1, &infos, &count, &more),
                     EMBTIER_OK);
    assert_int_equal(count, 1);
    assert_int_equal(infos[0].id, load->rows.job.id);
    runs = infos[0].runs;
    free(infos);
    return runs;
}

static void test_long_imports_let_another_user_pass(void **state)
{
    struct worker *const worker = *state;
    struct load *const of_alice = submit(worker, ALICE, false, false);
    struct load *const of_bob = submit(worker, BOB, false, false);

    await(&of_alice->begun); /* both threads are now taken */
    await(&of_bob->begun);
    finish(submit(worker, CAROL, false, true), EMBTIER_OK);
    finish(of_alice, EMBTIER_OK);
    finish(of_bob, EMBTIER_OK);
}

static void test_imports_of_one_user_take_turns(void **state)
{
    struct worker *const worker = *state;
    struct load *const first = submit(worker, ALICE, false, false);
    struct load *const second = submit(worker, ALICE, false, false);

    for (uint32_t i = 0; i < 100; i++) { /* both make pieces, though neither ends */
        await(&first->begun);
        await(&second->begun);
    }
    finish(second, EMBTIER_OK);
    finish(first, EMBTIER_OK);
}

static void test_an_import_that_no_client_wants_ends_with_its_piece(void **state)
{
    struct worker *const worker = *state;
    struct load *const load = submit(worker, ALICE, true, false);

    await(&load->begun);
    worker_give_up(worker, &load->rows.job, EMBTIER_DISCONNECTED);
    sem_post(&load->held);
    await(&load->told);
    assert_int_equal(atomic_load(&load->pieces), 1);
    assert_int_equal(atomic_load(&load->refused), 1); /* the load knows that a part is missing */
    sem_post(&load->told);
    finish(load, EMBTIER_DISCONNECTED);
}

static void test_one_that_waits_between_its_pieces_is_told_of_its_end(void **state)
{
    struct worker *const worker = *state;
    struct load *const load = submit(worker, ALICE, false, false);
    struct load *const other = submit(worker, ALICE, true, true);
    uint32_t pieces;

    await(&load->begun);
    await(&other->begun); /* it has the only thread that this user gets now */
    pieces = atomic_load(&load->pieces);
    assert_true(is_said_to_run(worker, load));
    worker_give_up(worker, &load->rows.job, EMBTIER_DISCONNECTED);
    assert_int_equal(load->rows.job.state, JOB_WAITING); /* it still waits for its turn */
    sem_post(&other->held);
    finish(other, EMBTIER_OK);
    await(&load->told);
    assert_int_equal(atomic_load(&load->pieces), pieces);
    assert_int_equal(atomic_load(&load->refused), 1);
    sem_post(&load->told);
    finish(load, EMBTIER_DISCONNECTED);
}

static void test_one_that_has_begun_can_be_cancelled(void **state)
{
    struct worker *const worker = *state;
    struct load *const load = submit(worker, ALICE, false, false);
    bool waited = true;

    await(&load->begun);
    assert_int_equal(worker_cancel(worker, load->rows.job.id, ALICE, false, &waited, NULL),
                     EMBTIER_OK);
    assert_false(waited);
    await(&load->told);
    assert_non_null(strstr(load->rows.job.msg.text, "embtier jobs cancel")); /* it says how */
    sem_post(&load->told);
    finish(load, EMBTIER_CANCELLED);
}

#define WORKER_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORKER_TEST(test_long_imports_let_another_user_pass),
        WORKER_TEST(test_imports_of_one_user_take_turns),
        WORKER_TEST(test_an_import_that_no_client_wants_ends_with_its_piece),
        WORKER_TEST(test_one_that_waits_between_its_pieces_is_told_of_its_end),
        WORKER_TEST(test_one_that_has_begun_can_be_cancelled),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
