/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/transfer/scan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/transfer/transfer_memory.h"
#include "daemon/jobs/transfer/transfer_piece.h"
#include "kernels/cpu/init/init_rows.h"
#include "proto/ops.h"
#include "store/catalog.h"
#include "store/checkpoint/checkpoint.h"
#include "store/checkpoint/table_scan.h"
#include "store/store.h"

/* Rows that are made with initial values at a time, and before the next look at stored rows. */
#define MADE_ROWS 256
#define RUN_ROWS  4096

struct scan {
    struct checkpoints *checkpoints;
    struct transfer_memory *memory;
    struct transfer_share share; /* of memory */
    struct scan_order order;     /* with the checkpoint's id */
    struct table_spec spec;
    uint32_t row_bytes; /* as the client gets it */
    uint32_t whole_bytes;
    struct table_scan *stored;
    uint64_t row_count; /* an estimate; reads SSD, so it is made once */
    uint64_t next_id;   /* in a scan of all rows */
    uint8_t *made;      /* MADE_ROWS whole rows */
    bool is_used;       /* its checkpoint is in use, and not deleted */
    bool is_over;       /* reading failed, so its place in the table is unknown */
};

void scan_free(struct scan *scan)
{
    if (!scan)
        return;
    table_scan_free(scan->stored);
    if (scan->is_used)
        checkpoints_end_use(scan->checkpoints, scan->order.checkpoint_id);
    free(scan->made);
    transfer_memory_give(scan->memory, &scan->share);
    free(scan);
}

/* Many clients may export but make no checkpoint. */
static enum embtier_err fail_without(const struct checkpoints *checkpoints, struct err_msg *msg)
{
    const uint64_t seconds = checkpoints_interval_ns(checkpoints) / UINT64_C(1000000000);

    if (seconds == 0)
        return err_set(msg, EMBTIER_NOT_FOUND,
                       "there is no checkpoint yet: make one with `embtier checkpoint create`, or "
                       "ask an administrator; the server makes none by itself "
                       "(checkpoints.interval_seconds)");
    return err_set(msg, EMBTIER_NOT_FOUND,
                   "there is no checkpoint yet: make one with `embtier checkpoint create`, ask an "
                   "administrator, or wait: the server makes one every %" PRIu64
                   " s if rows have changed (checkpoints.interval_seconds)",
                   seconds);
}

/* checkpoint_id 0: the newest. */
static enum embtier_err find_checkpoint(struct store *store, struct scan *scan,
                                        struct checkpoint_record **ret_record, struct err_msg *msg)
{
    if (scan->order.checkpoint_id == 0) {
        TRY(checkpoint_read_newest(store_shelf(store), ret_record, msg));
        if (!*ret_record)
            return fail_without(scan->checkpoints, msg);
        scan->order.checkpoint_id = (*ret_record)->info.id;
    }
    TRY(checkpoints_begin_use(scan->checkpoints, scan->order.checkpoint_id, msg));
    scan->is_used = true;
    checkpoint_record_free(TAKE(*ret_record)); /* it may have been deleted in between */
    return checkpoint_read(store_shelf(store), scan->order.checkpoint_id, ret_record, msg);
}

static enum embtier_err check_table(const struct catalog_table *table, const struct scan *scan,
                                    struct err_msg *msg)
{
    if (!table || table->state != CATALOG_LIVE)
        return err_set(msg, EMBTIER_NO_TABLE,
                       "checkpoint %" PRIu64 " has no table '%s': `embtier checkpoint show %" PRIu64
                       "` lists its tables",
                       scan->order.checkpoint_id, scan->order.name, scan->order.checkpoint_id);
    if (scan->order.all_rows && table->spec.rows == EMBTIER_UNBOUNDED)
        return err_set(msg, EMBTIER_INVALID,
                       "table '%s' is unbounded: only its written rows can be exported",
                       scan->order.name);
    return init_rows_check_version(&table->spec, msg);
}

/* Counts the memory that the scan can need, then opens all that it reads. */
static enum embtier_err open_stored(struct scan *scan, struct store *store,
                                    const struct checkpoint_record *record, uint32_t table_id,
                                    struct err_msg *msg)
{
    const struct store_row like = { .table_id = table_id,
                                    .weight_bytes = table_spec_weight_bytes(&scan->spec),
                                    .state_bytes = table_spec_state_bytes(&scan->spec),
                                    .logged = scan->spec.durability != EMBTIER_DURABILITY_REPLAY };
    const uint64_t made_bytes = (uint64_t)MADE_ROWS * scan->whole_bytes;
    char what[sizeof(scan->spec.name) + 32];

    snprintf(what, sizeof(what), "an export of table '%s'", scan->spec.name);
    TRY(transfer_memory_take(scan->memory, scan->order.user,
                             table_scan_bytes(record, &like) + made_bytes, what, &scan->share,
                             msg));
    scan->made = malloc(made_bytes);
    if (!scan->made)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    return table_scan_open(store_shelf(store), record, &like, &scan->stored, msg);
}

enum embtier_err scan_open(struct store *store, struct checkpoints *checkpoints,
                           struct transfer_memory *memory, const struct scan_order *order,
                           struct scan **ret_scan, struct err_msg *msg)
{
    _cleanup_(scan_freep) struct scan *scan = calloc(1, sizeof(*scan));
    _cleanup_(checkpoint_record_freep) struct checkpoint_record *record = NULL;
    _cleanup_(catalog_freep) struct catalog *catalog = NULL;
    const struct catalog_table *table;

    if (!scan)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    scan->checkpoints = checkpoints;
    scan->memory = memory;
    scan->order = *order;
    TRY(find_checkpoint(store, scan, &record, msg));
    TRY(checkpoint_catalog(store_shelf(store), record, &catalog, msg));
    table = catalog_find(catalog, order->name);
    TRY(check_table(table, scan, msg));
    scan->spec = table->spec;
    scan->whole_bytes = table_spec_weight_bytes(&scan->spec) + table_spec_state_bytes(&scan->spec);
    scan->row_bytes = order->with_state ? scan->whole_bytes : table_spec_weight_bytes(&scan->spec);
    TRY(open_stored(scan, store, record, table->table_id, msg));
    scan->row_count = order->all_rows ? scan->spec.rows : table_scan_estimate(scan->stored);
    *ret_scan = TAKE(scan);
    return EMBTIER_OK;
}

const struct table_spec *scan_spec(const struct scan *scan)
{
    return &scan->spec;
}

uint64_t scan_checkpoint(const struct scan *scan)
{
    return scan->order.checkpoint_id;
}

uint64_t scan_row_count(const struct scan *scan)
{
    return scan->row_count;
}

/* Makes @count rows that were never written, from scan->next_id on. */
static void make_rows(struct scan *scan, uint8_t *rows, uint32_t count)
{
    uint64_t ids[MADE_ROWS];
    void *places[MADE_ROWS];

    for (uint32_t done = 0; done < count;) {
        const uint32_t some = MIN(count - done, (uint32_t)MADE_ROWS);

        for (uint32_t i = 0; i < some; i++) {
            ids[i] = scan->next_id + done + i;
            places[i] = scan->made + (size_t)i * scan->whole_bytes;
        }
        init_rows(&scan->spec, ids, some, places);
        for (uint32_t i = 0; i < some; i++)
            memcpy(rows + (size_t)(done + i) * scan->row_bytes, places[i], scan->row_bytes);
        done += some;
    }
}

/* Fills in some of all rows: a run of rows never written, or one written row.
 * @ret_count: how many. */
static enum embtier_err fill_some(struct scan *scan, uint8_t *rows, uint32_t most,
                                  uint32_t *ret_count, struct err_msg *msg)
{
    uint64_t stored_id = UINT64_MAX;
    const void *const stored = table_scan_row(scan->stored, &stored_id);

    if (stored && stored_id < scan->next_id)
        return err_set(msg, EMBTIER_CORRUPT,
                       "checkpoint %" PRIu64 ": row %" PRIu64 " of table '%s' appears twice",
                       scan->order.checkpoint_id, stored_id, scan->spec.name);
    if (stored && stored_id == scan->next_id) {
        memcpy(rows, stored, scan->row_bytes);
        *ret_count = 1;
        return table_scan_step(scan->stored, msg);
    }
    *ret_count = (uint32_t)MIN(MIN(stored_id, scan->spec.rows) - scan->next_id, (uint64_t)most);
    make_rows(scan, rows, *ret_count);
    return EMBTIER_OK;
}

static enum embtier_err look(const _Atomic bool *give_up, struct err_msg *msg)
{
    return atomic_load_explicit(give_up, memory_order_relaxed) ? err_shutdown(msg) : EMBTIER_OK;
}

static enum embtier_err fill_all(struct scan *scan, uint8_t *rows, uint32_t most,
                                 const _Atomic bool *give_up, struct scan_filled *filled,
                                 struct err_msg *msg)
{
    filled->first_id = scan->next_id;
    while (filled->rows < most && scan->next_id < scan->spec.rows) {
        uint32_t count = 0;

        TRY(look(give_up, msg));
        TRY(fill_some(scan, rows + (size_t)filled->rows * scan->row_bytes,
                      MIN(most - filled->rows, (uint32_t)RUN_ROWS), &count, msg));
        scan->next_id += count;
        filled->rows += count;
    }
    return EMBTIER_OK;
}

static enum embtier_err fill_stored(struct scan *scan, uint8_t *ids, uint8_t *rows, uint32_t most,
                                    const _Atomic bool *give_up, struct scan_filled *filled,
                                    struct err_msg *msg)
{
    while (filled->rows < most) {
        uint64_t id;
        const void *const stored = table_scan_row(scan->stored, &id);

        if (!stored)
            break;
        TRY(look(give_up, msg));
        memcpy(ids + (size_t)filled->rows * sizeof(id), &id, sizeof(id));
        memcpy(rows + (size_t)filled->rows * scan->row_bytes, stored, scan->row_bytes);
        filled->rows++;
        TRY(table_scan_step(scan->stored, msg));
    }
    return EMBTIER_OK;
}

enum embtier_err scan_fill(struct scan *scan, void *dest, uint64_t bytes,
                           const _Atomic bool *give_up, struct scan_filled *ret_filled,
                           struct err_msg *msg)
{
    const uint64_t each = scan->row_bytes + (scan->order.all_rows ? 0 : sizeof(uint64_t));
    const uint64_t room = bytes > OP_ALIGN ? (bytes - OP_ALIGN) / each : 0;
    const uint32_t most = (uint32_t)MIN(room, (uint64_t)transfer_piece_rows(each));
    enum embtier_err err;

    if (scan->is_over)
        return err_set(msg, EMBTIER_INVALID,
                       "the scan of table '%s' has failed and gives no more rows", scan->spec.name);
    if (most == 0)
        return err_set(msg, EMBTIER_INVALID, "no room for a row of %" PRIu32 " bytes",
                       scan->row_bytes);
    *ret_filled = (struct scan_filled){ 0 };
    if (!scan->order.all_rows)
        ret_filled->rows_at = align_up((uint64_t)most * sizeof(uint64_t), OP_ALIGN);
    err = scan->order.all_rows ? fill_all(scan, dest, most, give_up, ret_filled, msg)
                               : fill_stored(scan, dest, (uint8_t *)dest + ret_filled->rows_at,
                                             most, give_up, ret_filled, msg);
    scan->is_over = err != EMBTIER_OK;
    return err;
}
