/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>

#include "base/system/new_file.h"
#include "client/lib/connection.h"

static void describe(const Embtier__ProfileInfo *wire, struct embtier_profile_info *ret_info)
{
    if (ret_info)
        *ret_info = (struct embtier_profile_info){
            .runs = wire->runs,
            .is_exact = wire->is_exact,
            .age_ms = wire->age_ms,
            .memory_bytes = wire->memory_bytes,
            .lookups = wire->lookups,
            .samples = wire->samples,
            .lost_samples = wire->lost_samples,
            .tables = wire->tables,
        };
}

/* Makes a call that is answered with a description. */
static enum embtier_err call(struct embtier *server, Embtier__Request *request,
                             struct embtier_profile_info *ret_info)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;

    TRY(connection_call(server, request, NULL, NULL, &reply));
    if (reply->body_case != EMBTIER__REPLY__BODY_PROFILE)
        return err_set(&server->message, EMBTIER_PROTOCOL,
                       "the server did not answer with a profile's state");
    describe(reply->profile, ret_info);
    return EMBTIER_OK;
}

enum embtier_err embtier_profile_start(struct embtier *server, uint64_t memory_bytes,
                                       struct embtier_profile_info *ret_info)
{
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__ProfileStart body = EMBTIER__PROFILE_START__INIT;

    body.memory_bytes = memory_bytes;
    request.body_case = EMBTIER__REQUEST__BODY_PROFILE_START;
    request.profile_start = &body;
    return call(server, &request, ret_info);
}

enum embtier_err embtier_profile_stop(struct embtier *server, struct embtier_profile_info *ret_info)
{
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__ProfileStop body = EMBTIER__PROFILE_STOP__INIT;

    request.body_case = EMBTIER__REQUEST__BODY_PROFILE_STOP;
    request.profile_stop = &body;
    return call(server, &request, ret_info);
}

/* ---- Saving ---- */

static enum embtier_err read_piece(struct embtier *server, Embtier__ProfileRead *body,
                                   Embtier__Reply **ret_reply)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;

    request.body_case = EMBTIER__REQUEST__BODY_PROFILE_READ;
    request.profile_read = body;
    TRY(connection_call(server, &request, NULL, NULL, &reply));
    if (reply->body_case != EMBTIER__REPLY__BODY_PROFILE_TEXT)
        return err_set(&server->message, EMBTIER_PROTOCOL,
                       "the server did not answer with a profile");
    if (body->offset + reply->profile_text->text.len > reply->profile_text->line_bytes)
        return err_set(&server->message, EMBTIER_PROTOCOL,
                       "the server sent more of a profile's line than there is");
    *ret_reply = TAKE(reply);
    return EMBTIER_OK;
}

/* Writes all lines. The first reply says how many there are, and which results these are. */
static enum embtier_err write_lines(struct embtier *server, FILE *file, const char *path)
{
    Embtier__ProfileRead body = EMBTIER__PROFILE_READ__INIT;
    uint32_t lines = 1;

    while (body.line < lines) {
        _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
        const Embtier__ProfileText *text;

        TRY(read_piece(server, &body, &reply));
        text = reply->profile_text;
        if (body.snapshot == 0)
            lines = text->lines;
        body.snapshot = text->snapshot;
        errno = 0;
        if (fwrite(text->text.data, 1, text->text.len, file) != text->text.len)
            return err_set_errno(&server->message, errno ? errno : EIO, "%s", path);
        body.offset += text->text.len;
        if (body.offset == text->line_bytes) {
            body.line++;
            body.offset = 0;
        }
    }
    return EMBTIER_OK;
}

enum embtier_err embtier_profile_save(struct embtier *server, const char *path)
{
    _cleanup_(new_file_freep) struct new_file *file = NULL;

    TRY(new_file_open(path, &file, &server->message));
    TRY(write_lines(server, new_file_stream(file), path));
    return new_file_finish(file, &server->message);
}
