/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/model/model.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/text/text_escape.h"

uint64_t model_table_bytes(const struct model_table *table)
{
    return table->weight_bytes + table->state_bytes + table->remap_bytes;
}

uint64_t model_table_read_bytes(const struct model_table *table)
{
    return (uint64_t)ceil(table->bags_per_batch * table->pooling_factor * table->lookup_bytes);
}

double model_gpu_bandwidth(const struct model *model, uint32_t memory)
{
    const struct model_memory *const m = &model->memories[memory];

    return m->shared ? m->bandwidth_bytes_per_s / model->gpu_count : m->bandwidth_bytes_per_s;
}

void model_begin_message(const struct model_memory *memory, struct err_msg *msg)
{
    if (memory->place && memory->place[0] != '\0')
        err_write(msg, "%s: ", memory->place);
    else
        err_write(msg, "%s", "");
}

/* Returns the bytes up to the last colon that both places have in common. */
static size_t common_bytes(const char *a, const char *b)
{
    size_t common = 0;

    for (size_t i = 0; a[i] != '\0' && a[i] == b[i]; i++)
        if (a[i] == ':')
            common = i + 1;
    return common;
}

void model_add_place(const struct model_memory *memory, const char **last, struct err_msg *msg)
{
    const char *place = memory->place;

    if (!place || place[0] == '\0' || place == *last)
        return;
    if ((*last)[0] != '\0') {
        place += common_bytes(place, *last);
        err_append(msg, ", %s", place + strspn(place, " "));
    } else {
        err_append(msg, "%s", place);
    }
    *last = memory->place;
}

static enum embtier_err check_count(const char *key, uint32_t count, uint32_t most,
                                    struct err_msg *msg)
{
    if (count < 1 || count > most)
        return err_set(msg, EMBTIER_INVALID, "%s: %" PRIu32 "; allowed: 1 to %" PRIu32, key, count,
                       most);
    return EMBTIER_OK;
}

static bool in_range(double value, double least, double most)
{
    return value >= least && value <= most; /* false for NaN */
}

static enum embtier_err check_number(const char *name, const char *key, double value,
                                     struct err_msg *msg)
{
    if (!in_range(value, 0, (double)MODEL_READ_BYTES_MAX))
        return err_set(msg, EMBTIER_INVALID, "table '%s': %s: %g; allowed: 0 to %" PRIu64,
                       TEXT_SHOWN(name), key, value, MODEL_READ_BYTES_MAX);
    return EMBTIER_OK;
}

static enum embtier_err check_bytes(const char *name, const char *key, uint64_t bytes,
                                    struct err_msg *msg)
{
    if (bytes > MODEL_BYTES_MAX / 4)
        return err_set(msg, EMBTIER_INVALID, "table '%s': %s: %" PRIu64 "; allowed: 0 to %" PRIu64,
                       TEXT_SHOWN(name), key, bytes, MODEL_BYTES_MAX / 4);
    return EMBTIER_OK;
}

static enum embtier_err check_table(const struct model_table *table, struct err_msg *msg)
{
    double read;

    TRY(check_bytes(table->name, "weight_bytes", table->weight_bytes, msg));
    TRY(check_bytes(table->name, "state_bytes", table->state_bytes, msg));
    TRY(check_bytes(table->name, "remap_bytes", table->remap_bytes, msg));
    TRY(check_number(table->name, "bags_per_batch", table->bags_per_batch, msg));
    TRY(check_number(table->name, "pooling_factor", table->pooling_factor, msg));
    if (model_table_bytes(table) == 0)
        return err_set(msg, EMBTIER_INVALID, "table '%s': weight_bytes: 0; allowed: 1 or more",
                       TEXT_SHOWN(table->name));
    read = table->bags_per_batch * table->pooling_factor * table->lookup_bytes;
    if (!in_range(read, 0, (double)MODEL_READ_BYTES_MAX))
        return err_set(msg, EMBTIER_INVALID,
                       "table '%s': bags_per_batch * pooling_factor * lookup_bytes: %g; "
                       "allowed: 0 to %" PRIu64,
                       TEXT_SHOWN(table->name), read, MODEL_READ_BYTES_MAX);
    return EMBTIER_OK;
}

static enum embtier_err check_memory(const struct model_memory *memory, struct err_msg *msg)
{
    if (memory->capacity_bytes > MODEL_BYTES_MAX)
        return err_set(msg, EMBTIER_INVALID,
                       "memory '%s': capacity_bytes: %" PRIu64 "; allowed: 0 to %" PRIu64,
                       TEXT_SHOWN(memory->name), memory->capacity_bytes, MODEL_BYTES_MAX);
    if (!in_range(memory->bandwidth_bytes_per_s, 1, MODEL_BANDWIDTH_MAX))
        return err_set(
            msg, EMBTIER_INVALID, "memory '%s': bandwidth_bytes_per_s: %g; allowed: 1 to %g",
            TEXT_SHOWN(memory->name), memory->bandwidth_bytes_per_s, MODEL_BANDWIDTH_MAX);
    return EMBTIER_OK;
}

const char *model_rule_name(const struct model_rule *rules, uint32_t rule,
                            struct model_rule_text *buffer)
{
    if (rules[rule].name)
        return rules[rule].name;
    snprintf(buffer->text, sizeof(buffer->text), "rule %" PRIu32, rule);
    return buffer->text;
}

static enum embtier_err check_index(uint32_t rule, const char *key, uint32_t index, uint32_t count,
                                    bool any, struct err_msg *msg)
{
    if (index >= count && !(any && index == MODEL_ANY))
        return err_set(msg, EMBTIER_INVALID,
                       "rule %" PRIu32 ": %s: %" PRIu32 "; allowed: 0 to %" PRIu32, rule, key,
                       index, count - 1);
    return EMBTIER_OK;
}

static enum embtier_err check_rule(const struct model *model, uint32_t i, struct err_msg *msg)
{
    const struct model_rule *const rule = &model->rules[i];

    if (rule->kind > MODEL_RESERVE)
        return err_set(msg, EMBTIER_INVALID, "rule %" PRIu32 ": unknown kind %u", i, rule->kind);
    if (rule->kind != MODEL_RESERVE)
        TRY(check_index(i, "table", rule->table, model->table_count, false, msg));
    if (rule->kind == MODEL_TOGETHER)
        return check_index(i, "other", rule->other, model->table_count, false, msg);
    TRY(check_index(i, "memory", rule->memory, model->memory_count, rule->kind != MODEL_RESERVE,
                    msg));
    return check_index(i, "gpu", rule->gpu, model->gpu_count, true, msg);
}

static enum embtier_err check_times(const struct model *model, struct err_msg *msg)
{
    const uint64_t count = (uint64_t)model->table_count * model->memory_count;

    for (uint64_t i = 0; model->times_s && i < count; i++)
        if (!in_range(model->times_s[i], 0, MODEL_TIME_MAX_S))
            return err_set(msg, EMBTIER_INVALID,
                           "table '%s': time in memory '%s': %g s; allowed: 0 to %g",
                           TEXT_SHOWN(model->tables[i / model->memory_count].name),
                           TEXT_SHOWN(model->memories[i % model->memory_count].name),
                           model->times_s[i], MODEL_TIME_MAX_S);
    return EMBTIER_OK;
}

/* Sums of bytes are made in 64 bits elsewhere. */
static enum embtier_err check_sum(const struct model *model, struct err_msg *msg)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < model->table_count; i++) {
        bytes += model_table_bytes(&model->tables[i]);
        if (bytes > MODEL_SUM_BYTES_MAX)
            return err_set(msg, EMBTIER_INVALID,
                           "table '%s': the tables up to this one take %" PRIu64
                           " bytes; allowed: at most %" PRIu64,
                           TEXT_SHOWN(model->tables[i].name), bytes, MODEL_SUM_BYTES_MAX);
    }
    return EMBTIER_OK;
}

enum embtier_err model_check(const struct model *model, struct err_msg *msg)
{
    TRY(check_count("tables", model->table_count, MODEL_TABLES_MAX, msg));
    TRY(check_count("memories", model->memory_count, MODEL_MEMORIES_MAX, msg));
    TRY(check_count("gpus", model->gpu_count, MODEL_GPUS_MAX, msg));
    if (model->rule_count > MODEL_RULES_MAX)
        return err_set(msg, EMBTIER_INVALID, "rules: %" PRIu32 "; allowed: 0 to %" PRIu32,
                       model->rule_count, MODEL_RULES_MAX);
    for (uint32_t i = 0; i < model->memory_count; i++)
        TRY(check_memory(&model->memories[i], msg));
    for (uint32_t i = 0; i < model->table_count; i++)
        TRY(check_table(&model->tables[i], msg));
    for (uint32_t i = 0; i < model->rule_count; i++)
        TRY(check_rule(model, i, msg));
    TRY(check_times(model, msg));
    return check_sum(model, msg);
}
