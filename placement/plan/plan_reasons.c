/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/plan/plan_reasons.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text/bytes.h"

/* A table with this part of the slowest GPU's time sets the time. */
#define MUCH_TIME 0.5
/* The cache serves a table that hits this often nearly as well as an array would. */
#define HIGH_HIT_RATE 0.9
/* Memories of GPUs, then the tiers, then the SSD. */
#define RANKS (PLAN_TIERS_MAX + 2)

struct facts {
    const struct plan *plan;
    double loads[PLAN_GPUS_MAX]; /* lookup time of each GPU; of all tables if there is none */
    double most_load;
    bool is_row_wise; /* a table that is whole was not worth a cut */
    /* Bytes that a batch reads for each byte held, of whole tables with this rank. */
    double most_density[RANKS], least_density[RANKS];
};

static uint32_t rank_of(const struct plan *plan, const struct plan_part *part)
{
    const uint32_t memory = plan_memory_of(plan, part);
    uint32_t rank = 0;

    for (uint32_t i = 0; i <= memory; i++)
        rank += plan_memory_kind(&plan->memories[i]) != PLAN_MEMORY_GPU;
    return rank;
}

static const char *memory_name(const struct plan *plan, const struct plan_part *part)
{
    return plan->memories[plan_memory_of(plan, part)].name;
}

static uint32_t load_of(const struct plan_table *table)
{
    return table->gpu == PLAN_NO_GPU ? 0 : table->gpu;
}

/* Returns -1 for a table that is split or unbounded, as its bytes are not all in one place. */
static double density(const struct plan_table *table)
{
    if (table->part_count > 1 || table->rows == EMBTIER_UNBOUNDED)
        return -1;
    return table->read_bytes / plan_table_bytes(table);
}

static struct facts facts_of(const struct plan *plan, bool is_row_wise)
{
    struct facts facts = { .plan = plan, .is_row_wise = is_row_wise };

    for (uint32_t i = 0; i < RANKS; i++) {
        facts.most_density[i] = -1;
        facts.least_density[i] = INFINITY;
    }
    for (uint32_t i = 0; i < plan->table_count; i++) {
        const struct plan_table *const table = &plan->tables[i];
        const uint32_t rank = rank_of(plan, table->parts);
        double *const load = &facts.loads[load_of(table)];

        *load += plan_table_time_s(table);
        facts.is_row_wise |= table->part_count > 1;
        facts.most_load = MAX(facts.most_load, *load);
        if (density(table) < 0)
            continue;
        facts.most_density[rank] = MAX(facts.most_density[rank], density(table));
        facts.least_density[rank] = MIN(facts.least_density[rank], density(table));
    }
    return facts;
}

/* True if there are whole tables in slower memory, and none of them has hotter bytes. */
static bool is_hottest(const struct facts *facts, const struct plan_table *table, uint32_t rank)
{
    bool has_any = false;

    for (uint32_t i = rank + 1; i < RANKS; i++) {
        if (facts->most_density[i] > density(table))
            return false;
        has_any |= facts->most_density[i] >= 0;
    }
    return has_any;
}

/* True if there are whole tables in faster memory, and none of them has colder bytes. */
static bool is_colder(const struct facts *facts, const struct plan_table *table, uint32_t rank)
{
    bool has_any = false;

    for (uint32_t i = 0; i < rank; i++) {
        if (facts->least_density[i] < density(table))
            return false;
        has_any |= facts->least_density[i] < INFINITY;
    }
    return has_any;
}

/* Returns the bytes that arrays leave: the cache has them, they are reserved, or nothing has. */
static uint64_t room_of(const struct plan_memory *memory)
{
    return memory->capacity_bytes - memory->array_bytes;
}

/* Finds the memory with the most room among those of arrays with a rank below @rank that the
 * table's GPU reaches. NULL: there is none. */
static const struct plan_memory *roomiest(const struct plan *plan, const struct plan_table *table,
                                          uint32_t rank)
{
    const struct plan_memory *best = NULL;
    uint32_t memory_rank = 0;

    assert(plan->memories);
    for (uint32_t i = 0; i < plan->memory_count; i++) {
        const struct plan_memory *const memory = &plan->memories[i];
        const enum plan_memory_kind kind = plan_memory_kind(memory);

        memory_rank += kind != PLAN_MEMORY_GPU;
        if (memory_rank >= rank || kind == PLAN_MEMORY_SSD ||
            (kind == PLAN_MEMORY_GPU && memory->gpu != table->gpu))
            continue;
        if (!best || room_of(memory) > room_of(best))
            best = memory;
    }
    return best;
}

PRINTF_LIKE(2, 3)
static void say(struct plan_table *table, const char *format, ...)
{
    const size_t used = strlen(table->reason);
    va_list args;

    va_start(args, format);
    vsnprintf(table->reason + used, sizeof(table->reason) - used, format, args);
    va_end(args);
}

static void say_hits(const struct plan *plan, struct plan_table *table,
                     const struct plan_part *part, const char *whose)
{
    say(table, "%.3g%% of %s lookups hit the cache", 100 * plan_part_hit_rate(plan, part), whose);
}

/* As the columns of `embtier plan show` have them. */
#define ROUNDED(bytes) format_bytes_rounded(&(struct bytes_text){ { 0 } }, (bytes))

/* Says how often a batch reads the bytes: it may read a row for many lookups. */
static void say_reads(struct plan_table *table, const char *what)
{
    const double share = density(table);

    if (share < 1)
        say(table, "each batch reads %.3g%% of %s", 100 * share, what);
    else
        say(table, "each batch reads %s %.*f times", what, share < 100 ? 1 : 0, share);
}

/* Says that nothing as fast or faster than rank @rank - 1 has room, even without a cache, if that
 * is so. */
static bool say_no_room(const struct plan *plan, struct plan_table *table, uint32_t rank,
                        const char *where)
{
    const struct plan_memory *const memory = roomiest(plan, table, rank);
    const double bytes = plan_table_bytes(table);

    if (!memory || bytes <= (double)room_of(memory))
        return false;
    say(table, "fits %s: its %s are more than the %s that other arrays leave of %s", where,
        ROUNDED(bytes), ROUNDED((double)room_of(memory)), memory->name);
    return true;
}

static void explain_array(const struct facts *facts, struct plan_table *table)
{
    const struct plan *const plan = facts->plan;
    const struct plan_part *const part = table->parts;
    const uint32_t rank = rank_of(plan, part);
    const double bytes = plan_table_bytes(table);

    if (rank > 0 && say_no_room(plan, table, rank, "nowhere faster"))
        return;
    if (table->read_bytes == 0)
        say(table, "no lookups, but %s has room for all %s", memory_name(plan, part),
            ROUNDED(bytes));
    else if (rank > 0 && is_colder(facts, table, rank)) {
        say(table, "colder: ");
        say_reads(table, "its bytes");
        say(table, "; no whole table in faster memory has a smaller share");
    } else if (is_hottest(facts, table, rank)) {
        say(table, "hottest bytes: ");
        say_reads(table, "them");
        say(table, "; no whole table in slower memory has a larger share");
    } else {
        say_reads(table, "its bytes");
        say(table, ", and %s has room for all %s", memory_name(plan, part), ROUNDED(bytes));
    }
}

static void explain_cached(const struct facts *facts, struct plan_table *table)
{
    const struct plan *const plan = facts->plan;
    const struct plan_part *const part = table->parts;

    if (part->lookup_share == 0) {
        say(table, "no lookups: all rows wait on SSD");
        return;
    }
    if (table->rows == EMBTIER_UNBOUNDED)
        say(table, "unbounded: only the cache takes any id");
    else if (plan_part_hit_rate(plan, part) >= HIGH_HIT_RATE)
        say(table, "well served by the cache");
    else if (!say_no_room(plan, table, RANKS, "in no array"))
        say(table, "shares the cache");
    say(table, "; ");
    say_hits(plan, table, part, "its");
}

/* Names the share of lookups of each part but the last, and how the last is served. */
static void explain_split(const struct facts *facts, struct plan_table *table)
{
    const struct plan *const plan = facts->plan;
    const struct plan_part *const first = table->parts;
    const struct plan_part *const last = &table->parts[table->part_count - 1];

    say(table, "split by hotness: %s takes %.3g%% of its lookups", memory_name(plan, first),
        100 * first->lookup_share);
    if (table->rows != EMBTIER_UNBOUNDED)
        say(table, " with %.3g%% of its rows", 100 * (double)first->rows / (double)table->rows);
    for (const struct plan_part *part = first + 1; part <= last; part++)
        if (part->home != PLAN_CACHE)
            say(table, ", %s %.3g%%", memory_name(plan, part), 100 * part->lookup_share);
    if (last->home != PLAN_CACHE)
        return;
    say(table, "; ");
    if (last->lookup_share > 0)
        say_hits(plan, table, last, "the other");
    else
        say(table, "no lookups are left for the cache");
}

static void explain_time(const struct facts *facts, struct plan_table *table)
{
    const double share = plan_table_time_s(table) / facts->most_load;

    if (facts->loads[load_of(table)] < facts->most_load || !(share >= MUCH_TIME))
        return;
    say(table, "; sets the time, %.3g%% of that of %s", 100 * share,
        facts->plan->gpu_count > 0 ? "the slowest GPU" : "all lookups");
    if (table->part_count == 1 && table->rows != 1 && !table->unsplit && !facts->is_row_wise &&
        roomiest(facts->plan, table, rank_of(facts->plan, table->parts)))
        say(table, ": split it");
}

void plan_explain(struct plan *plan, bool is_row_wise)
{
    const struct facts facts = facts_of(plan, is_row_wise);

    for (uint32_t i = 0; i < plan->table_count; i++) {
        struct plan_table *const table = &plan->tables[i];

        if (table->reason[0] != '\0')
            continue;
        if (table->part_count > 1)
            explain_split(&facts, table);
        else if (table->parts->home == PLAN_CACHE)
            explain_cached(&facts, table);
        else
            explain_array(&facts, table);
        explain_time(&facts, table);
    }
}
