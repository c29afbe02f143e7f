/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated models have the statistics that they claim, and reference plans are what they are
 * called (tests/bench/lib). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "placement/planner/homes_search.h"
#include "tests/bench/lib/plans/reference_plans.h"
#include "tests/bench/lib/plans/simulated_model.h"

#define SEED   3
#define TABLES 160

struct simulation {
    struct simulated_model *model;
    struct workload *workload;
    struct planning *planning;
    struct rules rules;
    uint32_t places[TABLES];
    struct evaluation evaluation;
};

static void set_up(struct simulation *s, const struct locality_published *published)
{
    struct err_msg msg;

    memset(s, 0, sizeof(*s));
    s->rules.moved_bytes_max = UINT64_MAX;
    s->model = simulated_model_new(published, SEED, TABLES);
    assert_int_equal(workload_new(s->model->profile, s->model->optimizers,
                                  s->model->samples_per_batch, &s->workload, &msg),
                     EMBTIER_OK);
}

static void make_planning(struct simulation *s)
{
    struct err_msg msg;

    assert_int_equal(
        planning_new(s->workload, &s->model->machine, &s->rules, NULL, &s->planning, &msg),
        EMBTIER_OK);
}

static void tear_down(struct simulation *s)
{
    planning_free(s->planning);
    workload_free(s->workload);
    simulated_model_free(s->model);
}

static void make(struct simulation *s, enum reference_plan plan)
{
    struct err_msg msg;

    assert_int_equal(reference_plan_make(s->planning, plan, s->places, &s->evaluation, &msg),
                     EMBTIER_OK);
}

static uint32_t memory_of(const struct simulation *s, uint32_t table)
{
    return s->places[table] / s->planning->model.gpu_count;
}

static uint32_t cache_of(const struct simulation *s)
{
    return machine_cache(s->planning->machine);
}

static double read_bytes(const struct simulation *s, uint32_t table)
{
    return s->workload->tables[table].lookups * s->workload->tables[table].weight_bytes;
}

/* ---- Models ---- */

/* Small tables have fewer rows than their lookups would use otherwise, so there may be fewer. */
static void test_a_batch_uses_about_as_many_rows_as_published(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < LOCALITY_PUBLISHED_COUNT; i++) {
        const struct locality_published *const published = &locality_published[i];
        const double share = published->rows / published->lookups;
        double rows = 0, lookups = 0;
        struct simulation s;

        set_up(&s, published);
        for (uint32_t t = 0; t < TABLES; t++) {
            rows += s.model->profile->tables[t].summary.batch_rows;
            lookups += s.workload->tables[t].lookups;
        }
        assert_true(rows / lookups < 1.3 * share);
        assert_true(rows / lookups > 0.4 * share);
        tear_down(&s);
    }
}

static void test_all_rows_of_a_table_with_cold_rows_are_looked_up(void **state)
{
    uint32_t larger = 0;
    struct simulation s;

    (void)state;
    set_up(&s, &locality_published[0]);
    for (uint32_t t = 0; t < TABLES; t++) {
        const struct measured_table *const table = &s.model->profile->tables[t];
        const struct access_cdf *const cdf = &table->cdf;

        assert_true(cdf->rows[cdf->point_count - 1] <= (double)table->table.rows);
        if (table->table.rows < 1000000)
            continue;
        larger++;
        assert_true(cdf->rows[cdf->point_count - 1] == (double)table->table.rows);
        assert_true(fabs(table->summary.rows - (double)table->table.rows) < 1);
    }
    assert_true(larger > 3);
    tear_down(&s);
}

/* Sums up, over all rows, the bytes that are younger than @age batches. A curve's piece has rows of
 * one rate, or nearly so. @ret_hits: the share of each table's lookups of such rows. */
static double bytes_younger(const struct simulation *s, double age, double *ret_hits)
{
    double bytes = 0;

    for (uint32_t t = 0; t < TABLES; t++) {
        const struct access_cdf *const cdf = &s->model->profile->tables[t].cdf;
        const struct work_table *const table = &s->workload->tables[t];

        ret_hits[t] = 0;
        for (uint32_t i = 0; i < cdf->point_count; i++) {
            const double rows = cdf->rows[i] - (i > 0 ? cdf->rows[i - 1] : 0);
            const double share = cdf->shares[i] - (i > 0 ? cdf->shares[i - 1] : 0);
            const double young = -expm1(-share * table->lookups / rows * age);

            bytes += rows * young * table->row_bytes;
            ret_hits[t] += share * young;
        }
    }
    return bytes;
}

/* Che's approximation, from the curves alone, which may take some classes of rows as one. */
static void test_hit_rates_are_those_of_rows_that_come_at_random(void **state)
{
    struct table_prediction predictions[TABLES];
    double row_bytes[TABLES], hits[TABLES], low = 0, high = 1e9;
    struct simulation s;
    struct cache_tiers tiers = { .count = 1 };
    struct err_msg msg;

    (void)state;
    set_up(&s, &locality_published[0]);
    tiers.bytes[0] = (double)s.model->machine.tiers[0].bytes;
    for (uint32_t t = 0; t < TABLES; t++)
        row_bytes[t] = s.workload->tables[t].row_bytes;
    assert_int_equal(
        measured_profile_predict(s.model->profile, row_bytes, &tiers, predictions, &msg),
        EMBTIER_OK);
    for (int i = 0; i < 100; i++) {
        const double age = (low + high) / 2;

        if (bytes_younger(&s, age, hits) < tiers.bytes[0])
            low = age;
        else
            high = age;
    }
    for (uint32_t t = 0; t < TABLES; t++)
        assert_true(fabs(predictions[t].hit_rates[0] - hits[t]) < 0.02);
    tear_down(&s);
}

static void test_the_same_numbers_give_the_same_model(void **state)
{
    struct simulation a, b;

    (void)state;
    set_up(&a, &locality_published[1]);
    set_up(&b, &locality_published[1]);
    for (uint32_t t = 0; t < TABLES; t++) {
        const struct measured_table *const x = &a.model->profile->tables[t];
        const struct measured_table *const y = &b.model->profile->tables[t];

        assert_memory_equal(&x->cdf, &y->cdf, sizeof(x->cdf));
        assert_int_equal(x->bin_count, y->bin_count);
        assert_memory_equal(x->bins, y->bins, x->bin_count * sizeof(*x->bins));
    }
    tear_down(&a);
    tear_down(&b);
}

/* ---- Plans ---- */

static void test_all_tables_may_be_cached(void **state)
{
    struct simulation s;

    (void)state;
    set_up(&s, &locality_published[0]);
    make_planning(&s);
    make(&s, REFERENCE_CACHED);
    for (uint32_t t = 0; t < TABLES; t++)
        assert_int_equal(memory_of(&s, t), cache_of(&s));
    assert_int_equal(s.evaluation.cache_bytes[0], s.model->machine.tiers[0].bytes);
    tear_down(&s);
}

/* No table is in faster memory than a smaller one. Returns the number of tables outside HBM. */
static uint32_t check_smallest_first(const struct simulation *s)
{
    uint32_t outside = 0;

    for (uint32_t t = 0; t < TABLES; t++) {
        outside += memory_of(s, t) != 0;
        for (uint32_t u = 0; u < TABLES; u++)
            if (memory_of(s, t) < memory_of(s, u))
                assert_true(model_table_bytes(&s->planning->tables[t]) <=
                            model_table_bytes(&s->planning->tables[u]));
    }
    return outside;
}

static void test_the_smallest_tables_are_in_the_fastest_memory(void **state)
{
    struct simulation s;
    uint32_t outside;

    (void)state;
    set_up(&s, &locality_published[0]);
    make_planning(&s);
    make(&s, REFERENCE_SIZES);
    outside = check_smallest_first(&s);
    assert_true(outside > 0 && outside < TABLES);
    tear_down(&s);
}

/* A table of which a batch reads more than of one in HBM was too large for what HBM had left. */
static void test_tables_that_are_read_most_are_in_the_fastest_memory(void **state)
{
    struct simulation s;
    uint32_t outside = 0;

    (void)state;
    set_up(&s, &locality_published[0]);
    make_planning(&s);
    make(&s, REFERENCE_BANDWIDTH);
    for (uint32_t t = 0; t < TABLES; t++) {
        uint64_t before = 0;

        if (memory_of(&s, t) == 0)
            continue;
        outside++;
        for (uint32_t u = 0; u < TABLES; u++)
            if (memory_of(&s, u) == 0 && read_bytes(&s, u) > read_bytes(&s, t))
                before += model_table_bytes(&s.planning->tables[u]);
        assert_true(before + MODEL_GPUS_MAX * model_table_bytes(&s.planning->tables[t]) >
                    s.model->machine.hbm_bytes);
    }
    assert_true(outside > 0 && outside < TABLES);
    tear_down(&s);
}

/* With room for all, TorchRec's partitioner is longest time first. */
static void test_torchrec_gives_the_longest_table_to_the_least_loaded_gpu(void **state)
{
    double loads[MODEL_GPUS_MAX] = { 0 };
    bool is_dealt[TABLES] = { false };
    struct simulation s;

    (void)state;
    set_up(&s, &locality_published[0]);
    s.model->machine.hbm_bytes = UINT64_C(1) << 50;
    make_planning(&s);
    make(&s, REFERENCE_TORCHREC);
    for (uint32_t i = 0; i < TABLES; i++) {
        uint32_t longest = TABLES, least = 0;

        for (uint32_t t = 0; t < TABLES; t++)
            if (!is_dealt[t] && (longest == TABLES || read_bytes(&s, t) > read_bytes(&s, longest)))
                longest = t;
        for (uint32_t g = 1; g < s.model->machine.gpu_count; g++)
            if (loads[g] < loads[least])
                least = g;
        assert_int_equal(s.places[longest], least);
        loads[least] += s.planning->times_s[longest * s.planning->model.memory_count];
        is_dealt[longest] = true;
    }
    tear_down(&s);
}

/* Whole proposals differ in the number of largest tables that leave HBM. */
static void test_torchrec_takes_the_largest_tables_out_of_hbm(void **state)
{
    struct simulation s;
    uint32_t outside;

    (void)state;
    set_up(&s, &locality_published[0]);
    s.model->machine.hbm_bytes /= 16;
    s.model->machine.tiers[0].bytes /= 16;
    make_planning(&s);
    make(&s, REFERENCE_TORCHREC);
    outside = check_smallest_first(&s);
    assert_true(outside > 0 && outside < TABLES);
    tear_down(&s);
}

static void test_a_plan_is_no_worse_than_the_references(void **state)
{
    const struct homes_search_opts opts = { .seed = SEED };
    struct homes *homes = NULL;
    struct simulation s;
    struct err_msg msg;

    (void)state;
    set_up(&s, &locality_published[0]);
    make_planning(&s);
    assert_int_equal(homes_search(s.planning, &opts, &homes, &msg), EMBTIER_OK);
    for (uint32_t i = 0; i < REFERENCE_PLANS; i++) {
        make(&s, i);
        assert_true(homes->evaluation.samples_per_s >= s.evaluation.samples_per_s);
    }
    homes_free(homes);
    tear_down(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_batch_uses_about_as_many_rows_as_published),
        cmocka_unit_test(test_all_rows_of_a_table_with_cold_rows_are_looked_up),
        cmocka_unit_test(test_hit_rates_are_those_of_rows_that_come_at_random),
        cmocka_unit_test(test_the_same_numbers_give_the_same_model),
        cmocka_unit_test(test_all_tables_may_be_cached),
        cmocka_unit_test(test_the_smallest_tables_are_in_the_fastest_memory),
        cmocka_unit_test(test_tables_that_are_read_most_are_in_the_fastest_memory),
        cmocka_unit_test(test_torchrec_gives_the_longest_table_to_the_least_loaded_gpu),
        cmocka_unit_test(test_torchrec_takes_the_largest_tables_out_of_hbm),
        cmocka_unit_test(test_a_plan_is_no_worse_than_the_references),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
