/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the system knows which threads requests wait for, and which run in the background. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/system/thread_class.h"

static int nice_now(void)
{
    return getpriority(PRIO_PROCESS, 0);
}

/* The layout of sched_getattr(2). */
struct attributes {
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns;
    uint64_t deadline_ns;
    uint64_t period_ns;
};

static uint64_t turn_ns(void)
{
    struct attributes attributes = { 0 };

    assert_int_equal(syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0), 0);
    return attributes.runtime_ns;
}

struct seen {
    void (*enter)(void);
    int nice_before, nice_after;
    uint64_t turn_before, turn_after;
    int policy_after;
};

static void *enter(void *argument)
{
    struct seen *const seen = argument;

    seen->nice_before = nice_now();
    seen->turn_before = turn_ns();
    seen->enter();
    seen->nice_after = nice_now();
    seen->turn_after = turn_ns();
    seen->policy_after = sched_getscheduler(0);
    return NULL;
}

static struct seen thread_that(void (*function)(void))
{
    struct seen seen = { .enter = function };
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, enter, &seen), 0);
    pthread_join(thread, NULL);
    return seen;
}

static void test_a_background_thread_is_niced_and_no_other(void **state)
{
    const int before = nice_now();
    const struct seen seen = thread_that(thread_class_background);

    (void)state;
    assert_int_equal(seen.nice_before, before);
    assert_int_equal(seen.nice_after, MIN(before + 10, 19));
    assert_int_equal(nice_now(), before);
}

static void choose(int policy)
{
    const struct sched_param none = { 0 };

    (void)!sched_setscheduler(0, policy, &none);
}

static void choose_batch(void)
{
    choose(SCHED_BATCH);
}

static void test_a_thread_of_upkeep_keeps_its_share_and_has_long_turns(void **state)
{
    const struct seen seen = thread_that(thread_class_upkeep);

    (void)state;
    assert_int_equal(seen.nice_after, seen.nice_before);
    if (sched_getscheduler(0) != SCHED_OTHER ||
        thread_that(choose_batch).policy_after != SCHED_BATCH)
        skip(); /* chosen by our parent, or refused by the system */
    assert_int_equal(seen.policy_after, SCHED_BATCH);
    if (seen.turn_before == 0 && seen.turn_after == 0)
        skip(); /* this system is too old for turn lengths */
    assert_true(seen.turn_after > seen.turn_before);
}

static void test_an_answering_thread_has_short_turns_and_its_niceness(void **state)
{
    const struct seen seen = thread_that(thread_class_answering);

    (void)state;
    assert_int_equal(seen.nice_after, seen.nice_before);
    if (seen.turn_before == 0 && seen.turn_after == 0)
        skip(); /* this system is too old for turn lengths */
    assert_true(seen.turn_after < seen.turn_before);
}

/* Chooses the policy for its own thread only: a thread that has chosen SCHED_IDLE may need a
 * privilege to leave it. */
static void choose_batch_and_answer(void)
{
    choose(SCHED_BATCH);
    thread_class_answering();
}

static void choose_idle_and_keep_up(void)
{
    choose(SCHED_IDLE);
    thread_class_upkeep();
}

static void test_the_policy_that_the_user_chose_stays(void **state)
{
    (void)state;
    if (thread_that(choose_batch).policy_after != SCHED_BATCH)
        skip(); /* refused by the system */
    assert_int_equal(thread_that(choose_batch_and_answer).policy_after, SCHED_BATCH);
    assert_int_equal(thread_that(choose_idle_and_keep_up).policy_after, SCHED_IDLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_background_thread_is_niced_and_no_other),
        cmocka_unit_test(test_a_thread_of_upkeep_keeps_its_share_and_has_long_turns),
        cmocka_unit_test(test_an_answering_thread_has_short_turns_and_its_niceness),
        cmocka_unit_test(test_the_policy_that_the_user_chose_stays),
    };

    return cmocka_run_group_tests_name("thread class", tests, NULL, NULL);
}
