/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/plan/plan_diff.h"

#include <stdlib.h>
#include <string.h>

/* The tables of a plan, by name. */
struct sorted {
    const struct plan_table **tables;
    uint32_t count;
};

/* The walk over both plans, and all that it knows. */
struct work {
    struct plan_diff *diff;
    const struct plan *before, *after;
    uint32_t after_memories[PLAN_MEMORIES_MAX]; /* number of an @after memory in diff->memories */
};

static void freeps(struct sorted *sorted)
{
    free(sorted->tables);
}

static int compare_names(const void *a, const void *b)
{
    const struct plan_table *const left = *(const struct plan_table *const *)a;
    const struct plan_table *const right = *(const struct plan_table *const *)b;

    return strcmp(left->name, right->name);
}

static enum embtier_err sort(const struct plan *plan, struct sorted *ret_sorted)
{
    ret_sorted->count = plan->table_count;
    ret_sorted->tables = calloc(plan->table_count, sizeof(struct plan_table *));
    if (!ret_sorted->tables)
        return EMBTIER_NO_MEMORY;
    for (uint32_t i = 0; i < plan->table_count; i++)
        ret_sorted->tables[i] = &plan->tables[i];
    qsort(ret_sorted->tables, plan->table_count, sizeof(struct plan_table *), compare_names);
    return EMBTIER_OK;
}

static uint64_t add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t bytes_of(const struct plan_table *table, uint64_t rows)
{
    const uint64_t row_bytes = plan_row_bytes(table);

    return rows > UINT64_MAX / row_bytes ? UINT64_MAX : rows * row_bytes;
}

/* ---- Memories ---- */

/* Pairs memories of the same name and GPU. */
static void pair_memories(struct work *work)
{
    struct plan_diff *const diff = work->diff;

    for (uint32_t i = 0; i < work->before->memory_count; i++)
        diff->memories[diff->memory_count++].before = &work->before->memories[i];
    for (uint32_t i = 0; i < work->after->memory_count; i++) {
        const struct plan_memory *const memory = &work->after->memories[i];
        uint32_t k = 0;

        while (k < work->before->memory_count &&
               (work->before->memories[k].gpu != memory->gpu ||
                strcmp(work->before->memories[k].name, memory->name) != 0))
            k++;
        if (k == work->before->memory_count)
            k = diff->memory_count++;
        diff->memories[k].after = memory;
        work->after_memories[i] = k;
    }
}

static uint32_t memory_before(const struct work *work, const struct plan_part *part)
{
    return plan_memory_of(work->before, part);
}

static uint32_t memory_after(const struct work *work, const struct plan_part *part)
{
    return work->after_memories[plan_memory_of(work->after, part)];
}

static void count_out(const struct work *work, const struct plan_table *table,
                      const struct plan_part *part, uint64_t rows)
{
    uint64_t *const bytes = &work->diff->memories[memory_before(work, part)].out_bytes;

    *bytes = add(*bytes, bytes_of(table, rows));
}

static void count_in(const struct work *work, const struct plan_table *table,
                     const struct plan_part *part, uint64_t rows)
{
    uint64_t *const bytes = &work->diff->memories[memory_after(work, part)].in_bytes;

    *bytes = add(*bytes, bytes_of(table, rows));
}

/* ---- Tables ---- */

static bool is_same_table(const struct plan_table *a, const struct plan_table *b)
{
    return a->rows == b->rows && a->dim == b->dim && a->dtype == b->dtype &&
           a->optimizer == b->optimizer;
}

/* A place in a table's parts. */
struct cursor {
    const struct plan_part *part, *end;
    uint64_t left; /* rows of the part; 0: no end, the rest of an unbounded table */
};

static struct cursor begin(const struct plan_table *table)
{
    return (struct cursor){ table->parts, table->parts + table->part_count, table->parts->rows };
}

/* @rows: at most those left. */
static void advance(struct cursor *cursor, uint64_t rows)
{
    if (cursor->left == 0)
        return;
    cursor->left -= rows;
    if (cursor->left == 0 && ++cursor->part < cursor->end)
        cursor->left = cursor->part->rows;
}

/* Both tables have the same rows. Those that are left of an unbounded one are in the cache in both
 * plans. Returns the rows that move. */
static uint64_t move_rows(const struct work *work, const struct plan_table *before,
                          const struct plan_table *after)
{
    struct cursor from = begin(before), to = begin(after);
    uint64_t moved = 0;

    while (from.part < from.end && to.part < to.end && (from.left > 0 || to.left > 0)) {
        const uint64_t rows = MIN(from.left - 1, to.left - 1) + 1; /* 0 counts as the most */

        if (memory_before(work, from.part) != memory_after(work, to.part)) {
            count_out(work, before, from.part, rows);
            count_in(work, after, to.part, rows);
            moved += rows;
        }
        advance(&from, rows);
        advance(&to, rows);
    }
    return moved;
}

static void compare_pair(const struct work *work, const struct plan_table *before,
                         const struct plan_table *after, struct plan_table_diff *table)
{
    if (is_same_table(before, after)) {
        table->change = PLAN_MOVED;
        table->rows_moved = move_rows(work, before, after);
        table->bytes_moved = bytes_of(after, table->rows_moved);
        return;
    }
    table->change = PLAN_ALTERED;
    for (uint32_t i = 0; i < before->part_count; i++)
        count_out(work, before, &before->parts[i], before->parts[i].rows);
    for (uint32_t i = 0; i < after->part_count; i++)
        count_in(work, after, &after->parts[i], after->parts[i].rows);
}

/* Adds what became of a table. One of both may be NULL. */
static void add_table(struct work *work, const struct plan_table *before,
                      const struct plan_table *after)
{
    struct plan_diff *const diff = work->diff;
    struct plan_table_diff table = { .before = before, .after = after };

    if (before && after) {
        compare_pair(work, before, after, &table);
        if (table.change == PLAN_MOVED && table.rows_moved == 0 && before->gpu == after->gpu) {
            diff->same_count++;
            return;
        }
    } else if (before) {
        table.change = PLAN_DROPPED;
        for (uint32_t i = 0; i < before->part_count; i++)
            count_out(work, before, &before->parts[i], before->parts[i].rows);
    } else {
        table.change = PLAN_ADDED;
        for (uint32_t i = 0; i < after->part_count; i++)
            count_in(work, after, &after->parts[i], after->parts[i].rows);
    }
    diff->rows_moved = add(diff->rows_moved, table.rows_moved);
    diff->bytes_moved = add(diff->bytes_moved, table.bytes_moved);
    diff->change_counts[table.change]++;
    diff->tables[diff->table_count++] = table;
}

static void merge(struct work *work, const struct sorted *before, const struct sorted *after)
{
    uint32_t i = 0, k = 0;

    while (i < before->count || k < after->count) {
        const int order = i == before->count ? 1
                          : k == after->count
                              ? -1
                              : strcmp(before->tables[i]->name, after->tables[k]->name);

        add_table(work, order <= 0 ? before->tables[i] : NULL,
                  order >= 0 ? after->tables[k] : NULL);
        i += order <= 0;
        k += order >= 0;
    }
}

static const char *name_of(const struct plan_table_diff *table)
{
    return table->before ? table->before->name : table->after->name;
}

static int compare_bytes(const void *a, const void *b)
{
    const struct plan_table_diff *const left = a, *const right = b;
    const int order =
        (left->bytes_moved < right->bytes_moved) - (left->bytes_moved > right->bytes_moved);

    return order != 0 ? order : strcmp(name_of(left), name_of(right));
}

enum embtier_err plan_diff_new(const struct plan *before, const struct plan *after,
                               struct plan_diff **ret_diff)
{
    _cleanup_(plan_diff_freep) struct plan_diff *diff = calloc(1, sizeof(*diff));
    _cleanup_(freeps) struct sorted olds = { 0 };
    _cleanup_(freeps) struct sorted news = { 0 };
    struct work work = { .diff = diff, .before = before, .after = after };

    if (!diff)
        return EMBTIER_NO_MEMORY;
    diff->tables = calloc((size_t)before->table_count + after->table_count, sizeof(*diff->tables));
    diff->memories =
        calloc((size_t)before->memory_count + after->memory_count, sizeof(*diff->memories));
    if (!diff->tables || !diff->memories)
        return EMBTIER_NO_MEMORY;
    TRY(sort(before, &olds));
    TRY(sort(after, &news));
    pair_memories(&work);
    merge(&work, &olds, &news);
    qsort(diff->tables, diff->table_count, sizeof(*diff->tables), compare_bytes);
    *ret_diff = TAKE(diff);
    return EMBTIER_OK;
}

void plan_diff_free(struct plan_diff *diff)
{
    if (!diff)
        return;
    free(diff->tables);
    free(diff->memories);
    free(diff);
}
