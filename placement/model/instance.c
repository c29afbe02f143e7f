/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/model/instance.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "placement/model/items.h"

void instance_free(struct instance *instance)
{
    if (!instance)
        return;
    free(instance->item_of_table);
    free(instance->bytes);
    free(instance->read_bytes);
    free(instance->times_s);
    free(instance->allowed);
    free(instance->room_of_place);
    free(instance->room_bytes);
    free(instance);
}

/* ---- items ---- */

/* Adds the times of a table that the model gives. */
static void add_times(struct instance *x, uint32_t table)
{
    const double *const times_s = x->model->times_s + (uint64_t)table * x->memory_count;
    double *const item_s = x->times_s + (uint64_t)x->item_of_table[table] * x->memory_count;

    for (uint32_t m = 0; m < x->memory_count; m++)
        item_s[m] += times_s[m];
}

static void fill_items(struct instance *x)
{
    for (uint32_t i = 0; i < x->model->table_count; i++) {
        const uint32_t item = x->item_of_table[i];

        x->bytes[item] += model_table_bytes(&x->model->tables[i]);
        x->read_bytes[item] += model_table_read_bytes(&x->model->tables[i]);
        if (x->model->times_s)
            add_times(x, i);
    }
    if (x->model->times_s)
        return;
    for (uint32_t item = 0; item < x->item_count; item++)
        for (uint32_t m = 0; m < x->memory_count; m++)
            x->times_s[item * x->memory_count + m] =
                (double)x->read_bytes[item] / model_gpu_bandwidth(x->model, m);
}

/* ---- places ---- */

static bool matches(const struct model_rule *rule, uint32_t memory, uint32_t gpu)
{
    return (rule->memory == MODEL_ANY || rule->memory == memory) &&
           (rule->gpu == MODEL_ANY || rule->gpu == gpu);
}

static bool rules_out(const struct model_rule *rule, uint32_t memory, uint32_t gpu)
{
    return (rule->kind == MODEL_PIN && !matches(rule, memory, gpu)) ||
           (rule->kind == MODEL_FORBID && matches(rule, memory, gpu));
}

static void apply_rule(struct instance *x, const struct model_rule *rule)
{
    uint8_t *const allowed = x->allowed + (uint64_t)x->item_of_table[rule->table] * x->place_count;

    for (uint32_t m = 0; m < x->memory_count; m++)
        for (uint32_t g = 0; g < x->gpu_count; g++)
            if (rules_out(rule, m, g))
                allowed[model_place(x->model, m, g)] = INSTANCE_RULED_OUT;
}

static void fill_allowed(struct instance *x)
{
    memset(x->allowed, INSTANCE_ALLOWED, (uint64_t)x->item_count * x->place_count);
    for (uint32_t i = 0; i < x->model->rule_count; i++) {
        const struct model_rule *const rule = &x->model->rules[i];

        if (rule->kind == MODEL_PIN || rule->kind == MODEL_FORBID)
            apply_rule(x, rule);
    }
    for (uint32_t item = 0; item < x->item_count; item++)
        for (uint32_t p = 0; p < x->place_count; p++)
            if (instance_allows(x, item, p) && x->bytes[item] > x->room_bytes[x->room_of_place[p]])
                x->allowed[(uint64_t)item * x->place_count + p] = INSTANCE_TOO_SMALL;
}

/* ---- rooms ---- */

static uint32_t count_rooms(const struct model *model)
{
    uint32_t count = 0;

    for (uint32_t m = 0; m < model->memory_count; m++)
        count += model->memories[m].shared ? 1 : model->gpu_count;
    return count;
}

static void fill_rooms(struct instance *x)
{
    uint32_t room = 0;

    for (uint32_t m = 0; m < x->memory_count; m++) {
        const struct model_memory *const memory = &x->model->memories[m];

        for (uint32_t g = 0; g < x->gpu_count; g++) {
            x->room_of_place[model_place(x->model, m, g)] = room;
            x->room_bytes[room] = memory->capacity_bytes;
            room += !memory->shared;
        }
        room += memory->shared;
    }
}

static enum embtier_err reserve(struct instance *x, uint32_t rule, uint32_t room,
                                struct err_msg *msg)
{
    const uint64_t bytes = x->model->rules[rule].bytes;
    char name[64];

    instance_room_name(x, room, name, sizeof(name));
    if (bytes > x->room_bytes[room])
        return err_set(msg, EMBTIER_INVALID, "%s: reserves %s of %s, where %s are left",
                       MODEL_RULE_NAME(x->model->rules, rule), BYTES_TEXT(bytes), name,
                       BYTES_TEXT(x->room_bytes[room]));
    x->room_bytes[room] -= bytes;
    return EMBTIER_OK;
}

static enum embtier_err reserve_rule(struct instance *x, uint32_t rule, struct err_msg *msg)
{
    const struct model_rule *const r = &x->model->rules[rule];
    const bool once = x->model->memories[r->memory].shared;

    for (uint32_t g = 0; g < x->gpu_count; g++)
        if (once ? g == 0 : r->gpu == MODEL_ANY || r->gpu == g)
            TRY(reserve(x, rule, x->room_of_place[model_place(x->model, r->memory, g)], msg));
    return EMBTIER_OK;
}

static enum embtier_err reserve_all(struct instance *x, struct err_msg *msg)
{
    for (uint32_t i = 0; i < x->model->rule_count; i++)
        if (x->model->rules[i].kind == MODEL_RESERVE)
            TRY(reserve_rule(x, i, msg));
    return EMBTIER_OK;
}

/* ---- all ---- */

static bool allocate(struct instance *x)
{
    const uint32_t items = x->item_count;

    x->bytes = calloc(items, sizeof(*x->bytes));
    x->read_bytes = calloc(items, sizeof(*x->read_bytes));
    x->times_s = calloc((uint64_t)items * x->memory_count, sizeof(*x->times_s));
    x->allowed = malloc((uint64_t)items * x->place_count);
    x->room_of_place = calloc(x->place_count, sizeof(*x->room_of_place));
    x->room_bytes = calloc(x->room_count, sizeof(*x->room_bytes));
    return x->bytes && x->read_bytes && x->times_s && x->allowed && x->room_of_place &&
           x->room_bytes;
}

enum embtier_err instance_new(const struct model *model, struct instance **ret_instance,
                              struct err_msg *msg)
{
    _cleanup_(instance_freep) struct instance *x = calloc(1, sizeof(*x));

    if (!x)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    x->model = model;
    x->gpu_count = model->gpu_count;
    x->memory_count = model->memory_count;
    x->place_count = model_place_count(model);
    x->room_count = count_rooms(model);
    x->item_of_table = calloc(model->table_count, sizeof(*x->item_of_table));
    if (!x->item_of_table)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    x->item_count =
        model_items(model->rules, model->rule_count, model->table_count, x->item_of_table);
    if (!allocate(x))
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    fill_items(x);
    fill_rooms(x);
    TRY(reserve_all(x, msg));
    fill_allowed(x);
    *ret_instance = TAKE(x);
    return EMBTIER_OK;
}

static uint32_t place_of_room(const struct instance *x, uint32_t room)
{
    uint32_t place = 0;

    while (x->room_of_place[place] != room)
        place++;
    return place;
}

const struct model_memory *instance_room_memory(const struct instance *x, uint32_t room)
{
    return &x->model->memories[place_of_room(x, room) / x->gpu_count];
}

void instance_room_name(const struct instance *x, uint32_t room, char *ret_name, size_t name_bytes)
{
    const struct model_memory *const memory = instance_room_memory(x, room);

    if (memory->shared)
        snprintf(ret_name, name_bytes, "memory '%s'", TEXT_SHOWN(memory->name));
    else
        snprintf(ret_name, name_bytes, "memory '%s' of GPU %" PRIu32, TEXT_SHOWN(memory->name),
                 instance_gpu(x, place_of_room(x, room)));
}

uint32_t instance_table(const struct instance *x, uint32_t item)
{
    uint32_t table = 0;

    while (x->item_of_table[table] != item)
        table++;
    return table;
}

uint32_t instance_rule(const struct instance *x, uint32_t item, uint32_t place)
{
    const struct model *const model = x->model;

    for (uint32_t i = 0; i < model->rule_count; i++)
        if (rules_out(&model->rules[i], place / x->gpu_count, instance_gpu(x, place)) &&
            x->item_of_table[model->rules[i].table] == item)
            return i;
    return MODEL_ANY;
}
