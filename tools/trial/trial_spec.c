/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/trial/trial_spec.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/text/text_escape.h"
#include "store/rocksdb/rocksdb_setup.h"
#include "tools/trial/trial_wire.h"

#define ROWS_MOST (1u << 26) /* 768 MiB for each layout (trial_load.c) */

void trial_spec_clear(struct trial_spec *spec)
{
    free(spec->tables);
    json_decref(spec->json);
    *spec = (struct trial_spec){ 0 };
}

static enum embtier_err take_tables(struct trial_spec *spec, json_t *tables, struct err_msg *msg)
{
    size_t i;
    json_t *one;

    spec->table_count = (uint32_t)json_array_size(tables);
    spec->tables = calloc(MAX(spec->table_count, 1u), sizeof(*spec->tables));
    if (!spec->tables)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    json_array_foreach(tables, i, one)
    {
        const json_int_t rows = json_integer_value(json_object_get(one, "rows"));
        const json_int_t bytes = json_integer_value(json_object_get(one, "row_bytes"));

        if (rows < 1 || bytes < 1 || bytes > UINT32_MAX)
            return err_set(msg, EMBTIER_INVALID, "tables[%zu] has no rows or no bytes", i);
        spec->tables[i].rows = (uint64_t)rows;
        spec->tables[i].row_bytes = (uint32_t)bytes;
        spec->row_bytes_max = MAX(spec->row_bytes_max, (uint32_t)bytes);
    }
    return i > 0 ? EMBTIER_OK : err_set(msg, EMBTIER_INVALID, "there are no tables");
}

enum embtier_err trial_spec_read(const char *path, struct trial_spec *ret_spec, struct err_msg *msg)
{
    _cleanup_(trial_spec_clear) struct trial_spec spec = { 0 };
    json_t *tables = NULL;
    json_int_t cache_bytes = 0, layouts = 0;
    int is_logged = 0;
    json_error_t error;

    spec.json = json_load_file(path, 0, &error);
    if (!spec.json ||
        json_unpack_ex(spec.json, &error, 0, "{s:s, s?:s, s:o, s:b, s:F, s:F, s:F, s:F, s:I, s:I}",
                       "directory", &spec.directory, "config", &spec.config_path, "tables", &tables,
                       "logged", &is_logged, "updates_per_second", &spec.updates_per_s,
                       "reads_share", &spec.reads_share, "zipf", &spec.zipf, "seconds",
                       &spec.seconds, "cache_bytes", &cache_bytes, "layouts", &layouts) != 0)
        return err_set(msg, EMBTIER_INVALID, "the trial: %s; `embtier tune` runs this program",
                       TEXT_SHOWN(error.text));
    spec.is_logged = is_logged;
    spec.cache_bytes = (uint64_t)cache_bytes;
    spec.layouts = (uint32_t)layouts;
    TRY(take_tables(&spec, tables, msg));
    *ret_spec = spec;
    spec = (struct trial_spec){ 0 };
    return EMBTIER_OK;
}

/* Gives each table its part of the trial's rows, one at least. */
static void share_rows(struct trial_spec *spec)
{
    double bytes = 0;

    spec->rows = 0;
    for (uint32_t i = 0; i < spec->table_count; i++) {
        struct trial_table *const table = &spec->tables[i];
        const uint32_t rows = (uint32_t)MAX((double)table->rows / spec->each_of, 1.0);

        table->first = spec->rows;
        spec->rows += rows;
        bytes += (double)rows * table->row_bytes;
    }
    spec->live_bytes = bytes;
    spec->row_bytes = bytes / spec->rows;
}

enum embtier_err trial_spec_scale(struct trial_spec *spec, const struct config *config,
                                  struct err_msg *msg)
{
    double rows = 0, bytes = 0, shard_bytes, scale_least;

    for (uint32_t i = 0; i < spec->table_count; i++) {
        rows += (double)spec->tables[i].rows;
        bytes += (double)spec->tables[i].rows * spec->tables[i].row_bytes;
    }
    spec->shards = config->data.directory_count * config->data.shards_per_directory;
    shard_bytes = bytes / spec->shards;
    TRY(rocksdb_buffer_bytes(config, spec->shards, &spec->buffer_bytes, msg));
    spec->scale = MIN(1.0, (double)TRIAL_BYTES_PER_SECOND * spec->seconds / shard_bytes);
    spec->scale = MIN(1.0, MAX(spec->scale, TRIAL_ROWS_LEAST * (double)spec->shards / rows));
    spec->each_of = MAX(1.0, spec->shards / spec->scale);
    if (rows / spec->each_of > ROWS_MOST)
        return err_set(msg, EMBTIER_TOO_LARGE, "the trial has more than %u rows: give less time",
                       ROWS_MOST);
    scale_least = (double)WRITE_BUFFER_BYTES_MIN / (double)spec->buffer_bytes;
    spec->is_to_scale = spec->scale >= scale_least;
    spec->buffer_bytes = (uint64_t)((double)spec->buffer_bytes * MAX(spec->scale, scale_least));
    share_rows(spec);
    return EMBTIER_OK;
}

const struct trial_table *trial_spec_table(const struct trial_spec *spec, uint32_t row)
{
    uint32_t low = 0, high = spec->table_count;

    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;

        if (spec->tables[middle].first <= row)
            low = middle;
        else
            high = middle;
    }
    return &spec->tables[low];
}
