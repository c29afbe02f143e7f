/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/top/panels.h"

#include <math.h>
#include <string.h>

#include "tools/cli/compaction/progress.h"
#include "tools/cli/status/figures.h"
#include "tools/cli/status/session_text.h"
#include "tools/cli/top/latencies.h"

/* ---- Requests ---- */

static const struct grid_column request_columns[] = {
    { "OPERATION", "operation", GRID_TEXT },  { "ROWS/S", "rows_per_s", GRID_COUNT },
    { "BYTES/S", "bytes_per_s", GRID_BYTES }, { "ROWS", "rows", GRID_COUNT },
    { "MEDIAN", "median_s", GRID_TIME },      { "99%", "p99_s", GRID_TIME },
};

/* Bytes of weights that lookups returned: the server counts rows by table, and a table's rows have
 * one length. */
static double lookup_bytes_per_s(const struct rates *rates)
{
    const struct embtier_table_list *const list = rates->now->reading.tables;
    double bytes = 0;

    if (!rates->before || !list)
        return (double)NAN;
    for (size_t i = 0; i < embtier_table_list_count(list); i++) {
        const struct embtier_table_info *const table = embtier_table_list_at(list, i);
        const struct embtier_table_info *const before = rates_table_before(rates, table, i);
        const double rows = rate(before ? (double)before->lookup_rows : 0,
                                 (double)table->lookup_rows, rates->table_seconds);

        if (isfinite(rows))
            bytes += rows * table->weight_bytes;
    }
    return rates->table_seconds > 0 ? bytes : (double)NAN;
}

/* The server counts the bytes of all updates together; each operation gets its share by rows. */
static double update_bytes_per_s(const struct rates *rates, const char *operation)
{
    const double set = rates_metric(rates, "request_rows", "set");
    const double pushed = rates_metric(rates, "request_rows", "push");
    const double own = strcmp(operation, "set") == 0 ? set : pushed;

    return set + pushed > 0 ? rates_metric(rates, "updated_bytes", "") * own / (set + pushed) : own;
}

static void fill_requests(struct grid *grid, const struct overview *overview,
                          const struct rates *rates)
{
    static const char *const operations[] = { "get", "pool", "set", "push", "prefetch" };

    (void)overview;
    for (size_t i = 0; i < ARRAY_LEN(operations); i++) {
        const char *const name = operations[i];
        double bytes = (double)NAN; /* of pooled lookups and prefetches: not counted */

        if (strcmp(name, "get") == 0)
            bytes = lookup_bytes_per_s(rates);
        else if (strcmp(name, "set") == 0 || strcmp(name, "push") == 0)
            bytes = update_bytes_per_s(rates, name);
        grid_add_text(grid, name);
        grid_add(grid, rates_metric(rates, "request_rows", name));
        grid_add(grid, bytes);
        grid_add(grid, figures_value(rates->now->reading.status, "request_rows", name));
        grid_add(grid, latencies_quantile(rates, name, 0.5));
        grid_add(grid, latencies_quantile(rates, name, 0.99));
    }
}

/* ---- Tiers ---- */

static const struct grid_column tier_columns[] = {
    { "SERVED BY", "source", GRID_TEXT },   { "ROWS/S", "rows_per_s", GRID_COUNT },
    { "HIT RATE", "hit_rate", GRID_SHARE }, { "CAPACITY", "capacity_bytes", GRID_BYTES },
    { "USED", "used_bytes", GRID_BYTES },   { "USED%", "used_share", GRID_SHARE },
    { "ROWS", "rows", GRID_COUNT },         { "NOT ON SSD", "dirty_rows", GRID_COUNT },
};

/* Adds a source of looked-up rows. Its hit rate is that of the interval, or without one that since
 * the server's start. */
static void add_source(struct grid *grid, const struct overview *overview,
                       const struct rates *rates, const char *label,
                       const struct overview_tier *tier)
{
    const double rows_per_s = rates_metric(rates, "lookup_rows", label);
    const double all_per_s = rates_metric(rates, "lookup_rows", NULL);

    grid_add_text(grid, tier->name);
    grid_add(grid, rows_per_s);
    grid_add(grid,
             all_per_s > 0 ? rows_per_s / all_per_s : overview_share(overview, tier->lookup_rows));
    grid_add(grid, tier->capacity_bytes);
    grid_add(grid, tier->used_bytes);
    grid_add(grid,
             tier->capacity_bytes > 0 ? tier->used_bytes / tier->capacity_bytes : (double)NAN);
    grid_add(grid, tier->rows);
    grid_add(grid, tier->dirty_rows);
}

static void fill_tiers(struct grid *grid, const struct overview *overview,
                       const struct rates *rates)
{
    const struct embtier_status *const status = rates->now->reading.status;
    const struct overview_tier arrays = { "arrays",
                                          overview->arrays.capacity_bytes,
                                          overview->arrays.used_bytes,
                                          overview->arrays.rows,
                                          overview->arrays.dirty_rows,
                                          overview->lookups.array_rows };
    const double none = (double)NAN;
    const struct overview_tier queue = { "write queue",
                                         figures_value(status, "write_queue_capacity_bytes", ""),
                                         figures_value(status, "write_queue_bytes", ""),
                                         figures_value(status, "write_queue_rows", ""),
                                         none,
                                         overview->lookups.write_queue_rows };
    const struct overview_tier ssd = { "SSD", none, overview->ssd.stored_bytes,
                                       none,  none, overview->lookups.ssd_rows };
    const struct overview_tier initial = {
        "never written", none, none, none, none, overview->lookups.initial_rows
    };

    for (size_t i = 0; i < overview->tier_count; i++)
        add_source(grid, overview, rates, overview->tiers[i].name, &overview->tiers[i]);
    if (overview->arrays.capacity_bytes > 0)
        add_source(grid, overview, rates, "array", &arrays);
    add_source(grid, overview, rates, "write_queue", &queue);
    add_source(grid, overview, rates, "ssd", &ssd);
    add_source(grid, overview, rates, "initial", &initial);
}

/* ---- SSD ---- */

static const struct grid_column ssd_columns[] = {
    { "CAUSE", "cause", GRID_TEXT },
    { "BYTES/S", "bytes_per_s", GRID_BYTES },
    { "BYTES", "bytes", GRID_BYTES },
    { "ROWS/S", "rows_per_s", GRID_COUNT },
};

static void add_cause(struct grid *grid, const char *name, const struct rates *rates,
                      const char *metric, const char *label, const char *rows)
{
    grid_add_text(grid, name);
    grid_add(grid, rates_metric(rates, metric, label));
    grid_add(grid, figures_value(rates->now->reading.status, metric, label));
    grid_add(grid, rows ? rates_metric(rates, rows, "") : (double)NAN);
}

/* Causes of writes are those that the server names. */
static void fill_ssd(struct grid *grid, const struct overview *overview, const struct rates *rates)
{
    const struct embtier_status *const status = rates->now->reading.status;

    (void)overview;
    add_cause(grid, "reads", rates, "store_read_bytes", "", "store_rows_read");
    add_cause(grid, "all writes", rates, "store_written_bytes", NULL, "store_rows_written");
    for (size_t i = 0; i < embtier_status_count(status); i++) {
        const struct embtier_metric *const metric = embtier_status_at(status, i);

        if (strcmp(metric->name, "store_written_bytes") == 0)
            add_cause(grid, metric->label_value, rates, metric->name, metric->label_value, NULL);
    }
}

/* ---- Shards ---- */

/* The first six fit a screen of 80 characters. */
static const struct grid_column shard_columns[] = {
    { "DATABASE", "path", GRID_TEXT },
    { "BEHIND", "pending_bytes", GRID_BYTES },
    { "READ", "read_share", GRID_SHARE },
    { "LEFT", "remaining_s", GRID_SECONDS },
    { "STATE", "state", GRID_TEXT },
    { "URGENT", "urgent", GRID_TEXT },
    { "NEW FILES", "level0_files", GRID_COUNT },
    { "RUNNING", "running", GRID_COUNT },
};

static void fill_shards(struct grid *grid, const struct overview *overview,
                        const struct rates *rates)
{
    const struct embtier_compaction_list *const list = rates->now->compactions;

    (void)overview;
    for (size_t i = 0; list && i < embtier_compaction_list_count(list); i++) {
        const struct embtier_compaction_database *const one = embtier_compaction_list_at(list, i);
        const struct work_progress progress = compaction_progress_of(one);

        grid_add_text(grid, one->path);
        grid_add(grid, (double)one->pending_bytes);
        grid_add(grid, work_progress_share(&progress));
        grid_add(grid, work_progress_remaining_s(&progress));
        grid_add_text(grid, one->state);
        grid_add_text(grid, one->is_urgent ? "yes" : "no");
        grid_add(grid, one->level0_files);
        grid_add(grid, (double)one->running);
    }
}

/* ---- Clients ---- */

static const struct grid_column client_columns[] = {
    { "SESSION", "number", GRID_NUMBER },
    { "USER", "user", GRID_TEXT },
    { "FROM", "from", GRID_TEXT },
    { "BY", "transport", GRID_TEXT },
    { "REQ/S", "requests_per_s", GRID_COUNT },
    { "ROWS/S", "rows_per_s", GRID_COUNT },
    { "IN FLIGHT", "in_flight", GRID_COUNT },
    { "ARENA", "arena_bytes", GRID_BYTES },
    { "FOR", "age_s", GRID_SECONDS },
    { "CLIENT", "client", GRID_TEXT },
};

static void add_session(struct grid *grid, const struct embtier_session *session,
                        const struct rates *rates)
{
    const struct embtier_session *const before = rates_session_before(rates, session);
    const double age_s = (double)session->age_ms / 1e3;
    const double seconds = before ? age_s - (double)before->age_ms / 1e3 : (double)NAN;
    struct session_text user, origin;

    grid_add(grid, (double)session->number);
    grid_add_text(grid, session_user(&user, session));
    grid_add_text(grid, session_origin(&origin, session));
    grid_add_text(grid, session->transport);
    grid_add(grid, before ? rate((double)before->requests, (double)session->requests, seconds)
                          : (double)NAN);
    grid_add(grid,
             before ? rate((double)before->rows, (double)session->rows, seconds) : (double)NAN);
    grid_add(grid, session->in_flight);
    grid_add(grid, (double)session->arena_bytes);
    grid_add(grid, age_s);
    grid_add_text(grid, session->client);
}

static void fill_clients(struct grid *grid, const struct overview *overview,
                         const struct rates *rates)
{
    const struct embtier_session_list *const list = rates->now->sessions;

    (void)overview;
    for (size_t i = 0; list && i < embtier_session_list_count(list); i++)
        add_session(grid, embtier_session_list_at(list, i), rates);
}

/* ---- Tables ---- */

static const struct grid_column table_columns[] = {
    { "TABLE", "name", GRID_TEXT },
    { "LOOKUPS/S", "lookup_rows_per_s", GRID_COUNT },
    { "HITS", "hit_rate", GRID_SHARE },
    { "UPDATES/S", "updated_rows_per_s", GRID_COUNT },
    { "SSD READS/S", "read_rows_per_s", GRID_COUNT },
    { "TO SSD/S", "written_bytes_per_s", GRID_BYTES },
    { "ROWS", "rows", GRID_COUNT },
    { "BYTES", "bytes", GRID_BYTES },
};

struct table_rates {
    double lookups;
    double missed;
    double updates;
    double reads;
    double written_bytes;
};

static double written_bytes(const struct embtier_table_info *table)
{
    return (double)table->flush_bytes + (double)table->compaction_bytes + (double)table->log_bytes +
           (double)table->import_bytes;
}

/* A table that the last answer did not have is new: its counters began at 0. */
static struct table_rates table_rates(const struct embtier_table_info *table, size_t index,
                                      const struct rates *rates)
{
    static const struct embtier_table_info nothing;
    const struct embtier_table_info *before = rates_table_before(rates, table, index);
    const double seconds = rates->table_seconds;

    if (!before)
        before = &nothing;
    return (struct table_rates){
        rate((double)before->lookup_rows, (double)table->lookup_rows, seconds),
        rate((double)before->missed_lookup_rows, (double)table->missed_lookup_rows, seconds),
        rate((double)before->updated_rows, (double)table->updated_rows, seconds),
        rate((double)before->read_lookup_rows, (double)table->read_lookup_rows, seconds),
        rate(written_bytes(before), written_bytes(table), seconds),
    };
}

static void fill_tables(struct grid *grid, const struct overview *overview,
                        const struct rates *rates)
{
    const struct embtier_table_list *const list = rates->now->reading.tables;

    (void)overview;
    for (size_t i = 0; list && i < embtier_table_list_count(list); i++) {
        const struct embtier_table_info *const table = embtier_table_list_at(list, i);
        const struct table_rates is = table_rates(table, i, rates);
        const double rows = table->rows > 0 ? (double)table->rows : (double)NAN;

        grid_add_text(grid, table->name);
        grid_add(grid, is.lookups);
        grid_add(grid, is.lookups > 0 ? 1 - is.missed / is.lookups : (double)NAN);
        grid_add(grid, is.updates);
        grid_add(grid, is.reads);
        grid_add(grid, is.written_bytes);
        grid_add(grid, rows);
        grid_add(grid, table->rows > 0 ? (double)overview_table_bytes(table) : (double)NAN);
    }
}

/* ---- The table ---- */

#define COLUMNS(columns) (columns), ARRAY_LEN(columns)

const struct panel panels[PANEL_COUNT] = {
    [PANEL_REQUESTS] = { "requests", COLUMNS(request_columns), NOT_SORTED, fill_requests },
    [PANEL_TIERS] = { "tiers", COLUMNS(tier_columns), NOT_SORTED, fill_tiers },
    [PANEL_SSD] = { "ssd", COLUMNS(ssd_columns), NOT_SORTED, fill_ssd },
    [PANEL_SHARDS] = { "shards", COLUMNS(shard_columns), 1, fill_shards },
    [PANEL_CLIENTS] = { "clients", COLUMNS(client_columns), 5, fill_clients },
    [PANEL_TABLES] = { "tables", COLUMNS(table_columns), 1, fill_tables },
};
