/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/connection.h"
#include "client/lib/reply_pages.h"
#include "proto/table_spec_wire.h"

void table_describe(const Embtier__TableInfo *wire, struct table_description *ret_description)
{
    struct table_description *description = ret_description;
    const struct table_spec *spec = &description->spec;

    /* The spec was checked when it was decoded. */
    if (table_spec_from_wire(wire->spec, &description->spec, NULL))
        memset(&description->spec, 0, sizeof(description->spec));
    snprintf(description->state, sizeof(description->state), "%s", wire->state);
    description->info = (struct embtier_table_info){
        .name = spec->name,
        .table_id = wire->table_id,
        .rows = spec->rows,
        .dim = spec->dim,
        .dtype = spec->dtype,
        .optimizer = spec->optimizer,
        .init = spec->init,
        .init_first = spec->init_params[0],
        .init_second = spec->init_params[1],
        .seed = spec->seed,
        .eager = spec->eager,
        .weight_bytes = wire->weight_bytes,
        .state_bytes = wire->state_bytes,
        .state = description->state,
        .updated_rows = wire->updated_rows,
        .flush_bytes = wire->flush_bytes,
        .compaction_bytes = wire->compaction_bytes,
        .rounds_to_nearest = spec->rounds_to_nearest,
        .allows_nonfinite = spec->allows_nonfinite,
        .durability = spec->durability,
        .home = spec->home,
        .home_tier = spec->home_tier,
        .uuid = spec->uuid,
        .step = spec->step,
        .hot_rows = spec->home == EMBTIER_HOME_SPLIT ? spec->hot_rows : 0,
        .lookup_rows = wire->lookup_rows,
        .missed_lookup_rows = wire->missed_lookup_rows,
        .read_lookup_rows = wire->read_lookup_rows,
        .lookup_ns = wire->lookup_ns,
        .import_bytes = wire->import_bytes,
        .log_bytes = wire->log_bytes,
        .initial_bytes = wire->initial_bytes,
        .history_ms = wire->history_ms,
        .history_bytes = wire->history_bytes,
        .daily_bytes_now = wire->has_rates ? wire->daily_bytes_now : EMBTIER_RATE_UNKNOWN,
        .daily_bytes_hour = wire->has_rates ? wire->daily_bytes_hour : EMBTIER_RATE_UNKNOWN,
        .daily_bytes_day = wire->has_rates ? wire->daily_bytes_day : EMBTIER_RATE_UNKNOWN,
        .daily_bytes_week = wire->has_rates ? wire->daily_bytes_week : EMBTIER_RATE_UNKNOWN,
    };
#define X(name, field, lowest, highest, standard, text) description->info.field = spec->field;
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
}

static void table_unlink(struct embtier_table *table)
{
    if (table->previous)
        table->previous->next = table->next;
    else
        table->server->tables = table->next;
    if (table->next)
        table->next->previous = table->previous;
}

static void table_free(struct embtier_table *table)
{
    reply_free(table->reopened);
    free(table);
}

void tables_free(struct embtier *server)
{
    while (server->tables) {
        struct embtier_table *table = server->tables;

        server->tables = table->next;
        table_free(table);
    }
}

void table_hold(struct embtier_table *table, bool with_state)
{
    table->batch_parts++;
    table->state_parts += with_state;
}

void table_release(struct embtier_table *table, bool with_state)
{
    table->batch_parts--;
    table->state_parts -= with_state;
    if (table->closed && table->batch_parts == 0) {
        table_unlink(table);
        table_free(table);
    }
}

/* Makes a handle for the table that @reply describes. */
static enum embtier_err table_new(struct embtier *server, const Embtier__Reply *reply,
                                  struct embtier_table **ret_table)
{
    struct embtier_table *table;

    if (reply->body_case != EMBTIER__REPLY__BODY_TABLE)
        return err_set(&server->message, EMBTIER_PROTOCOL,
                       "the server did not answer with a table");
    table = calloc(1, sizeof(*table));
    if (!table)
        return err_set(&server->message, EMBTIER_NO_MEMORY, "out of memory");
    table->server = server;
    table->handle = reply->table->handle;
    table_describe(reply->table, &table->description);
    table->next = server->tables;
    if (table->next)
        table->next->previous = table;
    server->tables = table;
    *ret_table = table;
    return EMBTIER_OK;
}

enum embtier_err table_check_name(struct embtier *server, const char *name)
{
    struct table_spec spec = { .dim = 1,
                               .dtype = EMBTIER_DTYPE_F32,
                               .optimizer = EMBTIER_OPTIMIZER_NONE,
                               .init = EMBTIER_INIT_ZEROS };

    if (!name)
        return err_set(&server->message, EMBTIER_INVALID, "table name is missing");
    if (snprintf(spec.name, sizeof(spec.name), "%s", name) >= (int)sizeof(spec.name))
        spec.name[0] = '\0';
    return table_spec_check(&spec, &server->message);
}

/* Checks a table's new home, before a name that the protocol does not allow costs the session. */
static enum embtier_err check_home(struct embtier *server,
                                   const struct embtier_move_options *options)
{
    struct table_spec spec = { .name = "moves",
                               .rows = 1,
                               .dim = 1,
                               .dtype = EMBTIER_DTYPE_F32,
                               .optimizer = EMBTIER_OPTIMIZER_NONE,
                               .init = EMBTIER_INIT_ZEROS,
                               .home = options->home,
                               .hot_rows = options->hot_row_count };

    table_spec_set_tier(&spec, options->home_tier);
    return table_spec_check(&spec, &server->message);
}

enum embtier_err table_options_read(struct embtier *server,
                                    const struct embtier_table_options *given,
                                    struct embtier_table_options *ret_options)
{
    struct embtier_table_options options = EMBTIER_TABLE_OPTIONS_INIT;

    TRY(options_read(given, offsetof(struct embtier_table_options, progress), &options,
                     sizeof(options), "table", "EMBTIER_TABLE_OPTIONS_INIT", &server->message));
    options.struct_bytes = sizeof(options);
    *ret_options = options;
    return EMBTIER_OK;
}

static enum embtier_err options_to_spec(struct embtier *server,
                                        const struct embtier_table_options *options,
                                        struct table_spec *ret_spec)
{
    struct table_spec spec = {
        .rows = options->rows,
        .dim = options->dim,
        .dtype = options->dtype,
        .optimizer = options->optimizer,
        .init = options->init,
        .init_params = { options->init_first, options->init_second },
        .seed = options->seed,
        .eager = options->eager != 0,
        .rounds_to_nearest = options->rounds_to_nearest != 0,
        .allows_nonfinite = options->allows_nonfinite != 0,
        .durability = options->durability,
        .home = options->home,
    };

#define X(name, field, lowest, highest, standard, text) spec.field = options->field;
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
    table_spec_fill_defaults(&spec);
    TRY(table_check_name(server, options->name));
    snprintf(spec.name, sizeof(spec.name), "%s", options->name);
    table_spec_set_tier(&spec, options->home_tier);
    TRY(table_spec_check_new(&spec, &server->message));
    *ret_spec = spec;
    return EMBTIER_OK;
}

enum embtier_err table_options_to_spec(struct embtier *server,
                                       const struct embtier_table_options *given,
                                       struct table_spec *ret_spec)
{
    struct embtier_table_options options = EMBTIER_TABLE_OPTIONS_INIT;

    TRY(table_options_read(server, given, &options));
    return options_to_spec(server, &options, ret_spec);
}

enum embtier_err embtier_table_create(struct embtier *server,
                                      const struct embtier_table_options *given,
                                      struct embtier_table **ret_table)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__TableCreate create = EMBTIER__TABLE_CREATE__INIT;
    Embtier__TableSpec wire;
    struct embtier_table_options options = EMBTIER_TABLE_OPTIONS_INIT;
    struct table_spec spec = { 0 };

    TRY(table_options_read(server, given, &options));
    TRY(options_to_spec(server, &options, &spec));
    table_spec_to_wire(&spec, &wire);
    create.spec = &wire;
    create.if_not_exists = options.if_not_exists != 0;
    request.body_case = EMBTIER__REQUEST__BODY_TABLE_CREATE;
    request.table_create = &create;
    TRY(connection_call(server, &request, options.progress, options.progress_context, &reply));
    return table_new(server, reply, ret_table);
}

enum embtier_err embtier_table_open(struct embtier *server, const char *name,
                                    struct embtier_table **ret_table)
{
    return embtier_table_open_as(server, name, 0, 0, ret_table);
}

enum embtier_err embtier_table_open_as(struct embtier *server, const char *name, uint32_t dim,
                                       int dtype, struct embtier_table **ret_table)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__TableOpen open = EMBTIER__TABLE_OPEN__INIT;

    TRY(table_check_name(server, name));
    if (dtype != 0 && !dtype_word(dtype))
        return err_set(&server->message, EMBTIER_INVALID, "dtype %d is not known", dtype);
    open.name = (char *)name;
    open.dim = dim;
    open.dtype = (uint32_t)dtype;
    request.body_case = EMBTIER__REQUEST__BODY_TABLE_OPEN;
    request.table_open = &open;
    TRY(connection_call(server, &request, NULL, NULL, &reply));
    return table_new(server, reply, ret_table);
}

enum embtier_err embtier_table_drop(struct embtier *server, const char *name,
                                    embtier_progress_fn *progress, void *progress_context)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__TableDrop drop = EMBTIER__TABLE_DROP__INIT;

    TRY(table_check_name(server, name));
    drop.name = (char *)name;
    request.body_case = EMBTIER__REQUEST__BODY_TABLE_DROP;
    request.table_drop = &drop;
    return connection_call(server, &request, progress, progress_context, &reply);
}

/* Copies the ids of hot rows into the arena. *@ret_ids stays NULL if there are none. */
static enum embtier_err put_hot_rows(struct embtier *server,
                                     const struct embtier_move_options *options,
                                     struct arena_block **ret_ids)
{
    const uint64_t count = options->hot_row_count;

    if (options->home != EMBTIER_HOME_SPLIT)
        return EMBTIER_OK;
    if (!options->hot_rows)
        return err_set(&server->message, EMBTIER_INVALID, "the hot rows are missing");
    if (!server->alloc)
        return err_set(&server->message, EMBTIER_INVALID,
                       "this connection was made without an arena: connect with arena_bytes "
                       "above 0");
    if (count > UINT64_MAX / 2 / sizeof(uint64_t) ||
        arena_alloc_take(server->alloc, count * sizeof(uint64_t), ret_ids) != EMBTIER_OK)
        return err_set(&server->message, EMBTIER_ARENA_FULL,
                       "the ids of %llu hot rows do not fit into the arena, which has %llu bytes "
                       "left in one piece: ask for a larger arena",
                       (unsigned long long)count,
                       (unsigned long long)arena_alloc_largest_bytes(server->alloc));
    memcpy(connection_bytes(server, (*ret_ids)->offset), options->hot_rows,
           count * sizeof(uint64_t));
    return EMBTIER_OK;
}

/* Asks for the move. A server that does not answer may still read the ids. */
static enum embtier_err call_move(struct embtier *server, const char *name,
                                  const struct embtier_move_options *options,
                                  Embtier__Reply **ret_reply)
{
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__TableMove move = EMBTIER__TABLE_MOVE__INIT;
    struct arena_block *ids = NULL;
    enum embtier_err err;

    TRY(put_hot_rows(server, options, &ids));
    move.name = (char *)name;
    move.home = (uint32_t)options->home;
    move.home_tier = (char *)(options->home_tier ? options->home_tier : "");
    move.rate_bytes = options->rate_bytes;
    move.hot_rows = ids ? options->hot_row_count : 0;
    move.hot_rows_at = ids ? ids->offset : 0;
    request.body_case = EMBTIER__REQUEST__BODY_TABLE_MOVE;
    request.table_move = &move;
    err = ids ? connection_put_ids(server, ids->offset, move.hot_rows) : EMBTIER_OK;
    if (err == EMBTIER_OK)
        err = connection_call(server, &request, options->progress, options->progress_context,
                              ret_reply);
    if (err != EMBTIER_TIMEOUT)
        arena_alloc_give(server->alloc, ids);
    return err;
}

enum embtier_err embtier_table_move(struct embtier *server, const char *name,
                                    const struct embtier_move_options *given,
                                    struct embtier_moved_info *ret_moved)
{
    struct embtier_move_options options = EMBTIER_MOVE_OPTIONS_INIT;
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;

    TRY(options_read(given, offsetof(struct embtier_move_options, hot_rows), &options,
                     sizeof(options), "move", "EMBTIER_MOVE_OPTIONS_INIT", &server->message));
    TRY(table_check_name(server, name));
    TRY(check_home(server, &options));
    TRY(call_move(server, name, &options, &reply));
    if (reply->body_case != EMBTIER__REPLY__BODY_TABLE_MOVED)
        return err_set(&server->message, EMBTIER_PROTOCOL, "the server did not answer with a move");
    if (ret_moved)
        *ret_moved = (struct embtier_moved_info){ .rows = reply->table_moved->rows,
                                                  .was_there = reply->table_moved->was_there };
    return EMBTIER_OK;
}

const struct embtier_table_info *embtier_table_info(const struct embtier_table *table)
{
    return &table->description.info;
}

void embtier_table_close(struct embtier_table *table)
{
    if (!table)
        return;
    table->closed = true;
    table_hold(table, false);
    table_release(table, false);
}

struct embtier_table_list {
    size_t count;
    struct table_description tables[];
};

static int compare_name(const void *name, const void *entry)
{
    return strcmp(name, *(const char *const *)entry);
}

static bool is_among(const struct table_names *names, const Embtier__TableInfo *table)
{
    return !names || bsearch(table->spec->name, names->names, names->count, sizeof(*names->names),
                             compare_name) != NULL;
}

/* Returns the page that was added last. */
static enum embtier_err last_page(struct embtier *server, const struct reply_pages *pages,
                                  const Embtier__TableListReply **ret_page)
{
    const Embtier__Reply *const reply = pages->replies[pages->count - 1];

    if (reply->body_case != EMBTIER__REPLY__BODY_TABLE_LIST)
        return err_set(&server->message, EMBTIER_PROTOCOL, "the server did not answer with tables");
    *ret_page = reply->table_list;
    return EMBTIER_OK;
}

/* Reads pages until there are no more. */
static enum embtier_err read_pages(struct embtier *server, struct reply_pages *pages,
                                   size_t *ret_count)
{
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__TableList body = EMBTIER__TABLE_LIST__INIT;
    const Embtier__TableListReply *page;
    uint64_t after = 0;
    size_t count;

    TRY(last_page(server, pages, &page));
    count = page->n_tables;
    request.body_case = EMBTIER__REQUEST__BODY_TABLE_LIST;
    request.table_list = &body;
    while (page->more) {
        Embtier__Reply *reply = NULL;

        TRY(reply_pages_go_on(
            server, page->n_tables ? page->tables[page->n_tables - 1]->table_id : 0, &after));
        body.after = (uint32_t)after;
        TRY(connection_call(server, &request, NULL, NULL, &reply));
        TRY(reply_pages_add(server, pages, &reply));
        TRY(last_page(server, pages, &page));
        count += page->n_tables;
    }
    *ret_count = count;
    return EMBTIER_OK;
}

enum embtier_err table_list_read(struct embtier *server, Embtier__Reply **first,
                                 const struct table_names *names,
                                 struct embtier_table_list **ret_list)
{
    _cleanup_(reply_pages_clear) struct reply_pages pages = { 0 };
    struct embtier_table_list *list;
    size_t count = 0;

    TRY(reply_pages_add(server, &pages, first));
    TRY(read_pages(server, &pages, &count));
    list = calloc(1, sizeof(*list) + count * sizeof(list->tables[0]));
    if (!list)
        return err_set(&server->message, EMBTIER_NO_MEMORY, "out of memory");
    for (size_t p = 0; p < pages.count; p++) {
        const Embtier__TableListReply *const page = pages.replies[p]->table_list;

        for (size_t i = 0; i < page->n_tables; i++)
            if (p == 0 || is_among(names, page->tables[i]))
                table_describe(page->tables[i], &list->tables[list->count++]);
    }
    *ret_list = list;
    return EMBTIER_OK;
}

enum embtier_err embtier_table_list(struct embtier *server, struct embtier_table_list **ret_list)
{
    Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__TableList body = EMBTIER__TABLE_LIST__INIT;

    request.body_case = EMBTIER__REQUEST__BODY_TABLE_LIST;
    request.table_list = &body;
    TRY(connection_call(server, &request, NULL, NULL, &reply));
    return table_list_read(server, &reply, NULL, ret_list);
}

size_t embtier_table_list_count(const struct embtier_table_list *list)
{
    return list->count;
}

const struct embtier_table_info *embtier_table_list_at(const struct embtier_table_list *list,
                                                       size_t index)
{
    return index < list->count ? &list->tables[index].info : NULL;
}

void embtier_table_list_free(struct embtier_table_list *list)
{
    free(list);
}

static enum embtier_err reopen(struct embtier_table *table, struct control_socket *sock,
                               struct err_msg *msg)
{
    const struct embtier_table_info *info = &table->description.info;
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__TableOpen open = EMBTIER__TABLE_OPEN__INIT;
    enum embtier_err err;

    open.name = (char *)info->name;
    open.dim = info->dim;
    open.dtype = info->dtype;
    request.body_case = EMBTIER__REQUEST__BODY_TABLE_OPEN;
    request.table_open = &open;
    err = control_socket_call(sock, &request, NULL, NULL, &reply, msg);
    if (err == EMBTIER_NO_TABLE)
        return EMBTIER_OK;
    if (err)
        return err;
    /* Batches have room for rows of the old shape. */
    if (reply->body_case != EMBTIER__REPLY__BODY_TABLE || reply->table->spec->dim != info->dim ||
        reply->table->spec->dtype != info->dtype)
        return err_set(msg, EMBTIER_MISMATCH,
                       "table '%s' has a different dim or dtype after the reconnect", info->name);
    if (table->state_parts > 0 && reply->table->spec->optimizer != info->optimizer)
        return err_set(msg, EMBTIER_MISMATCH,
                       "table '%s' has a different optimizer after the reconnect, and a batch "
                       "holds state of the old one",
                       info->name);
    reply_free(table->reopened);
    table->reopened = TAKE(reply);
    return EMBTIER_OK;
}

enum embtier_err tables_reopen(struct embtier *server, struct control_socket *sock,
                               struct err_msg *msg)
{
    for (struct embtier_table *table = server->tables; table; table = table->next)
        TRY(reopen(table, sock, msg));
    return EMBTIER_OK;
}

void tables_reopened(struct embtier *server, bool kept)
{
    for (struct embtier_table *table = server->tables; table; table = table->next) {
        Embtier__Reply *reply = TAKE(table->reopened);

        if (kept)
            table->handle = reply ? reply->table->handle : 0;
        if (kept && reply)
            table_describe(reply->table, &table->description);
        reply_free(reply);
    }
}
