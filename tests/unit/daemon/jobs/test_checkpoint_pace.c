/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a checkpoint leaves the cores to clients that ask for rows, and that it comes to an
 * end. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include "daemon/engine/lane/lane.h"
#include "daemon/jobs/checkpoint/checkpoint_pace.h"

#define MS UINT64_C(1000000)

static uint64_t time_ns;

static uint64_t now(void *context)
{
    (void)context;
    return time_ns;
}

static const struct clock held = { .now_ns = now };

static struct checkpoint_pace pace_of(bool few_cores)
{
    struct checkpoint_pace pace;

    time_ns = 1000 * MS;
    checkpoint_pace_init(&pace, &held, few_cores);
    return pace;
}

/* Makes one step that takes @spent_ns. Its rows are written by the end of it. */
static uint64_t step(struct checkpoint_pace *pace, struct lane_saved *saved, uint64_t spent_ns,
                     uint32_t *ret_rows)
{
    checkpoint_pace_begin(pace);
    *ret_rows = checkpoint_pace_step(pace, saved->idle);
    time_ns += spent_ns;
    saved->idle = true;
    checkpoint_pace_look(pace, saved);
    return checkpoint_pace_rest_ns(pace, saved);
}

static void test_it_hurries_where_there_are_cores(void **state)
{
    struct checkpoint_pace pace = pace_of(false);
    struct lane_saved saved = { .idle = true };
    uint32_t rows;

    (void)state;
    for (int i = 0; i < 5; i++) {
        saved.requests += 10;
        assert_int_equal(step(&pace, &saved, MS, &rows), 0);
        assert_int_equal(rows, CHECKPOINT_STEP_ROWS);
        saved.idle = false;
    }
}

static void test_it_hurries_while_no_client_asks(void **state)
{
    struct checkpoint_pace pace = pace_of(true);
    struct lane_saved saved = { .idle = true, .requests = 1000 }; /* earlier ones */
    uint32_t rows;

    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(step(&pace, &saved, MS, &rows), 0);
        assert_int_equal(rows, CHECKPOINT_STEP_ROWS);
    }
    saved.requests++;
    (void)step(&pace, &saved, MS, &rows);
    assert_int_equal(step(&pace, &saved, MS, &rows), 5 * MS);
    time_ns += 60 * MS; /* no more requests came */
    assert_int_equal(step(&pace, &saved, MS, &rows), 0);
    assert_int_equal(rows, CHECKPOINT_STEP_ROWS);
}

static void
test_others_have_five_sixths_of_the_time_and_it_waits_for_what_it_handed_over(void **state)
{
    struct checkpoint_pace pace = pace_of(true);
    struct lane_saved saved = { .idle = true };
    uint32_t rows;

    (void)state;
    (void)step(&pace, &saved, 0, &rows);
    saved.requests = 1;
    (void)step(&pace, &saved, 0, &rows);
    assert_int_equal(step(&pace, &saved, MS, &rows), 5 * MS);
    assert_int_equal(rows, CHECKPOINT_PACED_STEP_ROWS);

    saved.requests++;
    (void)checkpoint_pace_step(&pace, true);
    saved.idle = false;
    checkpoint_pace_look(&pace, &saved);
    assert_int_equal(checkpoint_pace_rest_ns(&pace, &saved), 0);
    assert_int_equal(checkpoint_pace_step(&pace, false), 0);

    saved.idle = true;
    assert_int_equal(step(&pace, &saved, 40 * MS, &rows), 50 * MS); /* the longest rest */
    saved.done = true;
    assert_int_equal(step(&pace, &saved, MS, &rows), 0);
}

static void test_steps_that_wait_for_the_disk_grow_and_others_shrink_again(void **state)
{
    struct checkpoint_pace pace = pace_of(true);
    struct lane_saved saved = { .idle = true };
    uint32_t rows, before = 0;

    (void)state;
    (void)step(&pace, &saved, 0, &rows);
    saved.requests++;
    (void)step(&pace, &saved, 0, &rows);
    for (int i = 0; i < 8; i++) {
        saved.requests++;
        (void)step(&pace, &saved, 5 * MS, &rows);
        assert_true(rows > before || rows == CHECKPOINT_STEP_ROWS);
        assert_true(i > 0 || rows == CHECKPOINT_PACED_STEP_ROWS);
        before = rows;
    }
    assert_int_equal(rows, CHECKPOINT_STEP_ROWS);
    for (int i = 0; i < 8; i++) {
        saved.requests++;
        (void)step(&pace, &saved, MS / 10, &rows);
    }
    assert_int_equal(rows, CHECKPOINT_PACED_STEP_ROWS);
}

static void test_it_hurries_while_updates_find_no_place(void **state)
{
    struct checkpoint_pace pace = pace_of(true);
    struct lane_saved saved = { .idle = true };
    uint32_t rows;

    (void)state;
    (void)step(&pace, &saved, MS, &rows);
    saved.requests++;
    (void)step(&pace, &saved, MS, &rows);
    saved.requests++;
    saved.held_rows++;
    assert_int_equal(step(&pace, &saved, MS, &rows), 0);
    saved.held_rows++;
    assert_int_equal(step(&pace, &saved, MS, &rows), 0);
    assert_int_equal(rows, CHECKPOINT_STEP_ROWS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_hurries_where_there_are_cores),
        cmocka_unit_test(test_it_hurries_while_no_client_asks),
        cmocka_unit_test(
            test_others_have_five_sixths_of_the_time_and_it_waits_for_what_it_handed_over),
        cmocka_unit_test(test_steps_that_wait_for_the_disk_grow_and_others_shrink_again),
        cmocka_unit_test(test_it_hurries_while_updates_find_no_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
