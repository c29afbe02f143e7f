/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that read jobs are read in the order in which they were sent, whatever their places in the
 * pool. The store is replaced: a read lasts until the test ends it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <semaphore.h>
#include <stdlib.h>

#include "daemon/engine/mail/mailbox.h"
#include "daemon/engine/rows/read_pool.h"

#define JOBS (2 * READ_JOBS_PER_THREAD)

enum embtier_err __wrap_store_read(struct store *store, uint32_t shard, struct store_row *rows,
                                   uint32_t count, struct err_msg *msg);
void __wrap_store_reader_begin(struct store *store);
void __wrap_mailbox_send(struct mailbox *lane, struct message *message);

static sem_t begun, may_end, done;
static _Atomic uint32_t begun_shard; /* also tells the jobs apart */
static _Atomic(struct message *) done_message;

enum embtier_err __wrap_store_read(struct store *store, uint32_t shard, struct store_row *rows,
                                   uint32_t count, struct err_msg *msg)
{
    (void)store;
    (void)rows;
    (void)count;
    (void)msg;
    atomic_store(&begun_shard, shard);
    sem_post(&begun);
    sem_wait(&may_end);
    return EMBTIER_OK;
}

void __wrap_store_reader_begin(struct store *store)
{
    (void)store;
}

void __wrap_mailbox_send(struct mailbox *lane, struct message *message)
{
    (void)lane;
    atomic_store(&done_message, message);
    sem_post(&done);
}

static struct read_job *send_job(struct read_pool *pool, uint32_t shard)
{
    struct read_job *const job = read_pool_take(pool);

    assert_non_null(job);
    job->shard = shard;
    read_pool_send(pool, job);
    return job;
}

static uint32_t next_begun(void)
{
    sem_wait(&begun);
    return atomic_load(&begun_shard);
}

/* Lets one read end, and puts its job back. */
static void end_one(struct read_pool *pool)
{
    sem_post(&may_end);
    sem_wait(&done);
    read_pool_put_back(pool, CONTAINER_OF(atomic_load(&done_message), struct read_job, message));
}

static void test_a_job_is_not_overtaken_by_younger_ones(void **state)
{
    struct read_pool *pool = NULL;
    struct err_msg msg = { { 0 } };
    uint32_t sent = 0;

    (void)state;
    sem_init(&begun, 0, 0);
    sem_init(&may_end, 0, 0);
    sem_init(&done, 0, 0);
    assert_int_equal(read_pool_new(NULL, NULL, 2, &pool, &msg), EMBTIER_OK);
    for (; sent < 2; sent++) { /* both readers are busy */
        send_job(pool, sent);
        assert_int_equal(next_begun(), sent);
    }
    for (; sent < JOBS; sent++)
        send_job(pool, sent);
    /* From now on the free place is in front of some waiting jobs, or behind them. */
    for (uint32_t read = 2; read < 50; read++) {
        end_one(pool);
        assert_int_equal(next_begun(), read);
        send_job(pool, sent++);
    }
    for (uint32_t i = 0; i < JOBS; i++)
        sem_post(&may_end);
    for (uint32_t i = 0; i < JOBS; i++)
        sem_wait(&done);
    read_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_job_is_not_overtaken_by_younger_ones),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
