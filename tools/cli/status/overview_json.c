/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/status/overview_json.h"

#include <jansson.h>
#include <math.h>

#include "tools/cli/json_values.h"
#include "tools/cli/status/pieces.h"

/* Appends @value, which may be NULL, and frees @array if that fails. */
static json_t *append(json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) == 0)
        return array;
    json_decref(array);
    return NULL;
}

static json_t *warnings_to_json(const struct overview *overview)
{
    json_t *array = json_array();

    for (size_t i = 0; array && i < overview->warning_count; i++) {
        const struct overview_warning *const warning = &overview->warnings[i];

        array = append(array, json_pack("{s:s, s:s, s:o, s:s}", "name", warning->rule->name,
                                        "health", health_word(warning->rule->health), "why",
                                        cli_json_text(warning->why.text), "advice",
                                        warning->rule->advice));
    }
    return array;
}

static json_t *lookups_to_json(const struct overview *overview)
{
    json_t *sources =
        json_pack("{s:o, s:o, s:o, s:o}", "array", cli_json_number(overview->lookups.array_rows),
                  "write_queue", cli_json_number(overview->lookups.write_queue_rows), "ssd",
                  cli_json_number(overview->lookups.ssd_rows), "initial",
                  cli_json_number(overview->lookups.initial_rows));

    for (size_t i = 0; sources && i < overview->tier_count; i++) {
        if (json_object_set_new(sources, overview->tiers[i].name,
                                cli_json_number(overview->tiers[i].lookup_rows)) != 0) {
            json_decref(sources);
            sources = NULL;
        }
    }
    return json_pack("{s:o, s:o}", "rows", cli_json_number(overview->lookups.rows), "served_by",
                     sources);
}

static json_t *tiers_to_json(const struct overview *overview)
{
    json_t *array = json_array();

    for (size_t i = 0; array && i < overview->tier_count; i++) {
        const struct overview_tier *const tier = &overview->tiers[i];

        array = append(
            array, json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "name", cli_json_text(tier->name),
                             "capacity_bytes", cli_json_number(tier->capacity_bytes), "used_bytes",
                             cli_json_number(tier->used_bytes), "rows", cli_json_number(tier->rows),
                             "dirty_rows", cli_json_number(tier->dirty_rows), "hit_rate",
                             cli_json_number(overview_share(overview, tier->lookup_rows))));
    }
    return array;
}

static json_t *tables_to_json(const struct overview *overview)
{
    json_t *array = json_array();

    for (size_t i = 0; array && i < overview->table_count; i++) {
        const struct embtier_table_info *const table = overview->tables[i];
        const bool is_unbounded = table->rows == 0;

        array = append(
            array, json_pack("{s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o}", "name",
                             cli_json_text(table->name), "rows",
                             is_unbounded ? json_null() : cli_json_u64(table->rows), "dim",
                             (json_int_t)table->dim, "bytes",
                             is_unbounded ? json_null() : cli_json_u64(overview_table_bytes(table)),
                             "lookup_rows", cli_json_u64(table->lookup_rows), "missed_lookup_rows",
                             cli_json_u64(table->missed_lookup_rows), "updated_rows",
                             cli_json_u64(table->updated_rows), "written_bytes",
                             cli_json_u64(table->flush_bytes + table->compaction_bytes +
                                          table->log_bytes + table->import_bytes)));
    }
    return array;
}

static json_t *ssd_to_json(const struct overview *overview)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "stored_bytes",
                     cli_json_number(overview->ssd.stored_bytes), "written_bytes",
                     cli_json_number(overview->ssd.written_bytes), "room_bytes",
                     cli_json_number(overview->ssd.room_bytes), "pending_compaction_bytes",
                     cli_json_number(overview->ssd.pending_bytes), "compacting_shards",
                     cli_json_number(overview->ssd.compacting_shards), "resharded",
                     cli_json_number(overview_resharded(overview)));
}

static json_t *arrays_to_json(const struct overview *overview)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "capacity_bytes",
                     cli_json_number(overview->arrays.capacity_bytes), "used_bytes",
                     cli_json_number(overview->arrays.used_bytes), "rows",
                     cli_json_number(overview->arrays.rows), "dirty_rows",
                     cli_json_number(overview->arrays.dirty_rows));
}

static json_t *transports_to_json(const struct overview *overview)
{
    json_t *transports;

    if (overview->clients.transport_count == 0)
        return json_null();
    transports = json_object();
    for (size_t i = 0; transports && i < overview->clients.transport_count; i++) {
        const struct embtier_metric *const metric = overview->clients.by_transport[i];

        if (json_object_set_new(transports, metric->label_value, cli_json_number(metric->value)) !=
            0) {
            json_decref(transports);
            transports = NULL;
        }
    }
    return transports;
}

static json_t *clients_to_json(const struct overview *overview)
{
    return json_pack("{s:o, s:o, s:o}", "sessions", cli_json_number(overview->clients.sessions),
                     "by_transport", transports_to_json(overview), "arena_bytes",
                     cli_json_number(overview->clients.arena_bytes));
}

static json_t *checkpoint_to_json(const struct overview *overview)
{
    return json_pack("{s:o, s:o, s:o}", "id", cli_json_number(overview->checkpoint.id), "age_s",
                     cli_json_number(overview->checkpoint.age_s), "interval_s",
                     cli_json_number(overview->checkpoint.interval_s));
}

json_t *overview_to_json(const struct overview *overview, const struct embtier_status *status)
{
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "health", health_word(overview->health), "warnings", warnings_to_json(overview), "version",
        cli_json_text(overview->version), "libraries", pieces_libraries(status), "uptime_ms",
        cli_json_u64(embtier_status_uptime_ms(status)), "clients", clients_to_json(overview),
        "requests", cli_json_number(overview->requests), "set_rows",
        cli_json_number(overview->set_rows), "pushed_rows", cli_json_number(overview->pushed_rows),
        "lookups", lookups_to_json(overview), "tiers", tiers_to_json(overview), "arrays",
        arrays_to_json(overview), "ssd", ssd_to_json(overview), "checkpoint",
        checkpoint_to_json(overview), "plan", pieces_plan(overview->plan), "tables",
        tables_to_json(overview));
}
