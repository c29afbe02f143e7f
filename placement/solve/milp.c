/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/solve/milp.h"

#include <math.h>
#include <stdlib.h>

#define BOUND_CARE 1e-9 /* far more than the rounding of costs */

void milp_free(struct milp *milp)
{
    if (!milp)
        return;
    free(milp->start);
    free(milp->row_lower);
    free(milp->row_upper);
    free(milp->row_starts);
    free(milp->columns);
    free(milp->values);
    free(milp->items);
    free(milp->places);
    free(milp);
}

/* ---- places that stay ---- */

struct choice {
    const struct instance *x;
    const struct bound *bound;
    const struct placing *known;
    double limit_s; /* the known answer's time */
    double base_s;  /* the sum of all least costs, without the rooms' prices */
    double weights;
    double *least_costs_s; /* item_count */
};

static bool is_below_limit(const struct choice *c, uint32_t item, uint32_t place)
{
    return instance_allows(c->x, item, place) && instance_time_s(c->x, item, place) < c->limit_s;
}

static double least_cost_s(const struct choice *c, uint32_t item)
{
    double least_s = INFINITY;

    for (uint32_t p = 0; p < c->x->place_count; p++)
        if (is_below_limit(c, item, p))
            least_s = fmin(least_s, bound_cost_s(c->x, c->bound, item, p));
    return isinf(least_s) ? 0 : least_s;
}

static void measure(struct choice *c)
{
    for (uint32_t i = 0; i < c->x->item_count; i++) {
        c->least_costs_s[i] = least_cost_s(c, i);
        c->base_s += c->least_costs_s[i];
    }
    for (uint32_t r = 0; r < c->x->room_count; r++)
        c->base_s -= c->bound->prices_s_byte[r] * (double)c->x->room_bytes[r];
    for (uint32_t g = 0; g < c->x->gpu_count; g++)
        c->weights += c->bound->weights[g];
}

static bool stays(const struct choice *c, uint32_t item, uint32_t place)
{
    double proven_s;

    if (c->known->places[item] == place)
        return true;
    if (!is_below_limit(c, item, place))
        return false;
    proven_s = c->base_s + bound_cost_s(c->x, c->bound, item, place) - c->least_costs_s[item];
    return proven_s * (1 - BOUND_CARE) <= c->limit_s * c->weights;
}

/* ---- columns ---- */

static uint32_t count_columns(const struct choice *c)
{
    uint32_t count = 1;

    for (uint32_t i = 0; i < c->x->item_count; i++)
        for (uint32_t p = 0; p < c->x->place_count; p++)
            count += stays(c, i, p);
    return count;
}

/* Columns lie by item, then by place. */
static void fill_columns(struct milp *milp, const struct choice *c)
{
    uint32_t column = 1;

    milp->start[0] = 1;
    for (uint32_t i = 0; i < c->x->item_count; i++)
        for (uint32_t p = 0; p < c->x->place_count; p++)
            if (stays(c, i, p)) {
                milp->items[column] = i;
                milp->places[column] = p;
                milp->start[column] = c->known->places[i] == p;
                column++;
            }
}

/* ---- rows ---- */

static void add_entry(struct milp *milp, uint32_t column, double value)
{
    milp->columns[milp->entry_count] = column;
    milp->values[milp->entry_count] = value;
    milp->entry_count++;
}

static void end_row(struct milp *milp, double lower, double upper)
{
    milp->row_lower[milp->row_count] = lower;
    milp->row_upper[milp->row_count] = upper;
    milp->row_count++;
    milp->row_starts[milp->row_count] = milp->entry_count;
}

static double share_of_limit(const struct milp *milp, const struct choice *c, uint32_t column)
{
    return instance_time_s(c->x, milp->items[column], milp->places[column]) / c->limit_s;
}

/* Each item has one place, and its time there bounds the largest. The second row is left out where
 * the bound of column 0 says as much. */
static void add_item_rows(struct milp *milp, const struct choice *c)
{
    uint32_t first = 1;

    while (first < milp->column_count) {
        uint32_t end = first;
        double longest = 0;

        for (; end < milp->column_count && milp->items[end] == milp->items[first]; end++) {
            add_entry(milp, end, 1);
            longest = fmax(longest, share_of_limit(milp, c, end));
        }
        end_row(milp, 1, 1);
        if (longest > milp->lower) {
            add_entry(milp, 0, -1);
            for (uint32_t column = first; column < end; column++)
                add_entry(milp, column, share_of_limit(milp, c, column));
            end_row(milp, -INFINITY, 0);
        }
        first = end;
    }
}

static void add_gpu_rows(struct milp *milp, const struct choice *c)
{
    for (uint32_t g = 0; g < c->x->gpu_count; g++) {
        add_entry(milp, 0, -1);
        for (uint32_t column = 1; column < milp->column_count; column++)
            if (instance_gpu(c->x, milp->places[column]) == g)
                add_entry(milp, column, share_of_limit(milp, c, column));
        end_row(milp, -INFINITY, 0);
    }
}

static void add_room_rows(struct milp *milp, const struct choice *c)
{
    for (uint32_t r = 0; r < c->x->room_count; r++) {
        const double room_bytes = fmax((double)c->x->room_bytes[r], 1);

        for (uint32_t column = 1; column < milp->column_count; column++)
            if (c->x->room_of_place[milp->places[column]] == r)
                add_entry(milp, column, (double)c->x->bytes[milp->items[column]] / room_bytes);
        end_row(milp, -INFINITY, 1);
    }
}

/* ---- all ---- */

static enum embtier_err allocate(struct milp *milp, const struct choice *c)
{
    const uint64_t rows = 2 * (uint64_t)c->x->item_count + c->x->gpu_count + c->x->room_count;
    /* A column is in both rows of its item, in its GPU's and in its room's. */
    const uint64_t entries = 4 * (uint64_t)milp->column_count + c->x->gpu_count + c->x->item_count;

    milp->start = calloc(milp->column_count, sizeof(*milp->start));
    milp->items = calloc(milp->column_count, sizeof(*milp->items));
    milp->places = calloc(milp->column_count, sizeof(*milp->places));
    milp->row_lower = calloc(rows, sizeof(*milp->row_lower));
    milp->row_upper = calloc(rows, sizeof(*milp->row_upper));
    milp->row_starts = calloc(rows + 1, sizeof(*milp->row_starts));
    milp->columns = calloc(entries, sizeof(*milp->columns));
    milp->values = calloc(entries, sizeof(*milp->values));
    if (!milp->start || !milp->items || !milp->places || !milp->row_lower || !milp->row_upper ||
        !milp->row_starts || !milp->columns || !milp->values)
        return EMBTIER_NO_MEMORY;
    return EMBTIER_OK;
}

enum embtier_err milp_new(const struct placing *known, const struct bound *bound,
                          struct milp **ret_milp)
{
    _cleanup_(milp_freep) struct milp *milp = calloc(1, sizeof(*milp));
    _cleanup_(freep) double *least_costs_s = calloc(known->x->item_count, sizeof(double));
    struct choice c = { .x = known->x,
                        .bound = bound,
                        .known = known,
                        .limit_s = placing_largest_s(known),
                        .least_costs_s = least_costs_s };

    if (!milp || !least_costs_s)
        return EMBTIER_NO_MEMORY;
    measure(&c);
    milp->column_count = count_columns(&c);
    if (milp->column_count > MILP_COLUMNS_MAX)
        return EMBTIER_TOO_LARGE;
    milp->lower = fmin(bound->bound_s / c.limit_s, 1) * (1 - BOUND_CARE);
    TRY(allocate(milp, &c));
    fill_columns(milp, &c);
    add_item_rows(milp, &c);
    add_gpu_rows(milp, &c);
    add_room_rows(milp, &c);
    *ret_milp = TAKE(milp);
    return EMBTIER_OK;
}

bool milp_decode(const struct milp *milp, const double *values, struct placing *placing)
{
    for (uint32_t i = 0; i < placing->x->item_count; i++)
        placing->places[i] = PLACING_NONE;
    for (uint32_t column = 1; column < milp->column_count; column++)
        if (values[column] > 0.5)
            placing->places[milp->items[column]] = milp->places[column];
    placing_reload(placing);
    return placing_is_whole(placing);
}
