/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/check/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DAY_S  86400.0
#define HOUR_S 3600.0

/* A check while it is made. */
struct checking {
    const struct plan *plan;
    const struct check_window *window;
    const struct check_bars *bars;
    struct check *check;
    const struct check_counts **counts; /* of each planned table; NULL: the server lacks it */
    double batches;                     /* in the window */
    double pace;                        /* measured batches a second, of the plan's */
    double block_bytes;
    double read_bytes;  /* of all planned tables, in whole blocks */
    bool has_unplanned; /* lookups of tables that the plan lacks are in sums of the server */
};

/* ---- Figures ---- */

static void compare(const struct checking *c, struct check_figure *figure, enum check_kind kind)
{
    if (kind == CHECK_HIT_RATE)
        figure->difference = 100 * (figure->measured - figure->predicted);
    else if (figure->predicted > 0)
        figure->difference = 100 * (figure->measured / figure->predicted - 1);
    else
        figure->difference = figure->measured > 0 ? HUGE_VAL : 0;
    figure->state = CHECK_COMPARED;
    figure->is_beyond = fabs(figure->difference) > c->bars->most[kind];
    c->check->compared_count++;
    c->check->beyond_count += figure->is_beyond;
}

/* @events: that were counted, or that the prediction has in the window, if those are more. */
static void fill(const struct checking *c, struct check_line *line, enum check_kind kind,
                 double predicted, double measured, double events, double least)
{
    struct check_figure *const figure = &line->figures[kind];

    *figure = (struct check_figure){ .predicted = predicted, .measured = measured };
    if (events >= least)
        compare(c, figure, kind);
    else
        figure->state = predicted > 0 || kind == CHECK_HIT_RATE ? CHECK_TOO_FEW : CHECK_IDLE;
}

static double weight_bytes(const struct plan_table *table)
{
    const struct plan_table bare = { .dim = table->dim, .dtype = table->dtype };

    return (double)plan_row_bytes(&bare); /* without an optimizer there is no state */
}

/* Lookups in a batch. */
static double planned_lookups(const struct plan_table *table)
{
    return table->read_bytes / weight_bytes(table);
}

static double planned_hit_rate(const struct plan *plan, const struct plan_table *table)
{
    double sum = 0;

    for (uint32_t i = 0; i < table->part_count; i++)
        sum += table->parts[i].lookup_share * plan_part_hit_rate(plan, &table->parts[i]);
    return sum;
}

/* Bytes of whole blocks that the reads of a table's rows took. */
static double blocks_read(const struct checking *c, const struct plan_table *table,
                          const struct check_counts *counts)
{
    return counts->read * ceil((double)plan_row_bytes(table) / c->block_bytes);
}

/* ---- Tables ---- */

static const char *memory_of(const struct plan_part *part)
{
    switch (part->home) {
    case PLAN_HBM:
        return "hbm";
    case PLAN_ARRAY:
        return part->tier;
    case PLAN_CACHE:
        break;
    }
    return "cache";
}

static struct check_home planned_home(const struct plan_table *table)
{
    const struct plan_part *const first = &table->parts[0];
    struct check_home home = { .word = memory_of(first) };

    if (table->part_count > 1)
        home = (struct check_home){ "split", memory_of(first), first->rows };
    /* Without a GPU, hot rows of all arrays lie together in some tier. */
    for (uint32_t i = 1; first->home == PLAN_HBM && i < table->part_count; i++)
        home.hot_rows += table->parts[i].home == PLAN_CACHE ? 0 : table->parts[i].rows;
    return home;
}

static struct check_home actual_home(const struct check_counts *counts)
{
    switch (counts->home) {
    case EMBTIER_HOME_ARRAY:
        return (struct check_home){ .word = counts->tier };
    case EMBTIER_HOME_SPLIT:
        return (struct check_home){ "split", counts->tier, counts->hot_rows };
    case EMBTIER_HOME_CACHE:
        break;
    }
    return (struct check_home){ .word = "cache" };
}

/* A trace may have a few hot rows less than the plan wants. Far less are those of another trace. */
static bool is_as_planned(struct check_home planned, struct check_home actual)
{
    if (strcmp(planned.word, actual.word) != 0)
        return false;
    if (!planned.tier || !actual.tier) /* neither is split */
        return true;
    return (strcmp(planned.tier, "hbm") == 0 || strcmp(planned.tier, actual.tier) == 0) &&
           actual.hot_rows <= planned.hot_rows &&
           (double)actual.hot_rows >= CHECK_HOT_SHARE_LEAST * (double)planned.hot_rows;
}

static enum check_place place_of(const struct plan_table *table, const struct check_counts *counts)
{
    if (!counts)
        return CHECK_MISSING;
    if (counts->rows != table->rows || counts->dim != table->dim || counts->dtype != table->dtype ||
        counts->optimizer != table->optimizer)
        return CHECK_ALTERED;
    if (counts->has_changed)
        return CHECK_CHANGED;
    return is_as_planned(planned_home(table), actual_home(counts)) ? CHECK_AS_PLANNED
                                                                   : CHECK_ELSEWHERE;
}

/* Returns the lookups of which enough were timed; 0 if none was. */
static double timed_lookups(const struct check_counts *counts)
{
    return counts->lane_s > 0 ? counts->lookups : 0;
}

/* The lanes share a batch, and reads of different tables share SSD by their bytes. */
static double measured_time_s(const struct checking *c, const struct plan_table *table,
                              const struct check_counts *counts)
{
    const double lanes_s = counts->lane_s / c->window->lane_count;
    const double share =
        c->read_bytes > 0 ? blocks_read(c, table, counts) * c->block_bytes / c->read_bytes : 0;

    return (lanes_s + share * c->window->reading_s) / c->batches;
}

static void fill_table(const struct checking *c, const struct plan_table *table,
                       const struct check_counts *counts, struct check_line *line)
{
    const double seconds = c->window->seconds;
    const double blocks = blocks_read(c, table, counts);
    const bool shares_reads = c->has_unplanned && counts->read > 0; /* with unplanned tables */
    double reads_per_s = 0, bytes_per_s = 0;

    for (uint32_t i = 0; i < table->part_count; i++) {
        reads_per_s += table->parts[i].reads_per_s * c->pace;
        bytes_per_s += table->parts[i].writes_bytes_per_day / DAY_S * c->pace;
    }
    fill(c, line, CHECK_HIT_RATE, planned_hit_rate(c->plan, table),
         counts->lookups > 0 ? 1 - counts->missed / counts->lookups : 0, counts->lookups,
         CHECK_LOOKUPS_LEAST);
    fill(c, line, CHECK_TIME, plan_table_time_s(table),
         c->batches > 0 ? measured_time_s(c, table, counts) : 0,
         shares_reads ? 0 : timed_lookups(counts), CHECK_TIMED_LEAST);
    if (shares_reads)
        line->figures[CHECK_TIME].state = CHECK_UNKNOWN;
    fill(c, line, CHECK_IOPS, reads_per_s, blocks / seconds, MAX(blocks, reads_per_s * seconds),
         CHECK_READS_LEAST);
    fill(c, line, CHECK_WRITTEN, bytes_per_s * HOUR_S, counts->written_bytes / seconds * HOUR_S,
         MAX(counts->written_bytes, bytes_per_s * seconds), CHECK_WRITTEN_LEAST);
}

static void fill_tables(const struct checking *c)
{
    struct check *const check = c->check;

    for (uint32_t i = 0; i < c->plan->table_count; i++) {
        const struct plan_table *const table = &c->plan->tables[i];
        struct check_line *const line = &check->tables[check->table_count++];

        *line = (struct check_line){
            .name = table->name,
            .place = place_of(table, c->counts[i]),
            .planned = planned_home(table),
        };
        if (c->counts[i])
            line->actual = actual_home(c->counts[i]);
        if (line->place == CHECK_AS_PLANNED)
            fill_table(c, table, c->counts[i], line);
        else
            check->misplaced_count++;
    }
}

/* ---- Memories ---- */

static double planned_share(const struct checking *c, uint32_t tier)
{
    double sum = 0, all = 0;

    for (uint32_t i = 0; i < c->plan->table_count; i++) {
        const struct plan_table *const table = &c->plan->tables[i];
        const double lookups = planned_lookups(table);

        all += lookups;
        for (uint32_t p = 0; p < table->part_count; p++) {
            const struct plan_part *const part = &table->parts[p];

            if (part->home == PLAN_CACHE)
                sum += lookups * part->lookup_share * part->hit_rates[tier];
            else if (part->home == PLAN_ARRAY && strcmp(part->tier, c->window->tiers[tier]) == 0)
                sum += lookups * part->lookup_share;
        }
    }
    return all > 0 ? sum / all : 0;
}

static double served_by(const struct checking *c, uint32_t tier)
{
    double sum = c->window->cache_hits[tier];

    for (uint32_t i = 0; i < c->window->table_count; i++) {
        const struct check_counts *const counts = &c->window->tables[i];

        if (counts->home == EMBTIER_HOME_ARRAY && strcmp(counts->tier, c->window->tiers[tier]) == 0)
            sum += counts->lookups - counts->missed;
    }
    return sum;
}

static bool has_split(const struct checking *c, uint32_t tier)
{
    for (uint32_t i = 0; i < c->window->table_count; i++)
        if (c->window->tables[i].home == EMBTIER_HOME_SPLIT &&
            strcmp(c->window->tables[i].tier, c->window->tiers[tier]) == 0)
            return true;
    return false;
}

static void leave_unknown(struct check_line *line)
{
    for (uint32_t kind = 0; kind < CHECK_KINDS; kind++)
        line->figures[kind].state = CHECK_UNKNOWN;
}

static void fill_tier(const struct checking *c, const struct plan_memory *memory, uint32_t tier)
{
    struct check_line *const line = &c->check->memories[c->check->memory_count++];
    double all = 0, lane_s = 0;

    *line = (struct check_line){ .name = memory->name };
    for (uint32_t i = 0; i < c->window->table_count; i++) {
        all += c->window->tables[i].lookups;
        lane_s += c->window->tables[i].lane_s;
    }
    if (c->has_unplanned) {
        leave_unknown(line);
        return;
    }
    fill(c, line, CHECK_HIT_RATE, planned_share(c, tier), all > 0 ? served_by(c, tier) / all : 0,
         has_split(c, tier) ? 0 : all, CHECK_LOOKUPS_LEAST);
    fill(c, line, CHECK_TIME, memory->time_s,
         c->batches > 0 ? lane_s / c->window->lane_count / c->batches : 0,
         c->window->tier_count == 1 && lane_s > 0 ? all : 0, CHECK_TIMED_LEAST);
    if (c->window->tier_count > 1) /* lanes do not count their time by tier */
        line->figures[CHECK_TIME].state = CHECK_UNKNOWN;
    if (has_split(c, tier)) /* lookups of its hot rows are not counted by themselves */
        line->figures[CHECK_HIT_RATE].state = CHECK_UNKNOWN;
}

static void fill_ssd(const struct checking *c, const struct plan_memory *memory)
{
    const struct check_window *const window = c->window;
    struct check_line *const line = &c->check->memories[c->check->memory_count++];
    double all = 0, missed = 0, held = 0, reads_per_s = 0, bytes_per_s = 0;
    double blocks;

    *line = (struct check_line){ .name = memory->name };
    for (uint32_t i = 0; i < window->table_count; i++) {
        all += window->tables[i].lookups;
        missed += window->tables[i].missed;
    }
    for (uint32_t i = 0; i < c->plan->table_count; i++)
        for (uint32_t p = 0; p < c->plan->tables[i].part_count; p++) {
            reads_per_s += c->plan->tables[i].parts[p].reads_per_s * c->pace;
            bytes_per_s += c->plan->tables[i].parts[p].writes_bytes_per_day / DAY_S * c->pace;
        }
    if (c->has_unplanned) {
        leave_unknown(line);
        return;
    }
    for (uint32_t t = 0; t < window->tier_count; t++)
        held += planned_share(c, t);
    blocks = c->read_bytes / c->block_bytes;
    fill(c, line, CHECK_HIT_RATE, MAX(1 - held, 0.0), all > 0 ? missed / all : 0, all,
         CHECK_LOOKUPS_LEAST);
    fill(c, line, CHECK_TIME, memory->time_s, c->batches > 0 ? window->reading_s / c->batches : 0,
         MAX(blocks, reads_per_s * window->seconds), CHECK_READS_LEAST);
    fill(c, line, CHECK_IOPS, reads_per_s, blocks / window->seconds,
         MAX(blocks, reads_per_s * window->seconds), CHECK_READS_LEAST);
    fill(c, line, CHECK_WRITTEN, bytes_per_s * HOUR_S,
         window->written_bytes / window->seconds * HOUR_S,
         MAX(window->written_bytes, bytes_per_s * window->seconds), CHECK_WRITTEN_LEAST);
}

static void add_unknown(const struct checking *c, const struct plan_memory *memory)
{
    struct check_line *const line = &c->check->memories[c->check->memory_count++];

    *line = (struct check_line){ .name = memory->name };
    leave_unknown(line);
}

/* GPUs are left out: a server has no tables in their memory. */
static void fill_memories(const struct checking *c)
{
    uint32_t tier = 0;

    for (uint32_t i = 0; i < c->plan->memory_count; i++) {
        const struct plan_memory *const memory = &c->plan->memories[i];

        if (plan_memory_kind(memory) == PLAN_MEMORY_SSD)
            fill_ssd(c, memory);
        if (plan_memory_kind(memory) != PLAN_MEMORY_TIER)
            continue;
        if (tier < c->window->tier_count && strcmp(c->window->tiers[tier], memory->name) == 0)
            fill_tier(c, memory, tier);
        else /* the server has other tiers */
            add_unknown(c, memory);
        tier++;
    }
}

/* ---- The check ---- */

static const struct check_counts *find_counts(const struct check_window *window, const char *name)
{
    for (uint32_t i = 0; i < window->table_count; i++)
        if (strcmp(window->tables[i].name, name) == 0)
            return &window->tables[i];
    return NULL;
}

/* The unit of reads, which a plan does not have, follows from its bytes and reads. */
static double block_bytes(const struct plan *plan)
{
    const double batches_per_s = plan->samples_per_s / plan->samples_per_batch;
    double reads_per_s = 0;

    for (uint32_t i = 0; i < plan->table_count; i++)
        for (uint32_t p = 0; p < plan->tables[i].part_count; p++)
            reads_per_s += plan->tables[i].parts[p].reads_per_s;
    return reads_per_s > 0 && plan->memories[plan->memory_count - 1].read_bytes > 0
               ? MAX(round(plan->memories[plan->memory_count - 1].read_bytes * batches_per_s /
                           reads_per_s),
                     1.0)
               : 4096;
}

static bool is_planned(const struct checking *c, const struct check_counts *counts)
{
    for (uint32_t i = 0; i < c->plan->table_count; i++)
        if (c->counts[i] == counts)
            return true;
    return false;
}

/* Finds the pace: how many batches of the plan the lookups in the window make. */
static void take_pace(struct checking *c)
{
    const double planned_per_s = c->plan->samples_per_s / c->plan->samples_per_batch;
    double lookups_a_batch = 0;

    c->block_bytes = block_bytes(c->plan);
    for (uint32_t i = 0; i < c->plan->table_count; i++) {
        c->counts[i] = find_counts(c->window, c->plan->tables[i].name);
        if (!c->counts[i])
            continue;
        lookups_a_batch += planned_lookups(&c->plan->tables[i]);
        c->check->lookups += c->counts[i]->lookups;
        c->read_bytes += blocks_read(c, &c->plan->tables[i], c->counts[i]) * c->block_bytes;
    }
    for (uint32_t i = 0; i < c->window->table_count; i++)
        c->has_unplanned = c->has_unplanned || (c->window->tables[i].lookups > 0 &&
                                                !is_planned(c, &c->window->tables[i]));
    c->batches = lookups_a_batch > 0 ? c->check->lookups / lookups_a_batch : 0;
    c->check->batches_per_s = c->batches / c->window->seconds;
    c->pace = planned_per_s > 0 ? c->check->batches_per_s / planned_per_s : 0;
}

static void add_unplanned(const struct checking *c)
{
    for (uint32_t i = 0; i < c->window->table_count; i++) {
        const struct check_counts *const counts = &c->window->tables[i];

        if (!is_planned(c, counts))
            c->check->tables[c->check->table_count++] = (struct check_line){
                .name = counts->name, .place = CHECK_UNPLANNED, .actual = actual_home(counts)
            };
    }
}

enum embtier_err check_new(const struct plan *plan, const struct check_window *window,
                           const struct check_bars *bars, struct check **ret_check)
{
    _cleanup_(check_freep) struct check *check = calloc(1, sizeof(*check));
    const size_t most = (size_t)plan->table_count + window->table_count + 1;
    struct checking c = { .plan = plan, .window = window, .bars = bars, .check = check };

    if (!check)
        return EMBTIER_NO_MEMORY;
    check->tables = calloc(most, sizeof(*check->tables));
    check->memories = calloc(plan->memory_count + 1u, sizeof(*check->memories));
    c.counts = calloc(most, sizeof(*c.counts));
    if (!check->tables || !check->memories || !c.counts) {
        free(c.counts);
        return EMBTIER_NO_MEMORY;
    }
    take_pace(&c);
    fill_memories(&c);
    fill_tables(&c);
    add_unplanned(&c);
    free(c.counts);
    *ret_check = TAKE(check);
    return EMBTIER_OK;
}

void check_free(struct check *check)
{
    if (!check)
        return;
    free(check->tables);
    free(check->memories);
    free(check);
}

bool check_is_within(const struct check *check)
{
    return check->compared_count > 0 && check->beyond_count == 0 && check->misplaced_count == 0;
}
