/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that users take turns, whatever they have submitted, and that some jobs are refused while
 * another one has not ended.
 *
 * Stubs replace the work of all jobs. A test holds the first job, so that it knows which jobs wait.
 */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <pthread.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/jobs/transfer/scan_job.h"
#include "daemon/jobs/worker.h"

#define ONE 1000
#define TWO 1001

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_running, goes_on; /* the first job */
    struct message *told[16];
    uint32_t count;
} seen = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static void hold(void)
{
    pthread_mutex_lock(&seen.lock);
    seen.is_running = true;
    pthread_cond_broadcast(&seen.changed);
    while (!seen.goes_on)
        pthread_cond_wait(&seen.changed, &seen.lock);
    pthread_mutex_unlock(&seen.lock);
}

static void await_first(void)
{
    pthread_mutex_lock(&seen.lock);
    while (!seen.is_running)
        pthread_cond_wait(&seen.changed, &seen.lock);
    pthread_mutex_unlock(&seen.lock);
}

/* Lets the first job go on, and waits until @count jobs have ended. */
static void await_ends(uint32_t count)
{
    pthread_mutex_lock(&seen.lock);
    seen.goes_on = true;
    pthread_cond_broadcast(&seen.changed);
    while (seen.count < count)
        pthread_cond_wait(&seen.changed, &seen.lock);
    pthread_mutex_unlock(&seen.lock);
}

enum embtier_err __wrap_scan_fill(struct scan *scan, void *dest, uint64_t bytes,
                                  const _Atomic bool *give_up, struct scan_filled *ret_filled,
                                  struct err_msg *msg);
enum embtier_err __wrap_scan_fill(struct scan *scan, void *dest, uint64_t bytes,
                                  const _Atomic bool *give_up, struct scan_filled *ret_filled,
                                  struct err_msg *msg)
{
    (void)scan, (void)dest, (void)bytes, (void)give_up, (void)ret_filled, (void)msg;
    hold();
    return EMBTIER_OK;
}

void __wrap_scan_free(struct scan *scan);
void __wrap_scan_free(struct scan *scan)
{
    (void)scan;
}

const _Atomic bool *__wrap_checkpoints_stopping(const struct checkpoints *checkpoints);
const _Atomic bool *__wrap_checkpoints_stopping(const struct checkpoints *checkpoints)
{
    static const _Atomic bool stopping;

    (void)checkpoints;
    return &stopping;
}

static void tell(void *owner, struct message *message)
{
    (void)owner;
    pthread_mutex_lock(&seen.lock);
    assert_true(seen.count < ARRAY_LEN(seen.told));
    seen.told[seen.count++] = message;
    pthread_cond_broadcast(&seen.changed);
    pthread_mutex_unlock(&seen.lock);
}

static void submit(struct worker *worker, struct scan_job *scan, const struct job_kind *kind,
                   uid_t uid, void *owner)
{
    memset(scan, 0, sizeof(*scan));
    scan->job.kind = kind;
    scan->job.user = uid;
    scan->job.owner = owner;
    assert_int_equal(worker_submit(worker, &scan->job, NULL), EMBTIER_OK);
}

static void test_what_one_user_left_to_be_cleaned_up_is_not_before_anothers_job(void **state)
{
    struct worker *worker = NULL;
    struct scan_job first, left[3], other;
    int connection;

    (void)state;
    assert_int_equal(
        worker_new(&(struct job_parts){ .checkpoints = NULL }, tell, NULL, &worker, NULL),
        EMBTIER_OK);
    submit(worker, &first, &scan_next_job, ONE, &connection);
    await_first();
    for (uint32_t i = 0; i < ARRAY_LEN(left); i++)
        submit(worker, &left[i], &scan_close_job, ONE, NULL);
    submit(worker, &other, &scan_next_job, TWO, &connection);
    await_ends(5);
    worker_free(worker);
    assert_ptr_equal(seen.told[0], &first.job.done_message);
    assert_ptr_equal(seen.told[1], &left[0].job.done_message); /* came first in that round */
    assert_ptr_equal(seen.told[2], &other.job.done_message);
    assert_ptr_equal(seen.told[3], &left[1].job.done_message);
    assert_ptr_equal(seen.told[4], &left[2].job.done_message);
}

static enum embtier_err move(struct job *job, const struct job_parts *parts,
                             const struct progress_sink *progress, struct err_msg *msg)
{
    (void)job, (void)parts, (void)progress, (void)msg;
    hold();
    return EMBTIER_OK;
}

static const struct job_kind move_kind = { .word = "reshard", .line = LINE_RESHARDS, .run = move };

static void test_a_move_of_buckets_is_refused_while_another_one_has_not_ended(void **state)
{
    struct worker *worker = NULL;
    int connection;
    struct job jobs[] = {
        { .kind = &move_kind, .user = ONE, .owner = &connection },
        { .kind = &move_kind, .user = TWO, .owner = &connection },
        { .kind = &move_kind }, /* the server's own waits */
        { .kind = &move_kind, .user = TWO, .owner = &connection },
    };
    struct err_msg msg = { { 0 } };

    (void)state;
    seen.is_running = seen.goes_on = false;
    seen.count = 0;
    assert_int_equal(
        worker_new(&(struct job_parts){ .checkpoints = NULL }, tell, NULL, &worker, NULL),
        EMBTIER_OK);
    assert_int_equal(worker_submit(worker, &jobs[0], &msg), EMBTIER_OK);
    await_first();
    assert_int_equal(worker_submit(worker, &jobs[1], &msg), EMBTIER_BUSY);
    assert_non_null(strstr(msg.text, "job 1 (reshard) has not ended yet"));
    assert_non_null(strstr(msg.text, "`embtier jobs cancel 1`"));
    assert_int_equal(worker_submit(worker, &jobs[2], &msg), EMBTIER_OK);
    await_ends(2);
    assert_int_equal(worker_submit(worker, &jobs[3], &msg), EMBTIER_OK);
    await_ends(3);
    worker_free(worker);
    assert_ptr_equal(seen.told[2], &jobs[3].done_message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_one_user_left_to_be_cleaned_up_is_not_before_anothers_job),
        cmocka_unit_test(test_a_move_of_buckets_is_refused_while_another_one_has_not_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
