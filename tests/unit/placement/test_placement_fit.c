/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that an error about a model without a placement names what lacks room, and how many
 * bytes. */
#include "tests/unit/placement/placement_fixture.h"

#include <stdlib.h>

#include "placement/solve/solve.h"

static const struct model_table tables[] = {
    { .name = "clicks",
      .weight_bytes = 60,
      .bags_per_batch = 1,
      .pooling_factor = 1,
      .lookup_bytes = 4 },
    { .name = "users",
      .weight_bytes = 60,
      .bags_per_batch = 1,
      .pooling_factor = 1,
      .lookup_bytes = 4 },
    { .name = "shops",
      .weight_bytes = 60,
      .bags_per_batch = 1,
      .pooling_factor = 1,
      .lookup_bytes = 4 },
};

static void assert_refused(const struct model *model, const char *reason)
{
    const struct solve_opts opts = { .steps = 2000 };
    struct solve_answer *answer = NULL;
    struct err_msg msg = { { 0 } };

    assert_int_equal(solve_model(model, &opts, &answer, &msg), EMBTIER_INVALID);
    if (!strstr(msg.text, reason))
        fail_msg("`%s` does not hold `%s`", msg.text, reason);
    assert_null(answer);
}

static void test_a_table_larger_than_every_memory_is_named(void **state)
{
    const struct model_memory memories[] = { { "HBM", false, 40, 2, NULL },
                                             { "SSD", true, 59, 1, NULL } };
    const struct model model = { tables, memories, NULL, 1, 2, 2, 0, NULL };

    (void)state;
    assert_refused(&model, "table 'clicks'");
    assert_refused(&model, "table 'clicks': 60B; the largest place allowed, memory 'SSD', has "
                           "59B: 1B too few");
}

static void test_tables_that_exceed_all_memories_together(void **state)
{
    const struct model_memory memories[] = { { "HBM", false, 60, 2, NULL },
                                             { "SSD", true, 53, 1, NULL } };
    const struct model model = { tables, memories, NULL, 3, 2, 2, 0, NULL };

    (void)state;
    /* 180 bytes, of which each GPU holds 60. No table fits into the SSD's 53. */
    assert_refused(&model, "lack 60B of memory 'HBM' of GPU 0, memory 'HBM' of GPU 1");
}

static void test_only_the_memories_that_matter_are_named(void **state)
{
    const struct model_memory memories[] = { { "HBM", false, 100, 2, NULL },
                                             { "SSD", true, 900, 1, NULL } };
    const struct model_rule rules[] = {
        { .kind = MODEL_PIN, .table = 0, .memory = 0, .gpu = 1 },
        { .kind = MODEL_PIN, .table = 2, .memory = 0, .gpu = 1 },
    };
    const struct model model = { tables, memories, rules, 3, 2, 2, 2, NULL };

    (void)state;
    assert_refused(&model, "table 'shops' and the tables that need the same memory lack 20B "
                           "of memory 'HBM' of GPU 1");
}

static void test_tables_that_fit_only_in_pieces(void **state)
{
    const struct model_memory memory = { "HBM", false, 100, 2, NULL };
    const struct model model = { tables, &memory, NULL, 3, 1, 2, 0, NULL };

    (void)state;
    assert_refused(&model, "no placement fits");
}

static void test_rules_that_exclude_each_other(void **state)
{
    const struct model_memory memories[] = { { "HBM", false, 100, 2, NULL },
                                             { "SSD", true, 900, 1, NULL } };
    const struct model_rule rules[] = {
        { .kind = MODEL_PIN, .table = 0, .memory = 0, .gpu = MODEL_ANY },
        { .kind = MODEL_TOGETHER, .table = 1, .other = 0 },
        { .kind = MODEL_FORBID, .table = 1, .memory = 0, .gpu = MODEL_ANY },
    };
    const struct model model = { tables, memories, rules, 2, 2, 2, 3, NULL };

    (void)state;
    assert_refused(&model, "table 'clicks', with the tables kept together with it: rules leave it "
                           "no place; rule 2 rules out the last one");
}

static void test_a_table_larger_than_the_memories_that_its_rules_leave_it(void **state)
{
    const struct model_memory memories[] = { { "HBM", false, 40, 2, NULL },
                                             { "SSD", true, 900, 1, NULL } };
    const struct model_rule rules[] = {
        { .kind = MODEL_FORBID, .table = 1, .memory = 0, .gpu = 1 },
        { .kind = MODEL_RESERVE, .memory = 0, .gpu = 1, .bytes = 30 },
        { .kind = MODEL_PIN, .table = 1, .memory = 0, .gpu = MODEL_ANY },
        { .kind = MODEL_PIN, .table = 1, .memory = MODEL_ANY, .gpu = 0 },
    };
    const struct model model = { tables, memories, rules, 3, 2, 2, ARRAY_LEN(rules), NULL };

    (void)state;
    assert_refused(&model, "table 'users': 60B; the largest place allowed, memory 'HBM' of GPU "
                           "0, has 40B: 20B too few; rule 2 rules out larger ones");
}

/* As many tables and memories as a model may have. Half of the tables find no room, and the shared
 * memory is too small for any. A search for room looks at all tables, so this takes minutes unless
 * full rooms are searched once only. */
static void test_a_model_of_the_largest_size(void **state)
{
    struct model_table *const large = calloc(MODEL_TABLES_MAX, sizeof(*large));
    struct model_memory memories[MODEL_MEMORIES_MAX];
    const struct model model = {
        large, memories, NULL, MODEL_TABLES_MAX, MODEL_MEMORIES_MAX, MODEL_GPUS_MAX, 0, NULL
    };
    const uint64_t private_count = (MODEL_MEMORIES_MAX - 1) * MODEL_GPUS_MAX;

    (void)state;
    assert_non_null(large);
    for (uint32_t i = 0; i < MODEL_TABLES_MAX; i++)
        large[i] = (struct model_table){ .name = "t", .weight_bytes = 3 };
    for (uint32_t m = 0; m < MODEL_MEMORIES_MAX; m++)
        memories[m] = (struct model_memory){ "HBM", m == 0, m == 0 ? 2 : 55, 1e9, NULL };
    assert_int_equal(3 * MODEL_TABLES_MAX - 55 * private_count, 24512);
    assert_refused(&model, "lack 23.94KiB of memory 'HBM'");
    free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_table_larger_than_every_memory_is_named),
        cmocka_unit_test(test_tables_that_exceed_all_memories_together),
        cmocka_unit_test(test_only_the_memories_that_matter_are_named),
        cmocka_unit_test(test_tables_that_fit_only_in_pieces),
        cmocka_unit_test(test_rules_that_exclude_each_other),
        cmocka_unit_test(test_a_table_larger_than_the_memories_that_its_rules_leave_it),
        cmocka_unit_test(test_a_model_of_the_largest_size),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
