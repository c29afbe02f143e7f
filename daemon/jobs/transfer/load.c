/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/transfer/load.h"
#include "daemon/engine/tables/progress.h"

#include <assert.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log/log.h"
#include "daemon/engine/tables/row_writer.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/transfer/transfer_memory.h"
#include "daemon/jobs/transfer/transfer_piece.h"
#include "kernels/cpu/init/init_rows.h"

struct load {
    struct tables *tables;
    struct transfer_memory *memory;
    struct transfer_share share; /* of memory */
    struct table_info info;
    struct row_writer *writer; /* NULL: no more is taken */
    uint32_t row_bytes;        /* in a batch */
    uint8_t *row;              /* one row, with its state */
    uint64_t rows;
    bool is_begun; /* the table exists, and this load made it */
};

void load_free(struct load *load)
{
    if (!load)
        return;
    row_writer_free(load->writer);
    if (load->is_begun) {
        log_info("import abandoned", "table=%s rows=%" PRIu64, load->info.spec.name, load->rows);
        tables_abandon(load->tables, &load->info, 1);
    }
    free(load->row);
    malloc_trim(0); /* else it stays with a thread that may not need it for long */
    transfer_memory_give(load->memory, &load->share);
    free(load);
}

static enum embtier_err check_spec(struct table_spec *spec, struct err_msg *msg)
{
    TRY(table_spec_check_loaded(spec, msg));
    if (spec->init_version == 0)
        spec->init_version = INIT_ROWS_VERSION;
    return init_rows_check_version(spec, msg);
}

static enum embtier_err take_memory(struct load *load, uint64_t user, const struct table_spec *spec,
                                    struct err_msg *msg)
{
    const uint64_t row_bytes =
        (uint64_t)table_spec_weight_bytes(spec) + table_spec_state_bytes(spec);
    char what[sizeof(spec->name) + 32];

    snprintf(what, sizeof(what), "an import of table '%s'", spec->name);
    return transfer_memory_take(load->memory, user, tables_writer_bytes(load->tables, row_bytes),
                                what, &load->share, msg);
}

/* Checks that the rows have room on disk. An existing table of that name is left to tables_begin()
 * to report. */
static enum embtier_err check_room(struct tables *tables, const struct table_spec *spec,
                                   uint64_t row_count, struct err_msg *msg)
{
    struct store_demand demand = { 0 };
    struct table_info info;
    char words[sizeof(spec->name) + 80];

    if (row_count == 0 || tables_find(tables, spec->name, &info, NULL) == EMBTIER_OK)
        return EMBTIER_OK;
    if (spec->rows != EMBTIER_UNBOUNDED)
        row_count = MIN(row_count, spec->rows);
    store_demand_add(&demand, row_count,
                     (uint64_t)table_spec_weight_bytes(spec) + table_spec_state_bytes(spec),
                     spec->durability != EMBTIER_DURABILITY_REPLAY);
    snprintf(words, sizeof(words), "no space to import table '%s', %" PRIu64 " row%s", spec->name,
             row_count, PLURAL(row_count));
    return tables_check_demand(tables, &demand, words, msg);
}

enum embtier_err load_open(struct tables *tables, struct transfer_memory *memory,
                           const struct load_order *order, struct load **ret_load,
                           struct err_msg *msg)
{
    _cleanup_(load_freep) struct load *load = calloc(1, sizeof(*load));
    struct table_spec spec = order->spec;

    if (!load)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    load->tables = tables;
    load->memory = memory;
    TRY(check_spec(&spec, msg));
    TRY(check_room(tables, &spec, order->row_count, msg));
    TRY(take_memory(load, order->user, &spec, msg));
    load->row_bytes = table_spec_weight_bytes(&spec);
    load->row = calloc(1, (size_t)load->row_bytes + table_spec_state_bytes(&spec));
    if (!load->row)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    if (order->with_state)
        load->row_bytes += table_spec_state_bytes(&spec);
    else if (table_spec_state_bytes(&spec) > 0)
        spec.step = 0; /* its optimizer begins anew */
    TRY(tables_begin(tables, &spec, &(struct table_owner){ .uid = order->uid },
                     TABLE_PLACED_AS_ASKED, &load->info, msg));
    load->is_begun = true;
    TRY(tables_writer(tables, &load->info, NULL, &load->writer, msg));
    *ret_load = TAKE(load);
    return EMBTIER_OK;
}

const struct table_info *load_table(const struct load *load)
{
    return &load->info;
}

uint64_t load_rows(const struct load *load)
{
    return load->rows;
}

uint64_t load_row_bytes(const struct load *load)
{
    return load->row_bytes;
}

static enum embtier_err add_row(struct load *load, uint64_t id, const void *bytes,
                                struct err_msg *msg)
{
    const uint64_t rows = load->info.spec.rows;

    if (rows != EMBTIER_UNBOUNDED && id >= rows)
        return err_set(msg, EMBTIER_ID_RANGE, "table '%s' has rows 0 to %" PRIu64 ", not %" PRIu64,
                       load->info.spec.name, rows - 1, id);
    memcpy(load->row, bytes, load->row_bytes); /* zeros stay behind it */
    TRY(row_writer_add(load->writer, id, load->row, msg));
    load->rows++;
    return EMBTIER_OK;
}

static enum embtier_err add_rows(struct load *load, const struct load_batch *batch, uint32_t count,
                                 struct err_msg *msg)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t id; /* read once: the client may change it */

        memcpy(&id, (const uint8_t *)batch->ids + (size_t)i * sizeof(id), sizeof(id));
        TRY(add_row(load, id, (const uint8_t *)batch->rows + i * batch->row_bytes, msg));
    }
    return EMBTIER_OK;
}

/* Moves @batch past its first @count rows. */
static void skip_rows(struct load_batch *batch, uint32_t count)
{
    batch->ids = (const uint8_t *)batch->ids + (size_t)count * sizeof(uint64_t);
    batch->rows = (const uint8_t *)batch->rows + count * batch->row_bytes;
    assert(batch->count >= count);
    batch->count -= count;
}

enum embtier_err load_add(struct load *load, struct load_batch *batch,
                          const struct progress_sink *progress, struct err_msg *msg)
{
    const uint32_t count =
        MIN(batch->count, transfer_piece_rows(sizeof(uint64_t) + batch->row_bytes));
    enum embtier_err err;

    if (!load->writer)
        return err_set(msg, EMBTIER_INVALID,
                       "the load of table '%s' has failed and takes no more rows",
                       load->info.spec.name);
    err = progress_look(progress, msg);
    if (err == EMBTIER_OK)
        err = add_rows(load, batch, count, msg);
    if (err == EMBTIER_OK)
        skip_rows(batch, count);
    else
        row_writer_free(TAKE(load->writer));
    return err;
}

enum embtier_err load_publish(struct load *load, struct checkpoints *checkpoints,
                              const struct progress_sink *progress, struct table_info *ret_info,
                              struct err_msg *msg)
{
    struct row_writer *const writer = TAKE(load->writer);
    enum embtier_err err;

    if (!writer)
        return err_set(msg, EMBTIER_INVALID,
                       "the load of table '%s' has failed and cannot be published",
                       load->info.spec.name);
    err = row_writer_end(writer, msg);
    row_writer_free(writer);
    TRY(err);
    load->is_begun = false; /* live, or abandoned */
    TRY(checkpoints_publish(checkpoints, &load->info, 1,
                            &(struct checkpoint_order){ .automatic = true }, progress, msg));
    log_info("table imported", "table=%s rows=%" PRIu64, load->info.spec.name, load->rows);
    *ret_info = load->info;
    return EMBTIER_OK;
}
