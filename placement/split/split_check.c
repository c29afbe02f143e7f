/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/split/split_check.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/text_escape.h"

/* ---- one table ---- */

uint64_t split_array_rows(const struct split_model *model, const struct split_cut *cut)
{
    uint64_t rows = 0;

    for (uint32_t m = 0; m < model->level_count; m++)
        if (__builtin_add_overflow(rows, cut->rows[m], &rows))
            return UINT64_MAX;
    return rows;
}

static bool has_rows(const struct split_model *model, uint32_t table, const struct split_cut *cut)
{
    const struct split_table *const t = &model->tables[table];
    const uint64_t most = t->rows == EMBTIER_UNBOUNDED
                              ? SPLIT_TABLE_BYTES_MAX / ((uint64_t)t->row_bytes + t->remap_bytes)
                              : t->rows;

    return split_array_rows(model, cut) <= most;
}

bool split_is_whole(const struct split_model *model, uint32_t table, const struct split_cut *cut)
{
    const uint64_t rows = model->tables[table].rows;

    for (uint32_t m = 0; m < model->level_count; m++)
        if (cut->rows[m] > 0)
            return rows != EMBTIER_UNBOUNDED && cut->rows[m] == rows;
    return true;
}

void split_parts(const struct split_model *model, uint32_t table, const struct split_cut *cut,
                 struct split_part *ret_parts)
{
    const struct split_table *const t = &model->tables[table];
    const double read_bytes = split_lookups(t) * t->lookup_bytes;
    const uint64_t row_bytes =
        (uint64_t)t->row_bytes + (split_is_whole(model, table, cut) ? 0 : t->remap_bytes);
    double share = 0;
    uint64_t rows = 0;

    for (uint32_t m = 0; m < model->level_count; m++) {
        struct split_part *const part = &ret_parts[m];

        rows += cut->rows[m];
        part->rows = cut->rows[m];
        part->bytes = cut->rows[m] * row_bytes;
        part->share = access_cdf_share(t->cdf, (double)rows) - share;
        part->time_s = read_bytes * part->share / split_bandwidth(model, m);
        share += part->share;
    }
    ret_parts[model->level_count] = (struct split_part){
        .rows = t->rows == EMBTIER_UNBOUNDED ? 0 : t->rows - rows,
        .share = t->cdf->point_count > 0 ? fmax(1 - share, 0) : 0,
        .time_s = split_rest_s(t, (double)rows),
    };
}

/* ---- rules ---- */

/* True: some row of the table lies in this level. Rows that are always left of an unbounded table
 * lie in the rest. */
static bool lies_in(const struct split_model *model, const struct split_cut *cut, uint32_t table,
                    uint32_t level)
{
    if (level < model->level_count)
        return cut->rows[level] > 0;
    return model->tables[table].rows == EMBTIER_UNBOUNDED ||
           split_array_rows(model, cut) < model->tables[table].rows;
}

static bool lies_elsewhere(const struct split_model *model, const struct split_cut *cut,
                           uint32_t table, uint32_t level)
{
    for (uint32_t m = 0; m <= model->level_count; m++)
        if (m != level && lies_in(model, cut, table, m))
            return true;
    return false;
}

static bool rule_holds(const struct split_model *model, const struct model_rule *rule,
                       const struct split_cut *cuts)
{
    const struct split_cut *const cut = &cuts[rule->table];
    const bool on_gpu = rule->gpu == MODEL_ANY || rule->gpu == cut->gpu;

    switch (rule->kind) {
    case MODEL_PIN:
        return on_gpu && (rule->memory == MODEL_ANY ||
                          !lies_elsewhere(model, cut, rule->table, rule->memory));
    case MODEL_FORBID:
        return !on_gpu ||
               (rule->memory != MODEL_ANY && !lies_in(model, cut, rule->table, rule->memory));
    case MODEL_TOGETHER:
        return cut->gpu == cuts[rule->other].gpu;
    default:
        return true;
    }
}

static enum embtier_err check_rules(const struct split_model *model, const struct split_cut *cuts,
                                    struct err_msg *msg)
{
    for (uint32_t i = 0; i < model->rule_count; i++) {
        const struct model_rule *const rule = &model->rules[i];

        if (rule->kind != MODEL_RESERVE && !rule_holds(model, rule, cuts))
            return err_set(msg, EMBTIER_INVALID, "%s: table '%s' breaks it",
                           MODEL_RULE_NAME(model->rules, i),
                           TEXT_SHOWN(model->tables[rule->table].name));
    }
    return EMBTIER_OK;
}

/* ---- levels ---- */

/* Bytes of a level on a GPU: taken, and kept free. */
struct sums {
    uint64_t bytes, reserved_bytes;
};

static enum embtier_err check_table(const struct split_model *model, uint32_t table,
                                    const struct split_cut *cut, struct err_msg *msg)
{
    const struct split_table *const t = &model->tables[table];

    if (cut->gpu >= model->gpu_count)
        return err_set(msg, EMBTIER_INVALID, "table '%s': there is no GPU %" PRIu32,
                       TEXT_SHOWN(t->name), cut->gpu);
    if (!has_rows(model, table, cut))
        return err_set(msg, EMBTIER_INVALID,
                       "table '%s': %" PRIu64 " rows lie in levels, but it has %" PRIu64,
                       TEXT_SHOWN(t->name), split_array_rows(model, cut), t->rows);
    if (t->unsplit && !split_is_whole(model, table, cut))
        return err_set(msg, EMBTIER_INVALID, "table '%s': it is split, but must not be",
                       TEXT_SHOWN(t->name));
    return EMBTIER_OK;
}

static enum embtier_err add_tables(const struct split_model *model, const struct split_cut *cuts,
                                   struct sums *sums, double *gpus_s, struct err_msg *msg)
{
    struct split_part parts[SPLIT_LEVELS_MAX + 1];

    for (uint32_t i = 0; i < model->table_count; i++) {
        const uint32_t gpu = cuts[i].gpu;

        TRY(check_table(model, i, &cuts[i], msg));
        split_parts(model, i, &cuts[i], parts);
        for (uint32_t m = 0; m < model->level_count; m++)
            sums[m * model->gpu_count + gpu].bytes += parts[m].bytes;
        for (uint32_t m = 0; m <= model->level_count; m++)
            gpus_s[gpu] += parts[m].time_s;
    }
    return EMBTIER_OK;
}

/* The sum stops at the largest capacity, so that it never overflows. */
static void reserve(struct sums *sums, uint64_t bytes)
{
    sums->reserved_bytes = MIN(sums->reserved_bytes + MIN(bytes, MODEL_BYTES_MAX), MODEL_BYTES_MAX);
}

static void add_reserved(const struct split_model *model, struct sums *sums)
{
    for (uint32_t i = 0; i < model->rule_count; i++) {
        const struct model_rule *const rule = &model->rules[i];

        for (uint32_t g = 0; rule->kind == MODEL_RESERVE && g < model->gpu_count; g++)
            if (model->levels[rule->memory].shared ? g == 0
                                                   : rule->gpu == MODEL_ANY || rule->gpu == g)
                reserve(&sums[rule->memory * model->gpu_count + g], rule->bytes);
    }
}

static enum embtier_err check_room(const struct model_memory *level, const struct sums *sums,
                                   struct err_msg *msg)
{
    const uint64_t left_bytes =
        level->capacity_bytes - MIN(sums->reserved_bytes, level->capacity_bytes);

    if (sums->bytes <= left_bytes)
        return EMBTIER_OK;
    model_begin_message(level, msg);
    err_append(msg,
               "level '%s': the tables take %" PRIu64 " bytes of %" PRIu64 ", %" PRIu64 " too many",
               TEXT_SHOWN(level->name), sums->bytes, left_bytes, sums->bytes - left_bytes);
    return EMBTIER_INVALID;
}

static enum embtier_err check_level(const struct split_model *model, uint32_t level,
                                    const struct sums *sums, struct err_msg *msg)
{
    struct sums all = { 0 };

    for (uint32_t g = 0; g < model->gpu_count; g++) {
        if (!model->levels[level].shared)
            TRY(check_room(&model->levels[level], &sums[g], msg));
        all.bytes += sums[g].bytes;
        all.reserved_bytes += sums[g].reserved_bytes;
    }
    return model->levels[level].shared ? check_room(&model->levels[level], &all, msg) : EMBTIER_OK;
}

static double largest(const double *values, uint32_t count)
{
    double value = 0;

    for (uint32_t i = 0; i < count; i++)
        value = fmax(value, values[i]);
    return value;
}

enum embtier_err split_check(const struct split_model *model, const struct split_cut *cuts,
                             double *ret_largest_s, double *ret_gpus_s, struct err_msg *msg)
{
    _cleanup_(freep) struct sums *sums =
        calloc((uint64_t)model->gpu_count * (model->level_count + 1), sizeof(*sums));
    double gpus_s[MODEL_GPUS_MAX] = { 0 };

    if (!sums)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(add_tables(model, cuts, sums, gpus_s, msg));
    TRY(check_rules(model, cuts, msg));
    add_reserved(model, sums);
    for (uint32_t m = 0; m < model->level_count; m++)
        TRY(check_level(model, m, sums + m * model->gpu_count, msg));
    if (ret_gpus_s)
        memcpy(ret_gpus_s, gpus_s, model->gpu_count * sizeof(*ret_gpus_s));
    *ret_largest_s = largest(gpus_s, model->gpu_count);
    return EMBTIER_OK;
}
