/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/table_top.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/tables/table.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/http/http_reserved.h"
#include "tiers/cache/row_cache.h"

#define FIRST_ROOM 64

const enum metric_id table_figure_metrics[TABLE_FIGURE_COUNT] = {
#define FIGURE(metric, value) METRIC_##metric,
    TABLE_FIGURES(FIGURE)
#undef FIGURE
};

/* A table as it was when tables were read. */
struct seen {
    uint32_t table_id;
    bool is_hidden; /* it may have no series of its own */
    double figures[TABLE_FIGURE_COUNT];
};

/* Two lists, whose room doubles as they grow. */
_Static_assert(2 * sizeof(struct seen) * (ROW_CACHE_TABLES_MAX) <= HTTP_TABLES_BYTES,
               "the configuration counts it");

struct seen_list {
    struct seen *tables; /* in the order of their ids */
    uint32_t count;
    uint32_t room;
};

struct table_top {
    uint32_t most;
    uint32_t row_count;
    double other[TABLE_FIGURE_COUNT];
    struct seen_list before; /* at the last time that tables were read */
    struct seen_list now;
    struct table_top_row rows[];
};

enum embtier_err table_top_new(uint32_t most, struct table_top **ret_top)
{
    struct table_top *const top = calloc(1, sizeof(*top) + most * sizeof(top->rows[0]));

    if (!top)
        return EMBTIER_NO_MEMORY;
    top->most = most;
    *ret_top = top;
    return EMBTIER_OK;
}

void table_top_free(struct table_top *top)
{
    if (!top)
        return;
    free(top->before.tables);
    free(top->now.tables);
    free(top);
}

static double written_bytes(const struct store_written *written)
{
    return (double)(written->flush_bytes + written->compaction_bytes + written->log_bytes +
                    written->import_bytes);
}

static void read_figures(const struct table_info *table, double ret_figures[TABLE_FIGURE_COUNT])
{
#define FIGURE(metric, value) ret_figures[TABLE_FIGURE_##metric] = value;
    TABLE_FIGURES(FIGURE)
#undef FIGURE
}

static double traffic_of(const double figures[TABLE_FIGURE_COUNT])
{
    return figures[TABLE_FIGURE_table_lookup_rows] + figures[TABLE_FIGURE_table_updated_rows];
}

static struct seen *add_seen(struct seen_list *list)
{
    const uint32_t room = list->room > 0 ? 2 * list->room : FIRST_ROOM;
    struct seen *tables = list->tables;

    if (list->count == list->room) {
        tables = realloc(list->tables, room * sizeof(*tables));
        if (!tables)
            return NULL;
        list->tables = tables;
        list->room = room;
    }
    return &tables[list->count++];
}

/* Puts the table at the top, if it belongs there. Of tables with the same traffic the first ones
 * stay. */
static void offer(struct table_top *top, const struct table_info *table, const double *figures)
{
    const double traffic = traffic_of(figures);
    struct table_top_row *least = &top->rows[0];
    struct table_top_row row = { .table_id = table->table_id, .traffic = traffic };
    uint32_t place;

    memcpy(row.name, table->spec.name, sizeof(row.name));
    memcpy(row.figures, figures, sizeof(row.figures));
    if (top->row_count < top->most) {
        top->rows[top->row_count++] = row;
        return;
    }
    for (uint32_t i = 1; i < top->row_count; i++)
        if (top->rows[i].traffic <= least->traffic)
            least = &top->rows[i];
    if (top->row_count == 0 || traffic <= least->traffic)
        return;
    place = (uint32_t)(least - top->rows); /* rows stay in the order of ids */
    memmove(least, least + 1, (top->row_count - place - 1) * sizeof(*least));
    top->rows[top->row_count - 1] = row;
}

void table_top_begin(struct table_top *top)
{
    top->row_count = 0;
    top->now.count = 0;
}

enum embtier_err table_top_add(struct table_top *top, const struct table_info *tables,
                               uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct table_info *const table = &tables[i];
        struct seen *const seen = add_seen(&top->now);

        if (!seen)
            return EMBTIER_NO_MEMORY;
        seen->table_id = table->table_id;
        /* A dropped table has given its name away. */
        seen->is_hidden =
            table->state == TABLE_DROPPING || strcmp(table->spec.name, TABLE_TOP_OTHER) == 0;
        read_figures(table, seen->figures);
        if (!seen->is_hidden)
            offer(top, table, seen->figures);
    }
    return EMBTIER_OK;
}

/* Counts what a table did since the last time. */
static void add_growth(struct table_top *top, const struct seen *now, const struct seen *before)
{
    for (uint32_t f = 0; f < TABLE_FIGURE_COUNT; f++) {
        const double from = before ? before->figures[f] : 0;
        const double figure = now->figures[f];

        top->other[f] += MAX(figure - from, 0);
    }
}

void table_top_end(struct table_top *top)
{
    const struct seen_list before = top->before;
    uint32_t b = 0, row = 0;

    for (uint32_t i = 0; i < top->now.count; i++) {
        const struct seen *const now = &top->now.tables[i];

        while (b < before.count && before.tables[b].table_id < now->table_id)
            b++;
        if (row < top->row_count && top->rows[row].table_id == now->table_id) {
            row++;
            continue;
        }
        add_growth(top, now,
                   b < before.count && before.tables[b].table_id == now->table_id
                       ? &before.tables[b]
                       : NULL);
    }
    top->before = top->now;
    top->now = before;
}

const struct table_top_row *table_top_rows(const struct table_top *top, uint32_t *ret_count)
{
    *ret_count = top->row_count;
    return top->rows;
}

const double *table_top_other(const struct table_top *top)
{
    return top->other;
}
