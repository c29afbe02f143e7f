/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/control_check.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/embtier_types.h"
#include "base/spec/table_spec.h"
#include "base/text/text_escape.h"
#include "proto/control_limits.h"
#include "proto/shm_ring.h"
#include "proto/table_spec_wire.h"

#define WIRE_DEPTH_MAX 8 /* the deepest message has 4 levels */

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct string_limit {
    const ProtobufCMessageDescriptor *message;
    uint32_t tag; /* as in control.proto */
    uint32_t bytes_max;
};

/* The limit of a string field without a row here. */
#define STRING_BYTES_MAX 64
static const struct string_limit string_limits[] = {
    { &embtier__error__descriptor, 2, 1024 }, /* message */
    { &embtier__hello__descriptor, 5, 128 },  /* client */
    { &embtier__table_spec__descriptor, 1, EMBTIER_TABLE_NAME_MAX },
    { &embtier__table_open__descriptor, 1, EMBTIER_TABLE_NAME_MAX },
    { &embtier__table_drop__descriptor, 1, EMBTIER_TABLE_NAME_MAX },
    { &embtier__table_move__descriptor, 1, EMBTIER_TABLE_NAME_MAX },
    { &embtier__group_join__descriptor, 1, EMBTIER_GROUP_NAME_MAX },
    { &embtier__checkpoint_create__descriptor, 2, EMBTIER_METADATA_MAX },
    { &embtier__scan_open__descriptor, 2, EMBTIER_TABLE_NAME_MAX },
    { &embtier__checkpoint_restore__descriptor, 2, EMBTIER_TABLE_NAME_MAX },
    { &embtier__checkpoint_restore__descriptor, 3, EMBTIER_TABLE_NAME_MAX },
    { &embtier__checkpoint__descriptor, 5, EMBTIER_METADATA_MAX },   /* metadata */
    { &embtier__checkpoint__descriptor, 6, EMBTIER_TABLE_NAME_MAX }, /* tables */
    { &embtier__job__descriptor, 3, EMBTIER_TABLE_NAME_MAX },        /* what */
    { &embtier__hello_reply__descriptor, 393, CONFIG_FILE_BYTES_MAX },
    { &embtier__knob_list__descriptor, 5, CONFIG_FILE_BYTES_MAX },
    { &embtier__knob_set__descriptor, 2, KNOB_VALUE_BYTES_MAX },
    { &embtier__knob__descriptor, 2, KNOB_VALUE_BYTES_MAX },
    { &embtier__knob__descriptor, 5, 192 },                   /* allowed */
    { &embtier__knob__descriptor, 6, 192 },                   /* default_text */
    { &embtier__knob__descriptor, 7, 192 },                   /* text */
    { &embtier__knob__descriptor, 10, KNOB_VALUE_BYTES_MAX }, /* other_value */
    { &embtier__knob_change__descriptor, 2, KNOB_VALUE_BYTES_MAX },
    { &embtier__knob_change__descriptor, 5, CONFIG_FILE_BYTES_MAX },
    { &embtier__compaction_set__descriptor, 2, 255 },   /* hours */
    { &embtier__compaction_reply__descriptor, 8, 255 }, /* hours */
    { &embtier__compaction_reply__descriptor, 13, 255 },
    { &embtier__compaction_reply__descriptor, 14, 255 },
    { &embtier__compaction_database__descriptor, 1, CONFIG_FILE_BYTES_MAX },
    { &embtier__reshard__descriptor, 3, DATA_DIRECTORY_BYTES_MAX },
    { &embtier__reshard__descriptor, 4, DATA_DIRECTORY_BYTES_MAX },
    { &embtier__reshard_reply__descriptor, 6, DATA_DIRECTORY_BYTES_MAX },
    { &embtier__reshard_reply__descriptor, 7, DATA_DIRECTORY_BYTES_MAX },
    { &embtier__data_directory__descriptor, 2, DATA_DIRECTORY_BYTES_MAX },
    { &embtier__metric__descriptor, 1, 128 },                    /* name */
    { &embtier__metric__descriptor, 2, 512 },                    /* help */
    { &embtier__metric__descriptor, 5, EMBTIER_TABLE_NAME_MAX }, /* label_value */
};

static uint32_t string_bytes_max(const ProtobufCMessageDescriptor *message, uint32_t tag)
{
    for (size_t i = 0; i < ARRAY_LEN(string_limits); i++)
        if (string_limits[i].message == message && string_limits[i].tag == tag)
            return string_limits[i].bytes_max;
    return STRING_BYTES_MAX;
}

static bool is_control(uint8_t c)
{
    return c < 0x20 || c == 0x7f;
}

static enum embtier_err check_string(const ProtobufCMessageDescriptor *message,
                                     const ProtobufCFieldDescriptor *field, const uint8_t *text,
                                     uint64_t bytes, struct err_msg *msg)
{
    const uint32_t bytes_max = string_bytes_max(message, field->id);

    if (bytes > bytes_max)
        return err_set(msg, EMBTIER_PROTOCOL, "%s.%s is %llu bytes long, at most %u are allowed",
                       message->short_name, field->name, (unsigned long long)bytes, bytes_max);
    for (uint64_t i = 0; i < bytes; i++)
        if (is_control(text[i]))
            return err_set(msg, EMBTIER_PROTOCOL, "%s.%s holds the control character 0x%02x",
                           message->short_name, field->name, text[i]);
    return EMBTIER_OK;
}

/* Returns the bytes taken; 0 when the varint does not end within @bytes or within 64 bits. */
static uint64_t read_varint(const uint8_t *in, uint64_t bytes, uint64_t *ret_value)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < 10 && i < bytes; i++) {
        value |= (uint64_t)(in[i] & 0x7f) << (7 * i);
        if (!(in[i] & 0x80)) {
            *ret_value = value;
            return i + 1;
        }
    }
    return 0;
}

/* One field: its tag, and the place of its value, counted from the field's first byte. */
struct wire_field {
    uint32_t tag;
    uint32_t type;
    uint64_t value_at;
    uint64_t value_bytes;
};

/* Returns false when no whole field lies in the @bytes at @in. */
static bool read_field(const uint8_t *in, uint64_t bytes, struct wire_field *ret_field)
{
    uint64_t key;
    uint64_t value;
    uint64_t at = read_varint(in, bytes, &key);
    uint64_t taken;

    if (at == 0 || key >> 3 == 0 || key >> 32 != 0)
        return false;
    switch (key & 7) {
    case WIRE_VARINT:
        taken = read_varint(in + at, bytes - at, &value);
        if (taken == 0)
            return false;
        break;
    case WIRE_FIXED64:
        taken = 8;
        break;
    case WIRE_FIXED32:
        taken = 4;
        break;
    case WIRE_BYTES:
        taken = read_varint(in + at, bytes - at, &value);
        if (taken == 0)
            return false;
        at += taken;
        taken = value;
        break;
    default:
        return false;
    }
    if (taken > bytes - at)
        return false;
    *ret_field = (struct wire_field){ (uint32_t)(key >> 3), key & 7, at, taken };
    return true;
}

/* Walks nested messages in the same loop, because a message's bytes follow its own tag. A small
 * stack holds the ends of the messages around it. */
enum embtier_err control_check_bytes(const ProtobufCMessageDescriptor *message,
                                     const uint8_t *payload, uint32_t bytes, struct err_msg *msg)
{
    struct {
        const ProtobufCMessageDescriptor *message;
        uint64_t end;
    } stack[WIRE_DEPTH_MAX];
    uint32_t depth = 0;
    uint64_t at = 0;

    stack[0].message = message;
    stack[0].end = bytes;
    for (;;) {
        const ProtobufCFieldDescriptor *field;
        struct wire_field wire;

        while (depth > 0 && at == stack[depth].end)
            depth--;
        if (at == stack[depth].end)
            return EMBTIER_OK;
        if (!read_field(payload + at, stack[depth].end - at, &wire))
            return err_set(msg, EMBTIER_PROTOCOL, "malformed message: byte %llu of %u in %s",
                           (unsigned long long)at, bytes, stack[depth].message->short_name);
        at += wire.value_at;
        field = protobuf_c_message_descriptor_get_field(stack[depth].message, wire.tag);
        if (field && wire.type == WIRE_BYTES && field->type == PROTOBUF_C_TYPE_MESSAGE) {
            if (depth + 1 == WIRE_DEPTH_MAX)
                return err_set(msg, EMBTIER_PROTOCOL, "malformed message: nested too deeply");
            depth++;
            stack[depth].message = field->descriptor;
            stack[depth].end = at + wire.value_bytes;
            continue;
        }
        if (field && wire.type == WIRE_BYTES && field->type == PROTOBUF_C_TYPE_STRING)
            TRY(check_string(stack[depth].message, field, payload + at, wire.value_bytes, msg));
        at += wire.value_bytes;
    }
}

char *control_clean_string(const ProtobufCMessageDescriptor *message, uint32_t tag,
                           const char *text)
{
    const size_t room = (size_t)string_bytes_max(message, tag) + 1;
    char *const copy = malloc(room);
    size_t written = 0;

    if (copy)
        (void)text_escape(TEXT_MIXED, text, strlen(text), copy, room, &written);
    return copy;
}

static enum embtier_err missing(struct err_msg *msg, const char *what)
{
    return err_set(msg, EMBTIER_PROTOCOL, "%s is missing", what);
}

static enum embtier_err need(bool has, const char *what, struct err_msg *msg)
{
    return has ? EMBTIER_OK : missing(msg, what);
}

static enum embtier_err check_hello(const Embtier__Hello *hello, struct err_msg *msg)
{
    if (!hello)
        return missing(msg, "Request.hello");
    if (hello->protocol_min == 0 || hello->protocol_min > hello->protocol_max)
        return err_set(msg, EMBTIER_PROTOCOL, "Hello: protocols %u to %u are not a range",
                       hello->protocol_min, hello->protocol_max);
    return EMBTIER_OK;
}

static enum embtier_err check_scan_next(const Embtier__ScanNext *next, struct err_msg *msg)
{
    if (!next || next->bytes == 0)
        return missing(msg, "ScanNext.bytes");
    if (next->offset % SHM_ALIGN != 0)
        return err_set(msg, EMBTIER_PROTOCOL, "ScanNext.offset is not a multiple of %d", SHM_ALIGN);
    return EMBTIER_OK;
}

static enum embtier_err check_restore(const Embtier__CheckpointRestore *restore,
                                      struct err_msg *msg)
{
    if (!restore || restore->id == 0)
        return missing(msg, "CheckpointRestore.id");
    if (restore->name[0] != '\0' && restore->n_tables != 1)
        return err_set(msg, EMBTIER_PROTOCOL, "CheckpointRestore.name is for one table, not %zu",
                       restore->n_tables);
    return EMBTIER_OK;
}

static enum embtier_err check_compaction_set(const Embtier__CompactionSet *set, struct err_msg *msg)
{
    if (!set || (set->deferral == 0 && set->hours[0] == '\0'))
        return missing(msg, "CompactionSet.deferral");
    return EMBTIER_OK;
}

static enum embtier_err check_knob_list(const Embtier__KnobList *list, struct err_msg *msg)
{
    if (!list)
        return missing(msg, "Request.knob_list");
    if (list->text_given_case == EMBTIER__KNOB_LIST__TEXT_GIVEN_TEXT &&
        list->text.len > KNOB_FILE_BYTES_MAX)
        return err_set(msg, EMBTIER_PROTOCOL, "KnobList.text has %zu bytes, at most %u are allowed",
                       list->text.len, KNOB_FILE_BYTES_MAX);
    return EMBTIER_OK;
}

enum embtier_err control_check_request(const Embtier__Request *request, struct err_msg *msg)
{
    const Embtier__Request *r = request;

    switch (r->body_case) {
    case EMBTIER__REQUEST__BODY_HELLO:
        return check_hello(r->hello, msg);
    case EMBTIER__REQUEST__BODY_TABLE_CREATE:
        return need(r->table_create && r->table_create->spec, "TableCreate.spec", msg);
    case EMBTIER__REQUEST__BODY_TABLE_OPEN:
        return need(r->table_open && r->table_open->name[0] != '\0', "TableOpen.name", msg);
    case EMBTIER__REQUEST__BODY_TABLE_DROP:
        return need(r->table_drop && r->table_drop->name[0] != '\0', "TableDrop.name", msg);
    case EMBTIER__REQUEST__BODY_TABLE_MOVE:
        return need(r->table_move && r->table_move->name[0] != '\0', "TableMove.name", msg);
    case EMBTIER__REQUEST__BODY_PLAN_BEGIN:
        return need(r->plan_begin && r->plan_begin->generation != 0, "PlanBegin.generation", msg);
    case EMBTIER__REQUEST__BODY_GROUP_JOIN:
        return need(r->group_join && r->group_join->name[0] != '\0', "GroupJoin.name", msg);
    case EMBTIER__REQUEST__BODY_GROUP_LEAVE:
        return need(r->group_leave && r->group_leave->handle != 0, "GroupLeave.handle", msg);
    case EMBTIER__REQUEST__BODY_CHECKPOINT_CREATE:
        return need(r->checkpoint_create, "Request.checkpoint_create", msg);
    case EMBTIER__REQUEST__BODY_CHECKPOINT_SHOW:
        return need(r->checkpoint_show && r->checkpoint_show->id != 0, "CheckpointShow.id", msg);
    case EMBTIER__REQUEST__BODY_SCAN_OPEN:
        return need(r->scan_open && r->scan_open->table[0] != '\0', "ScanOpen.table", msg);
    case EMBTIER__REQUEST__BODY_SCAN_NEXT:
        return check_scan_next(r->scan_next, msg);
    case EMBTIER__REQUEST__BODY_CHECKPOINT_RESTORE:
        return check_restore(r->checkpoint_restore, msg);
    case EMBTIER__REQUEST__BODY_CHECKPOINT_VERIFY:
        return need(r->checkpoint_verify && r->checkpoint_verify->id != 0, "CheckpointVerify.id",
                    msg);
    case EMBTIER__REQUEST__BODY_CHECKPOINT_DELETE:
        return need(r->checkpoint_delete && r->checkpoint_delete->id != 0, "CheckpointDelete.id",
                    msg);
    case EMBTIER__REQUEST__BODY_JOB_CANCEL:
        return need(r->job_cancel && r->job_cancel->id != 0, "JobCancel.id", msg);
    case EMBTIER__REQUEST__BODY_SESSION_END:
        return need(r->session_end && r->session_end->number != 0, "SessionEnd.number", msg);
    case EMBTIER__REQUEST__BODY_LOAD_OPEN:
        return need(r->load_open && r->load_open->spec, "LoadOpen.spec", msg);
    case EMBTIER__REQUEST__BODY_LOAD_ROWS:
        return need(r->load_rows && r->load_rows->rows != 0, "LoadRows.rows", msg);
    case EMBTIER__REQUEST__BODY_KNOB_LIST:
        return check_knob_list(r->knob_list, msg);
    case EMBTIER__REQUEST__BODY_KNOB_SET:
        return need(r->knob_set && r->knob_set->name[0] != '\0', "KnobSet.name", msg);
    case EMBTIER__REQUEST__BODY_PROFILE_START:
        return need(r->profile_start, "Request.profile_start", msg);
    case EMBTIER__REQUEST__BODY_PROFILE_READ:
        return need(r->profile_read, "Request.profile_read", msg);
    case EMBTIER__REQUEST__BODY_TABLE_LIST:
    case EMBTIER__REQUEST__BODY_CHECKPOINT_LIST:
    case EMBTIER__REQUEST__BODY_LOAD_END:
    case EMBTIER__REQUEST__BODY_LOAD_CLOSE:
    case EMBTIER__REQUEST__BODY_SCAN_CLOSE:
    case EMBTIER__REQUEST__BODY_ACCOUNT_LIST:
    case EMBTIER__REQUEST__BODY_JOB_LIST:
    case EMBTIER__REQUEST__BODY_PLAN_END:
    case EMBTIER__REQUEST__BODY_PLAN_SHOW:
    case EMBTIER__REQUEST__BODY_PROFILE_STOP:
    case EMBTIER__REQUEST__BODY_STATUS:
    case EMBTIER__REQUEST__BODY_RELOAD:
    case EMBTIER__REQUEST__BODY_COMPACTION_SHOW:
    case EMBTIER__REQUEST__BODY_COMPACTION_RUN:
    case EMBTIER__REQUEST__BODY_SESSION_LIST:
        return EMBTIER_OK;
    case EMBTIER__REQUEST__BODY_RESHARD:
        return need(r->reshard, "Request.reshard", msg);
    case EMBTIER__REQUEST__BODY_COMPACTION_SET:
        return check_compaction_set(r->compaction_set, msg);
    default:
        /* A request of a later version is recognised as such, and gets an answer. */
        if (r->base.n_unknown_fields > 0)
            return EMBTIER_OK;
        return err_set(msg, EMBTIER_PROTOCOL, "request %u has no known body", r->id);
    }
}

/* Checked strictly, because a client computes addresses in shared memory from these. */
static enum embtier_err check_table_info(const Embtier__TableInfo *info, struct err_msg *msg)
{
    struct err_msg reason = { { 0 } };
    struct table_spec spec;

    if (!info || !info->spec)
        return missing(msg, "TableInfo.spec");
    if (table_spec_from_wire(info->spec, &spec, &reason))
        return err_set(msg, EMBTIER_PROTOCOL, "TableInfo.spec: %s", reason.text);
    if (info->weight_bytes != table_spec_weight_bytes(&spec))
        return err_set(msg, EMBTIER_PROTOCOL, "TableInfo.weight_bytes is %u, %u follow from spec",
                       info->weight_bytes, table_spec_weight_bytes(&spec));
    if (info->state_bytes != table_spec_state_bytes(&spec))
        return err_set(msg, EMBTIER_PROTOCOL, "TableInfo.state_bytes is %u, %u follow from spec",
                       info->state_bytes, table_spec_state_bytes(&spec));
    return EMBTIER_OK;
}

static enum embtier_err check_checkpoint(const Embtier__Checkpoint *checkpoint, struct err_msg *msg)
{
    return checkpoint && checkpoint->id > 0 ? EMBTIER_OK : missing(msg, "Checkpoint.id");
}

static enum embtier_err check_job(const Embtier__Job *job, struct err_msg *msg)
{
    return job && job->id > 0 ? EMBTIER_OK : missing(msg, "Job.id");
}

static enum embtier_err check_session(const Embtier__Session *session, struct err_msg *msg)
{
    return session && session->number > 0 ? EMBTIER_OK : missing(msg, "Session.number");
}

static enum embtier_err check_session_list(const Embtier__SessionListReply *list,
                                           struct err_msg *msg)
{
    if (!list)
        return missing(msg, "Reply.session_list");
    for (size_t i = 0; i < list->n_sessions; i++)
        TRY(check_session(list->sessions[i], msg));
    return EMBTIER_OK;
}

/* The client asks again until it has all lines, so each piece must bring it further. */
static enum embtier_err check_profile_text(const Embtier__ProfileText *text, struct err_msg *msg)
{
    if (!text || text->snapshot == 0)
        return missing(msg, "ProfileText.snapshot");
    if (text->text.len == 0)
        return missing(msg, "ProfileText.text");
    if (text->text.len > text->line_bytes)
        return err_set(msg, EMBTIER_PROTOCOL, "ProfileText.text is longer than its line");
    return EMBTIER_OK;
}

static enum embtier_err check_hello_reply(const Embtier__HelloReply *hello, struct err_msg *msg)
{
    if (!hello)
        return missing(msg, "Reply.hello");
    if (hello->protocol == 0)
        return missing(msg, "HelloReply.protocol");
    if (hello->arena_bytes > 0 && (hello->slot_count == 0 || hello->slot_count > OP_SLOTS_MAX))
        return err_set(msg, EMBTIER_PROTOCOL, "HelloReply.slot_count is %u, allowed: 1 to %d",
                       hello->slot_count, OP_SLOTS_MAX);
    if (hello->secret.len > SECRET_BYTES_MAX)
        return err_set(msg, EMBTIER_PROTOCOL, "HelloReply.secret has %zu bytes, allowed: %d",
                       hello->secret.len, SECRET_BYTES_MAX);
    return EMBTIER_OK;
}

enum embtier_err control_check_reply(const Embtier__Reply *reply, struct err_msg *msg)
{
    if (reply->last == (reply->body_case == EMBTIER__REPLY__BODY_PROGRESS))
        return err_set(msg, EMBTIER_PROTOCOL, "Reply.last does not fit its body");
    switch (reply->body_case) {
    case EMBTIER__REPLY__BODY_ERROR:
        return need(reply->error && reply->error->err != EMBTIER_OK, "Error.err", msg);
    case EMBTIER__REPLY__BODY_PROGRESS:
        return need(reply->progress, "Reply.progress", msg);
    case EMBTIER__REPLY__BODY_HELLO:
        return check_hello_reply(reply->hello, msg);
    case EMBTIER__REPLY__BODY_TABLE:
        return check_table_info(reply->table, msg);
    case EMBTIER__REPLY__BODY_TABLE_MOVED:
        if (!reply->table_moved)
            return missing(msg, "Reply.table_moved");
        return check_table_info(reply->table_moved->table, msg);
    case EMBTIER__REPLY__BODY_PLAN:
        return need(reply->plan, "Reply.plan", msg);
    case EMBTIER__REPLY__BODY_TABLE_LIST:
        if (!reply->table_list)
            return missing(msg, "Reply.table_list");
        for (size_t i = 0; i < reply->table_list->n_tables; i++)
            TRY(check_table_info(reply->table_list->tables[i], msg));
        return EMBTIER_OK;
    case EMBTIER__REPLY__BODY_CHECKPOINT:
        return check_checkpoint(reply->checkpoint, msg);
    case EMBTIER__REPLY__BODY_CHECKPOINT_LIST:
        if (!reply->checkpoint_list)
            return missing(msg, "Reply.checkpoint_list");
        for (size_t i = 0; i < reply->checkpoint_list->n_checkpoints; i++)
            TRY(check_checkpoint(reply->checkpoint_list->checkpoints[i], msg));
        return EMBTIER_OK;
    case EMBTIER__REPLY__BODY_SCAN:
        if (!reply->scan)
            return missing(msg, "Reply.scan");
        return check_table_info(reply->scan->table, msg);
    case EMBTIER__REPLY__BODY_SCAN_ROWS:
        return need(reply->scan_rows, "Reply.scan_rows", msg);
    case EMBTIER__REPLY__BODY_LOADED_ROWS:
        return need(reply->loaded_rows, "Reply.loaded_rows", msg);
    case EMBTIER__REPLY__BODY_JOB_LIST:
        if (!reply->job_list)
            return missing(msg, "Reply.job_list");
        for (size_t i = 0; i < reply->job_list->n_jobs; i++)
            TRY(check_job(reply->job_list->jobs[i], msg));
        return EMBTIER_OK;
    case EMBTIER__REPLY__BODY_SESSION_LIST:
        return check_session_list(reply->session_list, msg);
    case EMBTIER__REPLY__BODY_SESSION:
        return check_session(reply->session, msg);
    case EMBTIER__REPLY__BODY_ACCOUNT_LIST:
        return need(reply->account_list, "Reply.account_list", msg);
    case EMBTIER__REPLY__BODY_JOB:
        return check_job(reply->job, msg);
    case EMBTIER__REPLY__BODY_PROFILE:
        return need(reply->profile, "Reply.profile", msg);
    case EMBTIER__REPLY__BODY_PROFILE_TEXT:
        return check_profile_text(reply->profile_text, msg);
    case EMBTIER__REPLY__BODY_COMPACTION:
        return need(reply->compaction, "Reply.compaction", msg);
    case EMBTIER__REPLY__BODY_RESHARD:
        return need(reply->reshard, "Reply.reshard", msg);
    case EMBTIER__REPLY__BODY_KNOB_LIST:
        return need(reply->knob_list, "Reply.knob_list", msg);
    case EMBTIER__REPLY__BODY_KNOB_CHANGE:
        return need(reply->knob_change && reply->knob_change->knob, "KnobChange.knob", msg);
    case EMBTIER__REPLY__BODY_RELOADED:
        return need(reply->reloaded, "Reply.reloaded", msg);
    case EMBTIER__REPLY__BODY_STATUS:
        return need(reply->status, "Reply.status", msg);
    case EMBTIER__REPLY__BODY_GROUP:
        return need(reply->group && reply->group->handle != 0, "GroupInfo.handle", msg);
    default:
        return err_set(msg, EMBTIER_PROTOCOL, "reply %u has no known body", reply->id);
    }
}
