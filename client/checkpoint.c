/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "client/connection.h"
#include "client/table.h"

/* The reply is kept: names and metadata point into it. */
struct embtier_checkpoint_list {
    Embtier__Reply *reply;
    size_t count;
    struct embtier_checkpoint checkpoints[];
};

static void describe(const Embtier__Checkpoint *wire, bool with_tables,
                     struct embtier_checkpoint *ret_checkpoint)
{
    static const char *const none[] = { NULL }; /* no tables, in the place of NULL: not said */
    const char *const *const tables = wire->n_tables ? (const char *const *)wire->tables : none;

    *ret_checkpoint = (struct embtier_checkpoint){
        .id = wire->id,
        .created_ms = wire->created_ms,
        .automatic = wire->automatic,
        .has_step = wire->step_given_case == EMBTIER__CHECKPOINT__STEP_GIVEN_STEP,
        .metadata = wire->metadata[0] ? wire->metadata : NULL,
        .table_count = wire->table_count,
        .tables = with_tables ? tables : NULL,
        .bytes = wire->bytes,
        .new_bytes = wire->new_bytes,
        .pause_us = wire->pause_us,
        .held_rows = wire->held_rows,
        .spent_ms = wire->spent_ms,
        .tries = wire->tries,
        .cut_updates = wire->cut_updates,
    };
    if (ret_checkpoint->has_step)
        ret_checkpoint->step = wire->step;
}

/* Takes @reply over when it succeeds. */
static enum embtier_err list_new(struct embtier *server, Embtier__Reply **reply,
                                 Embtier__Checkpoint **wires, size_t count, bool with_tables,
                                 struct embtier_checkpoint_list **ret_list)
{
    struct embtier_checkpoint_list *list;

    list = calloc(1, sizeof(*list) + count * sizeof(list->checkpoints[0]));
    if (!list)
        return err_set(&server->message, EMBTIER_NO_MEMORY, "out of memory");
    list->count = count;
    for (size_t i = 0; i < count; i++)
        describe(wires[i], with_tables, &list->checkpoints[i]);
    list->reply = TAKE(*reply);
    *ret_list = list;
    return EMBTIER_OK;
}

static enum embtier_err list_of_one(struct embtier *server, Embtier__Reply **reply,
                                    struct embtier_checkpoint_list **ret_list)
{
    if ((*reply)->body_case != EMBTIER__REPLY__BODY_CHECKPOINT)
        return err_set(&server->message, EMBTIER_PROTOCOL,
                       "the server did not answer with a checkpoint");
    if ((*reply)->checkpoint->n_tables != (*reply)->checkpoint->table_count)
        return err_set(&server->message, EMBTIER_PROTOCOL,
                       "the server named %zu tables of a checkpoint that has %u",
                       (*reply)->checkpoint->n_tables, (*reply)->checkpoint->table_count);
    return list_new(server, reply, &(*reply)->checkpoint, 1, true, ret_list);
}

/* Checked here too: what the protocol does not allow would cost the session. That it is JSON is
 * the server's to say. */
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

/* Neither does the protocol have a number 0. */
static enum embtier_err check_id(struct embtier *server, uint64_t id)
{
    if (id == 0)
        return err_set(&server->message, EMBTIER_NOT_FOUND,
                       "there is no checkpoint 0; they are numbered from 1");
    return EMBTIER_OK;
}

enum embtier_err embtier_checkpoint_create(struct embtier *server,
                                           const struct embtier_checkpoint_options *options,
                                           control_progress_fn *progress, void *progress_context,
                                           struct embtier_checkpoint_list **ret_list)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__CheckpointCreate create = EMBTIER__CHECKPOINT_CREATE__INIT;

    if (options && options->metadata) {
        TRY(check_metadata(server, options->metadata));
        create.metadata = (char *)options->metadata;
    }
    if (options && options->has_step) {
        create.step_given_case = EMBTIER__CHECKPOINT_CREATE__STEP_GIVEN_STEP;
        create.step = options->step;
    }
    if (options)
        create.keep = options->keep;
    create.automatic = options && options->automatic;
    request.body_case = EMBTIER__REQUEST__BODY_CHECKPOINT_CREATE;
    request.checkpoint_create = &create;
    TRY(connection_call(server, &request, progress, progress_context, &reply));
    return list_of_one(server, &reply, ret_list);
}

enum embtier_err embtier_checkpoint_list(struct embtier *server,
                                         struct embtier_checkpoint_list **ret_list)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__CheckpointList body = EMBTIER__CHECKPOINT_LIST__INIT;

    request.body_case = EMBTIER__REQUEST__BODY_CHECKPOINT_LIST;
    request.checkpoint_list = &body;
    TRY(connection_call(server, &request, NULL, NULL, &reply));
    if (reply->body_case != EMBTIER__REPLY__BODY_CHECKPOINT_LIST)
        return err_set(&server->message, EMBTIER_PROTOCOL,
                       "the server did not answer with checkpoints");
    return list_new(server, &reply, reply->checkpoint_list->checkpoints,
                    reply->checkpoint_list->n_checkpoints, false, ret_list);
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
                                           control_progress_fn *progress, void *progress_context)
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

enum embtier_err embtier_checkpoint_restore(struct embtier *server, uint64_t id,
                                            const char *const *tables, size_t table_count,
                                            const char *name, control_progress_fn *progress,
                                            void *progress_context,
                                            struct embtier_table_list **ret_list)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__CheckpointRestore restore = EMBTIER__CHECKPOINT_RESTORE__INIT;

    TRY(check_id(server, id));
    for (size_t i = 0; i < table_count; i++)
        TRY(table_check_name(server, tables[i]));
    if (name && table_count != 1)
        return err_set(&server->message, EMBTIER_INVALID,
                       "a new name is for one table that is named, not for %zu", table_count);
    if (name) {
        TRY(table_check_name(server, name));
        restore.name = (char *)name;
    }
    restore.id = id;
    restore.n_tables = table_count;
    restore.tables = (char **)tables;
    request.body_case = EMBTIER__REQUEST__BODY_CHECKPOINT_RESTORE;
    request.checkpoint_restore = &restore;
    TRY(connection_call(server, &request, progress, progress_context, &reply));
    return table_list_new(server, reply, ret_list);
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
    reply_free(list->reply);
    free(list);
}
