/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/status/overview.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/status/figures.h"

uint64_t overview_table_bytes(const struct embtier_table_info *table)
{
    return table->rows * ((uint64_t)table->weight_bytes + table->state_bytes);
}

double overview_share(const struct overview *overview, double rows)
{
    return overview->lookups.rows > 0 ? rows / overview->lookups.rows : (double)NAN;
}

double overview_resharded(const struct overview *overview)
{
    if (!(overview->ssd.moves > 0))
        return (double)NAN;
    return overview->ssd.buckets > 0 ? overview->ssd.moved_buckets / overview->ssd.buckets : 0;
}

/* ---- Tables ---- */

static int compare_u64(uint64_t a, uint64_t b)
{
    return (a < b) - (a > b);
}

static int by_size(const void *a, const void *b)
{
    const struct embtier_table_info *const x = *(const struct embtier_table_info *const *)a;
    const struct embtier_table_info *const y = *(const struct embtier_table_info *const *)b;
    const int order = compare_u64(overview_table_bytes(x), overview_table_bytes(y));

    return order != 0 ? order : strcmp(x->name, y->name);
}

static int by_traffic(const void *a, const void *b)
{
    const struct embtier_table_info *const x = *(const struct embtier_table_info *const *)a;
    const struct embtier_table_info *const y = *(const struct embtier_table_info *const *)b;
    const int order =
        compare_u64(x->lookup_rows + x->updated_rows, y->lookup_rows + y->updated_rows);

    return order != 0 ? order : by_size(a, b);
}

static enum embtier_err add_tables(struct overview *overview, const struct embtier_table_list *list,
                                   enum overview_order order)
{
    const size_t count = list ? embtier_table_list_count(list) : 0;

    overview->tables = calloc(count + 1, sizeof(*overview->tables));
    if (!overview->tables)
        return EMBTIER_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        overview->tables[i] = embtier_table_list_at(list, i);
    overview->table_count = count;
    qsort(overview->tables, count, sizeof(*overview->tables),
          order == OVERVIEW_BY_SIZE ? by_size : by_traffic);
    return EMBTIER_OK;
}

/* ---- Health ---- */

static double read_figure(const void *context, const char *name, const char *label_value)
{
    return figures_value(context, name, label_value);
}

static void add_warning(void *context, const struct health_rule *rule, const char *why)
{
    struct overview *const overview = context;
    struct overview_warning *const warning = &overview->warnings[overview->warning_count];

    assert(overview->warning_count < OVERVIEW_WARNINGS_MAX);
    warning->rule = rule;
    strncpy(warning->why.text, why, sizeof(warning->why.text) - 1);
    overview->warning_count++;
}

static void add_health(struct overview *overview, const struct embtier_status *status)
{
    const struct health_figures figures = { read_figure, status, overview->uptime_s };

    overview->health = health_check(&figures, add_warning, overview);
}

/* ---- Figures ---- */

static void add_tiers(struct overview *overview, const struct embtier_status *status)
{
    for (size_t i = 0; i < embtier_status_count(status); i++) {
        const struct embtier_metric *const metric = embtier_status_at(status, i);
        const char *const tier = metric->label_value;

        if (strcmp(metric->name, "cache_capacity_bytes") != 0 || overview->tier_count == TIERS_MAX)
            continue;
        overview->tiers[overview->tier_count++] = (struct overview_tier){
            .name = tier,
            .capacity_bytes = metric->value,
            .used_bytes = figures_value(status, "cache_used_bytes", tier),
            .rows = figures_value(status, "cache_rows", tier),
            .dirty_rows = figures_value(status, "cache_dirty_rows", tier),
            .lookup_rows = figures_value(status, "lookup_rows", tier),
        };
    }
}

static void add_transports(struct overview *overview, const struct embtier_status *status)
{
    for (size_t i = 0; i < embtier_status_count(status); i++) {
        const struct embtier_metric *const metric = embtier_status_at(status, i);

        if (strcmp(metric->name, "transport_sessions") == 0 &&
            overview->clients.transport_count < OVERVIEW_TRANSPORTS_MAX)
            overview->clients.by_transport[overview->clients.transport_count++] = metric;
    }
}

static void add_figures(struct overview *overview, const struct embtier_status *status)
{
    const struct {
        double *place;
        const char *name;
        const char *label_value; /* NULL: all */
    } wanted[] = {
        { &overview->clients.sessions, "sessions", "" },
        { &overview->clients.arena_bytes, "session_arena_bytes", "" },
        { &overview->requests, "requests", "" },
        { &overview->set_rows, "request_rows", "set" },
        { &overview->pushed_rows, "request_rows", "push" },
        { &overview->lookups.rows, "lookup_rows", NULL },
        { &overview->lookups.array_rows, "lookup_rows", "array" },
        { &overview->lookups.write_queue_rows, "lookup_rows", "write_queue" },
        { &overview->lookups.ssd_rows, "lookup_rows", "ssd" },
        { &overview->lookups.initial_rows, "lookup_rows", "initial" },
        { &overview->arrays.capacity_bytes, "array_capacity_bytes", NULL },
        { &overview->arrays.used_bytes, "array_used_bytes", "" },
        { &overview->arrays.rows, "array_rows", "" },
        { &overview->arrays.dirty_rows, "array_dirty_rows", "" },
        { &overview->ssd.stored_bytes, "store_stored_bytes", "" },
        { &overview->ssd.written_bytes, "store_written_bytes", NULL },
        { &overview->ssd.room_bytes, "store_room_bytes", "" },
        { &overview->ssd.pending_bytes, "store_pending_compaction_bytes", "" },
        { &overview->ssd.compacting_shards, "store_compacting_shards", "" },
        { &overview->ssd.moves, "reshard_running", "" },
        { &overview->ssd.moved_buckets, "reshard_moved_buckets", "" },
        { &overview->ssd.buckets, "reshard_buckets", "" },
        { &overview->checkpoint.id, "checkpoint_newest_id", "" },
        { &overview->checkpoint.age_s, "checkpoint_newest_seconds", "" },
        { &overview->checkpoint.interval_s, "checkpoint_interval_seconds", "" },
    };

    for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
        *wanted[i].place = figures_value(status, wanted[i].name, wanted[i].label_value);
}

enum embtier_err overview_make(const struct reading *reading, enum overview_order order,
                               struct overview *ret_overview)
{
    *ret_overview = (struct overview){
        .version = embtier_status_version(reading->status),
        .uptime_s = (double)embtier_status_uptime_ms(reading->status) / 1e3,
        .plan = reading->has_plan ? &reading->plan : NULL,
    };
    add_figures(ret_overview, reading->status);
    add_tiers(ret_overview, reading->status);
    add_transports(ret_overview, reading->status);
    add_health(ret_overview, reading->status);
    return add_tables(ret_overview, reading->tables, order);
}

void overview_clear(struct overview *overview)
{
    free(overview->tables);
    overview->tables = NULL;
}
