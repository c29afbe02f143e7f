/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that users take turns, whatever they have submitted.
 *
 * The jobs are exports, of which one runs at a time; stubs replace their work. The test holds the
 * first job, so that it knows which jobs wait. */
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

enum embtier_err __wrap_scan_fill(struct scan *scan, void *dest, uint64_t bytes,
                                  const _Atomic bool *give_up, struct scan_filled *ret_filled,
                                  struct err_msg *msg);
enum embtier_err __wrap_scan_fill(struct scan *scan, void *dest, uint64_t bytes,
                                  const _Atomic bool *give_up, struct scan_filled *ret_filled,
                                  struct err_msg *msg)
{
    (void)scan, (void)dest, (void)bytes, (void)give_up, (void)ret_filled, (void)msg;
    pthread_mutex_lock(&seen.lock);
    seen.is_running = true;
    pthread_cond_broadcast(&seen.changed);
    while (!seen.goes_on)
        pthread_cond_wait(&seen.changed, &seen.lock);
    pthread_mutex_unlock(&seen.lock);
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
    pthread_mutex_lock(&seen.lock);
    while (!seen.is_running)
        pthread_cond_wait(&seen.changed, &seen.lock);
    pthread_mutex_unlock(&seen.lock);
    for (uint32_t i = 0; i < ARRAY_LEN(left); i++)
        submit(worker, &left[i], &scan_close_job, ONE, NULL);
    submit(worker, &other, &scan_next_job, TWO, &connection);
    pthread_mutex_lock(&seen.lock);
    seen.goes_on = true;
    pthread_cond_broadcast(&seen.changed);
    while (seen.count < 5)
        pthread_cond_wait(&seen.changed, &seen.lock);
    pthread_mutex_unlock(&seen.lock);
    worker_free(worker);
    assert_ptr_equal(seen.told[0], &first.job.done_message);
    assert_ptr_equal(seen.told[1], &left[0].job.done_message); /* came first in that round */
    assert_ptr_equal(seen.told[2], &other.job.done_message);
    assert_ptr_equal(seen.told[3], &left[1].job.done_message);
    assert_ptr_equal(seen.told[4], &left[2].job.done_message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_one_user_left_to_be_cleaned_up_is_not_before_anothers_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
