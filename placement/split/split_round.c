/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/split/split_round.h"

#include <math.h>
#include <string.h>

#include "placement/split/split_check.h"

#define FILLS      512  /* steps that use free bytes, at most */
#define ROUNDED_UP 1e-6 /* of a row: a cut this near below a whole row is that row */

struct rounding {
    const struct split_draft *d;
    const struct split_instance *x;
    struct split_cut *cuts;
    uint64_t used_bytes[SPLIT_ROOMS_MAX];
    double gpus_s[MODEL_GPUS_MAX];
};

/* ---- one table ---- */

/* Rows in the levels up to this one. */
static uint64_t rows_to(const struct split_cut *cut, uint32_t level)
{
    uint64_t rows = 0;

    for (uint32_t m = 0; m <= level; m++)
        rows += cut->rows[m];
    return rows;
}

/* The rows that the table's curve has: all, or all that were seen of an unbounded table. */
static uint64_t known_rows(const struct split_instance *x, uint32_t table)
{
    const struct split_curve *const c = &x->curves[table];

    return (uint64_t)c->points[c->point_count - 1].rows;
}

static struct split_cut cut_of(const struct split_draft *d, uint32_t table)
{
    const struct split_use *const use = &d->uses[table];
    struct split_cut cut = { .gpu = split_draft_gpu(d, table) };
    const uint64_t most = known_rows(d->x, table);
    uint64_t before = 0;

    if (use->mode < d->x->level_count)
        cut.rows[use->mode] = d->x->model->tables[table].rows;
    for (uint32_t m = 0; use->mode == SPLIT_MIXED && m < d->x->level_count; m++) {
        const uint64_t end = MIN((uint64_t)floor(use->rows[m] + ROUNDED_UP), most);

        if (end > before) {
            cut.rows[m] = end - before;
            before = end;
        }
    }
    return cut;
}

static bool allows_level(const struct rounding *r, uint32_t table, uint32_t level)
{
    const struct split_instance *const x = r->x;

    return x->levels[(uint64_t)table * x->gpu_count + r->cuts[table].gpu] >> level & 1;
}

/* Adds the table's bytes and time to the sums, or takes them off. */
static void count(struct rounding *r, uint32_t table, int sign)
{
    const struct split_cut *const cut = &r->cuts[table];
    struct split_part parts[SPLIT_LEVELS_MAX + 1];

    split_parts(r->x->model, table, cut, parts);
    for (uint32_t m = 0; m <= r->x->level_count; m++)
        r->gpus_s[cut->gpu] += sign * parts[m].time_s;
    for (uint32_t m = 0; m < r->x->level_count; m++) {
        uint64_t *const used_bytes = &r->used_bytes[split_room(r->x, m, cut->gpu)];

        *used_bytes = sign > 0 ? *used_bytes + parts[m].bytes : *used_bytes - parts[m].bytes;
    }
}

static void change(struct rounding *r, uint32_t table, const struct split_cut *cut)
{
    count(r, table, -1);
    r->cuts[table] = *cut;
    count(r, table, 1);
}

/* ---- too full ---- */

/* The level that rows leave this one for; level_count: the rest; more: there is none. A table whose
 * last rows are to stay in levels has no way into the rest. */
static uint32_t next_level(const struct rounding *r, uint32_t table, uint32_t level)
{
    uint32_t next = level + 1;

    while (next <= r->x->level_count && !allows_level(r, table, next))
        next++;
    return next;
}

/* Finds the mixed table whose coldest row in the room is read least. False: none is there. */
static bool find_coldest(const struct rounding *r, uint32_t level, uint32_t room,
                         uint32_t *ret_table)
{
    double least = INFINITY;

    for (uint32_t i = 0; i < r->x->table_count; i++) {
        const struct split_curve *const c = &r->x->curves[i];
        const struct split_cut *const cut = &r->cuts[i];
        double density;

        if (r->d->uses[i].mode != SPLIT_MIXED || cut->rows[level] == 0 ||
            split_room(r->x, level, cut->gpu) != room ||
            next_level(r, i, level) > r->x->level_count)
            continue;
        density = split_curve_at(c, (double)rows_to(cut, level)).read_slope / c->row_bytes;
        if (density < least) {
            least = density;
            *ret_table = i;
        }
    }
    return !isinf(least);
}

static void make_room(struct rounding *r, uint32_t level, uint32_t room)
{
    uint32_t table = 0;

    while (r->used_bytes[room] > r->x->room_bytes[room] && find_coldest(r, level, room, &table)) {
        const uint64_t excess = r->used_bytes[room] - r->x->room_bytes[room];
        struct split_cut cut = r->cuts[table];
        const uint64_t rows =
            MIN(div_round_up(excess, (uint64_t)r->x->curves[table].row_bytes), cut.rows[level]);
        const uint32_t next = next_level(r, table, level);

        cut.rows[level] -= rows;
        if (next < r->x->level_count)
            cut.rows[next] += rows;
        change(r, table, &cut);
    }
}

/* ---- free bytes ---- */

struct step {
    double gain; /* seconds for a byte */
    uint32_t table;
    struct split_cut cut; /* with the step taken */
};

/* The level after @level that has rows of the table; level_count: the rest. */
static uint32_t next_used(const struct rounding *r, const struct split_cut *cut, uint32_t level)
{
    uint32_t next = level + 1;

    while (next < r->x->level_count && cut->rows[next] == 0)
        next++;
    return next;
}

static void look_at(const struct rounding *r, uint32_t table, uint32_t level, struct step *best)
{
    const struct split_instance *const x = r->x;
    const struct split_curve *const c = &x->curves[table];
    struct split_cut cut = r->cuts[table];
    const uint32_t room = split_room(x, level, cut.gpu), next = next_used(r, &cut, level);
    const uint64_t free_rows =
        (x->room_bytes[room] - MIN(r->used_bytes[room], x->room_bytes[room])) /
        (uint64_t)c->row_bytes;
    const uint64_t end = rows_to(&cut, level), known = known_rows(x, table);
    const uint64_t left = next < x->level_count ? cut.rows[next] : known - MIN(end, known);
    const struct split_point after = split_curve_at(c, (double)end + 1);
    const double slow_s =
        next < x->level_count ? after.read_slope / x->bandwidths[next] : after.rest_slope;
    const double gain = (slow_s - after.read_slope / x->bandwidths[level]) / c->row_bytes;
    const struct split_point *p = c->points;
    uint64_t rows;

    if (!allows_level(r, table, level) || free_rows == 0 || left == 0 || !(gain > best->gain))
        return;
    while (p->rows < (double)end + 1)
        p++;
    rows = MIN(MIN(free_rows, left), (uint64_t)p->rows - end);
    cut.rows[level] += rows;
    if (next < x->level_count)
        cut.rows[next] -= rows;
    *best = (struct step){ gain, table, cut };
}

static bool is_too_full(const struct rounding *r)
{
    for (uint32_t i = 0; i < r->x->room_count; i++)
        if (r->used_bytes[i] > r->x->room_bytes[i])
            return true;
    return false;
}

static uint32_t slowest_gpu(const struct rounding *r)
{
    uint32_t slowest = 0;

    for (uint32_t g = 1; g < r->x->gpu_count; g++)
        if (r->gpus_s[g] > r->gpus_s[slowest])
            slowest = g;
    return slowest;
}

/* Takes the step that helps the slowest GPU most. False: none helps. */
static bool use_free_bytes(struct rounding *r)
{
    const uint32_t gpu = slowest_gpu(r);
    struct step best = { 0 };
    struct split_cut before;

    for (uint32_t i = 0; i < r->x->table_count; i++)
        for (uint32_t m = 0; m < r->x->level_count; m++)
            if (r->cuts[i].gpu == gpu && r->d->uses[i].mode == SPLIT_MIXED)
                look_at(r, i, m, &best);
    if (!(best.gain > 0))
        return false;
    before = r->cuts[best.table];
    change(r, best.table, &best.cut);
    if (!is_too_full(r))
        return true;
    change(r, best.table, &before); /* it was whole, and needs a remap now */
    return false;
}

void split_round(const struct split_draft *d, struct split_cut *ret_cuts)
{
    struct rounding r = { .d = d, .x = d->x, .cuts = ret_cuts };
    const struct split_instance *const x = d->x;

    for (uint32_t i = 0; i < x->table_count; i++) {
        ret_cuts[i] = cut_of(d, i);
        count(&r, i, 1);
    }
    for (uint32_t m = 0; m < x->level_count; m++)
        for (uint32_t g = 0; g < (m == x->private_level ? x->gpu_count : 1); g++)
            make_room(&r, m, split_room(x, m, g));
    for (uint32_t i = 0; i < FILLS && !is_too_full(&r) && use_free_bytes(&r); i++)
        ;
}
