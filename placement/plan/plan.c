/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/plan/plan.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/spec/table_spec.h"
#include "base/yaml/yaml_doc.h"

enum embtier_err plan_new(uint32_t table_count, uint32_t memory_count, struct plan **ret_plan)
{
    _cleanup_(plan_freep) struct plan *plan = calloc(1, sizeof(*plan));

    if (!plan)
        return EMBTIER_NO_MEMORY;
    plan->table_count = table_count;
    plan->memory_count = memory_count;
    plan->tables = calloc(MAX(table_count, 1u), sizeof(*plan->tables));
    plan->memories = calloc(MAX(memory_count, 1u), sizeof(*plan->memories));
    if (!plan->tables || !plan->memories)
        return EMBTIER_NO_MEMORY;
    *ret_plan = TAKE(plan);
    return EMBTIER_OK;
}

void plan_free(struct plan *plan)
{
    if (!plan)
        return;
    yaml_doc_free(plan->file);
    free(plan->tables);
    free(plan->memories);
    free(plan);
}

const char *plan_place(struct plan_place *buffer, const struct plan *plan,
                       const struct plan_table *table, const char *key, ...)
{
    static const char end[] = ": ";
    char whole[64] = "";
    size_t used = 0;
    va_list args;

    buffer->text[0] = '\0';
    if (!plan->file)
        return buffer->text;
    if (table)
        used = (size_t)snprintf(whole, sizeof(whole), "tables[%" PRIu32 "].",
                                (uint32_t)(table - plan->tables));
    va_start(args, key);
    vsnprintf(whole + used, sizeof(whole) - used, key, args);
    va_end(args);
    yaml_doc_place(plan->file, whole, buffer->text, sizeof(buffer->text) - strlen(end));
    memcpy(buffer->text + strlen(buffer->text), end, sizeof(end));
    return buffer->text;
}

enum plan_memory_kind plan_memory_kind(const struct plan_memory *memory)
{
    if (memory->gpu != PLAN_NO_GPU)
        return PLAN_MEMORY_GPU;
    return strcmp(memory->name, PLAN_SSD) == 0 ? PLAN_MEMORY_SSD : PLAN_MEMORY_TIER;
}

static bool is_in(const struct plan_part *part, const struct plan_memory *memory)
{
    switch (plan_memory_kind(memory)) {
    case PLAN_MEMORY_GPU:
        return part->home == PLAN_HBM && part->gpu == memory->gpu;
    case PLAN_MEMORY_TIER:
        return part->home == PLAN_ARRAY && strcmp(part->tier, memory->name) == 0;
    case PLAN_MEMORY_SSD:
        return part->home == PLAN_CACHE;
    }
    return false;
}

uint32_t plan_memory_of(const struct plan *plan, const struct plan_part *part)
{
    uint32_t i = 0;

    while (i < plan->memory_count && !is_in(part, &plan->memories[i]))
        i++;
    return i;
}

uint64_t plan_row_bytes(const struct plan_table *table)
{
    const struct table_spec spec = { .dim = table->dim,
                                     .dtype = table->dtype,
                                     .optimizer = table->optimizer };

    return (uint64_t)table_spec_weight_bytes(&spec) + table_spec_state_bytes(&spec);
}

double plan_part_hit_rate(const struct plan *plan, const struct plan_part *part)
{
    double sum = 0;

    if (part->home != PLAN_CACHE)
        return 1;
    for (uint32_t i = 0; i < plan->tier_count; i++)
        sum += part->hit_rates[i];
    return MIN(sum, 1.0);
}

double plan_table_time_s(const struct plan_table *table)
{
    double sum = 0;

    for (uint32_t i = 0; i < table->part_count; i++)
        sum += table->parts[i].time_s;
    return sum;
}

double plan_table_bytes(const struct plan_table *table)
{
    double rows = (double)table->rows;

    for (uint32_t i = 0; table->rows == EMBTIER_UNBOUNDED && i < table->part_count; i++)
        rows += (double)table->parts[i].rows;
    return rows * (double)plan_row_bytes(table);
}

uint64_t plan_memory_left(const struct plan_memory *memory)
{
    return memory->capacity_bytes - memory->array_bytes - memory->cache_bytes;
}
