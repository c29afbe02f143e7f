/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <jansson.h>

#include "base/spec/table_spec.h"
#include "tools/cli/cli.h"
#include "tools/cli/placement/plan_report.h"

static json_t *gpu_to_json(uint32_t gpu)
{
    return gpu == PLAN_NO_GPU ? json_null() : json_integer(gpu);
}

static json_t *numbers_to_json(const double *numbers, uint32_t count)
{
    json_t *array = json_array();

    for (uint32_t i = 0; array && i < count; i++)
        if (json_array_append_new(array, cli_json_number(numbers[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

/* Makes the JSON of item @number. */
typedef json_t *item_to_json(const void *context, uint32_t number);

static json_t *items_to_json(item_to_json *make, const void *context, uint32_t count)
{
    json_t *array = json_array();

    for (uint32_t i = 0; array && i < count; i++)
        if (json_array_append_new(array, make(context, i)) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

/* ---- A plan ---- */

struct table_of_plan {
    const struct plan *plan;
    const struct plan_table *table;
};

static const char *home_word_of(const struct plan_part *part)
{
    static const char *const words[] = {
        [PLAN_HBM] = "hbm", [PLAN_ARRAY] = "array", [PLAN_CACHE] = "cache"
    };

    return words[part->home];
}

static json_t *part_to_json(const void *context, uint32_t number)
{
    const struct table_of_plan *const of = context;
    const struct plan_part *const part = &of->table->parts[number];
    const uint32_t tiers = part->home == PLAN_CACHE ? of->plan->tier_count : 0;

    return json_pack(
        "{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "home", home_word_of(part), "memory",
        of->plan->memories[plan_memory_of(of->plan, part)].name, "rows",
        part->rows > 0 ? cli_json_u64(part->rows) : json_null(), "bytes", cli_json_u64(part->bytes),
        "lookup_share", cli_json_number(part->lookup_share), "hit_rates",
        numbers_to_json(part->hit_rates, tiers), "cache_bytes",
        numbers_to_json(part->cache_bytes, tiers), "time_s", cli_json_number(part->time_s),
        "reads_per_s", cli_json_number(part->reads_per_s), "writes_bytes_per_day",
        cli_json_number(part->writes_bytes_per_day));
}

json_t *plan_report_table_json(const struct plan *plan, const struct plan_table *table)
{
    const struct table_of_plan of = { plan, table };

    return json_pack(
        "{s:s, s:o, s:i, s:s, s:s, s:o, s:b, s:o, s:o, s:o, s:s, s:o}", "name", table->name, "rows",
        table->rows != EMBTIER_UNBOUNDED ? cli_json_u64(table->rows) : json_null(), "dim",
        (int)table->dim, "dtype", dtype_word((int)table->dtype), "optimizer",
        optimizer_word((int)table->optimizer), "gpu", gpu_to_json(table->gpu), "unsplit",
        table->unsplit, "bytes", cli_json_number(plan_table_bytes(table)), "read_bytes",
        cli_json_number(table->read_bytes), "time_s", cli_json_number(plan_table_time_s(table)),
        "reason", table->reason, "parts", items_to_json(part_to_json, &of, table->part_count));
}

static json_t *table_to_json(const void *context, uint32_t number)
{
    const struct plan *const plan = context;

    return plan_report_table_json(plan, &plan->tables[number]);
}

static json_t *memory_to_json(const void *context, uint32_t number)
{
    const struct plan_memory *const memory = &((const struct plan *)context)->memories[number];

    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", memory->name, "gpu",
        gpu_to_json(memory->gpu), "capacity_bytes", cli_json_u64(memory->capacity_bytes),
        "array_bytes", cli_json_u64(memory->array_bytes), "cache_bytes",
        cli_json_u64(memory->cache_bytes), "left_bytes", cli_json_u64(plan_memory_left(memory)),
        "bandwidth_bytes_per_s", cli_json_number(memory->bandwidth_bytes_per_s), "read_bytes",
        cli_json_number(memory->read_bytes), "time_s", cli_json_number(memory->time_s));
}

static json_t *input_to_json(const void *context, uint32_t number)
{
    const struct plan_input *const input = &((const struct plan *)context)->inputs[number];
    char hash[17];

    snprintf(hash, sizeof(hash), "%016" PRIx64, input->hash);
    return json_pack("{s:s, s:s}", "name", input->name, "hash", hash);
}

json_t *plan_report_json(const struct plan *plan)
{
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:i, s:o, s:o, s:o}", "generation",
        cli_json_u64(plan->generation), "samples_per_s", cli_json_number(plan->samples_per_s),
        "samples_per_batch", cli_json_number(plan->samples_per_batch), "time_s",
        cli_json_number(plan->time_s), "bound_s",
        plan->bound_s > 0 ? cli_json_number(plan->bound_s) : json_null(), "gpu_count",
        (int)plan->gpu_count, "inputs", items_to_json(input_to_json, plan, plan->input_count),
        "memories", items_to_json(memory_to_json, plan, plan->memory_count), "tables",
        items_to_json(table_to_json, plan, plan->table_count));
}

/* ---- A difference ---- */

struct diff_of_plans {
    const struct plan *before, *after;
    const struct plan_diff *diff;
};

/* Makes null for a table that is not in the plan. */
static json_t *side_to_json(const struct plan *plan, const struct plan_table *table)
{
    return table ? plan_report_table_json(plan, table) : json_null();
}

static json_t *table_diff_to_json(const void *context, uint32_t number)
{
    static const char *const words[] = { [PLAN_MOVED] = "moved",
                                         [PLAN_ALTERED] = "altered",
                                         [PLAN_ADDED] = "added",
                                         [PLAN_DROPPED] = "dropped" };
    const struct diff_of_plans *const of = context;
    const struct plan_table_diff *const table = &of->diff->tables[number];

    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "name",
                     table->before ? table->before->name : table->after->name, "change",
                     words[table->change], "rows_moved", cli_json_u64(table->rows_moved),
                     "bytes_moved", cli_json_u64(table->bytes_moved), "before",
                     side_to_json(of->before, table->before), "after",
                     side_to_json(of->after, table->after));
}

static json_t *bytes_to_json(const struct plan_memory *memory, bool of_cache)
{
    if (!memory)
        return json_null();
    return cli_json_u64(of_cache ? memory->cache_bytes : memory->array_bytes);
}

static json_t *memory_diff_to_json(const void *context, uint32_t number)
{
    const struct diff_of_plans *const of = context;
    const struct plan_memory_diff *const memory = &of->diff->memories[number];
    const struct plan_memory *const any = memory->before ? memory->before : memory->after;

    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", any->name, "gpu",
                     gpu_to_json(any->gpu), "in_bytes", cli_json_u64(memory->in_bytes), "out_bytes",
                     cli_json_u64(memory->out_bytes), "array_bytes_before",
                     bytes_to_json(memory->before, false), "array_bytes_after",
                     bytes_to_json(memory->after, false), "cache_bytes_before",
                     bytes_to_json(memory->before, true), "cache_bytes_after",
                     bytes_to_json(memory->after, true));
}

json_t *plan_report_diff_json(const struct plan *before, const struct plan *after,
                              const struct plan_diff *diff)
{
    const struct diff_of_plans of = { before, after, diff };

    return json_pack("{s:o, s:o, s:o, s:o, s:i, s:o, s:o}", "generation_before",
                     cli_json_u64(before->generation), "generation_after",
                     cli_json_u64(after->generation), "rows_moved", cli_json_u64(diff->rows_moved),
                     "bytes_moved", cli_json_u64(diff->bytes_moved), "same_tables",
                     (int)diff->same_count, "memories",
                     items_to_json(memory_diff_to_json, &of, diff->memory_count), "tables",
                     items_to_json(table_diff_to_json, &of, diff->table_count));
}
