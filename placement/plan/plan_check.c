/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of a plan, from the outside in: figures of the whole, memories, tables, then sums over
 * tables. Each function relies on those before it. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/spec/table_spec.h"
#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "placement/plan/plan.h"
#include "placement/trace/table_names.h"

/* Sums of shares may differ from 1 by this much, and a time from its bound by this part. */
#define ROUNDING 1e-6
#define REAL_MAX 1e300

struct check {
    const struct plan *plan;
    struct plan_mistake *mistake;
    char at[40]; /* "tables[3].parts[0]." */
};

PRINTF_LIKE(3, 4)
static enum embtier_err wrong(const struct check *check, const char *key, const char *format, ...)
{
    struct plan_mistake *const mistake = check->mistake;
    va_list args;

    snprintf(mistake->key, sizeof(mistake->key), "%s%s", check->at, key);
    va_start(args, format);
    vsnprintf(mistake->text, sizeof(mistake->text), format, args);
    va_end(args);
    return EMBTIER_INVALID;
}

PRINTF_LIKE(2, 3)
static void go_to(struct check *check, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(check->at, sizeof(check->at), format, args);
    va_end(args);
}

/* NaN is outside all limits. */
static enum embtier_err check_real(const struct check *check, const char *key, double number,
                                   double most)
{
    if (number >= 0 && number <= most)
        return EMBTIER_OK;
    return wrong(check, key, "%.9g; allowed: 0 to %.9g", number, most);
}

static enum embtier_err check_count(const struct check *check, const char *key, uint64_t number,
                                    uint64_t least, uint64_t most)
{
    if (number >= least && number <= most)
        return EMBTIER_OK;
    return wrong(check, key, "%" PRIu64 "; allowed: %" PRIu64 " to %" PRIu64, number, least, most);
}

/* @room: bytes of the array that holds @text. */
static bool is_sentence(const char *text, size_t room)
{
    const size_t bytes = strnlen(text, room);

    return bytes < room && text_is_plain(text, bytes);
}

/* ---- The whole ---- */

static enum embtier_err check_inputs(struct check *check)
{
    const struct plan *const plan = check->plan;

    TRY(check_count(check, "inputs", plan->input_count, 0, PLAN_INPUTS_MAX));
    for (uint32_t i = 0; i < plan->input_count; i++) {
        const char *const name = plan->inputs[i].name;

        go_to(check, "inputs[%" PRIu32 "].", i);
        if (name[0] == '\0' || !is_sentence(name, sizeof(plan->inputs[i].name)))
            return wrong(check, "name", "no text; allowed: 1 to %d plain letters",
                         PLAN_TEXT_BYTES - 1);
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(plan->inputs[k].name, name) == 0)
                return wrong(check, "name", "'%s' is the name of inputs[%" PRIu32 "] too",
                             TEXT_SHOWN(name), k);
    }
    go_to(check, "%s", "");
    return EMBTIER_OK;
}

static enum embtier_err check_whole(struct check *check)
{
    const struct plan *const plan = check->plan;

    TRY(check_count(check, "generation", plan->generation, 1, INT64_MAX));
    TRY(check_inputs(check));
    TRY(check_count(check, "gpu_count", plan->gpu_count, 0, PLAN_GPUS_MAX));
    if (!(plan->samples_per_batch > 0 && plan->samples_per_batch <= REAL_MAX))
        return wrong(check, "samples_per_batch", "%.9g; allowed: above 0", plan->samples_per_batch);
    TRY(check_real(check, "samples_per_s", plan->samples_per_s, REAL_MAX));
    TRY(check_real(check, "time_s", plan->time_s, REAL_MAX));
    TRY(check_real(check, "bound_s", plan->bound_s, plan->time_s * (1 + ROUNDING)));
    TRY(check_count(check, "memories", plan->memory_count, 1, PLAN_MEMORIES_MAX));
    return check_count(check, "tables", plan->table_count, 1, PLAN_TABLES_MAX);
}

/* ---- Memories ---- */

static enum embtier_err check_memory_name(const struct check *check, uint32_t number)
{
    const struct plan_memory *const memory = &check->plan->memories[number];

    if (!tier_name_is_valid(memory->name))
        return wrong(check, "name", "not the name of a memory; allowed: 1 to %d of A-Za-z0-9_-",
                     TIER_NAME_MAX);
    if (memory->gpu != PLAN_NO_GPU && memory->gpu >= check->plan->gpu_count)
        return wrong(check, "gpu", "%" PRIu32 "; allowed: below gpu_count, %" PRIu32, memory->gpu,
                     check->plan->gpu_count);
    for (uint32_t i = 0; i < number; i++) {
        const struct plan_memory *const other = &check->plan->memories[i];

        if (other->gpu != memory->gpu)
            continue;
        if (memory->gpu != PLAN_NO_GPU)
            return wrong(check, "gpu", "memories[%" PRIu32 "] is that of GPU %" PRIu32 " already",
                         i, memory->gpu);
        if (strcmp(other->name, memory->name) == 0)
            return wrong(check, "name", "memories[%" PRIu32 "] has the name '%s' too", i,
                         memory->name);
    }
    if (number > 0 && plan_memory_kind(memory) < plan_memory_kind(memory - 1))
        return wrong(check, "name",
                     "'%s' follows '%s'; allowed: memories of GPUs, then tiers, then " PLAN_SSD,
                     memory->name, (memory - 1)->name);
    return EMBTIER_OK;
}

static enum embtier_err check_memory(const struct check *check, const struct plan_memory *memory)
{
    TRY(check_count(check, "capacity_bytes", memory->capacity_bytes, 0, INT64_MAX));
    TRY(check_count(check, "array_bytes", memory->array_bytes, 0, INT64_MAX));
    TRY(check_count(check, "cache_bytes", memory->cache_bytes, 0, INT64_MAX));
    if (memory->cache_bytes > 0 && plan_memory_kind(memory) != PLAN_MEMORY_TIER)
        return wrong(check, "cache_bytes", "%" PRIu64 "; allowed: 0, as %s is no tier of the cache",
                     memory->cache_bytes, memory->name);
    if (!(memory->bandwidth_bytes_per_s > 0 && memory->bandwidth_bytes_per_s <= REAL_MAX))
        return wrong(check, "bandwidth_bytes_per_s", "%.9g; allowed: above 0",
                     memory->bandwidth_bytes_per_s);
    TRY(check_real(check, "read_bytes", memory->read_bytes, REAL_MAX));
    return check_real(check, "time_s", memory->time_s, REAL_MAX);
}

static enum embtier_err check_tiers(const struct check *check)
{
    const struct plan *const plan = check->plan;
    uint32_t tiers = 0;

    for (uint32_t i = 0; i < plan->memory_count; i++)
        tiers += plan_memory_kind(&plan->memories[i]) == PLAN_MEMORY_TIER;
    if (tiers > PLAN_TIERS_MAX || tiers != plan->tier_count)
        return wrong(check, "memories", "%" PRIu32 " tiers; allowed: %" PRIu32 ", and at most %d",
                     tiers, plan->tier_count, PLAN_TIERS_MAX);
    for (uint32_t i = 0, tier = 0; i < plan->memory_count; i++)
        if (plan_memory_kind(&plan->memories[i]) == PLAN_MEMORY_TIER &&
            plan->memories[i].cache_bytes != plan->cache_bytes[tier++])
            return wrong(
                check, "memories", "%s has %" PRIu64 " bytes for the cache, the plan %" PRIu64,
                plan->memories[i].name, plan->memories[i].cache_bytes, plan->cache_bytes[tier - 1]);
    return EMBTIER_OK;
}

static enum embtier_err check_memories(struct check *check)
{
    for (uint32_t i = 0; i < check->plan->memory_count; i++) {
        go_to(check, "memories[%" PRIu32 "].", i);
        TRY(check_memory_name(check, i));
        TRY(check_memory(check, &check->plan->memories[i]));
    }
    go_to(check, "%s", "");
    return check_tiers(check);
}

/* ---- Tables ---- */

static enum embtier_err check_description(const struct check *check, const struct plan_table *table)
{
    const struct plan *const plan = check->plan;

    if (strnlen(table->name, sizeof(table->name)) == sizeof(table->name) ||
        !table_name_is_valid(table->name))
        return wrong(check, "name", "not the name of a table");
    TRY(check_count(check, "dim", table->dim, 1, EMBTIER_DIM_MAX));
    if (!dtype_word((int)table->dtype))
        return wrong(check, "dtype", "unknown; allowed: f32, f16, bf16");
    if (!optimizer_word((int)table->optimizer))
        return wrong(check, "optimizer",
                     "unknown; allowed: those of `embtier table create --help`");
    if (plan->gpu_count == 0 && table->gpu != PLAN_NO_GPU)
        return wrong(check, "gpu", "%" PRIu32 "; allowed: no such key, as gpu_count is 0",
                     table->gpu);
    if (plan->gpu_count > 0 && table->gpu == PLAN_NO_GPU)
        return wrong(check, "gpu", "is missing; allowed: 0 to %" PRIu32, plan->gpu_count - 1);
    if (plan->gpu_count > 0)
        TRY(check_count(check, "gpu", table->gpu, 0, plan->gpu_count - 1));
    TRY(check_real(check, "read_bytes", table->read_bytes, REAL_MAX));
    if (!is_sentence(table->reason, sizeof(table->reason)))
        return wrong(check, "reason", "not plain; allowed: at most %d bytes of text in a line",
                     PLAN_TEXT_BYTES - 1);
    if (table->unsplit && table->part_count > 1)
        return wrong(check, "parts",
                     "%" PRIu32 " parts; allowed: 1, as unsplit forbids to split this table",
                     table->part_count);
    return check_count(check, "parts", table->part_count, 1, PLAN_PARTS_MAX);
}

/* Checks that the part has a memory, which comes after that of the part before it. */
static enum embtier_err check_home(const struct check *check, const struct plan_table *table,
                                   const struct plan_part *part)
{
    const struct plan *const plan = check->plan;
    const uint32_t memory = plan_memory_of(plan, part);

    if ((part->home == PLAN_HBM) != (part->gpu != PLAN_NO_GPU) ||
        (part->home == PLAN_HBM && part->gpu != table->gpu))
        return wrong(check, "home", "not in the memory of the table's GPU");
    if ((part->home == PLAN_ARRAY) != (part->tier[0] != '\0'))
        return wrong(check, "tier", "only an array is in a tier, and each array is");
    if (memory == plan->memory_count && part->home == PLAN_ARRAY)
        return wrong(check, "tier", "'%s' is no tier of this plan; allowed: those of memories",
                     TEXT_SHOWN(part->tier));
    if (memory == plan->memory_count)
        return wrong(check, "home", "no memory of this plan is %s",
                     part->home == PLAN_CACHE ? "named " PLAN_SSD : "that of the table's GPU");
    if (part > table->parts && memory <= plan_memory_of(plan, part - 1))
        return wrong(check, "home",
                     "out of order; allowed: hbm, then arrays in the order of the tiers, then "
                     "cache, each once");
    return EMBTIER_OK;
}

static enum embtier_err check_part_size(const struct check *check, const struct plan_table *table,
                                        const struct plan_part *part)
{
    const bool is_last = part == &table->parts[table->part_count - 1];
    const unsigned __int128 least = (unsigned __int128)part->rows * plan_row_bytes(table);

    if (table->rows == EMBTIER_UNBOUNDED && is_last) {
        if (part->home != PLAN_CACHE)
            return wrong(check, "home", "the coldest rows of an unbounded table; allowed: cache");
        if (part->rows != 0)
            return wrong(check, "rows", "%" PRIu64 "; allowed: rest, as the table is unbounded",
                         part->rows);
    } else if (part->rows == 0) {
        return wrong(check, "rows", "no rows; allowed: 1 or more");
    }
    if (part->home == PLAN_CACHE)
        return part->bytes == 0
                   ? EMBTIER_OK
                   : wrong(check, "bytes", "%" PRIu64 "; allowed: 0 in the cache", part->bytes);
    if (part->bytes < least)
        return wrong(check, "bytes",
                     "%" PRIu64 "; allowed: at least %" PRIu64 " for each of %" PRIu64 " rows",
                     part->bytes, plan_row_bytes(table), part->rows);
    return check_count(check, "bytes", part->bytes, 0, INT64_MAX);
}

static enum embtier_err check_hits(const struct check *check, const struct plan_part *part)
{
    const uint32_t used = part->home == PLAN_CACHE ? check->plan->tier_count : 0;
    double sum = 0;

    for (uint32_t i = 0; i < PLAN_TIERS_MAX; i++) {
        char key[32];

        snprintf(key, sizeof(key), "hit_rates[%" PRIu32 "]", i);
        TRY(check_real(check, key, part->hit_rates[i], i < used ? 1 : 0));
        snprintf(key, sizeof(key), "cache_bytes[%" PRIu32 "]", i);
        TRY(check_real(check, key, part->cache_bytes[i],
                       i < used ? (double)check->plan->cache_bytes[i] * (1 + ROUNDING) : 0));
        sum += part->hit_rates[i];
    }
    if (sum > 1 + ROUNDING)
        return wrong(check, "hit_rates", "%.9g in all; allowed: at most 1", sum);
    return EMBTIER_OK;
}

static enum embtier_err check_figures(const struct check *check, const struct plan_part *part)
{
    TRY(check_real(check, "lookup_share", part->lookup_share, 1));
    TRY(check_hits(check, part));
    TRY(check_real(check, "time_s", part->time_s, REAL_MAX));
    TRY(check_real(check, "reads_per_s", part->reads_per_s, REAL_MAX));
    return check_real(check, "writes_bytes_per_day", part->writes_bytes_per_day, REAL_MAX);
}

/* Rows and shares of the parts are those of the table. */
static enum embtier_err check_sums(const struct check *check, const struct plan_table *table)
{
    unsigned __int128 rows = 0;
    double share = 0;

    for (uint32_t i = 0; i < table->part_count; i++) {
        rows += table->parts[i].rows;
        share += table->parts[i].lookup_share;
    }
    if (table->rows != EMBTIER_UNBOUNDED && rows != table->rows)
        return wrong(check, "parts",
                     "%s%" PRIu64 " rows in all; allowed: the table's rows, %" PRIu64,
                     rows > UINT64_MAX ? "over " : "",
                     rows > UINT64_MAX ? UINT64_MAX : (uint64_t)rows, table->rows);
    if (share != 0 && fabs(share - 1) > ROUNDING)
        return wrong(check, "parts",
                     "lookup_share is %.9g in all; allowed: 1, or 0 without lookups", share);
    return EMBTIER_OK;
}

static enum embtier_err check_table(struct check *check, uint32_t number)
{
    const struct plan_table *const table = &check->plan->tables[number];

    go_to(check, "tables[%" PRIu32 "].", number);
    TRY(check_description(check, table));
    for (uint32_t i = 0; i < table->part_count; i++) {
        go_to(check, "tables[%" PRIu32 "].parts[%" PRIu32 "].", number, i);
        TRY(check_home(check, table, &table->parts[i]));
        TRY(check_part_size(check, table, &table->parts[i]));
        TRY(check_figures(check, &table->parts[i]));
    }
    go_to(check, "tables[%" PRIu32 "].", number);
    return check_sums(check, table);
}

static enum embtier_err check_tables(struct check *check)
{
    for (uint32_t i = 0; i < check->plan->table_count; i++)
        TRY(check_table(check, i));
    go_to(check, "%s", "");
    return EMBTIER_OK;
}

/* ---- Sums over tables ---- */

/* @bytes: of all parts in the memory. */
static enum embtier_err check_room(const struct check *check, const struct plan_memory *memory,
                                   unsigned __int128 bytes)
{
    const uint64_t shown = (uint64_t)MIN(bytes, (unsigned __int128)UINT64_MAX);

    if (bytes + memory->cache_bytes > memory->capacity_bytes)
        return wrong(check, "capacity_bytes",
                     "%" PRIu64 " (%s) does not hold %" PRIu64 " (%s) of arrays and %" PRIu64
                     " (%s) of cache",
                     memory->capacity_bytes, BYTES_TEXT(memory->capacity_bytes), shown,
                     BYTES_TEXT(shown), memory->cache_bytes, BYTES_TEXT(memory->cache_bytes));
    if (bytes != memory->array_bytes)
        return wrong(check, "array_bytes",
                     "%" PRIu64 "; allowed: %" PRIu64 ", the sum of the parts there",
                     memory->array_bytes, shown);
    return EMBTIER_OK;
}

/* SSD has all rows, whatever their home. It has the updated rows of an unbounded table, which the
 * plan does not know. */
static enum embtier_err check_ssd(const struct check *check, const struct plan_memory *memory)
{
    const struct plan *const plan = check->plan;
    unsigned __int128 least = 0;

    for (uint32_t i = 0; i < plan->table_count; i++)
        if (plan->tables[i].rows != EMBTIER_UNBOUNDED)
            least += (unsigned __int128)plan->tables[i].rows * plan_row_bytes(&plan->tables[i]);
    if (least > memory->array_bytes)
        return wrong(check, "array_bytes", "%" PRIu64 "; allowed: from %" PRIu64 ", all rows",
                     memory->array_bytes, (uint64_t)MIN(least, (unsigned __int128)UINT64_MAX));
    return check_room(check, memory, memory->array_bytes);
}

static enum embtier_err check_rooms(struct check *check)
{
    const struct plan *const plan = check->plan;
    unsigned __int128 bytes[PLAN_MEMORIES_MAX] = { 0 };

    for (uint32_t i = 0; i < plan->table_count; i++)
        for (uint32_t k = 0; k < plan->tables[i].part_count; k++) {
            const struct plan_part *const part = &plan->tables[i].parts[k];

            bytes[plan_memory_of(plan, part)] += part->bytes;
        }
    for (uint32_t i = 0; i < plan->memory_count; i++) {
        const struct plan_memory *const memory = &plan->memories[i];

        go_to(check, "memories[%" PRIu32 "].", i);
        TRY(plan_memory_kind(memory) == PLAN_MEMORY_SSD ? check_ssd(check, memory)
                                                        : check_room(check, memory, bytes[i]));
    }
    return EMBTIER_OK;
}

static enum embtier_err check_names(struct check *check)
{
    const struct plan *const plan = check->plan;
    uint32_t repeated = 0;

    TRY(names_find_repeated(plan->tables->name, sizeof(*plan->tables), plan->table_count,
                            &repeated));
    if (repeated == plan->table_count)
        return EMBTIER_OK;
    go_to(check, "tables[%" PRIu32 "].", repeated);
    return wrong(check, "name", "a table before has the name '%s' too",
                 plan->tables[repeated].name);
}

enum embtier_err plan_find_frame_mistake(const struct plan *plan, struct plan_mistake *ret_mistake)
{
    struct check check = { .plan = plan, .mistake = ret_mistake };

    TRY(check_whole(&check));
    return check_memories(&check);
}

enum embtier_err plan_find_mistake(const struct plan *plan, struct plan_mistake *ret_mistake)
{
    struct check check = { .plan = plan, .mistake = ret_mistake };

    TRY(plan_find_frame_mistake(plan, ret_mistake));
    TRY(check_tables(&check));
    TRY(check_rooms(&check));
    return check_names(&check);
}

enum embtier_err plan_check(const struct plan *plan, struct err_msg *msg)
{
    struct plan_mistake mistake;
    const enum embtier_err err = plan_find_mistake(plan, &mistake);

    if (err == EMBTIER_INVALID)
        return err_set(msg, EMBTIER_INVALID, "%s: %s", mistake.key, mistake.text);
    return err == EMBTIER_OK ? EMBTIER_OK : err_set(msg, err, "out of memory");
}
