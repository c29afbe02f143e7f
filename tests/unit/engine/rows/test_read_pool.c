/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that read jobs are read in the order in which they were sent, whatever their places in the
 * pool, and that each comes back, whatever the number of readers becomes. The store is replaced: a
 * read lasts until the test ends it, or no time. The test is the lane, and changes the number of
 * readers, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"

#include "daemon/engine/mail/mailbox.h"
#include "daemon/engine/rows/read_pool.h"

#define JOBS    (2 * READ_JOBS_PER_THREAD)
#define ROUNDS  32
#define WAIT_NS (UINT64_C(120) * 1000 * 1000 * 1000) /* no test takes this long */

enum embtier_err __wrap_store_read(struct store *store, uint32_t shard, struct store_row *rows,
                                   uint32_t count, struct err_msg *msg);
void __wrap_store_reader_begin(struct store *store);
void __wrap_mailbox_send(struct mailbox *lane, struct message *message);

static sem_t begun, may_end, done;
static _Atomic uint32_t begun_shard; /* also tells the jobs apart */
static _Atomic(struct message *) done_message;
static _Atomic bool reads_pass;            /* they take no time */
static _Atomic uint32_t reads;             /* that took none */
static struct inbox mail;                  /* the lane's, of these */
static uint32_t threads_left = UINT32_MAX; /* that the system gives */

enum embtier_err __wrap_store_read(struct store *store, uint32_t shard, struct store_row *rows,
                                   uint32_t count, struct err_msg *msg)
{
    (void)store;
    (void)rows;
    (void)count;
    (void)msg;
    if (atomic_load(&reads_pass)) {
        atomic_fetch_add(&reads, 1);
        return EMBTIER_OK;
    }
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
    if (atomic_load(&reads_pass)) {
        inbox_push(&mail, message);
        return;
    }
    atomic_store(&done_message, message);
    sem_post(&done);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *argument)
{
    if (threads_left == 0)
        return EAGAIN;
    threads_left--;
    return __real_pthread_create(thread, attr, run, argument);
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

static int set_up(void **state)
{
    (void)state;
    sem_init(&begun, 0, 0);
    sem_init(&may_end, 0, 0);
    sem_init(&done, 0, 0);
    atomic_store(&reads_pass, false);
    atomic_store(&reads, 0);
    threads_left = UINT32_MAX;
    return 0;
}

static void test_a_job_is_not_overtaken_by_younger_ones(void **state)
{
    struct read_pool *pool = NULL;
    struct err_msg msg = { { 0 } };
    uint32_t sent = 0;

    (void)state;
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

/* ---- Another number of readers ---- */

static uint32_t running_readers(void)
{
    DIR *const tasks = opendir("/proc/self/task");
    const struct dirent *task;
    uint32_t count = 0;

    assert_non_null(tasks);
    while ((task = readdir(tasks))) { // NOLINT(concurrency-mt-unsafe)
        char path[300], name[32] = "";
        FILE *file;

        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
        file = fopen(path, "re");
        if (!file)
            continue;
        if (fgets(name, sizeof(name), file))
            count += strcmp(name, "reader\n") == 0;
        (void)fclose(file);
    }
    closedir(tasks);
    return count;
}

/* A thread that was joined may be listed for a moment. */
static void await_readers(uint32_t count)
{
    const uint64_t until_ns = clock_now_ns(&clock_monotonic) + WAIT_NS;

    while (running_readers() != count) {
        assert_true(clock_now_ns(&clock_monotonic) < until_ns);
        usleep(1000);
    }
}

static uint32_t send_all(struct read_pool *pool)
{
    struct read_job *job;
    uint32_t sent = 0;

    for (; (job = read_pool_take(pool)); sent++)
        read_pool_send(pool, job);
    return sent;
}

static uint32_t take_back(struct read_pool *pool)
{
    struct message *message = inbox_take_all(&mail);
    uint32_t taken = 0;

    for (; message; taken++) {
        struct read_job *const job = CONTAINER_OF(message, struct read_job, message);

        message = message->next;
        read_pool_put_back(pool, job);
    }
    return taken;
}

static bool is_settled(struct read_pool *pool)
{
    const bool is_idle = read_pool_is_idle_behind(pool);

    if (is_idle)
        read_pool_trim(pool);
    return read_pool_have_ended(pool) && is_idle;
}

static void test_no_job_is_lost_while_readers_come_and_go(void **state)
{
    static const uint32_t counts[] = { CONFIG_READERS_MAX, 1, 2, CONFIG_READERS_MAX, 63, 1, 8, 3 };
    const uint64_t until_ns = clock_now_ns(&clock_monotonic) + WAIT_NS;
    struct read_pool *pool = NULL;
    struct err_msg msg = { { 0 } };
    uint32_t sent = 0, back = 0;

    (void)state;
    atomic_store(&reads_pass, true);
    assert_int_equal(read_pool_new(NULL, NULL, 4, &pool, &msg), EMBTIER_OK);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const uint32_t count = counts[round % ARRAY_LEN(counts)];

        sent += send_all(pool);
        assert_int_equal(read_pool_grow(pool, count, &msg), EMBTIER_OK);
        back += take_back(pool);
        sent += send_all(pool);
        read_pool_use(pool, count);
        assert_int_equal(read_pool_used(pool), count);
        sent += send_all(pool);
        read_pool_end_readers(pool, count);
        while (!is_settled(pool)) {
            assert_true(clock_now_ns(&clock_monotonic) < until_ns);
            back += take_back(pool);
            sent += send_all(pool);
        }
        await_readers(count);
    }
    while (back < sent) {
        assert_true(clock_now_ns(&clock_monotonic) < until_ns);
        back += take_back(pool);
    }
    assert_int_equal(back, sent);
    assert_int_equal(atomic_load(&reads), sent);
    read_pool_free(pool);
    await_readers(0);
}

static void test_a_reader_that_reads_ends_after_its_job(void **state)
{
    struct read_pool *pool = NULL;
    struct err_msg msg = { { 0 } };
    uint32_t sent = 0;

    (void)state;
    assert_int_equal(read_pool_new(NULL, NULL, 2, &pool, &msg), EMBTIER_OK);
    for (; sent < 2; sent++) {
        send_job(pool, sent);
        (void)next_begun();
    }
    for (; sent < JOBS; sent++)
        send_job(pool, sent);
    read_pool_use(pool, 1);
    read_pool_end_readers(pool, 1);
    assert_false(read_pool_have_ended(pool));
    assert_false(read_pool_is_idle_behind(pool));
    assert_null(read_pool_take(pool));
    end_one(pool);
    while (!read_pool_have_ended(pool))
        usleep(1000);
    await_readers(1);
    assert_int_equal(sem_trywait(&begun), -1); /* it has taken no other job */
    end_one(pool);
    for (uint32_t i = 2; i < JOBS; i++) {
        assert_int_equal(next_begun(), i);
        end_one(pool);
    }
    assert_true(read_pool_is_idle_behind(pool));
    read_pool_trim(pool);
    for (uint32_t i = 0; i < READ_JOBS_PER_THREAD; i++)
        send_job(pool, 100 + i);
    assert_null(read_pool_take(pool));
    for (uint32_t i = 0; i < READ_JOBS_PER_THREAD; i++) {
        assert_int_equal(next_begun(), 100 + i);
        end_one(pool);
    }
    read_pool_free(pool);
}

static void test_without_more_threads_there_are_as_many_readers_as_before(void **state)
{
    struct read_pool *pool = NULL;
    struct err_msg msg = { { 0 } };

    (void)state;
    atomic_store(&reads_pass, true);
    assert_int_equal(read_pool_new(NULL, NULL, 2, &pool, &msg), EMBTIER_OK);
    threads_left = 5;
    assert_int_equal(read_pool_grow(pool, 9, &msg), EMBTIER_BUSY);
    assert_non_null(strstr(msg.text, "cannot start another reader"));
    while (!is_settled(pool))
        usleep(1000);
    await_readers(2);
    assert_int_equal(send_all(pool), JOBS);
    threads_left = UINT32_MAX;
    assert_int_equal(read_pool_grow(pool, 9, &msg), EMBTIER_OK);
    await_readers(9);
    for (uint32_t back = 0; back < JOBS; back += take_back(pool))
        usleep(1000);
    read_pool_free(pool);
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_job_is_not_overtaken_by_younger_ones),
        TEST(test_no_job_is_lost_while_readers_come_and_go),
        TEST(test_a_reader_that_reads_ends_after_its_job),
        TEST(test_without_more_threads_there_are_as_many_readers_as_before),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
