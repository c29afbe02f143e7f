/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/planner/row_moves.h"

#include <string.h>

#include "placement/planner/row_fit.h"

/* Slabs that a part gives to another one, or grows and shrinks by. */
static const int64_t steps[] = { 1, 2, 4, 16, 64 };

static void begin(const struct row_moves *m)
{
    memcpy(m->cuts, m->best, m->rows->model.table_count * sizeof(*m->cuts));
}

static bool goes_on(const struct row_moves *m)
{
    return m->may_go_on(m->ctx);
}

static enum embtier_err offer(const struct row_moves *m, bool *ret_better)
{
    return m->offer(m->ctx, m->cuts, ret_better);
}

/* ---- One table ---- */

static enum embtier_err try_sizes(const struct row_moves *m, uint32_t table, uint32_t level)
{
    bool better;

    begin(m);
    if (row_fit_fill(m->rows, table, level, m->cuts))
        TRY(offer(m, &better));
    for (uint32_t i = 0; i < 2 * ARRAY_LEN(steps) && goes_on(m); i++) {
        const int64_t step = i % 2 ? -steps[i / 2] : steps[i / 2];

        for (better = true; better && goes_on(m);) {
            begin(m);
            better = false;
            if ((step > 0 || m->best[table].rows[level] > 0) &&
                row_fit_resize(m->rows, table, level, step, &m->cuts[table]))
                TRY(offer(m, &better));
        }
    }
    return EMBTIER_OK;
}

/* Tries the table in the rest, and as it is on each other GPU. */
static enum embtier_err try_places(const struct row_moves *m, uint32_t table)
{
    bool better;

    for (uint32_t g = 0; g < m->rows->model.gpu_count && goes_on(m); g++) {
        begin(m);
        m->cuts[table].gpu = g;
        TRY(offer(m, &better));
        begin(m);
        m->cuts[table] = (struct split_cut){ .gpu = g };
        TRY(offer(m, &better));
    }
    return EMBTIER_OK;
}

/* ---- Two tables ---- */

/* A part gives slabs to the table's part in a level, which takes as many as there are. */
static enum embtier_err try_gifts(const struct row_moves *m, uint32_t table, uint32_t level,
                                  uint32_t giver, uint32_t from)
{
    for (uint32_t i = 0; i <= ARRAY_LEN(steps) && goes_on(m); i++) {
        bool better = true;

        while (better && goes_on(m)) {
            begin(m);
            better = false;
            if (m->cuts[giver].rows[from] == 0)
                return EMBTIER_OK;
            if (i == ARRAY_LEN(steps))
                m->cuts[giver].rows[from] = 0;
            else if (!row_fit_resize(m->rows, giver, from, -steps[i], &m->cuts[giver]))
                break;
            if (row_fit_fill(m->rows, table, level, m->cuts))
                TRY(offer(m, &better));
        }
    }
    return EMBTIER_OK;
}

/* The table fills a level, then what follows it, as far as there is room. */
static void fill_from(const struct row_moves *m, uint32_t table, uint32_t level)
{
    for (uint32_t l = level; l < m->rows->model.level_count; l++)
        (void)row_fit_fill(m->rows, table, l, m->cuts);
}

/* Both tables leave all levels, and then fill some, one after the other. */
static enum embtier_err try_pair(const struct row_moves *m, uint32_t first, uint32_t second,
                                 uint32_t gpu)
{
    const uint32_t levels = m->rows->model.level_count;
    bool better;

    for (uint32_t i = 0; i <= levels; i++)
        for (uint32_t k = 0; k <= levels && goes_on(m); k++) {
            begin(m);
            m->cuts[first] = (struct split_cut){ .gpu = gpu };
            m->cuts[second] = (struct split_cut){ .gpu = m->best[second].gpu };
            fill_from(m, first, i);
            fill_from(m, second, k);
            TRY(offer(m, &better));
        }
    return EMBTIER_OK;
}

static enum embtier_err try_with(const struct row_moves *m, uint32_t table, uint32_t other)
{
    const uint32_t levels = m->rows->model.level_count;

    for (uint32_t i = 0; i < levels; i++)
        for (uint32_t k = 0; k < levels && goes_on(m); k++)
            if (i == k || table == other)
                TRY(try_gifts(m, table, i, other, k));
    for (uint32_t g = 0; g < m->rows->model.gpu_count && table != other && goes_on(m); g++)
        TRY(try_pair(m, table, other, g));
    return EMBTIER_OK;
}

enum embtier_err row_moves_try(struct row_moves *m, uint32_t table)
{
    TRY(try_places(m, table));
    for (uint32_t level = 0; level < m->rows->model.level_count && goes_on(m); level++)
        TRY(try_sizes(m, table, level));
    for (uint32_t other = 0; other < m->rows->model.table_count && goes_on(m); other++)
        TRY(try_with(m, table, other));
    return EMBTIER_OK;
}
