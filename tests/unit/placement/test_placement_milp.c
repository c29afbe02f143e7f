/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the program for an outside solver has a point for each placement that is better than
 * the known one, and that its rows refuse what does not fit. */
#include "tests/unit/placement/placement_fixture.h"

#include <stdlib.h>

#include "placement/solve/milp.h"
#include "tests/forms.h"

#define CASES BY_BUILD(400, 100, 400)
#define SEED  99
#define CARE  1e-9

struct fixture {
    struct placement_case c;
    struct brute brute;
    struct instance *x;
    struct placing *known;
    struct bound *bound;
    struct milp *milp;
};

static void set_places(struct placing *placing, const uint32_t *table_places)
{
    const struct instance *const x = placing->x;

    for (uint32_t i = 0; i < x->model->table_count; i++)
        placing->places[x->item_of_table[i]] = table_places[i];
    placing_reload(placing);
}

/* The worst placement is the known one. False: this case has nothing to improve. */
static bool make(struct fixture *f, struct random *random)
{
    draw_case(random, &f->c);
    f->brute = brute_force_all(&f->c.model);
    if (isinf(f->brute.best_s) || f->brute.best_s >= f->brute.worst_s * (1 - CARE))
        return false;
    assert_int_equal(instance_new(&f->c.model, &f->x, NULL), EMBTIER_OK);
    assert_int_equal(placing_new(f->x, &f->known), EMBTIER_OK);
    set_places(f->known, f->brute.worst_places);
    assert_int_equal(bound_new(f->x, f->brute.worst_s, &f->bound), EMBTIER_OK);
    assert_int_equal(milp_new(f->known, f->bound, &f->milp), EMBTIER_OK);
    return true;
}

static void drop(struct fixture *f)
{
    milp_free(f->milp);
    bound_free(f->bound);
    placing_free(f->known);
    instance_free(f->x);
}

static bool rows_hold(const struct milp *milp, const double *values)
{
    for (uint32_t row = 0; row < milp->row_count; row++) {
        double sum = 0;

        for (uint32_t i = milp->row_starts[row]; i < milp->row_starts[row + 1]; i++)
            sum += milp->values[i] * values[milp->columns[i]];
        if (sum < milp->row_lower[row] - CARE || sum > milp->row_upper[row] + CARE)
            return false;
    }
    return true;
}

/* The point of a placement. False: a column of it is missing. */
static bool find_point(const struct fixture *f, const uint32_t *table_places, double time_s,
                       double *ret_values)
{
    uint32_t found = 0;

    set_places(f->known, table_places);
    ret_values[0] = time_s / f->brute.worst_s;
    for (uint32_t i = 1; i < f->milp->column_count; i++) {
        ret_values[i] = f->known->places[f->milp->items[i]] == f->milp->places[i];
        found += ret_values[i] > 0;
    }
    return found == f->x->item_count;
}

static void check_best(const struct fixture *f, double *values)
{
    assert_true(find_point(f, f->brute.best_places, f->brute.best_s, values));
    assert_true(values[0] >= f->milp->lower);
    assert_true(rows_hold(f->milp, values));
    assert_true(milp_decode(f->milp, values, f->known));
    assert_true(fabs(placing_largest_s(f->known) - f->brute.best_s) <= CARE * f->brute.best_s);
    values[0] *= 0.99; /* a claim of less time than it takes */
    assert_false(rows_hold(f->milp, values));
}

static void test_the_best_placement_stays(void **state)
{
    struct random random = { SEED };
    uint32_t checked = 0;

    (void)state;
    for (uint32_t i = 0; i < CASES; i++) {
        struct fixture f = { .x = NULL };
        double *values;

        if (!make(&f, &random))
            continue;
        values = calloc(f.milp->column_count, sizeof(*values));
        assert_non_null(values);
        assert_true(rows_hold(f.milp, f.milp->start));
        check_best(&f, values);
        free(values);
        drop(&f);
        checked++;
    }
    assert_true(checked > CASES / 2);
}

static void test_a_full_room_breaks_a_row(void **state)
{
    const struct model_table tables[] = {
        { .name = "a",
          .weight_bytes = 60,
          .bags_per_batch = 9,
          .pooling_factor = 1,
          .lookup_bytes = 4 },
        { .name = "b",
          .weight_bytes = 41,
          .bags_per_batch = 5,
          .pooling_factor = 1,
          .lookup_bytes = 4 },
    };
    const struct model_memory memories[] = { { "HBM", false, 100, 100, NULL },
                                             { "SSD", true, 999, 1, NULL } };
    struct fixture f = { .c.model = { tables, memories, NULL, 2, 2, 1, 0, NULL } };
    double values[5] = { 1, 0, 0, 0, 0 };

    (void)state;
    f.brute = brute_force_all(&f.c.model);
    assert_int_equal(instance_new(&f.c.model, &f.x, NULL), EMBTIER_OK);
    assert_int_equal(placing_new(f.x, &f.known), EMBTIER_OK);
    set_places(f.known, (const uint32_t[]){ 1, 1 });
    assert_int_equal(bound_new(f.x, 56, &f.bound), EMBTIER_OK);
    assert_int_equal(milp_new(f.known, f.bound, &f.milp), EMBTIER_OK);
    assert_int_equal(f.milp->column_count, 5);
    assert_true(find_point(&f, (const uint32_t[]){ 0, 1 }, 56, values));
    assert_true(rows_hold(f.milp, values));
    assert_true(find_point(&f, (const uint32_t[]){ 0, 0 }, 56, values));
    assert_false(rows_hold(f.milp, values));
    drop(&f);
}

static void test_an_item_without_a_place_is_no_answer(void **state)
{
    struct random random = { SEED };
    struct fixture f = { .x = NULL };
    double *values;

    (void)state;
    while (!make(&f, &random))
        ;
    values = calloc(f.milp->column_count, sizeof(*values));
    assert_non_null(values);
    assert_false(milp_decode(f.milp, values, f.known));
    for (uint32_t i = 0; i < f.milp->column_count; i++)
        values[i] = NAN;
    assert_false(milp_decode(f.milp, values, f.known));
    free(values);
    drop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_best_placement_stays),
        cmocka_unit_test(test_a_full_room_breaks_a_row),
        cmocka_unit_test(test_an_item_without_a_place_is_no_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
