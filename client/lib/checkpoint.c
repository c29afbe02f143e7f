/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/checkpoint.h"
#include "client/lib/connection.h"
#include "client/lib/reply_pages.h"
#include "client/lib/table.h"

struct embtier_checkpoint_list {
    struct reply_pages pages; /* names and metadata point into them */
    const char **names;       /* of the tables, in a list made by embtier_checkpoint_show() */
    size_t count;
    struct embtier_checkpoint checkpoints[];
};
DEFINE_CLEANUP(struct embtier_checkpoint_list, embtier_checkpoint_list_free)

static struct embtier_checkpoint describe(const Embtier__Checkpoint *wire)
{
    const bool has_step = wire->step_given_case == EMBTIER__CHECKPOINT__STEP_GIVEN_STEP;

    return (struct embtier_checkpoint){
        .id = wire->id,
        .created_ms = wire->created_ms,
        .automatic = wire->automatic,
        .has_step = has_step,
        .step = has_step ? wire->step : 0,
        .metadata = wire->metadata[0] ? wire->metadata : NULL,
        .table_count = wire->table_count,
        .bytes = wire->bytes,
        .new_bytes = wire->new_bytes,
        .pause_us = wire->pause_us,
        .held_rows = wire->held_rows,
        .spent_ms = wire->spent_ms,
        .tries = wire->tries,
        .cut_updates = wire->cut_updates,
        .uid = wire->uid,
        .user = wire->user,
    };
}

/* Makes a list with room for @count checkpoints, and takes the pages over. NULL: out of memory. */
static struct embtier_checkpoint_list *list_new(struct reply_pages *pages, size_t count)
{
    struct embtier_checkpoint_list *const list =
        calloc(1, sizeof(*list) + count * sizeof(list->checkpoints[0]));

    if (!list)
        return NULL;
    list->pages = *pages;
    *pages = (struct reply_pages){ 0 };
    return list;
}

/* Adds an answer with a checkpoint's tables from some table on. It must be about the same
 * checkpoint as the first answer. */
static enum embtier_err add_shown(struct embtier *server, struct reply_pages *pages,
                                  Embtier__Reply **reply)
{
    const Embtier__Reply *added;

    TRY(reply_pages_add(server, pages, reply));
    added = pages->replies[pages->count - 1];
    if (added->body_case != EMBTIER__REPLY__BODY_CHECKPOINT ||
        added->checkpoint->id != pages->replies[0]->checkpoint->id)
        return err_set(&server->message, EMBTIER_PROTOCOL,
                       "the server did not answer with a checkpoint");
    return EMBTIER_OK;
}

/* Asks for the names of the tables that the first answer left out. */
static enum embtier_err read_names(struct embtier *server, struct reply_pages *pages)
{
    const Embtier__Checkpoint *const first = pages->replies[0]->checkpoint;
    const Embtier__Checkpoint *shown = first;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__CheckpointShow show = EMBTIER__CHECKPOINT_SHOW__INIT;
    size_t count = first->n_tables;

    request.body_case = EMBTIER__REQUEST__BODY_CHECKPOINT_SHOW;
    request.checkpoint_show = &show;
    show.id = first->id;
    while (shown->more_tables && shown->n_tables > 0) {
        Embtier__Reply *reply = NULL;

        show.tables_from = (uint32_t)count;
        TRY(connection_call(server, &request, NULL, NULL, &reply));
        TRY(add_shown(server, pages, &reply));
        shown = pages->replies[pages->count - 1]->checkpoint;
        count += shown->n_tables;
    }
    if (count != first->table_count)
        return err_set(&server->message, EMBTIER_PROTOCOL,
                       "the server named %zu tables of a checkpoint that has %u", count,
                       first->table_count);
    return EMBTIER_OK;
}

static enum embtier_err list_of_one(struct embtier *server, Embtier__Reply **reply,
                                    struct embtier_checkpoint_list **ret_list)
{
    _cleanup_(reply_pages_clear) struct reply_pages pages = { 0 };
    _cleanup_(embtier_checkpoint_list_freep) struct embtier_checkpoint_list *list = NULL;
    size_t count = 0;

    TRY(add_shown(server, &pages, reply));
    TRY(read_names(server, &pages));
    list = list_new(&pages, 1);
    if (list)
        list->names = calloc((size_t)list->pages.replies[0]->checkpoint->table_count + 1,
                             sizeof(*list->names));
    if (!list || !list->names)
        return err_set(&server->message, EMBTIER_NO_MEMORY, "out of memory");
    for (size_t p = 0; p < list->pages.count; p++) {
        const Embtier__Checkpoint *const shown = list->pages.replies[p]->checkpoint;

        for (size_t i = 0; i < shown->n_tables; i++)
            list->names[count++] = shown->tables[i];
    }
    list->checkpoints[list->count++] = describe(list->pages.replies[0]->checkpoint);
    list->checkpoints[0].tables = list->names;
    *ret_list = TAKE(list);
    return EMBTIER_OK;
}

/* Metadata that the protocol does not allow would cost the session, so this side checks it too.
 * Only the server checks that it is JSON. */
static enum embtier_err check_metadata(struct embtier *server, const char *metadata)
{
    const size_t bytes = strlen(metadata);

    if (bytes > EMBTIER_METADATA_MAX)
        return err_set(&server->message, EMBTIER_INVALID,
                       "metadata is %zu bytes long, at most %d are allowed", bytes,
                       EMBTIER_METADATA_MAX);
    for (const char *at = metadata; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return err_set(&server->message, EMBTIER_INVALID,
                           "metadata holds the control character 0x%02x; it must be JSON without "
                           "line breaks",
                           (unsigned char)*at);
    return EMBTIER_OK;
}

/* The protocol does not have a number 0 either. */
static enum embtier_err check_id(struct embtier *server, uint64_t id)
{
    if (id == 0)
        return err_set(&server->message, EMBTIER_NOT_FOUND,
                       "there is no checkpoint 0; checkpoints are numbered from 1");
    return EMBTIER_OK;
}

enum embtier_err embtier_checkpoint_create(struct embtier *server,
                                           const struct embtier_checkpoint_options *given,
                                           embtier_progress_fn *progress, void *progress_context,
                                           struct embtier_checkpoint_list **ret_list)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__CheckpointCreate create = EMBTIER__CHECKPOINT_CREATE__INIT;
    struct embtier_checkpoint_options options = EMBTIER_CHECKPOINT_OPTIONS_INIT;

    if (given)
        TRY(options_read(given, sizeof(options), &options, sizeof(options), "checkpoint",
                         "EMBTIER_CHECKPOINT_OPTIONS_INIT", &server->message));
    if (options.metadata) {
        TRY(check_metadata(server, options.metadata));
        create.metadata = (char *)options.metadata;
    }
    if (options.has_step) {
        create.step_given_case = EMBTIER__CHECKPOINT_CREATE__STEP_GIVEN_STEP;
        create.step = options.step;
    }
    create.keep = options.keep;
    create.automatic = options.automatic != 0;
    request.body_case = EMBTIER__REQUEST__BODY_CHECKPOINT_CREATE;
    request.checkpoint_create = &create;
    TRY(connection_call(server, &request, progress, progress_context, &reply));
    return list_of_one(server, &reply, ret_list);
}

static const Embtier__Checkpoint *find(const Embtier__CheckpointListReply *list, uint64_t id)
{
    for (size_t i = 0; i < list->n_checkpoints; i++)
        if (list->checkpoints[i]->id == id)
            return list->checkpoints[i];
    return NULL;
}

enum embtier_err checkpoint_step(struct embtier *server, uint64_t id, int *ret_has_step,
                                 uint64_t *ret_step)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__CheckpointList body = EMBTIER__CHECKPOINT_LIST__INIT;
    const Embtier__Checkpoint *wire;
    struct embtier_checkpoint found;

    TRY(check_id(server, id));
    body.after = id - 1;
    body.most = 1;
    request.body_case = EMBTIER__REQUEST__BODY_CHECKPOINT_LIST;
    request.checkpoint_list = &body;
    TRY(connection_call(server, &request, NULL, NULL, &reply));
    if (reply->body_case != EMBTIER__REPLY__BODY_CHECKPOINT_LIST)
        return err_set(&server->message, EMBTIER_PROTOCOL,
                       "the server did not answer with checkpoints");
    wire = find(reply->checkpoint_list, id); /* an older server gives all of them */
    if (!wire)
        return err_set(&server->message, EMBTIER_NOT_FOUND,
                       "there is no checkpoint %" PRIu64
                       ": `embtier checkpoint list` shows those that exist",
                       id);
    found = describe(wire);
    *ret_has_step = found.has_step;
    *ret_step = found.step;
    return EMBTIER_OK;
}

static enum embtier_err read_pages(struct embtier *server, struct reply_pages *pages,
                                   size_t *ret_count)
{
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__CheckpointList body = EMBTIER__CHECKPOINT_LIST__INIT;
    const Embtier__CheckpointListReply *page;
    size_t count = 0;

    request.body_case = EMBTIER__REQUEST__BODY_CHECKPOINT_LIST;
    request.checkpoint_list = &body;
    do {
        Embtier__Reply *reply = NULL;

        TRY(connection_call(server, &request, NULL, NULL, &reply));
        TRY(reply_pages_add(server, pages, &reply));
        if (pages->replies[pages->count - 1]->body_case != EMBTIER__REPLY__BODY_CHECKPOINT_LIST)
            return err_set(&server->message, EMBTIER_PROTOCOL,
                           "the server did not answer with checkpoints");
        page = pages->replies[pages->count - 1]->checkpoint_list;
        count += page->n_checkpoints;
        if (page->more)
            TRY(reply_pages_go_on(
                server, page->n_checkpoints ? page->checkpoints[page->n_checkpoints - 1]->id : 0,
                &body.after));
    } while (page->more);
    *ret_count = count;
    return EMBTIER_OK;
}

enum embtier_err embtier_checkpoint_list(struct embtier *server,
                                         struct embtier_checkpoint_list **ret_list)
{
    _cleanup_(reply_pages_clear) struct reply_pages pages = { 0 };
    struct embtier_checkpoint_list *list;
    size_t count = 0;

    TRY(read_pages(server, &pages, &count));
    list = list_new(&pages, count);
    if (!list)
        return err_set(&server->message, EMBTIER_NO_MEMORY, "out of memory");
    for (size_t p = 0; p < list->pages.count; p++) {
        const Embtier__CheckpointListReply *const page = list->pages.replies[p]->checkpoint_list;

        for (size_t i = 0; i < page->n_checkpoints; i++)
            list->checkpoints[list->count++] = describe(page->checkpoints[i]);
    }
    *ret_list = list;
    return EMBTIER_OK;
}

enum embtier_err embtier_checkpoint_show(struct embtier *server, uint64_t id,
                                         struct embtier_checkpoint_list **ret_list)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__CheckpointShow show = EMBTIER__CHECKPOINT_SHOW__INIT;

    TRY(check_id(server, id));
    show.id = id;
    request.body_case = EMBTIER__REQUEST__BODY_CHECKPOINT_SHOW;
    request.checkpoint_show = &show;
    TRY(connection_call(server, &request, NULL, NULL, &reply));
    return list_of_one(server, &reply, ret_list);
}

enum embtier_err embtier_checkpoint_verify(struct embtier *server, uint64_t id,
                                           embtier_progress_fn *progress, void *progress_context)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__CheckpointVerify verify = EMBTIER__CHECKPOINT_VERIFY__INIT;

    TRY(check_id(server, id));
    verify.id = id;
    request.body_case = EMBTIER__REQUEST__BODY_CHECKPOINT_VERIFY;
    request.checkpoint_verify = &verify;
    return connection_call(server, &request, progress, progress_context, &reply);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Lists the tables that a restore has made: those in its answer and, if it has further pages, those
 * with one of the @count names. @names get sorted. */
static enum embtier_err find_restored(struct embtier *server, Embtier__Reply **reply,
                                      const char **names, size_t count,
                                      struct embtier_table_list **ret_list)
{
    if (count > 0)
        qsort(names, count, sizeof(*names), compare_names);
    return table_list_read(server, reply, &(struct table_names){ names, count }, ret_list);
}

/* @shown: the checkpoint, if all of its tables were restored; else NULL. */
static enum embtier_err restored_tables(struct embtier *server,
                                        const Embtier__CheckpointRestore *restore,
                                        const struct embtier_checkpoint_list *shown,
                                        Embtier__Reply **reply,
                                        struct embtier_table_list **ret_list)
{
    _cleanup_(freep) const char **names = NULL;

    if ((*reply)->body_case != EMBTIER__REPLY__BODY_TABLE_LIST || !(*reply)->table_list->more)
        return find_restored(server, reply, NULL, 0, ret_list);
    if (shown)
        return find_restored(server, reply, shown->names, shown->checkpoints[0].table_count,
                             ret_list);
    names = calloc(restore->n_tables, sizeof(*names));
    if (!names)
        return err_set(&server->message, EMBTIER_NO_MEMORY, "out of memory");
    memcpy(names, restore->tables, restore->n_tables * sizeof(*names));
    return find_restored(server, reply, names, restore->n_tables, ret_list);
}

enum embtier_err embtier_checkpoint_restore(struct embtier *server, uint64_t id,
                                            const char *const *tables, size_t table_count,
                                            const char *name, embtier_progress_fn *progress,
                                            void *progress_context,
                                            struct embtier_table_list **ret_list)
{
    _cleanup_(embtier_checkpoint_list_freep) struct embtier_checkpoint_list *shown = NULL;
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__CheckpointRestore restore = EMBTIER__CHECKPOINT_RESTORE__INIT;

    TRY(check_id(server, id));
    for (size_t i = 0; i < table_count; i++)
        TRY(table_check_name(server, tables[i]));
    if (name && table_count != 1)
        return err_set(&server->message, EMBTIER_INVALID,
                       "a new name needs exactly one named table, not %zu", table_count);
    if (name) {
        TRY(table_check_name(server, name));
        restore.name = (char *)name;
    }
    restore.id = id;
    restore.n_tables = table_count;
    restore.tables = (char **)tables;
    request.body_case = EMBTIER__REQUEST__BODY_CHECKPOINT_RESTORE;
    request.checkpoint_restore = &restore;
    /* The names are read before another client can delete the checkpoint: the answer may have only
     * some of them. */
    if (table_count == 0)
        TRY(embtier_checkpoint_show(server, id, &shown));
    TRY(connection_call(server, &request, progress, progress_context, &reply));
    return restored_tables(server, &restore, shown, &reply, ret_list);
}

enum embtier_err embtier_checkpoint_delete(struct embtier *server, uint64_t id)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__CheckpointDelete body = EMBTIER__CHECKPOINT_DELETE__INIT;

    TRY(check_id(server, id));
    body.id = id;
    request.body_case = EMBTIER__REQUEST__BODY_CHECKPOINT_DELETE;
    request.checkpoint_delete = &body;
    return connection_call(server, &request, NULL, NULL, &reply);
}

size_t embtier_checkpoint_list_count(const struct embtier_checkpoint_list *list)
{
    return list->count;
}

const struct embtier_checkpoint *
embtier_checkpoint_list_at(const struct embtier_checkpoint_list *list, size_t index)
{
    return index < list->count ? &list->checkpoints[index] : NULL;
}

void embtier_checkpoint_list_free(struct embtier_checkpoint_list *list)
{
    if (!list)
        return;
    reply_pages_clear(&list->pages);
    free(list->names);
    free(list);
}
