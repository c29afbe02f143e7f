/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/split/split_model.h"

#include <inttypes.h>
#include <math.h>

#include "base/text/text_escape.h"

#define SHARE_CARE 1e-9 /* of the last share, which a file may have rounded */

double split_bandwidth(const struct split_model *model, uint32_t level)
{
    const struct model_memory *const l = &model->levels[level];

    return l->shared ? l->bandwidth_bytes_per_s / model->gpu_count : l->bandwidth_bytes_per_s;
}

double split_lookups(const struct split_table *table)
{
    return table->bags_per_batch * table->pooling_factor;
}

/* At point @i of the curve; 0 is the point where all rows are in the rest. */
static double rest_at_s(const struct split_table *table, uint32_t i)
{
    const double share = i > 0 ? table->cdf->shares[i - 1] : 0;

    return split_lookups(table) * table->rest_lookup_s[i] * fmax(1 - share, 0);
}

double split_rest_s(const struct split_table *table, double rows)
{
    const struct access_cdf *const cdf = table->cdf;

    for (uint32_t i = 0; i < cdf->point_count; i++) {
        const double first = i > 0 ? cdf->rows[i - 1] : 0;

        if (rows < cdf->rows[i]) {
            const double before_s = rest_at_s(table, i);

            return before_s +
                   (rest_at_s(table, i + 1) - before_s) * ((rows - first) / (cdf->rows[i] - first));
        }
    }
    return 0;
}

/* ---- check ---- */

static bool in_range(double value, double least, double most)
{
    return value >= least && value <= most; /* false for NaN */
}

static enum embtier_err check_count(const char *key, uint32_t count, uint32_t least, uint32_t most,
                                    struct err_msg *msg)
{
    if (count < least || count > most)
        return err_set(msg, EMBTIER_INVALID, "%s: %" PRIu32 "; allowed: %" PRIu32 " to %" PRIu32,
                       key, count, least, most);
    return EMBTIER_OK;
}

static enum embtier_err check_number(const struct split_table *table, const char *key, double value,
                                     double most, struct err_msg *msg)
{
    if (!in_range(value, 0, most))
        return err_set(msg, EMBTIER_INVALID, "table '%s': %s: %g; allowed: 0 to %g",
                       TEXT_SHOWN(table->name), key, value, most);
    return EMBTIER_OK;
}

static enum embtier_err check_point(const struct split_table *table, uint32_t i,
                                    struct err_msg *msg)
{
    const struct access_cdf *const cdf = table->cdf;
    const double least_rows = i > 0 ? cdf->rows[i - 1] : 0;
    const double most_rows =
        table->rows == EMBTIER_UNBOUNDED ? (double)SPLIT_TABLE_BYTES_MAX : (double)table->rows;
    const double least_share = i > 0 ? cdf->shares[i - 1] : 0;

    if (!(cdf->rows[i] > least_rows && cdf->rows[i] <= most_rows))
        return err_set(msg, EMBTIER_INVALID,
                       "table '%s': cdf.rows[%" PRIu32 "]: %g; allowed: above %g, up to %g",
                       TEXT_SHOWN(table->name), i, cdf->rows[i], least_rows, most_rows);
    if (!in_range(cdf->shares[i], least_share, 1))
        return err_set(msg, EMBTIER_INVALID,
                       "table '%s': cdf.shares[%" PRIu32 "]: %g; allowed: %g to 1",
                       TEXT_SHOWN(table->name), i, cdf->shares[i], least_share);
    return EMBTIER_OK;
}

static enum embtier_err check_cdf(const struct split_table *table, struct err_msg *msg)
{
    const struct access_cdf *const cdf = table->cdf;

    if (cdf->point_count > ACCESS_CDF_POINTS_MAX)
        return err_set(msg, EMBTIER_INVALID,
                       "table '%s': cdf.point_count: %" PRIu32 "; allowed: 0 to %d",
                       TEXT_SHOWN(table->name), cdf->point_count, ACCESS_CDF_POINTS_MAX);
    for (uint32_t i = 0; i < cdf->point_count; i++)
        TRY(check_point(table, i, msg));
    if (cdf->point_count > 0 && cdf->shares[cdf->point_count - 1] < 1 - SHARE_CARE)
        return err_set(msg, EMBTIER_INVALID,
                       "table '%s': cdf.shares[%" PRIu32 "]: %g; allowed: 1, as it is the last",
                       TEXT_SHOWN(table->name), cdf->point_count - 1,
                       cdf->shares[cdf->point_count - 1]);
    if (cdf->point_count == 0 && split_lookups(table) > 0)
        return err_set(msg, EMBTIER_INVALID,
                       "table '%s': cdf.point_count: 0; allowed: 1 or more, as the table is "
                       "looked up",
                       TEXT_SHOWN(table->name));
    return EMBTIER_OK;
}

static enum embtier_err check_rest(const struct split_table *table, struct err_msg *msg)
{
    for (uint32_t i = 0; i <= table->cdf->point_count; i++) {
        const double time_s = split_lookups(table) * table->rest_lookup_s[i];

        if (!in_range(table->rest_lookup_s[i], 0, SPLIT_TIME_MAX_S) ||
            !in_range(time_s, 0, SPLIT_TIME_MAX_S))
            return err_set(msg, EMBTIER_INVALID,
                           "table '%s': rest_lookup_s[%" PRIu32
                           "]: %g; allowed: 0 to %g, also for all lookups of a batch",
                           TEXT_SHOWN(table->name), i, table->rest_lookup_s[i], SPLIT_TIME_MAX_S);
    }
    return EMBTIER_OK;
}

static enum embtier_err check_bytes(const struct split_table *table, struct err_msg *msg)
{
    const uint64_t row_bytes = (uint64_t)table->row_bytes + table->remap_bytes;

    if (table->row_bytes < 1 || table->row_bytes > SPLIT_ROW_BYTES_MAX)
        return err_set(msg, EMBTIER_INVALID,
                       "table '%s': row_bytes: %" PRIu32 "; allowed: 1 to %" PRIu32,
                       TEXT_SHOWN(table->name), table->row_bytes, SPLIT_ROW_BYTES_MAX);
    if (table->remap_bytes > SPLIT_ROW_BYTES_MAX)
        return err_set(msg, EMBTIER_INVALID,
                       "table '%s': remap_bytes: %" PRIu32 "; allowed: 0 to %" PRIu32,
                       TEXT_SHOWN(table->name), table->remap_bytes, SPLIT_ROW_BYTES_MAX);
    if (table->rows > SPLIT_TABLE_BYTES_MAX / row_bytes)
        return err_set(msg, EMBTIER_INVALID,
                       "table '%s': rows: %" PRIu64 "; allowed: 0 to %" PRIu64
                       " with row_bytes %" PRIu32 " and remap_bytes %" PRIu32,
                       TEXT_SHOWN(table->name), table->rows, SPLIT_TABLE_BYTES_MAX / row_bytes,
                       table->row_bytes, table->remap_bytes);
    return EMBTIER_OK;
}

static enum embtier_err check_table(const struct split_table *table, struct err_msg *msg)
{
    const double most = (double)MODEL_READ_BYTES_MAX;

    TRY(check_bytes(table, msg));
    TRY(check_number(table, "bags_per_batch", table->bags_per_batch, most, msg));
    TRY(check_number(table, "pooling_factor", table->pooling_factor, most, msg));
    TRY(check_number(table, "bags_per_batch * pooling_factor * lookup_bytes",
                     split_lookups(table) * table->lookup_bytes, most, msg));
    TRY(check_cdf(table, msg));
    return check_rest(table, msg);
}

static enum embtier_err check_level(const struct split_model *model, uint32_t i,
                                    struct err_msg *msg)
{
    const struct model_memory *const level = &model->levels[i];

    if (level->capacity_bytes > MODEL_BYTES_MAX)
        return err_set(msg, EMBTIER_INVALID,
                       "level '%s': capacity_bytes: %" PRIu64 "; allowed: 0 to %" PRIu64,
                       TEXT_SHOWN(level->name), level->capacity_bytes, MODEL_BYTES_MAX);
    if (!in_range(level->bandwidth_bytes_per_s, 1, MODEL_BANDWIDTH_MAX))
        return err_set(msg, EMBTIER_INVALID,
                       "level '%s': bandwidth_bytes_per_s: %g; allowed: 1 to %g",
                       TEXT_SHOWN(level->name), level->bandwidth_bytes_per_s, MODEL_BANDWIDTH_MAX);
    if (i > 0 && split_bandwidth(model, i) > split_bandwidth(model, i - 1))
        return err_set(msg, EMBTIER_INVALID,
                       "level '%s': bandwidth_bytes_per_s: %g for each GPU; allowed: at most %g, "
                       "as in level '%s', which comes before it",
                       TEXT_SHOWN(level->name), split_bandwidth(model, i),
                       split_bandwidth(model, i - 1), TEXT_SHOWN(model->levels[i - 1].name));
    return EMBTIER_OK;
}

static enum embtier_err check_private(const struct split_model *model, struct err_msg *msg)
{
    const struct model_memory *first = NULL;

    for (uint32_t i = 0; i < model->level_count; i++) {
        if (model->levels[i].shared)
            continue;
        if (first)
            return err_set(msg, EMBTIER_INVALID,
                           "level '%s': shared: false; allowed: true, as level '%s' is private",
                           TEXT_SHOWN(model->levels[i].name), TEXT_SHOWN(first->name));
        first = &model->levels[i];
    }
    return EMBTIER_OK;
}

static enum embtier_err check_index(uint32_t rule, const char *key, uint32_t index, uint32_t count,
                                    bool any, struct err_msg *msg)
{
    if (index >= count && !(any && index == MODEL_ANY))
        return err_set(msg, EMBTIER_INVALID,
                       "rule %" PRIu32 ": %s: %" PRIu32 "; allowed: below %" PRIu32, rule, key,
                       index, count);
    return EMBTIER_OK;
}

static enum embtier_err check_rule(const struct split_model *model, uint32_t i, struct err_msg *msg)
{
    const struct model_rule *const rule = &model->rules[i];

    if (rule->kind > MODEL_RESERVE)
        return err_set(msg, EMBTIER_INVALID, "rule %" PRIu32 ": unknown kind %u", i, rule->kind);
    if (rule->kind != MODEL_RESERVE)
        TRY(check_index(i, "table", rule->table, model->table_count, false, msg));
    if (rule->kind == MODEL_TOGETHER)
        return check_index(i, "other", rule->other, model->table_count, false, msg);
    if (rule->kind == MODEL_RESERVE)
        TRY(check_index(i, "memory", rule->memory, model->level_count, false, msg));
    else
        TRY(check_index(i, "memory", rule->memory, model->level_count + 1, true, msg));
    return check_index(i, "gpu", rule->gpu, model->gpu_count, true, msg);
}

enum embtier_err split_model_check(const struct split_model *model, struct err_msg *msg)
{
    TRY(check_count("tables", model->table_count, 1, SPLIT_TABLES_MAX, msg));
    TRY(check_count("levels", model->level_count, 0, SPLIT_LEVELS_MAX, msg));
    TRY(check_count("gpus", model->gpu_count, 1, MODEL_GPUS_MAX, msg));
    TRY(check_count("rules", model->rule_count, 0, MODEL_RULES_MAX, msg));
    for (uint32_t i = 0; i < model->level_count; i++)
        TRY(check_level(model, i, msg));
    TRY(check_private(model, msg));
    for (uint32_t i = 0; i < model->table_count; i++)
        TRY(check_table(&model->tables[i], msg));
    for (uint32_t i = 0; i < model->rule_count; i++)
        TRY(check_rule(model, i, msg));
    return EMBTIER_OK;
}
