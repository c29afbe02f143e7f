/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "base/macros.h"
#include "daemon/engine/rows/rows.h"

/* A home that stands on another comes after it. */
static const struct home_ops *const kinds[HOME_KINDS] = {
    [HOME_CACHE] = &home_cache_ops,
    [HOME_ARRAY] = &home_array_ops,
    [HOME_SPLIT] = &home_split_ops,
    [HOME_OTHER_ARRAY] = &home_array_ops,
};

enum embtier_err rows_make_homes(struct rows *rows, const struct home_opts *opts,
                                 struct err_msg *msg)
{
    struct home_opts with_homes = *opts;

    with_homes.homes = rows->homes;
    for (uint32_t h = 0; h < HOME_KINDS; h++) {
        TRY(kinds[h]->make(&with_homes, &rows->homes[h].rows, msg));
        rows->homes[h].ops = kinds[h];
    }
    rows->homes[HOME_MOVING] = (struct home){ &home_moving_ops, &rows->moving };
    return EMBTIER_OK;
}

void rows_free_homes(struct rows *rows)
{
    for (uint32_t h = HOME_KINDS; h-- > 0;)
        if (rows->homes[h].ops)
            rows->homes[h].ops->free(TAKE(rows->homes[h].rows));
}

/* The home of moving tables has functions for requests only. The functions here ask the two homes
 * that a moving table is in, so none of them may be called with HOME_MOVING. */

enum embtier_err rows_add_table(struct rows *rows, const struct table *table)
{
    const struct home *const home = rows_home(rows, table);

    assert(home->ops->add);
    return home->ops->add(home->rows, table, table->array);
}

bool rows_purge_table(struct rows *rows, const struct table *table, uint32_t step)
{
    const struct home *const home = rows_home(rows, table);

    assert(home->ops->purge);
    return home->ops->purge(home->rows, table, step);
}

uint32_t rows_write_back(struct rows *rows, struct rows_cursor *cursor, uint32_t most,
                         bool *ret_done)
{
    uint32_t count = 0;

    *ret_done = true;
    for (; cursor->home < HOME_KINDS; cursor->home++, cursor->at = 0) {
        const struct home *const home = &rows->homes[cursor->home];

        count += home->ops->write_back(home->rows, &cursor->at, most - count, ret_done);
        assert(count <= most);
        if (!*ret_done)
            break;
    }
    return count;
}

void rows_begin_epoch(struct rows *rows)
{
    assert(!rows->in_epoch);
    rows->in_epoch = true;
    for (uint32_t h = 0; h < HOME_KINDS; h++)
        rows->homes[h].ops->begin_epoch(rows->homes[h].rows);
}

bool rows_end_epoch(struct rows *rows)
{
    bool complete = true;

    assert(rows->in_epoch);
    for (uint32_t h = 0; h < HOME_KINDS; h++)
        complete &= rows->homes[h].ops->end_epoch(rows->homes[h].rows);
    rows->in_epoch = false;
    return complete;
}

bool rows_forget_epoch(struct rows *rows, struct rows_cursor *cursor, uint32_t step)
{
    assert(!rows->in_epoch);
    for (; cursor->home < HOME_KINDS; cursor->home++, cursor->at = 0) {
        const struct home *const home = &rows->homes[cursor->home];

        if (!home->ops->forget_epoch(home->rows, &cursor->at, step))
            return false;
    }
    return true;
}

struct home_stats rows_home_stats(const struct rows *rows, enum home_kind kind)
{
    struct home_stats stats;

    assert(kind < HOME_KINDS);
    rows->homes[kind].ops->stats(rows->homes[kind].rows, &stats);
    return stats;
}
