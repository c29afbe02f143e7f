/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/placement/plan_report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/spec/table_spec.h"
#include "base/text/text_escape.h"
#include "tools/cli/number.h"
#include "tools/cli/text_table.h"

#define NUMBER() (&(struct number_text){ { 0 } })

/* ---- Cells ---- */

static bool add_titles(struct text_table *text, const char *const *titles, size_t count)
{
    bool ok = text != NULL;

    for (size_t i = 0; ok && i < count; i++)
        ok = text_table_add(text, "%s", titles[i]);
    return ok;
}

static bool add_gpu(struct text_table *text, uint32_t gpu)
{
    return gpu == PLAN_NO_GPU ? text_table_add(text, "-") : text_table_add(text, "%" PRIu32, gpu);
}

static bool add_bytes(struct text_table *text, double bytes)
{
    return text_table_add(text, "%s", number_bytes(NUMBER(), bytes));
}

static bool add_time(struct text_table *text, double seconds)
{
    return text_table_add(text, "%s", number_time(NUMBER(), seconds));
}

static bool add_rows(struct text_table *text, uint64_t rows, const char *none)
{
    return rows == 0 ? text_table_add(text, "%s", none)
                     : text_table_add(text, "%s", number_count(NUMBER(), (double)rows));
}

static const char *home_of(const struct plan *plan, const struct plan_part *part)
{
    return part->home == PLAN_CACHE ? "cache" : plan->memories[plan_memory_of(plan, part)].name;
}

struct homes_text {
    char text[PLAN_PARTS_MAX * (TIER_NAME_MAX + 16)];
};

/* "dram", or "hbm 80%, cache 20%" with shares of the lookups. */
static const char *homes_of(struct homes_text *buffer, const struct plan *plan,
                            const struct plan_table *table)
{
    char *const text = buffer->text;
    size_t used = 0;

    for (uint32_t i = 0; i < table->part_count; i++) {
        used += (size_t)snprintf(text + used, sizeof(buffer->text) - used, "%s%s",
                                 i > 0 ? ", " : "", home_of(plan, &table->parts[i]));
        if (table->part_count > 1)
            used += (size_t)snprintf(text + used, sizeof(buffer->text) - used, " %.3g%%",
                                     100 * table->parts[i].lookup_share);
    }
    return text;
}

/* Adds the share of a table's lookups that need no SSD, or a dash if it has no lookups. */
static bool add_hits(struct text_table *text, const struct plan *plan,
                     const struct plan_table *table)
{
    double hits = 0, lookups = 0;

    for (uint32_t i = 0; i < table->part_count; i++) {
        hits += table->parts[i].lookup_share * plan_part_hit_rate(plan, &table->parts[i]);
        lookups += table->parts[i].lookup_share;
    }
    return lookups > 0 ? text_table_add(text, "%.1f%%", 100 * hits) : text_table_add(text, "-");
}

/* Adds what the table's parts ask of SSD, reads a second and bytes written a day; a dash stands for
 * a table that needs no SSD. */
static bool add_ssd(struct text_table *text, const struct plan_table *table)
{
    double reads_per_s = 0, bytes_per_day = 0;

    for (uint32_t i = 0; i < table->part_count; i++) {
        reads_per_s += table->parts[i].reads_per_s;
        bytes_per_day += table->parts[i].writes_bytes_per_day;
    }
    return (reads_per_s > 0 ? text_table_add(text, "%s", number_count(NUMBER(), reads_per_s))
                            : text_table_add(text, "-")) &&
           (bytes_per_day > 0 ? add_bytes(text, bytes_per_day) : text_table_add(text, "-"));
}

/* An unbounded table has no size. */
static bool add_size(struct text_table *text, const struct plan_table *table)
{
    return table->rows == EMBTIER_UNBOUNDED ? text_table_add(text, "-")
                                            : add_bytes(text, plan_table_bytes(table));
}

static double gap_of(const struct plan *plan)
{
    return plan->time_s > 0 ? 1 - plan->bound_s / plan->time_s : 0;
}

/* ---- A plan ---- */

static int compare_times(const void *a, const void *b)
{
    const struct plan_table *const left = *(const struct plan_table *const *)a;
    const struct plan_table *const right = *(const struct plan_table *const *)b;
    const double left_s = plan_table_time_s(left), right_s = plan_table_time_s(right);

    return left_s != right_s ? (left_s < right_s) - (left_s > right_s)
                             : strcmp(left->name, right->name);
}

static void print_summary(const struct plan *plan, const char *path)
{
    text_print(stdout, "%s: generation %" PRIu64 ", %s table%s", path, plan->generation,
               number_count(NUMBER(), plan->table_count), PLURAL(plan->table_count));
    if (plan->gpu_count > 0)
        printf(", %" PRIu32 " GPU%s", plan->gpu_count, PLURAL(plan->gpu_count));
    printf("\npredicted: %.4g samples/s; a batch of %s takes %s", plan->samples_per_s,
           number_count(NUMBER(), plan->samples_per_batch), number_time(NUMBER(), plan->time_s));
    if (plan->bound_s > 0)
        printf(", no plan less than %s (gap %.2g%%)", number_time(NUMBER(), plan->bound_s),
               100 * gap_of(plan));
    else
        printf(", no bound known");
    printf("\nmade from:");
    for (uint32_t i = 0; i < plan->input_count; i++)
        text_print(stdout, "%s %s %016" PRIx64, i > 0 ? "," : "", plan->inputs[i].name,
                   plan->inputs[i].hash);
    printf("%s\n\n", plan->input_count == 0 ? " nothing that it names" : "");
}

static bool add_memory(struct text_table *text, const struct plan_memory *memory)
{
    return text_table_add(text, "%s", memory->name) && add_gpu(text, memory->gpu) &&
           add_bytes(text, (double)memory->capacity_bytes) &&
           add_bytes(text, (double)memory->array_bytes) &&
           add_bytes(text, (double)memory->cache_bytes) &&
           add_bytes(text, (double)plan_memory_left(memory)) &&
           text_table_add(text, "%s/s", number_bytes(NUMBER(), memory->bandwidth_bytes_per_s)) &&
           add_bytes(text, memory->read_bytes) && add_time(text, memory->time_s);
}

static struct text_table *memories_text(const struct plan *plan)
{
    static const char *const titles[] = { "MEMORY", "GPU",       "CAPACITY",   "ROWS", "CACHE",
                                          "LEFT",   "BANDWIDTH", "READ/BATCH", "TIME" };
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("lrrrrrrrr");
    bool ok = add_titles(text, titles, ARRAY_LEN(titles));

    for (uint32_t i = 0; ok && i < plan->memory_count; i++)
        ok = add_memory(text, &plan->memories[i]);
    return ok ? TAKE(text) : NULL;
}

static bool add_table(struct text_table *text, const struct plan *plan,
                      const struct plan_table *table)
{
    struct homes_text homes;

    return text_table_add(text, "%s", table->name) && add_gpu(text, table->gpu) &&
           text_table_add(text, "%s", homes_of(&homes, plan, table)) &&
           add_rows(text, table->rows, "unbounded") && add_size(text, table) &&
           add_bytes(text, table->read_bytes) && add_hits(text, plan, table) &&
           add_ssd(text, table) && add_time(text, plan_table_time_s(table)) &&
           text_table_add(text, "%s", table->reason);
}

/* The table with the longest lookup time comes first: it is the one to look at. */
static struct text_table *tables_text(const struct plan *plan)
{
    static const char *const titles[] = { "TABLE",      "GPU",        "HOME", "ROWS",
                                          "BYTES",      "READ/BATCH", "HITS", "READS/S",
                                          "WRITES/DAY", "TIME",       "WHY" };
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("lrlrrrrrrrl");
    _cleanup_(freep) const struct plan_table **tables = calloc(plan->table_count, sizeof(*tables));
    bool ok = tables && add_titles(text, titles, ARRAY_LEN(titles));

    for (uint32_t i = 0; ok && i < plan->table_count; i++)
        tables[i] = &plan->tables[i];
    if (ok)
        qsort(tables, plan->table_count, sizeof(*tables), compare_times);
    for (uint32_t i = 0; ok && i < plan->table_count; i++)
        ok = add_table(text, plan, tables[i]);
    return ok ? TAKE(text) : NULL;
}

/* As the server's configuration has it. Arrays are whole MiB. */
static void print_array_bytes(const struct plan *plan)
{
    const char *before = "the server must keep for arrays: ";

    for (uint32_t i = 0; i < plan->memory_count; i++) {
        const struct plan_memory *const memory = &plan->memories[i];

        if (plan_memory_kind(memory) != PLAN_MEMORY_TIER || memory->array_bytes == 0)
            continue;
        text_print(stdout, "%sarray_bytes %" PRIu64 "MiB of tier '%s'", before,
                   div_round_up(memory->array_bytes, MIB), memory->name);
        before = ", ";
    }
    if (before[0] == ',')
        putchar('\n');
}

bool plan_report_print(const struct plan *plan, const char *path)
{
    _cleanup_(text_table_freep) struct text_table *memories = memories_text(plan);
    _cleanup_(text_table_freep) struct text_table *tables = tables_text(plan);

    if (!memories || !tables)
        return false;
    print_summary(plan, path);
    text_table_print(memories, 0, stdout);
    print_array_bytes(plan);
    putchar('\n');
    text_table_print(tables, 0, stdout);
    return true;
}

/* ---- A table ---- */

static bool add_part(struct text_table *text, const struct plan *plan,
                     const struct plan_table *table, const struct plan_part *part)
{
    bool ok =
        text_table_add(text, "%s", home_of(plan, part)) && add_rows(text, part->rows, "rest") &&
        (table->rows == EMBTIER_UNBOUNDED
             ? text_table_add(text, "-")
             : text_table_add(text, "%.3g%%", 100 * (double)part->rows / (double)table->rows)) &&
        add_bytes(text, (double)part->bytes) &&
        text_table_add(text, "%.3g%%", 100 * part->lookup_share) &&
        text_table_add(text, "%.1f%%", 100 * plan_part_hit_rate(plan, part)) &&
        add_time(text, part->time_s) &&
        text_table_add(text, "%s", number_count(NUMBER(), part->reads_per_s)) &&
        add_bytes(text, part->writes_bytes_per_day);

    for (uint32_t i = 0; ok && i < plan->tier_count; i++)
        ok = part->home == PLAN_CACHE ? text_table_add(text, "%.1f%%, %s", 100 * part->hit_rates[i],
                                                       number_bytes(NUMBER(), part->cache_bytes[i]))
                                      : text_table_add(text, "-");
    return ok;
}

static bool add_part_titles(struct text_table *text, const struct plan *plan)
{
    static const char *const titles[] = { "HOME", "ROWS", "OF ALL",      "BYTES",     "LOOKUPS",
                                          "HITS", "TIME", "SSD READS/S", "WRITES/DAY" };
    bool ok = add_titles(text, titles, ARRAY_LEN(titles));

    for (uint32_t i = 0; ok && i < plan->memory_count; i++)
        if (plan_memory_kind(&plan->memories[i]) == PLAN_MEMORY_TIER)
            ok = text_table_add(text, "CACHE IN %s", plan->memories[i].name);
    return ok;
}

bool plan_report_print_table(const struct plan *plan, const struct plan_table *table)
{
    static const char *const sides[PLAN_TIERS_MAX + 1] = { "lrrrrrrrr", "lrrrrrrrrr", "lrrrrrrrrrr",
                                                           "lrrrrrrrrrrr", "lrrrrrrrrrrrr" };
    _cleanup_(text_table_freep) struct text_table *text = text_table_new(sides[plan->tier_count]);
    bool ok = add_part_titles(text, plan);

    for (uint32_t i = 0; ok && i < table->part_count; i++)
        ok = add_part(text, plan, table, &table->parts[i]);
    if (!ok)
        return false;
    printf("%s: %s rows of %" PRIu32 " %s, optimizer %s", table->name,
           table->rows == EMBTIER_UNBOUNDED ? "unbounded"
                                            : number_count(NUMBER(), (double)table->rows),
           table->dim, dtype_word((int)table->dtype), optimizer_word((int)table->optimizer));
    if (table->gpu != PLAN_NO_GPU)
        printf(", looked up by GPU %" PRIu32, table->gpu);
    printf("\na batch reads %s in %s\n", number_bytes(NUMBER(), table->read_bytes),
           number_time(NUMBER(), plan_table_time_s(table)));
    if (table->reason[0] != '\0')
        text_print(stdout, "%s\n", table->reason);
    putchar('\n');
    text_table_print(text, 0, stdout);
    return true;
}

/* ---- A difference ---- */

static const char *const change_words[] = { [PLAN_MOVED] = "moved",
                                            [PLAN_ALTERED] = "altered",
                                            [PLAN_ADDED] = "new",
                                            [PLAN_DROPPED] = "gone" };

static bool add_change_side(struct text_table *text, const struct plan *plan,
                            const struct plan_table *table)
{
    struct homes_text homes;

    if (!table)
        return text_table_add(text, "-");
    if (table->gpu == PLAN_NO_GPU)
        return text_table_add(text, "%s", homes_of(&homes, plan, table));
    return text_table_add(text, "GPU %" PRIu32 ": %s", table->gpu, homes_of(&homes, plan, table));
}

static struct text_table *changes_text(const struct plan *before, const struct plan *after,
                                       const struct plan_diff *diff)
{
    static const char *const titles[] = { "TABLE", "CHANGE", "FROM", "TO", "ROWS", "BYTES" };
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("llllrr");
    bool ok = add_titles(text, titles, ARRAY_LEN(titles));

    for (uint32_t i = 0; ok && i < diff->table_count; i++) {
        const struct plan_table_diff *const table = &diff->tables[i];

        ok = text_table_add(text, "%s", table->before ? table->before->name : table->after->name) &&
             text_table_add(text, "%s", change_words[table->change]) &&
             add_change_side(text, before, table->before) &&
             add_change_side(text, after, table->after) &&
             text_table_add(text, "%s", number_count(NUMBER(), (double)table->rows_moved)) &&
             add_bytes(text, (double)table->bytes_moved);
    }
    return ok ? TAKE(text) : NULL;
}

static bool add_bytes_of(struct text_table *text, const struct plan_memory *memory, bool of_cache)
{
    if (!memory)
        return text_table_add(text, "-");
    return add_bytes(text, (double)(of_cache ? memory->cache_bytes : memory->array_bytes));
}

static struct text_table *memory_changes_text(const struct plan_diff *diff)
{
    static const char *const titles[] = { "MEMORY",   "GPU",      "COME",      "GO",
                                          "ROWS OLD", "ROWS NEW", "CACHE OLD", "CACHE NEW" };
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("lrrrrrrr");
    bool ok = add_titles(text, titles, ARRAY_LEN(titles));

    for (uint32_t i = 0; ok && i < diff->memory_count; i++) {
        const struct plan_memory_diff *const memory = &diff->memories[i];
        const struct plan_memory *const any = memory->before ? memory->before : memory->after;

        ok = text_table_add(text, "%s", any->name) && add_gpu(text, any->gpu) &&
             add_bytes(text, (double)memory->in_bytes) &&
             add_bytes(text, (double)memory->out_bytes) &&
             add_bytes_of(text, memory->before, false) &&
             add_bytes_of(text, memory->after, false) && add_bytes_of(text, memory->before, true) &&
             add_bytes_of(text, memory->after, true);
    }
    return ok ? TAKE(text) : NULL;
}

bool plan_report_print_diff(const struct plan *before, const struct plan *after,
                            const struct plan_diff *diff)
{
    _cleanup_(text_table_freep) struct text_table *memories = memory_changes_text(diff);
    _cleanup_(text_table_freep) struct text_table *changes = changes_text(before, after, diff);

    if (!memories || !changes)
        return false;
    printf("generation %" PRIu64 " > %" PRIu64 ", tables: %" PRIu32 " moved, %" PRIu32
           " same, %" PRIu32 " new, %" PRIu32 " gone, %" PRIu32 " altered\n",
           before->generation, after->generation, diff->change_counts[PLAN_MOVED], diff->same_count,
           diff->change_counts[PLAN_ADDED], diff->change_counts[PLAN_DROPPED],
           diff->change_counts[PLAN_ALTERED]);
    printf("%s rows move, %s; predicted: %.4g > %.4g samples/s\n\n",
           number_count(NUMBER(), (double)diff->rows_moved),
           number_bytes(NUMBER(), (double)diff->bytes_moved), before->samples_per_s,
           after->samples_per_s);
    text_table_print(memories, 0, stdout);
    if (diff->table_count == 0)
        return true;
    putchar('\n');
    text_table_print(changes, 0, stdout);
    return true;
}
