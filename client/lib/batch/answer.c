/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/batch/answer.h"

#include <inttypes.h>
#include <stdio.h>

#include "client/lib/batch/batch.h"
#include "client/lib/connection.h"
#include "client/lib/group.h"
#include "client/lib/table.h"
#include "config/config.h"
#include "proto/op_fields.h"
#include "proto/quota.h"
#include "proto/role.h"

/* Returns the word for the tickets that @batch's last request is about. */
static const char *ticket_word(const struct embtier_batch *batch)
{
    return batch->kind == BATCH_OF_PREFETCH || batch->result.is_of_prefetch ? "prefetch" : "ticket";
}

/* Returns the kind of request for which the server had no memory. */
static const char *ticket_maker(const struct embtier_batch *batch)
{
    switch (batch->op) {
    case EMBTIER_PUSH:
        return "a push by rows";
    case EMBTIER_PREFETCH:
        return "a prefetch";
    default:
        return "a ticket";
    }
}

struct table_words {
    char text[EMBTIER_TABLE_NAME_MAX + 10];
};

/* Names the table with this number. Perhaps only other members have pushed to it, so the batch need
 * not have it. */
static const char *name_table(const struct embtier_batch *batch, uint64_t table_id,
                              struct table_words *words)
{
    snprintf(words->text, sizeof(words->text), "a table");
    for (uint32_t i = 0; i < batch->part_count; i++)
        if (batch->parts[i].table->description.info.table_id == table_id)
            snprintf(words->text, sizeof(words->text), "table '%s'", batch_table_name(batch, i));
    return words->text;
}

/* Describes the failure of the member that ended the group, from the error that ended it. */
static const char *what_broke(uint64_t err)
{
    switch (err) {
    case EMBTIER_TIMEOUT:
        return "did not push in time (lanes.group_seconds)";
    case 0:
    case EMBTIER_GROUP_BROKEN:
        return "has gone";
    default:
        return "led a step that failed after a part of it was applied";
    }
}

/* Handles errors of requests that name a group; their numbers are members or steps. */
static enum embtier_err tell_group_error(const struct embtier_batch *batch)
{
    const struct batch_result *const result = &batch->result;
    struct err_msg *const msg = &batch->server->message;
    const char *const group = batch->asked_group->name;
    struct table_words name;

    switch (result->err) {
    case EMBTIER_NO_GROUP:
        return err_set(msg, result->err, "this client is not a member of group '%s'; join it first",
                       group);
    case EMBTIER_GROUP_STEP:
        return err_set(
            msg, result->err,
            "step %" PRIu64 " of group '%s' is out of order: the next step is %" PRIu64 "%s",
            result->value, group, result->limit,
            batch->op == EMBTIER_PUSH ? "; nothing was applied" : ", which must be pushed first");
    case EMBTIER_GROUP_REFUSED:
        return err_set(msg, result->err,
                       "member %" PRIu64 "'s push of step %" PRIu64
                       " of group '%s' was refused (%s: %s); nothing was applied",
                       result->value, batch->asked_step, group,
                       err_name((enum embtier_err)result->limit),
                       err_text((enum embtier_err)result->limit));
    case EMBTIER_GROUP_BROKEN:
        return err_set(msg, result->err,
                       "group '%s' is over: member %" PRIu64
                       " %s; nothing was %s, and all members must join again",
                       group, result->value, what_broke(result->limit),
                       batch->op == EMBTIER_PUSH ? "applied" : "done");
    case EMBTIER_TIMEOUT:
        return err_set(
            msg, result->err,
            "group '%s' is over: member %" PRIu64 " has not pushed step %" PRIu64
            " in time (lanes.group_seconds); nothing was applied, and all members must join again",
            group, result->value, batch->asked_step);
    case EMBTIER_NO_TABLE:
    case EMBTIER_DROPPED:
        return err_set(msg, result->err,
                       "%s was dropped before all members of group '%s' had pushed step %" PRIu64
                       "; nothing was applied",
                       name_table(batch, result->value, &name), group, batch->asked_step);
    case EMBTIER_NONFINITE:
        return err_set(
            msg, result->err,
            "%s refuses updates that make a row NaN or infinite, as the summed gradients of group "
            "'%s' would for row id %" PRIu64 " in step %" PRIu64 "; nothing was applied",
            name_table(batch, result->value, &name), group, result->limit, batch->asked_step);
    case EMBTIER_TOO_LARGE:
        return err_set(msg, result->err,
                       "the members of group '%s' give a row of %s more gradients in step %" PRIu64
                       " than the server adds up for one row; nothing was applied",
                       group, name_table(batch, result->value, &name), batch->asked_step);
    case EMBTIER_BUSY:
        return err_set(msg, result->err,
                       "pushes that wait for their groups fill the memory they may use, %" PRIu64
                       " bytes (a quarter of lanes.request_bytes); nothing was applied",
                       result->limit);
    default:
        return err_set(msg, result->err,
                       "the members of group '%s' gave %s different learning rates; nothing was "
                       "applied",
                       group, name_table(batch, result->value, &name));
    }
}

static bool is_about_group(const struct embtier_batch *batch)
{
    switch (batch->result.err) {
    case EMBTIER_NO_GROUP:
    case EMBTIER_GROUP_STEP:
    case EMBTIER_GROUP_REFUSED:
    case EMBTIER_GROUP_BROKEN:
    case EMBTIER_TIMEOUT:
        return batch->asked_group != NULL;
    case EMBTIER_TOO_LARGE:
        return batch->asked_group && batch->result.limit == OP_LIMIT_OF_UPDATE;
    case EMBTIER_NONFINITE: /* about a part: its gradients or weights are not finite */
    case EMBTIER_MISMATCH:  /* about a part: its table is missing, or not the ticket's */
    case EMBTIER_NO_TABLE:
    case EMBTIER_DROPPED:
        return batch->asked_group && batch->result.segment >= batch->part_count;
    case EMBTIER_BUSY:
        return batch->asked_group && batch->result.segment >= batch->part_count;
    default:
        return false;
    }
}

static uint64_t count_ids(const struct embtier_batch *batch)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < batch->part_count; i++)
        count += batch->parts[i].count;
    return count;
}

/* The request is over socket.max_batch_rows, which the server has told the client; or it is too
 * large for lanes.request_bytes, which may allow far fewer ids. Then the limit is the number of ids
 * that memory has room for, or 0 if the limit is no number of ids. */
static enum embtier_err tell_too_large(const struct embtier_batch *batch)
{
    const struct batch_result *const result = &batch->result;
    struct err_msg *const msg = &batch->server->message;
    const char *const what = batch->kind == BATCH_OF_BAGS ? "ids or bags" : "ids";
    const bool is_of_memory =
        result->limit < batch->server->facts.max_batch_rows && result->value == count_ids(batch);

    const bool is_of_key = result->limit == batch->server->facts.max_batch_rows;

    if (result->limit == 0)
        return err_set(msg, result->err,
                       "batch of %" PRIu64
                       " ids in %u part%s needs more memory than lanes.request_bytes gives "
                       "one request; use fewer ids and parts, or raise the server's %s",
                       count_ids(batch), batch->part_count, PLURAL(batch->part_count),
                       SERVER_KEY(batch->server, "lanes.request_bytes"));
    if (is_of_memory)
        return err_set(
            msg, result->err,
            "batch of %" PRIu64 " ids needs more memory than lanes.request_bytes gives "
            "one request; use at most %" PRIu64
            " ids, or raise the server's %s to %.3g times its value, or times %u MiB if it is less",
            result->value, result->limit, SERVER_KEY(batch->server, "lanes.request_bytes"),
            (double)result->value / (double)result->limit + 0.01,
            (unsigned)(CONFIG_REQUEST_BYTES_LEAST / MIB));
    return err_set(
        msg, result->err, "batch of %" PRIu64 " %s is over the server's limit of %" PRIu64 "%s%s%s",
        result->value, what, result->limit, is_of_key ? " (" : "",
        is_of_key ? SERVER_KEY(batch->server, "socket.max_batch_rows") : "", is_of_key ? ")" : "");
}

/* The server's log names the directory: its paths are not for every client. */
static enum embtier_err tell_no_space(const struct embtier_batch *batch)
{
    static const char advice[] =
        "drop tables, delete checkpoints, or free space; the server's log names the directory";
    const struct batch_result *const result = &batch->result;
    struct err_msg *const msg = &batch->server->message;

    if (result->segment >= batch->part_count)
        return err_set(msg, result->err, "no space left on the server's disk: %s", advice);
    if (result->value == 0)
        return err_set(msg, result->err, "no space left on the server's disk%s: %s",
                       PART_TABLE_TEXT(batch, result->segment), advice);
    return err_set(msg, result->err,
                   "no space left on the server's disk: the update may take %" PRIu64
                   " KiB, and there is room for %" PRIu64 " KiB%s: %s",
                   div_round_up(result->value, KIB), result->limit / KIB,
                   PART_TABLE_TEXT(batch, result->segment), advice);
}

/* Returns the form of the batch's last request (proto/op_fields.h). */
static uint32_t form_of(const struct embtier_batch *batch)
{
    switch (batch->op) {
    case EMBTIER_GET:
        return OP_FORM_GET;
    case EMBTIER_SET:
        return OP_FORM_SET;
    case EMBTIER_GET_POOLED:
    case EMBTIER_GET_POOLED_TICKET:
        return OP_FORM_POOL;
    case EMBTIER_PUSH:
        return batch->kind == BATCH_OF_BAGS ? OP_FORM_PUSH_BAGS : OP_FORM_PUSH_ROWS;
    case EMBTIER_RELEASE:
        return OP_FORM_RELEASE;
    case EMBTIER_PREFETCH:
        return OP_FORM_PREFETCH;
    }
    return 0;
}

/* A pooled lookup needs another role only for its ticket. */
static const char *needed_for(const struct embtier_batch *batch, enum role needed)
{
    const uint32_t form = form_of(batch);

    if (form == OP_FORM_POOL && needed == ROLE_TRAIN)
        return "a lookup to train from (with a ticket)";
    return op_form_words(form);
}

/* The numbers are the user's role and the least role for the operation, or one more than all roles
 * if the server has no rule for it. */
static enum embtier_err tell_no_permission(const struct embtier_batch *batch)
{
    const struct batch_result *const result = &batch->result;
    struct err_msg *const msg = &batch->server->message;
    const char *const user = batch->server->facts.user;
    const enum role role = (enum role)result->value, needed = (enum role)result->limit;

    if (needed >= ROLE_COUNT)
        return err_set(msg, result->err, "this server has no rule for %s, so it refuses it",
                       op_form_words(form_of(batch)));
    if (role < needed)
        return err_set(msg, result->err, "%s needs role %s, and user '%s' has role %s%s",
                       needed_for(batch, needed), role_word(needed), user, role_word(role),
                       role == ROLE_NONE ? ": it is no longer in the server's access file" : "");
    return err_set(msg, result->err,
                   "%s: table '%s' is not granted to user '%s' (its role is %s)%s",
                   op_form_words(form_of(batch)), batch_table_name(batch, result->segment), user,
                   role_word(role), PART_TEXT(batch, result->segment));
}

/* The meaning of an answer's numbers depends on its error; see op_completion. This function
 * handles errors about no part. */
static enum embtier_err tell_batch_error(const struct embtier_batch *batch)
{
    const struct batch_result *const result = &batch->result;
    struct err_msg *const msg = &batch->server->message;

    switch (result->err) {
    case EMBTIER_PERMISSION:
        return tell_no_permission(batch);
    case EMBTIER_TOO_LARGE:
        return tell_too_large(batch);
    case EMBTIER_NO_SPACE:
        return tell_no_space(batch);
    case EMBTIER_NO_TICKET:
        return err_set(msg, result->err, "this client has no %s %" PRIu64, ticket_word(batch),
                       result->value);
    case EMBTIER_TICKET_USED:
        return err_set(msg, result->err, "%s %" PRIu64 " has been used or released",
                       ticket_word(batch), result->value);
    case EMBTIER_TICKET_EXPIRED:
        return err_set(msg, result->err,
                       "%s %" PRIu64 " has expired: the server keeps tickets for %" PRIu64 " ms",
                       ticket_word(batch), result->value, result->limit);
    case EMBTIER_TICKETS_FULL:
        if (result->limit == 0)
            return err_set(msg, result->err,
                           "a client may hold at most %" PRIu64
                           " tickets; push or release some first",
                           result->value);
        return err_set(msg, result->err,
                       "no room for %s of %" PRIu64 " bytes: all together may use %" PRIu64
                       " (%s); push or release tickets first",
                       ticket_maker(batch), result->value, result->limit,
                       SERVER_KEY(batch->server, "lanes.ticket_bytes"));
    case EMBTIER_PINS_FULL:
        return err_set(msg, result->err,
                       "no room in DRAM for a prefetch of %" PRIu64
                       " bytes of rows: your user's prefetches may use %" PRIu64
                       ", three quarters of what other users leave of half of the first tier; push "
                       "or release prefetches first, or prefetch fewer rows at a time",
                       result->value, result->limit);
    case EMBTIER_SHAPE:
        return err_set(msg, result->err,
                       "push of %" PRIu64 " parts with the ticket of a lookup of %" PRIu64,
                       result->value, result->limit);
    case EMBTIER_INVALID:
        if (batch->op == EMBTIER_PUSH)
            return err_set(msg, result->err, "the server refused the push; steps are 1 to %" PRIu64,
                           EMBTIER_STEP_MAX);
        break;
    default:
        break;
    }
    return err_set(msg, result->err, "%s", err_text(result->err));
}

static enum embtier_err tell_part_error(const struct embtier_batch *batch)
{
    const struct batch_result *const result = &batch->result;
    struct err_msg *const msg = &batch->server->message;
    const char *const table = batch_table_name(batch, result->segment);

    switch (result->err) {
    case EMBTIER_ID_RANGE:
        return err_set(msg, result->err,
                       "row id %" PRIu64 " is out of range: table '%s' has %" PRIu64
                       " row%s; allowed: 0 to %" PRIu64 "%s",
                       result->value, table, result->limit, PLURAL(result->limit),
                       result->limit - 1, PART_TEXT(batch, result->segment));
    case EMBTIER_OFFSET_RANGE:
        return err_set(msg, result->err,
                       "offset %" PRIu64 " is past the arena's end at %" PRIu64 "%s", result->value,
                       result->limit, PART_TABLE_TEXT(batch, result->segment));
    case EMBTIER_BAG_RANGE:
        return err_set(msg, result->err,
                       "offset %" PRIu64 " of bags is %" PRIu64
                       ": offsets start with 0, never decrease, and end with the number of ids, "
                       "%u%s",
                       result->value, result->limit, batch->parts[result->segment].count,
                       PART_TABLE_TEXT(batch, result->segment));
    case EMBTIER_PINS_FULL:
        return err_set(msg, result->err,
                       "no room in DRAM for row id %" PRIu64
                       " of table '%s': prefetched rows may use half of the first tier; push or "
                       "release prefetches first, or prefetch fewer rows at a time%s",
                       result->value, table, PART_TEXT(batch, result->segment));
    case EMBTIER_NO_TABLE:
        return err_set(msg, result->err,
                       "no such table: '%s' was dropped or created again since it was opened; open "
                       "it again%s",
                       table, PART_TEXT(batch, result->segment));
    case EMBTIER_DROPPED:
        return err_set(msg, result->err, "table '%s' was dropped%s", table,
                       PART_TEXT(batch, result->segment));
    case EMBTIER_NO_SPACE:
        return tell_no_space(batch);
    case EMBTIER_UNSUPPORTED:
        if (batch->op != EMBTIER_GET_POOLED_TICKET)
            break;
        return err_set(
            msg, result->err,
            "in a lookup with a ticket, all parts of table '%s' must be maxima, or none%s", table,
            PART_TEXT(batch, result->segment));
    case EMBTIER_PERMISSION:
    case EMBTIER_TOO_LARGE:
    case EMBTIER_NO_TICKET:
    case EMBTIER_TICKET_USED:
    case EMBTIER_TICKET_EXPIRED:
    case EMBTIER_TICKETS_FULL:
        return tell_batch_error(batch);
    default:
        break;
    }
    return err_set(msg, result->err, "%s%s", err_text(result->err),
                   PART_TABLE_TEXT(batch, result->segment));
}

/* Handles errors that only pushes get, or that mean something else for a push. */
static enum embtier_err tell_push_part_error(const struct embtier_batch *batch)
{
    const struct batch_result *const result = &batch->result;
    struct err_msg *const msg = &batch->server->message;
    const char *const table = batch_table_name(batch, result->segment);

    switch (result->err) {
    case EMBTIER_SHAPE:
        return err_set(msg, result->err,
                       "gradients have the wrong shape: %" PRIu64 " where %" PRIu64 " is needed%s",
                       result->value, result->limit, PART_TABLE_TEXT(batch, result->segment));
    case EMBTIER_NONFINITE:
        if (result->limit == OP_LIMIT_OF_UPDATE)
            return err_set(
                msg, result->err,
                "table '%s' refuses updates that make a row NaN or infinite, as that of %s %" PRIu64
                " would; nothing was applied%s",
                table, batch->kind == BATCH_OF_BAGS ? "a row in bag" : "the id at", result->value,
                PART_TEXT(batch, result->segment));
        if (result->limit > 0 && result->value == result->limit)
            return err_set(msg, result->err,
                           "table '%s' refuses gradients with NaN or infinity, and a weight of a "
                           "sample is NaN or infinite%s",
                           table, PART_TEXT(batch, result->segment));
        return err_set(
            msg, result->err,
            "table '%s' refuses gradients with NaN or infinity, and the gradient of %s %" PRIu64
            " has one%s",
            table, batch->kind == BATCH_OF_BAGS ? "bag" : "the id at", result->value,
            PART_TEXT(batch, result->segment));
    case EMBTIER_TOO_LARGE:
        return err_set(msg, result->err,
                       "a row of table '%s' gets %" PRIu64
                       " gradients in this push, more than the %" PRIu64
                       " that are summed for a row of its dim; nothing was applied%s",
                       table, result->value, result->limit, PART_TEXT(batch, result->segment));
    case EMBTIER_UNSUPPORTED:
        return err_set(
            msg, result->err,
            "table '%s' has no optimizer for a push%s: set its rows, or make a table with one",
            table, PART_TEXT(batch, result->segment));
    case EMBTIER_INVALID:
        return err_set(msg, result->err,
                       "the learning rate is not finite, or differs from that of other parts of "
                       "table '%s'%s",
                       table, PART_TEXT(batch, result->segment));
    default:
        return tell_part_error(batch);
    }
}

/* A field that the operation does not use was not 0. This library and the server disagree about the
 * fields in use, so their versions differ, or something wrote into the arena by mistake. */
static enum embtier_err tell_unused_field(const struct embtier_batch *batch)
{
    const struct batch_result *const result = &batch->result;
    const bool is_of_part = result->segment < batch->part_count;
    const uint32_t form = form_of(batch);
    const char *name = "unknown";
    const struct op_field *fields;
    uint32_t count;

    fields = is_of_part ? op_segment_fields(form, &count) : op_submission_fields(&count);
    for (uint32_t i = 0; i < count; i++)
        if (fields[i].offset + 1 == result->field)
            name = fields[i].name;
    return err_set(&batch->server->message, result->err,
                   "%s does not use the field '%s', which must be 0 and is %" PRIu64
                   "%s: something else wrote into the shared arena, or this library and the "
                   "server are of different versions",
                   op_form_words(form), name, result->value,
                   is_of_part ? PART_TEXT(batch, result->segment) : "");
}

/* Returns what the quota limits. */
static const char *quota_noun(enum quota quota)
{
    switch (quota) {
    case QUOTA_ticket_bytes:
        return "memory of tickets, a session three quarters of what the user's others leave";
    case QUOTA_pinned_bytes:
        return "prefetched rows";
    case QUOTA_bytes_in_flight:
        return "requests under way";
    default:
        return "what a quota limits";
    }
}

/* Returns what passes or helps, so that the request is taken another time. */
static const char *quota_advice(enum quota quota)
{
    switch (quota) {
    case QUOTA_ticket_bytes:
        return "push or release tickets, and try again";
    case QUOTA_pinned_bytes:
        return "push or release prefetches, and try again";
    case QUOTA_bytes_in_flight:
        return "try again when others are done";
    default:
        return "try again later";
    }
}

/* A quota of the access file refuses the request for now. */
static enum embtier_err tell_quota(const struct embtier_batch *batch)
{
    const struct batch_result *const result = &batch->result;
    const enum quota quota = quota_of_field(result->field);
    struct err_msg *const msg = &batch->server->message;
    const char *const user = batch->server->facts.user;

    if (quota == QUOTA_requests_per_second)
        return err_set(msg, result->err,
                       "user '%s' has begun as many requests as it may, %" PRIu64
                       " a second (quotas.%s of the access file): %s",
                       user, result->limit, quota_key(quota), quota_advice(quota));
    return err_set(msg, result->err,
                   "user '%s' may have %" PRIu64
                   " bytes of %s (quotas.%s of the access file), and the request needs %" PRIu64
                   " more: %s",
                   user, result->limit, quota_noun(quota), quota_key(quota), result->value,
                   result->value > result->limit ? "make smaller requests" : quota_advice(quota));
}

static enum embtier_err tell_lost(const struct embtier_batch *batch)
{
    struct embtier *const server = batch->server;
    const enum embtier_err err = connection_is_over(server);

    if (batch->op == EMBTIER_SET || batch->op == EMBTIER_PUSH)
        err_append(&server->message, "; it is unknown whether the %s took effect",
                   batch->op == EMBTIER_SET ? "SET" : "push");
    return err;
}

enum embtier_err answer_tell(const struct embtier_batch *batch)
{
    const struct batch_result *const result = &batch->result;

    if (result->err == EMBTIER_OK)
        return EMBTIER_OK;
    if (result->err == EMBTIER_DISCONNECTED)
        return tell_lost(batch);
    if (result->field != 0 && result->err == EMBTIER_BUSY)
        return tell_quota(batch);
    if (result->field != 0)
        return tell_unused_field(batch);
    if (is_about_group(batch))
        return tell_group_error(batch);
    if (result->segment >= batch->part_count)
        return tell_batch_error(batch);
    return batch->op == EMBTIER_PUSH ? tell_push_part_error(batch) : tell_part_error(batch);
}
