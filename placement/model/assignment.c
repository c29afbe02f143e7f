/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/model/assignment.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/text/text_escape.h"

/* Per place: bytes that lie there, bytes that a batch reads there, and bytes kept free; the time of
 * its tables, if the model gives times. */
struct sums {
    uint64_t bytes, read_bytes, reserved_bytes;
    double time_s;
};

static bool rule_holds(const struct model *model, const struct model_rule *rule,
                       const uint32_t *places)
{
    const uint32_t place = places[rule->table];
    const bool there = (rule->memory == MODEL_ANY || rule->memory == place / model->gpu_count) &&
                       (rule->gpu == MODEL_ANY || rule->gpu == place % model->gpu_count);

    switch (rule->kind) {
    case MODEL_PIN:
        return there;
    case MODEL_FORBID:
        return !there;
    case MODEL_TOGETHER:
        return place == places[rule->other];
    default:
        return true;
    }
}

static enum embtier_err check_rules(const struct model *model, const uint32_t *places,
                                    struct err_msg *msg)
{
    for (uint32_t i = 0; i < model->rule_count; i++) {
        const struct model_rule *const rule = &model->rules[i];

        if (rule->kind != MODEL_RESERVE && !rule_holds(model, rule, places))
            return err_set(msg, EMBTIER_INVALID, "%s: table '%s' breaks it",
                           MODEL_RULE_NAME(model->rules, i),
                           TEXT_SHOWN(model->tables[rule->table].name));
    }
    return EMBTIER_OK;
}

static enum embtier_err add_tables(const struct model *model, const uint32_t *places,
                                   struct sums *sums, struct err_msg *msg)
{
    for (uint32_t i = 0; i < model->table_count; i++) {
        if (places[i] >= model_place_count(model))
            return err_set(msg, EMBTIER_INVALID, "table '%s': there is no place %" PRIu32,
                           TEXT_SHOWN(model->tables[i].name), places[i]);
        sums[places[i]].bytes += model_table_bytes(&model->tables[i]);
        sums[places[i]].read_bytes += model_table_read_bytes(&model->tables[i]);
        if (model->times_s)
            sums[places[i]].time_s +=
                model->times_s[(uint64_t)i * model->memory_count + places[i] / model->gpu_count];
    }
    return EMBTIER_OK;
}

/* The sum stops at the largest capacity, so that it never overflows. */
static void reserve(struct sums *sums, uint64_t bytes)
{
    sums->reserved_bytes = MIN(sums->reserved_bytes + MIN(bytes, MODEL_BYTES_MAX), MODEL_BYTES_MAX);
}

static void add_reserved(const struct model *model, struct sums *sums)
{
    for (uint32_t i = 0; i < model->rule_count; i++) {
        const struct model_rule *const rule = &model->rules[i];
        const bool shared = rule->kind == MODEL_RESERVE && model->memories[rule->memory].shared;

        for (uint32_t g = 0; rule->kind == MODEL_RESERVE && g < model->gpu_count; g++)
            if (shared ? g == 0 : rule->gpu == MODEL_ANY || rule->gpu == g)
                reserve(&sums[model_place(model, rule->memory, g)], rule->bytes);
    }
}

static enum embtier_err check_room(const struct model_memory *memory, uint64_t bytes,
                                   uint64_t reserved_bytes, struct err_msg *msg)
{
    const uint64_t left_bytes =
        memory->capacity_bytes - MIN(reserved_bytes, memory->capacity_bytes);

    if (bytes <= left_bytes)
        return EMBTIER_OK;
    model_begin_message(memory, msg);
    err_append(
        msg, "memory '%s': the tables take %" PRIu64 " bytes of %" PRIu64 ", %" PRIu64 " too many",
        TEXT_SHOWN(memory->name), bytes, left_bytes, bytes - left_bytes);
    return EMBTIER_INVALID;
}

static enum embtier_err check_rooms(const struct model *model, const struct sums *sums,
                                    struct err_msg *msg)
{
    for (uint32_t m = 0; m < model->memory_count; m++) {
        uint64_t bytes = 0, reserved_bytes = 0;

        for (uint32_t g = 0; g < model->gpu_count; g++) {
            const struct sums *const place = &sums[model_place(model, m, g)];

            bytes += place->bytes;
            reserved_bytes += place->reserved_bytes;
            if (!model->memories[m].shared) {
                TRY(check_room(&model->memories[m], bytes, reserved_bytes, msg));
                bytes = reserved_bytes = 0;
            }
        }
        TRY(check_room(&model->memories[m], bytes, reserved_bytes, msg));
    }
    return EMBTIER_OK;
}

static double gpu_time_s(const struct model *model, const struct sums *sums, uint32_t gpu)
{
    double time_s = 0;

    for (uint32_t m = 0; m < model->memory_count; m++) {
        const struct sums *const place = &sums[model_place(model, m, gpu)];

        time_s += model->times_s ? place->time_s
                                 : (double)place->read_bytes / model_gpu_bandwidth(model, m);
    }
    return time_s;
}

enum embtier_err assignment_check(const struct model *model, const uint32_t *places,
                                  double *ret_largest_s, double *ret_gpus_s, struct err_msg *msg)
{
    _cleanup_(freep) struct sums *sums = calloc(model_place_count(model), sizeof(*sums));
    double largest_s = 0;

    if (!sums)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(add_tables(model, places, sums, msg));
    TRY(check_rules(model, places, msg));
    add_reserved(model, sums);
    TRY(check_rooms(model, sums, msg));
    for (uint32_t g = 0; g < model->gpu_count; g++) {
        const double time_s = gpu_time_s(model, sums, g);

        if (ret_gpus_s)
            ret_gpus_s[g] = time_s;
        largest_s = MAX(largest_s, time_s);
    }
    *ret_largest_s = largest_s;
    return EMBTIER_OK;
}
