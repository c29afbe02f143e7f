/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/load.h"

#include <stdlib.h>

#include "client/lib/connection.h"
#include "client/lib/table.h"
#include "proto/ops.h"
#include "proto/table_spec_wire.h"

#define BUFFER_BYTES (8 * MIB)

/* The buffer has ids, then rows, both aligned. */
struct embtier_load {
    struct embtier *server;
    struct arena_block *buffer;
    uint32_t row_bytes;
    uint32_t capacity;
    uint64_t rows_at;
    uint64_t session_number;
    bool is_open; /* the server may have it open */
    bool is_over; /* only closing is left */
};

static bool is_of_session(const struct embtier_load *load)
{
    return load->session_number == load->server->session_number;
}

/* After a failure, a late answer of the server could not be told from that to a new call. */
static enum embtier_err check_goes_on(struct embtier_load *load)
{
    if (load->is_over && is_of_session(load) && !load->server->over)
        return err_set(&load->server->message, EMBTIER_INVALID,
                       "the load has failed: it can only be closed");
    return EMBTIER_OK;
}

/* The server has given the old load up, and may have another one of this connection. */
static enum embtier_err check_session(struct embtier_load *load)
{
    if (!is_of_session(load))
        return err_set(&load->server->message, EMBTIER_DISCONNECTED,
                       "the load ended with the connection it was opened over");
    return EMBTIER_OK;
}

static enum embtier_err call(struct embtier_load *load, Embtier__Request *request,
                             embtier_progress_fn *progress, void *progress_context,
                             Embtier__Reply__BodyCase wanted)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;

    TRY(check_session(load));
    TRY(connection_call(load->server, request, progress, progress_context, &reply));
    if (reply->body_case != wanted)
        return err_set(&load->server->message, EMBTIER_PROTOCOL,
                       "the server's answer does not fit a load");
    return EMBTIER_OK;
}

/* Tells the server that the load is over. An ended connection does so too. Keeps the message of the
 * earlier failure. False: the server has not answered, so it may still read the buffer. */
static bool give_up(struct embtier_load *load)
{
    const struct err_msg before = load->server->message;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__LoadClose body = EMBTIER__LOAD_CLOSE__INIT;
    enum embtier_err err;

    request.body_case = EMBTIER__REQUEST__BODY_LOAD_CLOSE;
    request.load_close = &body;
    err = call(load, &request, NULL, NULL, EMBTIER__REPLY__BODY_LOADED_ROWS);
    load->server->message = before;
    return err != EMBTIER_TIMEOUT;
}

void embtier_load_close(struct embtier_load *load)
{
    bool is_ours = true;

    if (!load)
        return;
    if (load->is_open && !load->server->over)
        is_ours = give_up(load);
    if (is_ours)
        arena_alloc_give(load->server->alloc, load->buffer);
    free(load);
}

static enum embtier_err take_buffer(struct embtier_load *load, uint64_t wanted)
{
    struct embtier *const server = load->server;
    const uint64_t each = sizeof(uint64_t) + load->row_bytes;
    uint64_t bytes = wanted;

    if (!server->alloc)
        return err_set(&server->message, EMBTIER_INVALID,
                       "this connection was made without an arena: connect with arena_bytes "
                       "above 0");
    if (bytes == 0)
        bytes = MIN(BUFFER_BYTES, arena_alloc_largest_bytes(server->alloc) / 2);
    bytes = MAX(bytes, each + OP_ALIGN);
    if (arena_alloc_take(server->alloc, bytes, &load->buffer) != EMBTIER_OK)
        return err_set(&server->message, EMBTIER_ARENA_FULL,
                       "a load's buffer of %llu bytes does not fit into the arena, which has %llu "
                       "left in one piece",
                       (unsigned long long)bytes,
                       (unsigned long long)arena_alloc_largest_bytes(server->alloc));
    load->capacity = (uint32_t)MIN((bytes - OP_ALIGN) / each, (uint64_t)UINT32_MAX);
    load->rows_at = align_up((uint64_t)load->capacity * sizeof(uint64_t), OP_ALIGN);
    return EMBTIER_OK;
}

enum embtier_err load_open_spec(struct embtier *server, const struct table_spec *spec,
                                bool with_state, uint64_t row_count, uint64_t buffer_bytes,
                                struct embtier_load **ret_load)
{
    _cleanup_(embtier_load_closep) struct embtier_load *load = calloc(1, sizeof(*load));
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__LoadOpen body = EMBTIER__LOAD_OPEN__INIT;
    Embtier__TableSpec wire;
    enum embtier_err err;

    if (!load)
        return err_set(&server->message, EMBTIER_NO_MEMORY, "out of memory");
    load->server = server;
    load->session_number = server->session_number;
    load->row_bytes =
        table_spec_weight_bytes(spec) + (with_state ? table_spec_state_bytes(spec) : 0);
    TRY(take_buffer(load, buffer_bytes));
    table_spec_to_wire(spec, &wire);
    body.spec = &wire;
    body.with_state = with_state;
    body.row_count = row_count;
    request.body_case = EMBTIER__REQUEST__BODY_LOAD_OPEN;
    request.load_open = &body;
    err = call(load, &request, NULL, NULL, EMBTIER__REPLY__BODY_TABLE);
    load->is_open = err == EMBTIER_OK || err == EMBTIER_TIMEOUT;
    TRY(err);
    *ret_load = TAKE(load);
    return EMBTIER_OK;
}

enum embtier_err embtier_load_open(struct embtier *server,
                                   const struct embtier_table_options *table, int with_state,
                                   uint64_t buffer_bytes, struct embtier_load **ret_load)
{
    struct table_spec spec;

    TRY(table_options_to_spec(server, table, &spec));
    return load_open_spec(server, &spec, with_state != 0, 0, buffer_bytes, ret_load);
}

struct embtier_load_buffer embtier_load_buffer(const struct embtier_load *load)
{
    uint8_t *const bytes = connection_bytes(load->server, load->buffer->offset);

    return (struct embtier_load_buffer){
        .ids = (uint64_t *)bytes,
        .rows = bytes + load->rows_at,
        .capacity = load->capacity,
        .row_bytes = load->row_bytes,
    };
}

enum embtier_err embtier_load_rows(struct embtier_load *load, uint32_t count)
{
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__LoadRows body = EMBTIER__LOAD_ROWS__INIT;
    enum embtier_err err;

    TRY(check_goes_on(load));
    if (count == 0)
        return EMBTIER_OK;
    if (count > load->capacity)
        return err_set(&load->server->message, EMBTIER_INVALID,
                       "%u rows for a load whose buffer holds %u", count, load->capacity);
    TRY(check_session(load));
    TRY(connection_put_ids(load->server, load->buffer->offset, count));
    TRY(connection_put(load->server, load->buffer->offset + load->rows_at,
                       (uint64_t)count * load->row_bytes));
    body.offset = load->buffer->offset;
    body.bytes = load->buffer->bytes;
    body.rows = count;
    body.rows_at = load->rows_at;
    request.body_case = EMBTIER__REQUEST__BODY_LOAD_ROWS;
    request.load_rows = &body;
    err = call(load, &request, NULL, NULL, EMBTIER__REPLY__BODY_LOADED_ROWS);
    load->is_over = err != EMBTIER_OK;
    return err;
}

enum embtier_err embtier_load_end(struct embtier_load *load, embtier_progress_fn *progress,
                                  void *progress_context)
{
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__LoadEnd body = EMBTIER__LOAD_END__INIT;

    TRY(check_goes_on(load));
    request.body_case = EMBTIER__REQUEST__BODY_LOAD_END;
    request.load_end = &body;
    load->is_open = false; /* now the table exists, or the load is gone */
    return call(load, &request, progress, progress_context, EMBTIER__REPLY__BODY_TABLE);
}
