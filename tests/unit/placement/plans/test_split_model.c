/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that wrong row-wise models, and models that cannot be placed, are refused with the table or
 * level, the key and the bytes; and that the check of finished placements finds each mistake. */
#include "tests/unit/placement/plans/split_fixture.h"

#include "placement/split/split_solve.h"

/* Two tables of 100 rows on two GPUs. */
struct plain {
    struct access_cdf cdf;
    double rest_s[3];
    struct split_table tables[2];
    struct model_memory levels[2];
    struct model_rule rules[2];
    struct split_model model;
};

static void make_plain(struct plain *p)
{
    *p = (struct plain){ .cdf = { 2, { 20, 100 }, { 0.5, 1 } }, .rest_s = { 1, 1, 1 } };
    for (uint32_t i = 0; i < 2; i++)
        p->tables[i] = (struct split_table){ .name = i ? "second" : "first",
                                             .rows = 100,
                                             .row_bytes = 10,
                                             .remap_bytes = 16,
                                             .lookup_bytes = 4,
                                             .bags_per_batch = 10,
                                             .pooling_factor = 2,
                                             .cdf = &p->cdf,
                                             .rest_lookup_s = p->rest_s };
    p->levels[0] = (struct model_memory){ "HBM", false, 1000, 100, NULL };
    p->levels[1] = (struct model_memory){ "DRAM", true, 1500, 20, NULL };
    p->model = (struct split_model){ p->tables, p->levels, p->rules, 2, 2, 2, 0 };
}

static void expect_refusal(const struct split_model *model, const char *name, const char *key)
{
    _cleanup_(split_answer_freep) struct split_answer *answer = NULL;
    struct err_msg msg = { { 0 } };

    assert_int_equal(split_solve(model, &(struct split_opts){ 0 }, &answer, &msg), EMBTIER_INVALID);
    if (!strstr(msg.text, name) || !strstr(msg.text, key))
        fail_msg("'%s' names no '%s' or '%s'", msg.text, name, key);
}

#define REFUSED(change, name, key)                                                                 \
    do {                                                                                           \
        struct plain p;                                                                            \
        make_plain(&p);                                                                            \
        change;                                                                                    \
        expect_refusal(&p.model, name, key);                                                       \
    } while (0)

static void test_wrong_counts_are_refused(void **state)
{
    (void)state;
    REFUSED(p.model.table_count = 0, "tables", "0");
    REFUSED(p.model.table_count = SPLIT_TABLES_MAX + 1, "tables", "8193");
    REFUSED(p.model.level_count = SPLIT_LEVELS_MAX + 1, "levels", "6");
    REFUSED(p.model.gpu_count = 0, "gpus", "0");
    REFUSED(p.model.gpu_count = MODEL_GPUS_MAX + 1, "gpus", "65");
    REFUSED(p.model.rule_count = MODEL_RULES_MAX + 1, "rules", "1048577");
}

static void test_wrong_tables_are_refused(void **state)
{
    (void)state;
    REFUSED(p.tables[1].row_bytes = 0, "second", "row_bytes");
    REFUSED(p.tables[1].row_bytes = UINT32_MAX, "second", "row_bytes");
    REFUSED(p.tables[1].remap_bytes = UINT32_MAX, "second", "remap_bytes");
    REFUSED(p.tables[1].rows = UINT64_MAX, "second", "rows");
    REFUSED(p.tables[1].rows = SPLIT_TABLE_BYTES_MAX / 26 + 1, "second", "rows");
    REFUSED(p.tables[1].bags_per_batch = NAN, "second", "bags_per_batch");
    REFUSED(p.tables[1].bags_per_batch = -1, "second", "bags_per_batch");
    REFUSED(p.tables[1].pooling_factor = INFINITY, "second", "pooling_factor");
    REFUSED(p.tables[1].bags_per_batch = 1e13, "second", "lookup_bytes");
    REFUSED(p.rest_s[1] = NAN, "first", "rest_lookup_s[1]");
    REFUSED(p.rest_s[2] = -1, "first", "rest_lookup_s[2]");
    REFUSED(p.rest_s[0] = 1e6, "first", "rest_lookup_s[0]");
}

static void test_wrong_curves_are_refused(void **state)
{
    (void)state;
    REFUSED(p.cdf.point_count = ACCESS_CDF_POINTS_MAX + 1, "first", "cdf.point_count");
    REFUSED(p.cdf.point_count = 0, "first", "cdf.point_count");
    REFUSED(p.cdf.rows[0] = NAN, "first", "cdf.rows[0]");
    REFUSED(p.cdf.rows[0] = -1, "first", "cdf.rows[0]");
    REFUSED(p.cdf.rows[1] = 20, "first", "cdf.rows[1]");
    REFUSED(p.cdf.rows[1] = 101, "first", "cdf.rows[1]");
    REFUSED(p.cdf.rows[1] = INFINITY, "first", "cdf.rows[1]");
    REFUSED(p.cdf.shares[1] = 0.4, "first", "cdf.shares[1]"); /* it falls */
    REFUSED(p.cdf.shares[1] = 0.9, "first", "cdf.shares[1]"); /* it ends too early */
    REFUSED(p.cdf.shares[0] = 1.5, "first", "cdf.shares[0]");
    REFUSED(p.cdf.shares[0] = NAN, "first", "cdf.shares[0]");
}

static void test_wrong_levels_are_refused(void **state)
{
    (void)state;
    REFUSED(p.levels[1].capacity_bytes = UINT64_MAX, "DRAM", "capacity_bytes");
    REFUSED(p.levels[1].bandwidth_bytes_per_s = NAN, "DRAM", "bandwidth_bytes_per_s");
    REFUSED(p.levels[1].bandwidth_bytes_per_s = 0, "DRAM", "bandwidth_bytes_per_s");
    REFUSED(p.levels[1].bandwidth_bytes_per_s = 1000, "DRAM", "HBM");
    REFUSED(p.levels[1].shared = false, "DRAM", "HBM");
}

static void test_wrong_rules_are_refused(void **state)
{
    (void)state;
    REFUSED(p.model.rule_count = 1; p.rules[0].kind = 9, "rule 0", "kind");
    REFUSED(p.model.rule_count = 1; p.rules[0].table = 2, "rule 0", "table");
    REFUSED(p.model.rule_count = 1; p.rules[0].memory = 3, "rule 0", "memory");
    REFUSED(p.model.rule_count = 1; p.rules[0].gpu = 2, "rule 0", "gpu");
    REFUSED(p.model.rule_count = 2; p.rules[1].kind = MODEL_RESERVE;
            p.rules[1].memory = 2, "rule 1", "memory");
    REFUSED(p.model.rule_count = 1; p.rules[0].kind = MODEL_TOGETHER;
            p.rules[0].other = 2, "rule 0", "other");
}

static void test_a_refusal_names_the_missing_bytes(void **state)
{
    (void)state;
    REFUSED(p.model.rule_count = 1; p.rules[0].memory = 0;
            p.levels[0].capacity_bytes = 990, "first", "990B, 10B too few");
    REFUSED(p.model.rule_count = 2;
            p.rules[1].table = 1, "level 'HBM' of GPU 0",
            "1.95KiB of 1000B, 1000B too many; the largest is table 'second' with 1000B");
    REFUSED(p.model.rule_count = 1;
            p.rules[0] = ((struct model_rule){ MODEL_RESERVE, 0, 0, 1, MODEL_ANY, 1501, NULL }),
            "DRAM", "reserves 1.47KiB of ");
    REFUSED(p.model.rule_count = 1;
            p.rules[0] = ((struct model_rule){ MODEL_FORBID, 0, 0, MODEL_ANY, MODEL_ANY, 0,
                                               "r.yaml:2: forbid[0]" }),
            "its rules leave it no place", "the last one is r.yaml:2: forbid[0]");
    REFUSED(p.levels[0].place = "m.yaml:2: gpus.hbm_bytes"; p.model.rule_count = 1;
            p.rules[0].memory = 0; p.levels[0].capacity_bytes = 990,
                                   "m.yaml:2: gpus.hbm_bytes: table 'first'", "10B too few");
    REFUSED(p.levels[0].capacity_bytes = p.levels[1].capacity_bytes = 400; p.model.rule_count = 2;
            for (uint32_t i = 0; i < 2; i++) p.rules[i] =
                ((struct model_rule){ MODEL_FORBID, i, 0, 2, MODEL_ANY, 0, NULL }),
            "out of the rest", "1.95KiB, but all levels have 1.17KiB, 800B too few");
    REFUSED(p.model.rule_count = 2; p.rules[0].memory = MODEL_ANY; p.rules[1].memory = MODEL_ANY;
            p.rules[1].gpu = 1, "first", "no place");
    REFUSED(p.tables[0].rows = EMBTIER_UNBOUNDED; p.model.rule_count = 1;
            p.rules[0].memory = 0, "first", "unbounded");
}

/* ---- finished placements ---- */

static enum embtier_err check(const struct plain *p, struct split_cut first,
                              struct split_cut second, const char *words)
{
    const struct split_cut cuts[] = { first, second };
    struct err_msg msg = { { 0 } };
    double largest_s, gpus_s[2];
    const enum embtier_err err = split_check(&p->model, cuts, &largest_s, gpus_s, &msg);

    if (err != EMBTIER_OK && !strstr(msg.text, words))
        fail_msg("'%s' has no '%s'", msg.text, words);
    return err;
}

static void test_the_check_finds_each_mistake(void **state)
{
    const struct split_cut none = { 0 };
    struct plain p;

    (void)state;
    make_plain(&p);
    assert_int_equal(
        check(&p, (struct split_cut){ 0, { 100 } }, (struct split_cut){ 1, { 100 } }, ""),
        EMBTIER_OK);
    assert_int_equal(
        check(&p, (struct split_cut){ 0, { 100 } }, (struct split_cut){ 0, { 1 } }, "26 too many"),
        EMBTIER_INVALID);
    assert_int_equal(check(&p, (struct split_cut){ 0, { 0, 100 } },
                           (struct split_cut){ 1, { 0, 20 } }, "20 too many"),
                     EMBTIER_INVALID);
    assert_int_equal(check(&p, (struct split_cut){ 0, { 50, 51 } }, none, "101 rows"),
                     EMBTIER_INVALID);
    assert_int_equal(check(&p, (struct split_cut){ 0, { UINT64_MAX, 2 } }, none, "rows"),
                     EMBTIER_INVALID);
    assert_int_equal(check(&p, (struct split_cut){ 2, { 0 } }, none, "GPU 2"), EMBTIER_INVALID);
    p.tables[0].unsplit = true;
    assert_int_equal(check(&p, (struct split_cut){ 0, { 20 } }, none, "split"), EMBTIER_INVALID);
    p.tables[1].rows = EMBTIER_UNBOUNDED;
    assert_int_equal(check(&p, none, (struct split_cut){ 0, { UINT64_C(1) << 50 } }, "rows"),
                     EMBTIER_INVALID);
}

static void test_the_check_holds_rules(void **state)
{
    const struct split_cut none = { 0 };
    struct plain p;

    (void)state;
    make_plain(&p);
    p.model.rule_count = 1;
    p.rules[0] = (struct model_rule){ MODEL_PIN, 0, 0, 0, MODEL_ANY, 0, NULL };
    assert_int_equal(check(&p, (struct split_cut){ 0, { 20 } }, none, "rule 0"), EMBTIER_INVALID);
    assert_int_equal(check(&p, (struct split_cut){ 0, { 100 } }, none, ""), EMBTIER_OK);
    p.rules[0] = (struct model_rule){ MODEL_FORBID, 0, 0, 1, 0, 0, NULL };
    assert_int_equal(check(&p, (struct split_cut){ 0, { 0, 1 } }, none, "rule 0"), EMBTIER_INVALID);
    assert_int_equal(check(&p, (struct split_cut){ 1, { 0, 1 } }, none, ""), EMBTIER_OK);
    p.rules[0] = (struct model_rule){ .kind = MODEL_TOGETHER, .other = 1 };
    assert_int_equal(check(&p, (struct split_cut){ 1, { 0 } }, none, "rule 0"), EMBTIER_INVALID);
    p.rules[0] = (struct model_rule){ MODEL_RESERVE, 0, 0, 1, MODEL_ANY, 1475, NULL };
    assert_int_equal(check(&p, (struct split_cut){ 0, { 0, 1 } }, none, "1 too many"),
                     EMBTIER_INVALID);
}

static void test_parts_add_up(void **state)
{
    const struct split_cut cut = { 0, { 10, 50 } };
    struct split_part parts[3];
    struct plain p;

    (void)state;
    make_plain(&p);
    split_parts(&p.model, 0, &cut, parts);
    assert_int_equal(parts[0].bytes, 260);
    assert_int_equal(parts[1].bytes, 50 * 26);
    assert_int_equal(parts[2].rows, 40);
    assert_int_equal(parts[2].bytes, 0);
    assert_true(fabs(parts[0].share - 0.25) < 1e-12 && fabs(parts[1].share - 0.5) < 1e-12);
    assert_true(fabs(parts[0].time_s - 20 * 0.25 * 4 / 100) < 1e-12);
    assert_true(fabs(parts[1].time_s - 20 * 0.5 * 4 / 10) < 1e-12);
    assert_true(fabs(parts[2].time_s - 20 * 0.25 * 1) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_counts_are_refused),
        cmocka_unit_test(test_wrong_tables_are_refused),
        cmocka_unit_test(test_wrong_curves_are_refused),
        cmocka_unit_test(test_wrong_levels_are_refused),
        cmocka_unit_test(test_wrong_rules_are_refused),
        cmocka_unit_test(test_a_refusal_names_the_missing_bytes),
        cmocka_unit_test(test_the_check_finds_each_mistake),
        cmocka_unit_test(test_the_check_holds_rules),
        cmocka_unit_test(test_parts_add_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
