/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/planner/row_fit.h"

#include <math.h>

#include "base/spec/array_shape.h"

/* A part has rows and a remap, each in slabs of its own. */
#define PART_SLABS_LEAST 2

struct fitting {
    const struct row_planning *rows;
    uint64_t (*room_bytes)[MODEL_GPUS_MAX];
    struct split_cut *cuts;
    uint64_t bytes[SPLIT_LEVELS_MAX][MODEL_GPUS_MAX];
};

/* ---- One table ---- */

static uint64_t rows_elsewhere(const struct row_planning *rows, const struct split_cut *cut,
                               uint32_t level)
{
    uint64_t sum = 0;

    for (uint32_t m = 0; m < rows->model.level_count; m++)
        sum += m == level ? 0 : cut->rows[m];
    return sum;
}

/* Rows that may be in arrays: those that were seen, or all of a bounded table. */
static uint64_t most_rows(const struct row_planning *rows, uint32_t table)
{
    const struct workload *const workload = rows->p->workload;
    const uint64_t all = workload->tables[table].rows;

    if (all != EMBTIER_UNBOUNDED)
        return all;
    return (uint64_t)workload->profile->tables[table].summary.rows;
}

/* The most rows of a cut table, up to @most, that take no more than these bytes in a level. */
static uint64_t rows_within(const struct row_planning *rows, uint32_t table, uint32_t level,
                            uint64_t bytes, uint64_t most)
{
    struct split_cut part = { 0 };
    uint64_t low = 0, high = most;

    if (most > 0 && most == rows->p->workload->tables[table].rows)
        high--; /* a part that is the whole table has another shape */
    while (low < high) {
        part.rows[level] = low + (high - low + 1) / 2;
        if (row_part_bytes(rows, table, &part, level) <= bytes)
            low = part.rows[level];
        else
            high = part.rows[level] - 1;
    }
    return low;
}

/* Takes rows that are too many out of the levels behind @level, the slowest first. */
static void take_back(const struct row_planning *rows, uint32_t level, uint64_t most,
                      struct split_cut *cut)
{
    uint64_t sum = cut->rows[level] + rows_elsewhere(rows, cut, level);

    for (uint32_t m = rows->model.level_count; m-- > level + 1 && sum > most;) {
        const uint64_t taken = MIN(cut->rows[m], sum - most);

        cut->rows[m] -= taken;
        sum -= taken;
    }
}

static uint64_t rows_before(const struct split_cut *cut, uint32_t level)
{
    uint64_t sum = 0;

    for (uint32_t m = 0; m < level; m++)
        sum += cut->rows[m];
    return sum;
}

/* A server has the hot rows of a table in one tier: a part there rules out one in another tier. */
static bool is_in_another_tier(const struct row_planning *rows, const struct split_cut *cut,
                               uint32_t level)
{
    const uint32_t first = machine_first_tier(rows->p->machine);

    for (uint32_t m = first; level >= first && m < rows->model.level_count; m++)
        if (m != level && cut->rows[m] > 0)
            return true;
    return false;
}

/* Leaves the rows in the fastest tier that has any, and gives those of slower ones to the rest. */
static void keep_one_tier(const struct row_planning *rows, struct split_cut *cut)
{
    for (uint32_t m = rows->model.level_count; !row_is_in_one_tier(rows, cut);)
        cut->rows[--m] = 0;
}

/* Makes the table's part in a level as large as fits into these bytes. */
static bool resize_to(const struct row_planning *rows, uint32_t table, uint32_t level,
                      uint64_t bytes, struct split_cut *cut)
{
    const uint64_t most = most_rows(rows, table), before = rows_before(cut, level);
    uint64_t count = 0;

    if (before > most || is_in_another_tier(rows, cut, level))
        return false;
    if (bytes >= PART_SLABS_LEAST * ARRAY_SLAB_BYTES)
        count = rows_within(rows, table, level, bytes, most - before);
    if (count == cut->rows[level])
        return false;
    cut->rows[level] = count;
    take_back(rows, level, most, cut);
    return true;
}

bool row_fit_resize(const struct row_planning *rows, uint32_t table, uint32_t level, int64_t slabs,
                    struct split_cut *cut)
{
    const uint64_t most = most_rows(rows, table);
    struct split_cut part = { 0 };
    int64_t had;

    if (rows->tables[table].unsplit)
        return false;
    part.rows[level] = MIN(cut->rows[level], most > 0 ? most - 1 : 0);
    had = (int64_t)(row_part_bytes(rows, table, &part, level) / ARRAY_SLAB_BYTES);
    return resize_to(rows, table, level, (uint64_t)MAX(had + slabs, 0) * ARRAY_SLAB_BYTES, cut);
}

static double time_of(const struct row_planning *rows, uint32_t table, const struct split_cut *cut)
{
    struct split_part parts[SPLIT_LEVELS_MAX + 1];
    double sum_s = 0;

    split_parts(&rows->model, table, cut, parts);
    for (uint32_t m = 0; m <= rows->model.level_count; m++)
        sum_s += parts[m].time_s;
    return sum_s;
}

/* ---- Rooms ---- */

static uint32_t room_of(const struct fitting *f, uint32_t table, uint32_t level)
{
    return f->rows->levels[level].shared ? 0 : f->cuts[table].gpu;
}

static void count_table(struct fitting *f, uint32_t table, bool out)
{
    for (uint32_t m = 0; m < f->rows->model.level_count; m++) {
        const uint64_t bytes = row_part_bytes(f->rows, table, &f->cuts[table], m);
        uint64_t *const sum = &f->bytes[m][room_of(f, table, m)];

        *sum = out ? *sum - bytes : *sum + bytes;
    }
}

static void replace(struct fitting *f, uint32_t table, const struct split_cut *cut)
{
    count_table(f, table, true);
    f->cuts[table] = *cut;
    count_table(f, table, false);
}

/* Gives rows that @before had in arrays, and @cut has not, to the slowest level of @before, if it
 * is slower than @level. So a table that may not lie in the rest still does not. */
static void hand_down(const struct row_planning *rows, uint32_t table, int64_t level,
                      const struct split_cut *before, struct split_cut *cut)
{
    int64_t last = (int64_t)rows->model.level_count - 1;

    if (row_has_rest(rows, table, before))
        return;
    while (last > level && before->rows[last] == 0)
        last--;
    if (last > level)
        cut->rows[last] += most_rows(rows, table) - split_array_rows(&rows->model, cut);
}

/* Rounds down parts that fill less than half of their last slab. */
static void round_table(struct fitting *f, uint32_t table)
{
    const struct row_planning *const rows = f->rows;
    struct split_cut cut;

    keep_one_tier(rows, &f->cuts[table]);
    cut = f->cuts[table];
    if (split_is_whole(&rows->model, table, &cut)) {
        for (uint32_t m = 0; m < rows->model.level_count; m++)
            if (row_part_bytes(rows, table, &cut, m) == UINT64_MAX)
                cut.rows[m] = 0;
        f->cuts[table] = cut;
        return;
    }
    for (uint32_t m = 0; m < rows->model.level_count; m++) {
        const uint64_t needed = cut.rows[m] * (rows->tables[table].row_bytes + ROW_REMAP_BYTES);
        const uint64_t bytes = row_part_bytes(rows, table, &cut, m);

        if (bytes == UINT64_MAX)
            cut.rows[m] = 0;
        else if (cut.rows[m] > 0)
            (void)row_fit_resize(rows, table, m, bytes - needed > ARRAY_SLAB_BYTES ? -1 : 0, &cut);
    }
    hand_down(rows, table, -1, &f->cuts[table], &cut);
    f->cuts[table] = cut;
}

/* A change of one table, and its gain of time. */
struct change {
    uint32_t table;
    struct split_cut cut;
    bool makes_rest; /* rows of a table that had all in arrays go to the rest, which may be
                        forbidden */
    double gain_s;
};

static bool is_worse(const struct change *a, const struct change *b)
{
    return a->makes_rest != b->makes_rest ? a->makes_rest : a->gain_s <= b->gain_s;
}

static bool is_in_room(const struct fitting *f, uint32_t table, uint32_t level, uint32_t gpu)
{
    return f->rows->levels[level].shared || f->cuts[table].gpu == gpu;
}

/* Finds the table of a room whose part loses least as it gets a slab smaller. A whole table is cut,
 * or goes to the rest. */
static bool find_loss(const struct fitting *f, uint32_t level, uint32_t gpu,
                      struct change *ret_change)
{
    const struct row_planning *const rows = f->rows;
    bool found = false;

    for (uint32_t i = 0; i < rows->model.table_count; i++) {
        struct change change = { .table = i, .cut = f->cuts[i] };

        if (!is_in_room(f, i, level, gpu) || change.cut.rows[level] == 0)
            continue;
        if (!row_fit_resize(rows, i, level, -1, &change.cut))
            change.cut.rows[level] = 0;
        if (!split_is_whole(&rows->model, i, &f->cuts[i]))
            hand_down(rows, i, level, &f->cuts[i], &change.cut);
        change.gain_s = time_of(rows, i, &f->cuts[i]) - time_of(rows, i, &change.cut);
        change.makes_rest =
            row_has_rest(rows, i, &change.cut) && !row_has_rest(rows, i, &f->cuts[i]);
        if (found && is_worse(&change, ret_change))
            continue;
        *ret_change = change;
        found = true;
    }
    return found;
}

static bool fits(const struct fitting *f, uint32_t table, uint32_t level,
                 const struct split_cut *cut)
{
    const uint32_t room = room_of(f, table, level);
    const uint64_t others =
        f->bytes[level][room] - row_part_bytes(f->rows, table, &f->cuts[table], level);

    return row_part_bytes(f->rows, table, cut, level) <= f->room_bytes[level][room] - others;
}

/* Finds the cut table of a room that gains most by a slab more. */
static bool find_gain(const struct fitting *f, uint32_t level, uint32_t gpu,
                      struct change *ret_change)
{
    const struct row_planning *const rows = f->rows;
    bool found = false;

    ret_change->gain_s = 0;
    for (uint32_t i = 0; i < rows->model.table_count; i++) {
        struct change change = { .table = i, .cut = f->cuts[i] };

        if (!is_in_room(f, i, level, gpu) || f->cuts[i].rows[level] == 0 ||
            split_is_whole(&rows->model, i, &f->cuts[i]) ||
            !row_fit_resize(rows, i, level, 1, &change.cut) || !fits(f, i, level, &change.cut))
            continue;
        change.gain_s = time_of(rows, i, &f->cuts[i]) - time_of(rows, i, &change.cut);
        if (change.gain_s <= ret_change->gain_s)
            continue;
        *ret_change = change;
        found = true;
    }
    return found;
}

/* Rounding has left a slab of each part at most, so more would be another solution. */
static void fit_room(struct fitting *f, uint32_t level, uint32_t gpu)
{
    uint64_t steps = 2 * (uint64_t)f->rows->model.table_count;
    struct change change;

    while (f->bytes[level][gpu] > f->room_bytes[level][gpu] && find_loss(f, level, gpu, &change))
        replace(f, change.table, &change.cut);
    while (steps-- > 0 && f->room_bytes[level][gpu] >= f->bytes[level][gpu] + ARRAY_SLAB_BYTES &&
           find_gain(f, level, gpu, &change))
        replace(f, change.table, &change.cut);
}

/* Bytes of a room that other tables leave. */
static uint64_t free_bytes(const struct row_planning *rows, uint32_t table, uint32_t level,
                           const struct split_cut *cuts)
{
    const bool shared = rows->levels[level].shared;
    uint64_t left = rows->room_bytes[level][shared ? 0 : cuts[table].gpu];

    for (uint32_t i = 0; i < rows->model.table_count; i++)
        if (i != table && (shared || cuts[i].gpu == cuts[table].gpu))
            left -= MIN(left, row_part_bytes(rows, i, &cuts[i], level));
    return left;
}

bool row_fit_fill(const struct row_planning *rows, uint32_t table, uint32_t level,
                  struct split_cut *cuts)
{
    const uint64_t left = free_bytes(rows, table, level, cuts);
    struct split_cut whole = { .gpu = cuts[table].gpu };

    whole.rows[level] = rows->p->workload->tables[table].rows;
    if (whole.rows[level] > 0 && rows_elsewhere(rows, &cuts[table], level) == 0 &&
        row_part_bytes(rows, table, &whole, level) <= left) {
        const bool was_whole = cuts[table].rows[level] == whole.rows[level];

        cuts[table] = whole;
        return !was_whole;
    }
    return !rows->tables[table].unsplit && resize_to(rows, table, level, left, &cuts[table]);
}

void row_fit(const struct row_planning *rows, uint64_t (*room_bytes)[MODEL_GPUS_MAX],
             struct split_cut *cuts)
{
    struct fitting f = { .rows = rows, .room_bytes = room_bytes, .cuts = cuts };

    for (uint32_t i = 0; i < rows->model.table_count; i++) {
        round_table(&f, i);
        count_table(&f, i, false);
    }
    for (uint32_t m = 0; m < rows->model.level_count; m++)
        for (uint32_t g = 0; g < (rows->levels[m].shared ? 1 : rows->model.gpu_count); g++)
            fit_room(&f, m, g);
}
