/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a reload takes all of its parts or none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/macros.h"
#include "daemon/jobs/reload/reload.h"

struct part {
    enum embtier_err err; /* of the next read */
    uint32_t reads, takes, drops;
};

static enum embtier_err read_part(void *context, void **ret_fresh, struct err_msg *msg)
{
    struct part *const part = context;

    part->reads++;
    if (part->err != EMBTIER_OK)
        return err_set(msg, part->err, "line 3 is wrong");
    *ret_fresh = part;
    return EMBTIER_OK;
}

static void take_part(void *context, void *fresh)
{
    assert_ptr_equal(context, fresh);
    ((struct part *)context)->takes++;
}

static void drop_part(void *context, void *fresh)
{
    assert_ptr_equal(context, fresh);
    ((struct part *)context)->drops++;
}

static void assert_part(const struct part *part, uint32_t reads, uint32_t takes, uint32_t drops)
{
    assert_int_equal(part->reads, reads);
    assert_int_equal(part->takes, takes);
    assert_int_equal(part->drops, drops);
}

static void test_all_parts_are_taken_or_none(void **state)
{
    struct part parts[3] = { { .err = EMBTIER_OK } };
    struct reloads *reloads = NULL;
    struct reload_stats stats;
    struct err_msg msg = { { 0 } };

    (void)state;
    assert_int_equal(reloads_new(&reloads, &msg), EMBTIER_OK);
    assert_int_equal(reloads_run(reloads, &msg), EMBTIER_OK); /* of nothing */
    for (uint32_t i = 0; i < ARRAY_LEN(parts); i++)
        reloads_add(reloads, &(struct reload_part){ .context = &parts[i],
                                                    .read = read_part,
                                                    .take = take_part,
                                                    .drop = drop_part });
    assert_int_equal(reloads_run(reloads, &msg), EMBTIER_OK);
    for (uint32_t i = 0; i < ARRAY_LEN(parts); i++)
        assert_part(&parts[i], 1, 1, 0);
    parts[1].err = EMBTIER_CONFIG;
    assert_int_equal(reloads_run(reloads, &msg), EMBTIER_CONFIG);
    assert_non_null(strstr(msg.text, "what was in force before stays: line 3 is wrong"));
    assert_part(&parts[0], 2, 1, 1);
    assert_part(&parts[1], 2, 1, 0); /* what could not be read need not be dropped */
    assert_part(&parts[2], 1, 1, 0);
    parts[1].err = EMBTIER_OK;
    assert_int_equal(reloads_run(reloads, &msg), EMBTIER_OK);
    assert_part(&parts[0], 3, 2, 1);
    assert_part(&parts[2], 2, 2, 0);
    reloads_stats(reloads, &stats);
    assert_int_equal(stats.reloads, 3);
    assert_int_equal(stats.failures, 1);
    reloads_free(reloads);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_all_parts_are_taken_or_none) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
