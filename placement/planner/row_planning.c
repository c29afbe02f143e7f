/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/planner/row_planning.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/spec/array_shape.h"
#include "base/text/text_escape.h"

/* Rows of a file have nine digits. */
#define SEEN_ROUNDING 1e-8
/* Points of a CDF. The figures of all tables take at most 1.5 GiB, whatever a profile says. */
#define POINTS_MOST  64
#define POINTS_LEAST 32
#define MANY_TABLES  256
/* Rows of an array begin at multiples of this, at least. */
#define GRANULE 16
/* As in planning.c. */
#define HARDLY 1e-9
/* Points between which the least times of a rest have one eviction age. */
#define ANCHORS 6

void row_planning_free(struct row_planning *rows)
{
    if (!rows)
        return;
    for (uint32_t i = 0; rows->hot && i < rows->p->workload->table_count; i++)
        hot_reuse_free(rows->hot[i]);
    free(rows->hot);
    free(rows->tables);
    free(rows->rules);
    free(rows->rest_s);
    free(rows->left);
    free(rows->left_rows);
    free(rows->rests);
    free(rows->row_bytes);
    free(rows->scratch);
    free(rows);
}

/* ---- Making ---- */

static enum embtier_err allocate(struct row_planning *rows)
{
    const uint32_t count = rows->p->workload->table_count;

    rows->hot = calloc(count, sizeof(struct hot_reuse *));
    rows->tables = calloc(count, sizeof(*rows->tables));
    rows->rules = calloc(rows->p->rules->rule_count + 1, sizeof(*rows->rules));
    rows->rest_s = calloc((size_t)count * HOT_REUSE_VALUES_MAX, sizeof(*rows->rest_s));
    rows->left = calloc(count, sizeof(*rows->left));
    rows->left_rows = calloc(count, sizeof(*rows->left_rows));
    rows->rests = calloc(count, sizeof(*rows->rests));
    rows->row_bytes = calloc(count, sizeof(*rows->row_bytes));
    rows->scratch = calloc(2, sizeof(*rows->scratch));
    if (!rows->hot || !rows->tables || !rows->rules || !rows->rest_s || !rows->left ||
        !rows->left_rows || !rows->rests || !rows->row_bytes || !rows->scratch)
        return EMBTIER_NO_MEMORY;
    return EMBTIER_OK;
}

/* Returns the rows up to the last point of the CDF that a profile has seen. */
static double seen_rows(const struct workload *workload, uint32_t table)
{
    return workload->profile->tables[table].summary.rows * (1 + SEEN_ROUNDING);
}

static enum embtier_err fill_tables(struct row_planning *rows)
{
    const struct workload *const workload = rows->p->workload;
    const uint32_t points = workload->table_count > MANY_TABLES ? POINTS_LEAST : POINTS_MOST;

    for (uint32_t i = 0; i < workload->table_count; i++) {
        const struct work_table *const table = &workload->tables[i];

        TRY(hot_reuse_new(workload->profile, i, points, &rows->hot[i]));
        hot_reuse_left(rows->hot[i], 0, &rows->left[i]);
        rows->tables[i] = (struct split_table){
            .name = table->name,
            .rows = table->rows,
            .known_rows = seen_rows(workload, i),
            .row_bytes = align_up(table->row_bytes, GRANULE) + ARRAY_SPOT_BYTES,
            .remap_bytes = ROW_REMAP_BYTES,
            .lookup_bytes = table->weight_bytes,
            .bags_per_batch = table->lookups,
            .pooling_factor = 1,
            .unsplit = rows->p->rules->unsplit && rows->p->rules->unsplit[i],
            .cdf = &rows->hot[i]->cdf,
            .rest_lookup_s = rows->rest_s + (size_t)i * HOT_REUSE_VALUES_MAX,
        };
    }
    return EMBTIER_OK;
}

/* Reserved bytes are taken off the rooms here, as the solver takes them off by itself. */
static void fill_levels(struct row_planning *rows)
{
    const struct planning *const p = rows->p;
    const uint32_t count = machine_cache(p->machine);

    for (uint32_t m = 0; m < count; m++) {
        rows->levels[m] = rows->endless[m] = p->memories[m];
        rows->endless[m].capacity_bytes = MODEL_BYTES_MAX;
        for (uint32_t g = 0; g < p->model.gpu_count; g++)
            rows->room_bytes[m][g] = p->memories[m].capacity_bytes;
    }
    for (uint32_t i = 0; i < p->rules->rule_count; i++) {
        const struct model_rule *const rule = &p->rules->rules[i];

        if (rule->kind != MODEL_RESERVE)
            rows->rules[rows->rules_only.rule_count++] = *rule;
        for (uint32_t g = 0; rule->kind == MODEL_RESERVE && g < p->model.gpu_count; g++)
            if (rule->gpu == MODEL_ANY || rule->gpu == g || p->memories[rule->memory].shared)
                rows->room_bytes[rule->memory][g] -=
                    MIN(rows->room_bytes[rule->memory][g], rule->bytes);
    }
}

static void fill_models(struct row_planning *rows)
{
    const struct planning *const p = rows->p;

    rows->model = (struct split_model){ .tables = rows->tables,
                                        .levels = rows->levels,
                                        .rules = p->rules->rules,
                                        .table_count = p->workload->table_count,
                                        .level_count = machine_cache(p->machine),
                                        .gpu_count = p->model.gpu_count,
                                        .rule_count = p->rules->rule_count };
    rows->rules_only = rows->model;
    rows->rules_only.levels = rows->endless;
    rows->rules_only.rules = rows->rules;
    rows->rules_only.rule_count = 0;
}

enum embtier_err row_planning_new(struct planning *p, struct row_planning **ret_rows,
                                  struct err_msg *msg)
{
    _cleanup_(row_planning_freep) struct row_planning *rows = calloc(1, sizeof(*rows));

    if (!rows)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    rows->p = p;
    if (allocate(rows) != EMBTIER_OK || fill_tables(rows) != EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    fill_models(rows);
    fill_levels(rows);
    TRY(split_model_check(&rows->model, msg));
    *ret_rows = TAKE(rows);
    return EMBTIER_OK;
}

/* ---- Bytes ---- */

bool row_has_rest(const struct row_planning *rows, uint32_t table, const struct split_cut *cut)
{
    const uint64_t all = rows->p->workload->tables[table].rows;

    return all == EMBTIER_UNBOUNDED || split_array_rows(&rows->model, cut) < all;
}

uint64_t row_part_bytes(const struct row_planning *rows, uint32_t table,
                        const struct split_cut *cut, uint32_t level)
{
    const struct work_table *const work = &rows->p->workload->tables[table];
    uint64_t bytes;

    if (cut->rows[level] == 0)
        return 0;
    if (split_is_whole(&rows->model, table, cut))
        return work->array_bytes > 0 ? work->array_bytes : UINT64_MAX;
    bytes = array_shape_of(cut->rows[level], work->row_bytes).bytes;
    if (bytes == 0)
        return UINT64_MAX;
    return bytes + align_up(cut->rows[level] * ROW_REMAP_BYTES, ARRAY_SLAB_BYTES);
}

bool row_is_in_one_tier(const struct row_planning *rows, const struct split_cut *cut)
{
    uint32_t tiers = 0;

    for (uint32_t m = machine_first_tier(rows->p->machine); m < rows->model.level_count; m++)
        tiers += cut->rows[m] > 0;
    return tiers <= 1;
}

/* ---- Evaluation ---- */

static enum embtier_err check_tiers(const struct row_planning *rows, const struct split_cut *cuts,
                                    struct err_msg *msg)
{
    for (uint32_t i = 0; i < rows->model.table_count; i++)
        if (!row_is_in_one_tier(rows, &cuts[i]))
            return err_set(msg, EMBTIER_INVALID,
                           "table '%s': rows in arrays of several tiers; a server has the hot "
                           "rows of a table in one tier",
                           TEXT_SHOWN(rows->tables[i].name));
    return EMBTIER_OK;
}

static enum embtier_err check_room(const struct row_planning *rows, uint32_t level, uint64_t bytes,
                                   uint64_t room, struct err_msg *msg)
{
    if (bytes <= room)
        return EMBTIER_OK;
    model_begin_message(&rows->levels[level], msg);
    err_append(msg,
               "memory '%s': the parts of tables take %" PRIu64 " bytes of %" PRIu64 ", %" PRIu64
               " too many",
               TEXT_SHOWN(rows->levels[level].name), bytes, room, bytes - room);
    return EMBTIER_INVALID;
}

static uint64_t add_bytes(uint64_t a, uint64_t b)
{
    return a > MODEL_SUM_BYTES_MAX || b > MODEL_SUM_BYTES_MAX ? UINT64_MAX : a + b;
}

static enum embtier_err fill_bytes(const struct row_planning *rows, const struct split_cut *cuts,
                                   struct evaluation *e, struct err_msg *msg)
{
    const struct planning *const p = rows->p;
    const uint32_t first = machine_first_tier(p->machine);
    uint64_t bytes[SPLIT_LEVELS_MAX][MODEL_GPUS_MAX] = { { 0 } };

    for (uint32_t i = 0; i < rows->model.table_count; i++)
        for (uint32_t m = 0; m < rows->model.level_count; m++) {
            uint64_t *const sum = &bytes[m][m < first ? cuts[i].gpu : 0];

            *sum = add_bytes(*sum, row_part_bytes(rows, i, &cuts[i], m));
        }
    for (uint32_t m = 0; m < rows->model.level_count; m++)
        for (uint32_t g = 0; g < (m < first ? rows->model.gpu_count : 1); g++)
            TRY(check_room(rows, m, bytes[m][g], rows->room_bytes[m][g], msg));
    for (uint32_t k = 0; k < p->machine->tier_count; k++) {
        e->array_bytes[k] = bytes[first + k][0];
        e->cache_bytes[k] = p->tier_bytes[k] - MIN(p->tier_bytes[k], e->array_bytes[k]);
    }
    return EMBTIER_OK;
}

static void get_rest_times(const void *context, uint32_t table, struct reuse_times *ret_times)
{
    const struct row_planning *const rows = context;

    measured_profile_reuse_left(rows->p->workload->profile, table, &rows->left[table], ret_times);
}

static enum embtier_err find_ages(struct row_planning *rows, const uint64_t *cache_bytes,
                                  struct err_msg *msg)
{
    const struct reuse_source source = { rows->model.table_count, get_rest_times, rows };
    struct cache_tiers tiers = { .count = rows->p->machine->tier_count };

    for (uint32_t k = 0; k < tiers.count; k++)
        tiers.bytes[k] = (double)cache_bytes[k];
    return predict_cache_ages(&source, rows->row_bytes, &tiers, rows->scratch, rows->ages, msg);
}

/* Takes the rows in arrays out of what the cache sees. */
static void take_out(struct row_planning *rows, const struct split_cut *cuts)
{
    for (uint32_t i = 0; i < rows->model.table_count; i++) {
        const struct work_table *const work = &rows->p->workload->tables[i];
        const uint64_t out = split_array_rows(&rows->model, &cuts[i]);

        if (out != rows->left_rows[i])
            hot_reuse_left(rows->hot[i], (double)out, &rows->left[i]);
        rows->left_rows[i] = out;
        if (!row_has_rest(rows, i, &cuts[i]))
            rows->left[i].lookups = 0;
        rows->row_bytes[i] = work->row_bytes * (rows->left[i].lookups > 0 ? 1.0 : HARDLY);
        rows->rests[i] = (struct row_rest){
            .cached = { work->lookups * rows->left[i].lookups,
                        work->updated_rows * rows->left[i].batch_rows },
        };
    }
}

static void fill_rests(struct row_planning *rows, struct evaluation *e)
{
    for (uint32_t i = 0; i < rows->model.table_count; i++) {
        struct row_rest *const rest = &rows->rests[i];
        struct table_prediction prediction;

        if (rows->left[i].lookups <= 0)
            continue;
        get_rest_times(rows, i, rows->scratch);
        predict_cached_table(rows->scratch, rows->row_bytes[i], rows->ages,
                             rows->p->machine->tier_count, &prediction);
        rest->cost = planning_cache_cost(rows->p, i, &rest->cached, &prediction);
        e->reads += rest->cost.read_blocks;
        e->written_bytes += rest->cost.written_bytes;
    }
}

static void fill_times(const struct row_planning *rows, const struct split_cut *cuts,
                       struct evaluation *e)
{
    struct split_part parts[SPLIT_LEVELS_MAX + 1];
    double gpus_s[MODEL_GPUS_MAX] = { 0 };

    for (uint32_t i = 0; i < rows->model.table_count; i++) {
        split_parts(&rows->model, i, &cuts[i], parts);
        for (uint32_t m = 0; m < rows->model.level_count; m++)
            gpus_s[cuts[i].gpu] += parts[m].time_s;
        gpus_s[cuts[i].gpu] += rows->rests[i].cost.time_s;
    }
    for (uint32_t g = 0; g < rows->model.gpu_count; g++) {
        e->time_s = MAX(e->time_s, gpus_s[g]);
        e->sum_s += gpus_s[g];
    }
}

enum embtier_err row_planning_evaluate(struct row_planning *rows, const struct split_cut *cuts,
                                       struct evaluation *ret_evaluation, struct err_msg *msg)
{
    struct evaluation e = { 0 };
    double rules_s;

    TRY(split_check(&rows->rules_only, cuts, &rules_s, NULL, msg));
    TRY(check_tiers(rows, cuts, msg));
    TRY(fill_bytes(rows, cuts, &e, msg));
    for (uint32_t i = 0; rows->p->previous && i < rows->model.table_count; i++)
        e.moved_bytes += planning_moved_bytes(rows->p, i, &cuts[i]);
    take_out(rows, cuts);
    TRY(find_ages(rows, e.cache_bytes, msg));
    fill_rests(rows, &e);
    fill_times(rows, cuts, &e);
    planning_judge(rows->p, &e);
    *ret_evaluation = e;
    return EMBTIER_OK;
}

/* ---- Times of the rest ---- */

/* Lookups of each bin that a tier and those before it serve, if rows leave it at these ages. */
static void serve_bins(const struct reuse_times *times, const struct hot_reuse *hot,
                       const struct reuse_ages *ages, double *ret_served)
{
    for (uint32_t b = 0; b < hot->bin_count; b++) {
        ret_served[b] = 0;
        for (uint32_t i = 0; i < times->segment_count * REUSE_MOMENTS; i++) {
            const struct time_curve *const curve = &times->segments[i / REUSE_MOMENTS].reuse;

            ret_served[b] += (curve->weights[hot->bins[b] + 1] - curve->weights[hot->bins[b]]) *
                             time_histogram_share(hot->bins[b], ages->ages[i]) / REUSE_MOMENTS;
        }
    }
}

/* Returns the share of the lookups left behind a point that are among those served. */
static double served_share(const struct hot_reuse *hot, uint32_t point, const double *served,
                           double lookups)
{
    double sum = 0;

    for (uint32_t b = 0; b < hot->bin_count; b++)
        sum += hot->left[(size_t)point * hot->bin_count + b] * served[b];
    return lookups > 0 ? MIN(sum / lookups, 1.0) : 0;
}

/* The time of a lookup in the rest behind a point. @served: for each tier. */
static double rest_lookup_s(const struct row_planning *rows, uint32_t table, uint32_t point,
                            const double (*served)[TIME_HISTOGRAM_BINS], double price)
{
    const struct hot_reuse *const hot = rows->hot[table];
    const struct work_table *const work = &rows->p->workload->tables[table];
    const double left = point > 0 ? MAX(1 - hot->cdf.shares[point - 1], 0.0) : 1;
    const double all = (double)rows->p->workload->profile->tables[table].summary.lookups;
    const struct cached_lookups cached = { work->lookups * left,
                                           work->updated_rows * hot->left_batch_rows[point] };
    struct table_prediction prediction = { 0 };
    struct cache_cost cost;
    double before = 0;

    for (uint32_t k = 0; k < rows->p->machine->tier_count; k++) {
        const double share = served_share(hot, point, served[k], all * left);

        prediction.hit_rates[k] = MAX(share - before, 0.0);
        before = MAX(share, before);
    }
    cost = planning_cache_cost(rows->p, table, &cached, &prediction);
    return cached.lookups > 0
               ? (cost.time_s + price * planning_ssd_s(rows->p, &cost)) / cached.lookups
               : 0;
}

static double *rest_of(const struct row_planning *rows, uint32_t table)
{
    return rows->rest_s + (size_t)table * HOT_REUSE_VALUES_MAX;
}

/* Sets points from @from up to but not @to, with one set of ages for the tiers. */
static void set_points(struct row_planning *rows, uint32_t table, const struct reuse_ages *ages,
                       uint32_t from, uint32_t to, double price)
{
    double served[CACHE_TIERS_MAX][TIME_HISTOGRAM_BINS];

    for (uint32_t k = 0; k < rows->p->machine->tier_count; k++)
        serve_bins(rows->scratch, rows->hot[table], &ages[k], served[k]);
    for (uint32_t point = from; point < to; point++)
        rest_of(rows, table)[point] = rest_lookup_s(rows, table, point, served, price);
}

void row_planning_set_rests(struct row_planning *rows, double price)
{
    for (uint32_t i = 0; i < rows->model.table_count; i++) {
        measured_profile_reuse(rows->p->workload->profile, i, rows->scratch);
        set_points(rows, i, rows->ages, 0, rows->hot[i]->cdf.point_count + 1, price);
    }
}

/* Finds the ages of a table that is alone with the whole cache, from some point of its CDF on. */
static enum embtier_err find_least_ages(struct row_planning *rows, uint32_t table, uint32_t point,
                                        struct reuse_ages *ret_ages, struct err_msg *msg)
{
    const struct reuse_source source = { rows->model.table_count, get_rest_times, rows };
    struct cache_tiers tiers = { .count = rows->p->machine->tier_count };

    hot_reuse_left(rows->hot[table], rows->hot[table]->cdf.rows[point - 1], &rows->left[table]);
    rows->left_rows[table] = UINT64_MAX;
    memset(rows->row_bytes, 0, rows->model.table_count * sizeof(*rows->row_bytes));
    rows->row_bytes[table] = rows->p->workload->tables[table].row_bytes;
    for (uint32_t k = 0; k < tiers.count; k++)
        tiers.bytes[k] = (double)rows->p->tier_bytes[k];
    return predict_cache_ages(&source, rows->row_bytes, &tiers, rows->scratch, ret_ages, msg);
}

/* The more rows are out, the longer those stay that are left. So between two points, the ages at
 * the second one serve no fewer lookups than the true ones. */
static enum embtier_err set_least(struct row_planning *rows, uint32_t table, struct err_msg *msg)
{
    const uint32_t count = rows->hot[table]->cdf.point_count;
    uint32_t from = 0;

    for (uint32_t i = 1; i <= ANCHORS; i++) {
        const uint32_t to = (uint32_t)((uint64_t)count * i / ANCHORS);
        struct reuse_ages ages[CACHE_TIERS_MAX];

        if (to == from)
            continue;
        TRY(find_least_ages(rows, table, to, ages, msg));
        measured_profile_reuse(rows->p->workload->profile, table, rows->scratch);
        set_points(rows, table, ages, from, to, 0);
        from = to;
    }
    rest_of(rows, table)[count] = 0;
    return EMBTIER_OK;
}

enum embtier_err row_planning_set_least_rests(struct row_planning *rows, struct err_msg *msg)
{
    for (uint32_t i = 0; i < rows->model.table_count; i++) {
        double least_s;

        if (!planning_has_odd_tiers(rows->p, i, &least_s)) {
            TRY(set_least(rows, i, msg));
            continue;
        }
        for (uint32_t k = 0; k <= rows->hot[i]->cdf.point_count; k++)
            rest_of(rows, i)[k] = least_s;
    }
    return EMBTIER_OK;
}
