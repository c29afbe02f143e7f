/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/seeds/sample_message.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

/* Numbers that must fit to each other: a table of 4 numbers of f32 with Adam. Others are 1. */
static const struct {
    const char *name;
    uint64_t value;
} numbers[] = {
    { "dim", 4 },
    { "rows", 100 },
    { "optimizer", 5 },
    { "weight_bytes", 16 },
    { "state_bytes", 32 },
    { "slot_count", 4 },
    { "arena_bytes", 1 << 16 },
    { "home", 0 },
    { "hot_rows", 0 },
    { "durability", 0 },
    { "size", 2 },
    { "ids_at", 64 },
    { "rows_at", 128 },
    { "table_count", 1 },
    { "last", 1 },
    { "more", 0 },
    { "more_tables", 0 },
    { "offset", 64 },
    { "line_bytes", 4 },
    { "eager", 0 },
    { "hot_rows_at", 0 },
    { "is_bytes", 0 },
    { "allows_nonfinite", 0 },
};
static const struct {
    const char *name;
    const char *value;
} texts[] = {
    { "name", "users" }, { "tables", "users" }, { "table", "users" },
    { "state", "live" }, { "unit", "rows" },    { "uuid", "00112233445566778899aabbccddeeff" },
    { "home_tier", "" }, { "metadata", "{}" },
};
/* Hyperparameters that Adam does not have, and a list that belongs to another one. */
static const char *const left_out[] = { "alpha", "momentum", "narrow" };

static uint64_t number_of(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        if (strcmp(numbers[i].name, name) == 0)
            return numbers[i].value;
    return 1;
}

static const char *text_of(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (strcmp(texts[i].name, name) == 0)
            return texts[i].value;
    return "text";
}

static char *copy_of(const char *text)
{
    char *const copy = strdup(text);

    if (!copy)
        abort();
    return copy;
}

static bool is_left_out(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(left_out); i++)
        if (strcmp(left_out[i], name) == 0)
            return true;
    return false;
}

static void set_value(const ProtobufCFieldDescriptor *field, void *place)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        *(char **)place = copy_of(text_of(field->name));
        break;
    case PROTOBUF_C_TYPE_BYTES:
        *(ProtobufCBinaryData *)place = (ProtobufCBinaryData){ 4, (uint8_t *)copy_of("{}\n\n") };
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        *(ProtobufCMessage **)place = sample_message(field->descriptor, NULL);
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        *(double *)place = 0.5;
        break;
    case PROTOBUF_C_TYPE_UINT64:
        *(uint64_t *)place = number_of(field->name);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)place = (protobuf_c_boolean)number_of(field->name);
        break;
    default:
        *(uint32_t *)place = (uint32_t)number_of(field->name);
        break;
    }
}

/* A list of two. Spans, the lists of numbers that there are, so are one. */
static void set_list(const ProtobufCFieldDescriptor *field, ProtobufCMessage *message)
{
    uint64_t *const values = calloc(2, sizeof(*values));

    if (!values)
        abort();
    for (size_t i = 0; i < 2; i++)
        set_value(field, &values[i]);
    *(void **)(void *)((uint8_t *)message + field->offset) = values;
    *(size_t *)(void *)((uint8_t *)message + field->quantifier_offset) = 2;
}

static void set_field(const ProtobufCFieldDescriptor *field, ProtobufCMessage *message,
                      const char *body)
{
    const bool is_of_body =
        (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0 && field->type == PROTOBUF_C_TYPE_MESSAGE;

    if (is_left_out(field->name) || (is_of_body && (!body || strcmp(body, field->name) != 0)))
        return;
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        set_list(field, message);
        return;
    }
    set_value(field, (uint8_t *)message + field->offset);
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
        *(uint32_t *)(void *)((uint8_t *)message + field->quantifier_offset) = field->id;
}

ProtobufCMessage *sample_message(const ProtobufCMessageDescriptor *descriptor, const char *body)
{
    ProtobufCMessage *const message = calloc(1, descriptor->sizeof_message);

    if (!message)
        abort();
    protobuf_c_message_init(descriptor, message);
    for (unsigned i = 0; i < descriptor->n_fields; i++)
        set_field(&descriptor->fields[i], message, body);
    return message;
}

void sample_free(ProtobufCMessage *message)
{
    protobuf_c_message_free_unpacked(message, NULL);
}

void sample_set(ProtobufCMessage *message, const char *name, uint64_t value)
{
    const ProtobufCFieldDescriptor *const field =
        protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name);

    if (!field)
        abort();
    if (field->type == PROTOBUF_C_TYPE_UINT64)
        *(uint64_t *)(void *)((uint8_t *)message + field->offset) = value;
    else
        *(uint32_t *)(void *)((uint8_t *)message + field->offset) = (uint32_t)value;
}

void sample_pack(struct seed *seed, const ProtobufCMessage *message)
{
    const size_t bytes = protobuf_c_message_get_packed_size(message);
    uint8_t *const packed = malloc(bytes + 1);

    if (!packed)
        abort();
    protobuf_c_message_pack(message, packed);
    seed_add(seed, packed, bytes);
    free(packed);
}
