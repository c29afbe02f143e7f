/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that mistakes in a model are found and named, and that assignments are judged to the
 * byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "placement/model/assignment.h"
#include "placement/model/instance.h"

struct fixture {
    struct model model;
    struct model_table tables[2];
    struct model_memory memories[2];
    struct model_rule rules[1];
};

static void make_good(struct fixture *f)
{
    f->tables[0] = (struct model_table){ "clicks", 100, 20, 3, 10, 2.5, 8 }; /* reads 200 */
    f->tables[1] = (struct model_table){ "users", 50, 0, 0, 1, 0.3, 10 };    /* reads 3 */
    f->memories[0] = (struct model_memory){ "HBM", false, 123, 100, NULL };
    f->memories[1] = (struct model_memory){ "SSD", true, 173, 20, NULL };
    f->rules[0] = (struct model_rule){ .kind = MODEL_RESERVE, .memory = 1, .gpu = MODEL_ANY };
    f->model = (struct model){ f->tables, f->memories, f->rules, 2, 2, 2, 1, NULL };
}

static void assert_refused(const struct fixture *f, const char *reason)
{
    struct err_msg msg = { { 0 } };

    assert_int_equal(model_check(&f->model, &msg), EMBTIER_INVALID);
    if (!strstr(msg.text, reason))
        fail_msg("`%s` does not hold `%s`", msg.text, reason);
}

#define ASSERT_REFUSED(field, value, reason)                                                       \
    do {                                                                                           \
        struct fixture _f;                                                                         \
        make_good(&_f);                                                                            \
        _f.field = (value);                                                                        \
        assert_refused(&_f, (reason));                                                             \
    } while (0)

static void test_mistakes_name_table_memory_and_key(void **state)
{
    struct fixture f;

    (void)state;
    make_good(&f);
    assert_int_equal(model_check(&f.model, NULL), EMBTIER_OK);
    ASSERT_REFUSED(memories[1].bandwidth_bytes_per_s, 0,
                   "memory 'SSD': bandwidth_bytes_per_s: 0; allowed: 1 to 1e+18");
    ASSERT_REFUSED(memories[0].bandwidth_bytes_per_s, NAN, "memory 'HBM': bandwidth_bytes_per_s");
    ASSERT_REFUSED(memories[0].bandwidth_bytes_per_s, -5, "memory 'HBM': bandwidth_bytes_per_s");
    ASSERT_REFUSED(memories[0].bandwidth_bytes_per_s, INFINITY, "bandwidth_bytes_per_s: inf");
    ASSERT_REFUSED(memories[0].capacity_bytes, UINT64_MAX, "memory 'HBM': capacity_bytes");
    ASSERT_REFUSED(tables[0].pooling_factor, NAN, "table 'clicks': pooling_factor: nan");
    ASSERT_REFUSED(tables[1].pooling_factor, -1, "table 'users': pooling_factor: -1");
    ASSERT_REFUSED(tables[1].bags_per_batch, INFINITY, "table 'users': bags_per_batch: inf");
    ASSERT_REFUSED(tables[1].bags_per_batch, 7e13,
                   "bags_per_batch * pooling_factor * lookup_bytes");
    ASSERT_REFUSED(tables[0].weight_bytes, UINT64_MAX, "table 'clicks': weight_bytes");
    ASSERT_REFUSED(tables[0].state_bytes, UINT64_MAX - 5, "table 'clicks': state_bytes");
    ASSERT_REFUSED(tables[0].remap_bytes, UINT64_C(1) << 60, "table 'clicks': remap_bytes");
    ASSERT_REFUSED(tables[1].weight_bytes, 0, "table 'users': weight_bytes: 0");
    ASSERT_REFUSED(model.gpu_count, 0, "gpus: 0; allowed: 1 to 64");
    ASSERT_REFUSED(model.table_count, UINT32_MAX, "tables: 4294967295");
    ASSERT_REFUSED(model.memory_count, 9, "memories: 9");
    ASSERT_REFUSED(model.rule_count, UINT32_MAX, "rules: 4294967295");
}

static void test_times_of_a_model(void **state)
{
    const uint32_t places[] = { 0, 3 }; /* HBM of GPU 0, SSD of GPU 1 */
    double times_s[] = { 2, 100, 100, 5 };
    double gpus_s[2], largest_s;
    struct fixture f;
    struct err_msg msg;

    (void)state;
    make_good(&f);
    f.model.rule_count = 0;
    f.model.times_s = times_s;
    assert_int_equal(assignment_check(&f.model, places, &largest_s, gpus_s, &msg), EMBTIER_OK);
    assert_true(gpus_s[0] == 2 && gpus_s[1] == 5 && largest_s == 5);
    assert_int_equal(model_check(&f.model, &msg), EMBTIER_OK);
    times_s[3] = NAN;
    assert_int_equal(model_check(&f.model, &msg), EMBTIER_INVALID);
    assert_non_null(strstr(msg.text, "table 'users': time in memory 'SSD': nan s; allowed: 0 to"));
}

static void test_mistakes_in_rules(void **state)
{
    (void)state;
    ASSERT_REFUSED(rules[0].memory, 2, "rule 0: memory: 2; allowed: 0 to 1");
    ASSERT_REFUSED(rules[0].memory, MODEL_ANY, "rule 0: memory: 4294967295");
    ASSERT_REFUSED(rules[0].gpu, 2, "rule 0: gpu: 2");
    ASSERT_REFUSED(rules[0].kind, 17, "rule 0: unknown kind 17");
    ASSERT_REFUSED(rules[0], ((struct model_rule){ .kind = MODEL_PIN, .table = 2 }),
                   "rule 0: table: 2");
    ASSERT_REFUSED(rules[0], ((struct model_rule){ .kind = MODEL_TOGETHER, .other = 3 }),
                   "rule 0: other: 3");
}

static void test_more_reserved_than_there_is(void **state)
{
    struct instance *x = NULL;
    struct err_msg msg = { { 0 } };
    struct fixture f;

    (void)state;
    make_good(&f);
    f.rules[0].bytes = 174;
    assert_int_equal(instance_new(&f.model, &x, &msg), EMBTIER_INVALID);
    assert_string_equal(msg.text, "rule 0: reserves 174B of memory 'SSD', where 173B are left");
}

/* ---- assignments ---- */

static void test_times_are_those_of_the_equation(void **state)
{
    const uint32_t places[] = { 0, 3 }; /* HBM of GPU 0, SSD of GPU 1 */
    double largest_s, gpus_s[2];
    struct fixture f;

    (void)state;
    make_good(&f);
    assert_int_equal(assignment_check(&f.model, places, &largest_s, gpus_s, NULL), EMBTIER_OK);
    assert_true(gpus_s[0] == 200.0 / 100);
    assert_true(gpus_s[1] == 3.0 / (20.0 / 2));
    assert_true(largest_s == 2.0);
}

static void assert_broken(const struct fixture *f, const uint32_t *places, const char *reason)
{
    struct err_msg msg = { { 0 } };
    double largest_s;

    assert_int_equal(assignment_check(&f->model, places, &largest_s, NULL, &msg), EMBTIER_INVALID);
    if (!strstr(msg.text, reason))
        fail_msg("`%s` does not hold `%s`", msg.text, reason);
}

static void test_one_byte_too_many_is_too_many(void **state)
{
    const uint32_t hbm[] = { 0, 3 }, ssd[] = { 2, 3 };
    double largest_s;
    struct fixture f;

    (void)state;
    make_good(&f);
    assert_int_equal(assignment_check(&f.model, ssd, &largest_s, NULL, NULL), EMBTIER_OK);
    f.rules[0].bytes = 1;
    assert_broken(&f, ssd, "memory 'SSD': the tables take 173 bytes of 172, 1 too many");
    f.tables[0].remap_bytes++;
    assert_broken(&f, hbm, "memory 'HBM': the tables take 124 bytes of 123, 1 too many");
    f.rules[0].bytes = UINT64_MAX;
    assert_broken(&f, (const uint32_t[]){ 1, 2 }, "too many");
}

static void test_broken_rules_are_found(void **state)
{
    const uint32_t places[] = { 0, 3 };
    struct fixture f;

    (void)state;
    make_good(&f);
    f.rules[0] = (struct model_rule){ .kind = MODEL_PIN, .table = 1, .memory = 0, .gpu = 1 };
    assert_broken(&f, places, "rule 0: table 'users' breaks it");
    f.rules[0] =
        (struct model_rule){ .kind = MODEL_FORBID, .table = 0, .memory = 0, .gpu = MODEL_ANY };
    assert_broken(&f, places, "rule 0: table 'clicks' breaks it");
    f.rules[0] = (struct model_rule){ .kind = MODEL_TOGETHER, .table = 0, .other = 1 };
    assert_broken(&f, places, "rule 0: table 'clicks' breaks it");
    assert_broken(&f, (const uint32_t[]){ 0, 4 }, "table 'users': there is no place 4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mistakes_name_table_memory_and_key),
        cmocka_unit_test(test_times_of_a_model),
        cmocka_unit_test(test_mistakes_in_rules),
        cmocka_unit_test(test_more_reserved_than_there_is),
        cmocka_unit_test(test_times_are_those_of_the_equation),
        cmocka_unit_test(test_one_byte_too_many_is_too_many),
        cmocka_unit_test(test_broken_rules_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
