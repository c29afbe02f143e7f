/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "client/lib/connection.h"
#include "client/lib/load.h"
#include "client/lib/table.h"
#include "proto/ops.h"

#define BUFFER_BYTES (16 * MIB)

struct embtier_scan {
    struct embtier *server;
    struct arena_block *buffer;
    struct table_description table;
    uint64_t checkpoint;
    uint64_t session_number;
    uint64_t row_count;
    uint32_t row_bytes;
    bool all_rows;
    bool is_open;     /* the server may have it open */
    bool is_over;     /* only closing is left */
    bool second_half; /* the buffer's second half is filled next; rows in the first stay */
};

/* Tells the server that the scan is over. An ended connection does so too. False: the server has
 * not answered, so it may still write into the buffer. */
static bool end_scan(struct embtier_scan *scan)
{
    const struct err_msg before = scan->server->message; /* the earlier failure's */
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__ScanClose body = EMBTIER__SCAN_CLOSE__INIT;
    enum embtier_err err;

    request.body_case = EMBTIER__REQUEST__BODY_SCAN_CLOSE;
    request.scan_close = &body;
    err = connection_call(scan->server, &request, NULL, NULL, &reply);
    scan->server->message = before;
    return err != EMBTIER_TIMEOUT;
}

/* False: the server has ended the scan, and may have another one of this connection. */
static bool is_of_session(const struct embtier_scan *scan)
{
    return scan->session_number == scan->server->session_number;
}

void embtier_scan_close(struct embtier_scan *scan)
{
    bool is_ours = true;

    if (!scan)
        return;
    if (scan->is_open && !scan->server->over && is_of_session(scan))
        is_ours = end_scan(scan);
    if (is_ours)
        arena_alloc_give(scan->server->alloc, scan->buffer);
    free(scan);
}

static enum embtier_err take_buffer(struct embtier_scan *scan, uint64_t wanted)
{
    struct embtier *const server = scan->server;
    uint64_t bytes = wanted;

    if (!server->alloc)
        return err_set(&server->message, EMBTIER_INVALID,
                       "this connection was made without an arena: connect with arena_bytes "
                       "above 0");
    if (bytes == 0)
        bytes = MIN(BUFFER_BYTES, arena_alloc_largest_bytes(server->alloc) / 2);
    bytes = MAX(bytes, UINT64_C(4) * OP_ALIGN); /* the server refuses a buffer below a row */
    if (arena_alloc_take(server->alloc, bytes, &scan->buffer) != EMBTIER_OK)
        return err_set(&server->message, EMBTIER_ARENA_FULL,
                       "a scan's buffer of %llu bytes does not fit into the arena, which has %llu "
                       "left in one piece",
                       (unsigned long long)bytes,
                       (unsigned long long)arena_alloc_largest_bytes(server->alloc));
    return EMBTIER_OK;
}

enum embtier_err embtier_scan_open(struct embtier *server, const char *table,
                                   const struct embtier_scan_options *given,
                                   struct embtier_scan **ret_scan)
{
    struct embtier_scan_options options = EMBTIER_SCAN_OPTIONS_INIT;
    _cleanup_(embtier_scan_closep) struct embtier_scan *scan = calloc(1, sizeof(*scan));
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__ScanOpen body = EMBTIER__SCAN_OPEN__INIT;
    enum embtier_err err;

    if (!scan)
        return err_set(&server->message, EMBTIER_NO_MEMORY, "out of memory");
    scan->server = server;
    if (given)
        TRY(options_read(given, sizeof(options), &options, sizeof(options), "scan",
                         "EMBTIER_SCAN_OPTIONS_INIT", &server->message));
    scan->all_rows = options.all_rows;
    TRY(table_check_name(server, table));
    TRY(take_buffer(scan, options.buffer_bytes));
    body.checkpoint = options.checkpoint;
    body.table = (char *)table;
    body.with_state = options.with_state;
    body.all_rows = options.all_rows;
    request.body_case = EMBTIER__REQUEST__BODY_SCAN_OPEN;
    request.scan_open = &body;
    err = connection_call(server, &request, NULL, NULL, &reply);
    scan->is_open = err == EMBTIER_OK || err == EMBTIER_TIMEOUT;
    scan->session_number = server->session_number;
    TRY(err);
    if (reply->body_case != EMBTIER__REPLY__BODY_SCAN)
        return err_set(&server->message, EMBTIER_PROTOCOL, "the server did not answer with a scan");
    table_describe(reply->scan->table, &scan->table);
    scan->checkpoint = reply->scan->checkpoint;
    scan->row_count = reply->scan->rows;
    scan->row_bytes = scan->table.info.weight_bytes;
    if (options.with_state)
        scan->row_bytes += scan->table.info.state_bytes;
    *ret_scan = TAKE(scan);
    return EMBTIER_OK;
}

const struct embtier_table_info *embtier_scan_table(const struct embtier_scan *scan)
{
    return &scan->table.info;
}

const struct table_spec *scan_table_spec(const struct embtier_scan *scan)
{
    return &scan->table.spec;
}

uint64_t embtier_scan_checkpoint(const struct embtier_scan *scan)
{
    return scan->checkpoint;
}

uint64_t embtier_scan_row_count(const struct embtier_scan *scan)
{
    return scan->row_count;
}

static uint64_t half_bytes(const struct embtier_scan *scan)
{
    return scan->buffer->bytes / 2 / OP_ALIGN * OP_ALIGN;
}

/* True if the answer's rows and ids lie in the half of the buffer that the server was given. */
static bool fits(const struct embtier_scan *scan, const Embtier__ScanRows *filled)
{
    const uint64_t bytes = half_bytes(scan);
    const uint64_t row_bytes = (uint64_t)filled->rows * scan->row_bytes;
    const uint64_t id_bytes = scan->all_rows ? 0 : (uint64_t)filled->rows * sizeof(uint64_t);

    return filled->rows_at <= bytes && row_bytes <= bytes - filled->rows_at &&
           filled->ids_at <= bytes && id_bytes <= bytes - filled->ids_at &&
           filled->ids_at % sizeof(uint64_t) == 0;
}

/* Brings the rows, and their ids, that the server has put into half of the buffer. */
static enum embtier_err get_rows(const struct embtier_scan *scan, const Embtier__ScanRows *filled,
                                 uint64_t offset)
{
    const uint64_t count = filled->rows;

    if (!scan->all_rows)
        TRY(connection_get(scan->server, offset + filled->ids_at, count * sizeof(uint64_t)));
    return connection_get(scan->server, offset + filled->rows_at, count * scan->row_bytes);
}

enum embtier_err embtier_scan_next(struct embtier_scan *scan, struct embtier_scan_rows *ret_rows)
{
    struct embtier *const server = scan->server;
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__ScanNext body = EMBTIER__SCAN_NEXT__INIT;
    const uint8_t *buffer;
    enum embtier_err err;

    if (!is_of_session(scan))
        return err_set(&server->message, EMBTIER_DISCONNECTED,
                       "the scan ended with the connection it was opened over");
    if (scan->is_over && !server->over) /* rows of a late answer would be missing */
        return err_set(&server->message, EMBTIER_INVALID,
                       "the scan has failed: it can only be closed");
    body.bytes = half_bytes(scan);
    body.offset = scan->buffer->offset + (scan->second_half ? body.bytes : 0);
    request.body_case = EMBTIER__REQUEST__BODY_SCAN_NEXT;
    request.scan_next = &body;
    err = connection_call(server, &request, NULL, NULL, &reply);
    scan->is_over = err != EMBTIER_OK;
    TRY(err);
    if (reply->body_case != EMBTIER__REPLY__BODY_SCAN_ROWS || !fits(scan, reply->scan_rows))
        return err_set(&server->message, EMBTIER_PROTOCOL,
                       "the server did not answer with rows of the scan");
    TRY(get_rows(scan, reply->scan_rows, body.offset));
    buffer = connection_bytes(server, body.offset);
    scan->second_half = !scan->second_half;
    *ret_rows = (struct embtier_scan_rows){
        .count = reply->scan_rows->rows,
        .ids = scan->all_rows ? NULL : (const uint64_t *)(buffer + reply->scan_rows->ids_at),
        .first_id = reply->scan_rows->first_id,
        .rows = buffer + reply->scan_rows->rows_at,
        .row_bytes = scan->row_bytes,
    };
    return EMBTIER_OK;
}
