/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a control frame survives however it arrives, and that faults in one are noticed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/control.pb-c.h"
#include "proto/control_limits.h"
#include "proto/frame.h"
#include "proto/shm_ring.h"
#include "proto/table_spec_wire.h"
#include "tests/seed.h"

struct bytes {
    uint8_t *data;
    size_t count;
};

static struct bytes encode_request(const Embtier__Request *request)
{
    struct bytes bytes = { NULL, 0 };

    assert_int_equal(frame_encode_request(request, &bytes.data, &bytes.count), EMBTIER_OK);
    return bytes;
}

static struct bytes encode_reply(const Embtier__Reply *reply)
{
    struct bytes bytes = { NULL, 0 };

    assert_int_equal(frame_encode_reply(reply, &bytes.data, &bytes.count), EMBTIER_OK);
    return bytes;
}

static enum embtier_err decode_request(struct bytes bytes, Embtier__Request **ret_request,
                                       struct err_msg *msg)
{
    return frame_decode_request(bytes.data + FRAME_HEADER_BYTES,
                                (uint32_t)(bytes.count - FRAME_HEADER_BYTES), ret_request, msg);
}

static enum embtier_err decode_reply(struct bytes bytes, Embtier__Reply **ret_reply,
                                     struct err_msg *msg)
{
    return frame_decode_reply(bytes.data + FRAME_HEADER_BYTES,
                              (uint32_t)(bytes.count - FRAME_HEADER_BYTES), ret_reply, msg);
}

static struct table_spec example_spec(void)
{
    struct table_spec spec = { .rows = 1000,
                               .dim = 16,
                               .dtype = EMBTIER_DTYPE_BF16,
                               .optimizer = EMBTIER_OPTIMIZER_ADAM,
                               .init = EMBTIER_INIT_UNIFORM,
                               .init_params = { -0.5, 0.25 },
                               .eps = 1e-6,
                               .beta1 = 0, /* not the default */
                               .beta2 = 0.99,
                               .weight_decay = 0.01,
                               .clip_norm = 1.0 / 3,
                               .rounds_to_nearest = true,
                               .seed = UINT64_MAX,
                               .eager = true,
                               .init_version = 1 };

    strcpy(spec.name, "users");
    return spec;
}

static struct bytes example_create(void)
{
    struct table_spec spec = example_spec();
    Embtier__TableSpec wire;
    Embtier__TableCreate create = EMBTIER__TABLE_CREATE__INIT;
    Embtier__Request request = EMBTIER__REQUEST__INIT;

    table_spec_to_wire(&spec, &wire);
    create.spec = &wire;
    create.if_not_exists = true;
    request.id = 7;
    request.body_case = EMBTIER__REQUEST__BODY_TABLE_CREATE;
    request.table_create = &create;
    return encode_request(&request);
}

static struct bytes example_open(const char *name)
{
    Embtier__TableOpen open = EMBTIER__TABLE_OPEN__INIT;
    Embtier__Request request = EMBTIER__REQUEST__INIT;

    open.name = (char *)name;
    request.id = 8;
    request.body_case = EMBTIER__REQUEST__BODY_TABLE_OPEN;
    request.table_open = &open;
    return encode_request(&request);
}

static void feed(struct frame_reader *reader, const uint8_t *data, size_t count)
{
    while (count > 0) {
        uint8_t *space = NULL;
        size_t room = 0;

        assert_int_equal(frame_reader_space(reader, &space, &room), EMBTIER_OK);
        assert_true(room > 0);
        room = MIN(room, count);
        memcpy(space, data, room);
        frame_reader_added(reader, room);
        data += room;
        count -= room;
    }
}

static void test_frames_arriving_byte_by_byte_are_read(void **state)
{
    const struct bytes frames[] = { example_create(), example_open("a"), example_create() };
    struct frame_reader reader;
    const uint8_t *payload;
    uint32_t bytes;

    (void)state;
    frame_reader_init(&reader, FRAME_REQUEST_BYTES_MAX);
    for (size_t f = 0; f < ARRAY_LEN(frames); f++) {
        for (size_t i = 0; i < frames[f].count; i++) {
            assert_int_equal(frame_reader_next(&reader, &payload, &bytes, NULL), EMBTIER_AGAIN);
            feed(&reader, frames[f].data + i, 1);
        }
        assert_int_equal(frame_reader_next(&reader, &payload, &bytes, NULL), EMBTIER_OK);
        assert_int_equal(bytes, frames[f].count - FRAME_HEADER_BYTES);
        assert_memory_equal(payload, frames[f].data + FRAME_HEADER_BYTES, bytes);
        frame_reader_next_done(&reader);
        free(frames[f].data);
    }
    frame_reader_done(&reader);
}

static void test_frames_arriving_together_are_read_one_by_one(void **state)
{
    struct bytes create = example_create();
    struct frame_reader reader;
    const uint8_t *payload;
    uint32_t bytes;

    (void)state;
    frame_reader_init(&reader, FRAME_REQUEST_BYTES_MAX);
    for (int i = 0; i < 100; i++)
        feed(&reader, create.data, create.count);
    feed(&reader, create.data, 5);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(frame_reader_next(&reader, &payload, &bytes, NULL), EMBTIER_OK);
        assert_memory_equal(payload, create.data + FRAME_HEADER_BYTES, bytes);
        frame_reader_next_done(&reader);
    }
    assert_int_equal(frame_reader_next(&reader, &payload, &bytes, NULL), EMBTIER_AGAIN);
    frame_reader_done(&reader);
    free(create.data);
}

static void test_a_length_of_zero_or_over_the_limit_is_refused(void **state)
{
    const uint32_t lengths[] = { 0, FRAME_REQUEST_BYTES_MAX + 1, INT32_MAX, UINT32_MAX };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        struct frame_reader reader;
        struct err_msg msg = { { 0 } };
        const uint8_t *payload;
        uint32_t bytes;

        frame_reader_init(&reader, FRAME_REQUEST_BYTES_MAX);
        feed(&reader, (const uint8_t *)&lengths[i], sizeof(lengths[i]));
        assert_int_equal(frame_reader_next(&reader, &payload, &bytes, &msg), EMBTIER_PROTOCOL);
        assert_non_null(strstr(msg.text, "allowed: 1 to 65536"));
        frame_reader_done(&reader);
    }
}

static void test_a_large_length_without_bytes_costs_no_memory(void **state)
{
    const uint32_t length = FRAME_BYTES_MAX;
    struct frame_reader reader;
    const uint8_t *payload;
    uint32_t bytes;

    (void)state;
    frame_reader_init(&reader, FRAME_BYTES_MAX);
    feed(&reader, (const uint8_t *)&length, sizeof(length));
    assert_int_equal(frame_reader_next(&reader, &payload, &bytes, NULL), EMBTIER_AGAIN);
    assert_true(reader.capacity <= 4096);
    frame_reader_done(&reader);
}

static void test_the_largest_frame_fits_and_no_more(void **state)
{
    const uint32_t length = FRAME_REQUEST_BYTES_MAX;
    uint8_t *data = calloc(1, length);
    struct frame_reader reader;
    const uint8_t *payload;
    uint8_t *space;
    size_t room;
    uint32_t bytes;

    (void)state;
    assert_non_null(data);
    frame_reader_init(&reader, FRAME_REQUEST_BYTES_MAX);
    feed(&reader, (const uint8_t *)&length, sizeof(length));
    feed(&reader, data, length);
    assert_int_equal(reader.capacity, length + FRAME_HEADER_BYTES);
    assert_int_equal(frame_reader_space(&reader, &space, &room), EMBTIER_INTERNAL);
    assert_int_equal(frame_reader_next(&reader, &payload, &bytes, NULL), EMBTIER_OK);
    assert_int_equal(bytes, length);
    frame_reader_next_done(&reader);
    frame_reader_done(&reader);
    free(data);
}

static void test_a_request_comes_back_as_it_was_sent(void **state)
{
    struct bytes bytes = example_create();
    const struct table_spec sent = example_spec();
    struct table_spec spec;
    Embtier__Request *request = NULL;

    (void)state;
    assert_int_equal(decode_request(bytes, &request, NULL), EMBTIER_OK);
    assert_int_equal(request->id, 7);
    assert_int_equal(request->body_case, EMBTIER__REQUEST__BODY_TABLE_CREATE);
    assert_true(request->table_create->if_not_exists);
    assert_int_equal(table_spec_from_wire(request->table_create->spec, &spec, NULL), EMBTIER_OK);
    assert_string_equal(spec.name, sent.name);
    assert_int_equal(spec.rows, sent.rows);
    assert_int_equal(spec.dim, sent.dim);
    assert_int_equal(spec.dtype, sent.dtype);
    assert_int_equal(spec.optimizer, sent.optimizer);
    assert_int_equal(spec.init, sent.init);
    assert_memory_equal(spec.init_params, sent.init_params, sizeof(sent.init_params));
    assert_true(spec.seed == sent.seed);
    assert_true(spec.eager);
    assert_int_equal(spec.init_version, 1);
#define X(name, field, lowest, highest, standard, text) assert_true(spec.field == sent.field);
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
    assert_true(spec.rounds_to_nearest);
    assert_false(spec.allows_nonfinite);
    embtier__request__free_unpacked(request, NULL);
    free(bytes.data);
}

static void test_a_parameter_that_a_distribution_has_not_becomes_zero(void **state)
{
    struct table_spec spec = example_spec();
    Embtier__TableSpec wire;
    struct table_spec back;

    (void)state;
    spec.init = EMBTIER_INIT_ZEROS;
    spec.init_params[1] = NAN;
    table_spec_to_wire(&spec, &wire);
    assert_int_equal(table_spec_from_wire(&wire, &back, NULL), EMBTIER_OK);
    assert_true(back.init_params[0] == 0 && back.init_params[1] == 0);
}

/* Clients that know no hyperparameters send such specs. */
static void test_hyperparameters_that_are_not_there_have_the_optimizer_s_defaults(void **state)
{
    struct table_spec spec = example_spec();
    Embtier__TableSpec wire;
    struct table_spec back;

    (void)state;
    table_spec_to_wire(&spec, &wire);
    assert_int_equal(wire.alpha_given_case, EMBTIER__TABLE_SPEC__ALPHA_GIVEN__NOT_SET);
    wire.beta1_given_case = EMBTIER__TABLE_SPEC__BETA1_GIVEN__NOT_SET;
    wire.clip_norm_given_case = EMBTIER__TABLE_SPEC__CLIP_NORM_GIVEN__NOT_SET;
    assert_int_equal(table_spec_from_wire(&wire, &back, NULL), EMBTIER_OK);
    assert_true(back.beta1 == 0.9 && back.clip_norm == 0 && back.eps == 1e-6);
    spec.optimizer = EMBTIER_OPTIMIZER_NONE;
    table_spec_to_wire(&spec, &wire);
    assert_int_equal(table_spec_from_wire(&wire, &back, NULL), EMBTIER_OK);
    assert_true(back.eps == 0 && back.weight_decay == 0);
}

static void test_wrong_hyperparameters_are_told_but_decode(void **state)
{
    static const struct {
        double eps;
        const char *reason;
    } cases[] = { { NAN, "eps must be a finite number" },
                  { INFINITY, "eps must be a finite number" },
                  { -1, "eps -1 is out of range, allowed: 0 to 1" } };
    struct table_spec spec = example_spec();
    Embtier__TableSpec wire;
    struct err_msg msg = { { 0 } };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        table_spec_to_wire(&spec, &wire);
        wire.eps = cases[i].eps;
        assert_int_equal(table_spec_from_wire(&wire, &spec, &msg), EMBTIER_INVALID);
        assert_string_equal(msg.text, cases[i].reason);
    }
    wire.optimizer = EMBTIER_OPTIMIZER_SGD;
    wire.eps = 1e-6;
    assert_int_equal(table_spec_from_wire(&wire, &spec, &msg), EMBTIER_INVALID);
    assert_non_null(strstr(msg.text, "optimizer sgd has no eps"));
}

static void test_a_user_s_mistake_in_a_spec_is_told_but_decodes(void **state)
{
    struct table_spec spec = example_spec();
    Embtier__TableSpec wire;
    struct err_msg msg = { { 0 } };
    char long_name[1000];

    (void)state;
    spec.dim = 0;
    table_spec_to_wire(&spec, &wire);
    assert_int_equal(table_spec_from_wire(&wire, &spec, &msg), EMBTIER_INVALID);
    assert_non_null(strstr(msg.text, "dim 0"));
    wire.dim = 1;
    wire.dtype = UINT32_MAX;
    assert_int_equal(table_spec_from_wire(&wire, &spec, &msg), EMBTIER_INVALID);
    wire.dtype = EMBTIER_DTYPE_F32;
    memset(long_name, 'a', sizeof(long_name));
    long_name[sizeof(long_name) - 1] = '\0';
    wire.name = long_name;
    assert_int_equal(table_spec_from_wire(&wire, &spec, &msg), EMBTIER_INVALID);
}

static void test_every_truncation_is_refused(void **state)
{
    struct bytes bytes = example_create();

    (void)state;
    for (size_t count = FRAME_HEADER_BYTES; count < bytes.count; count++) {
        Embtier__Request *request = NULL;
        struct err_msg msg = { { 0 } };

        assert_int_equal(decode_request((struct bytes){ bytes.data, count }, &request, &msg),
                         EMBTIER_PROTOCOL);
        assert_true(msg.text[0] != '\0');
        assert_null(request);
    }
    free(bytes.data);
}

static void test_control_characters_in_a_name_are_refused(void **state)
{
    const char bad[] = { '\0', '\n', '\r', '\t', 0x1b, 0x7f };

    (void)state;
    for (size_t i = 0; i < sizeof(bad); i++) {
        struct bytes bytes = example_open("abcdef");
        uint8_t *name = memmem(bytes.data, bytes.count, "abcdef", 6);
        Embtier__Request *request = NULL;
        struct err_msg msg = { { 0 } };

        assert_non_null(name);
        name[3] = (uint8_t)bad[i];
        assert_int_equal(decode_request(bytes, &request, &msg), EMBTIER_PROTOCOL);
        assert_non_null(strstr(msg.text, "TableOpen.name"));
        free(bytes.data);
    }
}

static void test_a_name_over_its_limit_is_refused(void **state)
{
    char name[EMBTIER_TABLE_NAME_MAX + 2];
    Embtier__Request *request = NULL;
    struct bytes bytes;

    (void)state;
    memset(name, 'x', sizeof(name));
    name[EMBTIER_TABLE_NAME_MAX + 1] = '\0';
    bytes = example_open(name);
    assert_int_equal(decode_request(bytes, &request, NULL), EMBTIER_PROTOCOL);
    free(bytes.data);
    name[EMBTIER_TABLE_NAME_MAX] = '\0';
    bytes = example_open(name);
    assert_int_equal(decode_request(bytes, &request, NULL), EMBTIER_OK);
    embtier__request__free_unpacked(request, NULL);
    free(bytes.data);
}

static void test_incomplete_requests_are_refused(void **state)
{
    Embtier__TableCreate create = EMBTIER__TABLE_CREATE__INIT;
    Embtier__TableDrop drop = EMBTIER__TABLE_DROP__INIT;
    Embtier__Hello hello = EMBTIER__HELLO__INIT;
    Embtier__Request request = EMBTIER__REQUEST__INIT;

    (void)state;
    request.id = 1;
    for (int i = 0; i < 4; i++) {
        Embtier__Request *decoded = NULL;
        struct err_msg msg = { { 0 } };
        struct bytes bytes;

        switch (i) {
        case 0: /* no body at all */
            break;
        case 1:
            request.body_case = EMBTIER__REQUEST__BODY_TABLE_CREATE;
            request.table_create = &create;
            break;
        case 2:
            request.body_case = EMBTIER__REQUEST__BODY_TABLE_DROP;
            request.table_drop = &drop;
            break;
        default:
            request.body_case = EMBTIER__REQUEST__BODY_HELLO;
            request.hello = &hello;
        }
        bytes = encode_request(&request);
        assert_int_equal(decode_request(bytes, &decoded, &msg), EMBTIER_PROTOCOL);
        assert_true(msg.text[0] != '\0');
        free(bytes.data);
    }
}

static void test_what_later_versions_send_is_skipped_and_nothing_is_refused(void **state)
{
    /* id = 1, then field 99 (bytes): a request of a later version */
    uint8_t unknown_body[] = { 0, 0, 0, 0, 0x08, 1, 0x9a, 0x06, 2, 'a', 0 };
    /* id = 1, field 7 (status, empty), field 99 (bytes): from a later version */
    uint8_t unknown_field[] = { 0, 0, 0, 0, 0x08, 1, 0x3a, 0, 0x9a, 0x06, 2, 'a', 0 };
    uint8_t no_body[] = { 0, 0, 0, 0, 0x08, 1 };
    Embtier__Request *request = NULL;

    (void)state;
    assert_int_equal(decode_request((struct bytes){ no_body, sizeof(no_body) }, &request, NULL),
                     EMBTIER_PROTOCOL);
    assert_int_equal(
        decode_request((struct bytes){ unknown_body, sizeof(unknown_body) }, &request, NULL),
        EMBTIER_OK);
    assert_int_equal(request->body_case, EMBTIER__REQUEST__BODY__NOT_SET);
    assert_int_equal(request->id, 1);
    embtier__request__free_unpacked(request, NULL);
    request = NULL;
    assert_int_equal(
        decode_request((struct bytes){ unknown_field, sizeof(unknown_field) }, &request, NULL),
        EMBTIER_OK);
    assert_int_equal(request->body_case, EMBTIER__REQUEST__BODY_STATUS);
    embtier__request__free_unpacked(request, NULL);
}

static void test_an_error_s_text_is_cleaned_and_cut_when_sent(void **state)
{
    Embtier__Error error = EMBTIER__ERROR__INIT;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;
    Embtier__Reply *back = NULL;
    struct bytes bytes;
    char text[3000];

    (void)state;
    memset(text, 'y', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    text[1] = '\n';
    error.err = EMBTIER_IO;
    error.message = text;
    reply.last = true;
    reply.body_case = EMBTIER__REPLY__BODY_ERROR;
    reply.error = &error;
    bytes = encode_reply(&reply);
    assert_int_equal(decode_reply(bytes, &back, NULL), EMBTIER_OK);
    assert_int_equal(back->error->err, EMBTIER_IO);
    assert_int_equal(strlen(back->error->message), 1024);
    assert_memory_equal(back->error->message, "y\\ny", 4);
    embtier__reply__free_unpacked(back, NULL);
    free(bytes.data);
}

static void test_a_secret_that_a_client_cannot_keep_is_refused(void **state)
{
    uint8_t secret[SECRET_BYTES_MAX + 1] = { 0 };
    Embtier__HelloReply hello = EMBTIER__HELLO_REPLY__INIT;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;

    (void)state;
    hello.protocol = 1;
    hello.secret.data = secret;
    reply.last = true;
    reply.body_case = EMBTIER__REPLY__BODY_HELLO;
    reply.hello = &hello;
    for (size_t count = SECRET_BYTES_MAX; count <= sizeof(secret); count++) {
        Embtier__Reply *back = NULL;
        struct bytes bytes;

        hello.secret.len = count;
        bytes = encode_reply(&reply);
        assert_int_equal(decode_reply(bytes, &back, NULL),
                         count == SECRET_BYTES_MAX ? EMBTIER_OK : EMBTIER_PROTOCOL);
        if (back)
            embtier__reply__free_unpacked(back, NULL);
        free(bytes.data);
    }
}

static void test_a_reply_that_a_client_would_compute_addresses_from_is_checked(void **state)
{
    const struct table_spec spec = example_spec();
    Embtier__TableSpec wire;
    Embtier__TableInfo info = EMBTIER__TABLE_INFO__INIT;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;

    (void)state;
    table_spec_to_wire(&spec, &wire);
    info.handle = 3;
    info.weight_bytes = 32;
    info.state = (char *)"live";
    reply.last = true;
    reply.body_case = EMBTIER__REPLY__BODY_TABLE;
    reply.table = &info;
    for (int i = 0; i < 7; i++) {
        Embtier__Reply *back = NULL;
        struct bytes bytes;
        enum embtier_err err;

        wire.eps = i == 5 ? NAN : spec.eps;
        info.spec = i == 1 ? NULL : &wire;
        info.weight_bytes = i == 2 ? 31 : 32;
        info.state_bytes = table_spec_state_bytes(&spec) + (i == 6);
        wire.dim = i == 3 ? 0 : 16;
        reply.last = i != 4;
        bytes = encode_reply(&reply);
        err = decode_reply(bytes, &back, NULL);
        assert_int_equal(err, i == 0 ? EMBTIER_OK : EMBTIER_PROTOCOL);
        if (err == EMBTIER_OK)
            embtier__reply__free_unpacked(back, NULL);
        free(bytes.data);
    }
}

static void test_status_comes_back_as_it_was_sent(void **state)
{
    Embtier__Metric metric = EMBTIER__METRIC__INIT;
    Embtier__Metric *metrics[100];
    Embtier__StatusReply status = EMBTIER__STATUS_REPLY__INIT;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;
    Embtier__Reply *back = NULL;
    struct bytes bytes;

    (void)state;
    metric.name = (char *)"cache_hit_rows";
    metric.label = (char *)"tier";
    metric.label_value = (char *)"dram";
    metric.value = 9007199254740991.0;
    metric.counter = true;
    for (size_t i = 0; i < ARRAY_LEN(metrics); i++)
        metrics[i] = &metric;
    status.metrics = metrics;
    status.n_metrics = ARRAY_LEN(metrics);
    reply.last = true;
    reply.body_case = EMBTIER__REPLY__BODY_STATUS;
    reply.status = &status;
    bytes = encode_reply(&reply);
    assert_int_equal(decode_reply(bytes, &back, NULL), EMBTIER_OK);
    assert_int_equal(back->status->n_metrics, 100);
    assert_string_equal(back->status->metrics[99]->label_value, "dram");
    assert_true(back->status->metrics[99]->value == 9007199254740991.0);
    embtier__reply__free_unpacked(back, NULL);
    free(bytes.data);
}

/* Anything that decodes without an error must keep the checks' promises in every field of every
 * message. */
static void check_strings(const ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *const descriptor = message->descriptor;

    for (unsigned f = 0; f < descriptor->n_fields; f++) {
        const ProtobufCFieldDescriptor *const field = &descriptor->fields[f];
        const uint8_t *const place = (const uint8_t *)message + field->offset;
        const uint8_t *const quantifier = (const uint8_t *)message + field->quantifier_offset;
        const bool is_one = field->label != PROTOBUF_C_LABEL_REPEATED;
        const size_t count = is_one ? 1 : *(const size_t *)quantifier;
        const void *const *const values =
            is_one ? (const void *const *)place : *(const void *const *const *)place;

        if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) &&
            *(const uint32_t *)quantifier != field->id)
            continue; /* another member is set */
        for (size_t i = 0; field->type == PROTOBUF_C_TYPE_MESSAGE && i < count; i++)
            if (values[i])
                check_strings(values[i]);
        for (size_t i = 0; field->type == PROTOBUF_C_TYPE_STRING && i < count; i++)
            for (const char *c = values[i]; *c != '\0'; c++)
                assert_true((unsigned char)*c >= 0x20 && *c != 0x7f);
    }
}

static void check_random(const uint8_t *data, uint32_t count)
{
    Embtier__Request *request = NULL;
    Embtier__Reply *reply = NULL;

    if (frame_decode_request(data, count, &request, NULL) == EMBTIER_OK) {
        check_strings(&request->base);
        embtier__request__free_unpacked(request, NULL);
    }
    if (frame_decode_reply(data, count, &reply, NULL) == EMBTIER_OK) {
        check_strings(&reply->base);
        embtier__reply__free_unpacked(reply, NULL);
    }
}

#define EXAMPLE_BYTES 4096

static size_t put_varint(uint8_t *out, uint64_t value)
{
    size_t bytes = 0;

    for (; value >= 0x80; value >>= 7)
        out[bytes++] = (uint8_t)(value | 0x80);
    out[bytes++] = (uint8_t)value;
    return bytes;
}

static size_t put_fields(uint8_t *out, const ProtobufCMessageDescriptor *descriptor);

/* Puts one field, with a value. */
static size_t put_field(uint8_t *out, const ProtobufCFieldDescriptor *field)
{
    uint8_t inner[EXAMPLE_BYTES];
    const double number = 0.5;
    size_t bytes;
    size_t inner_bytes;

    switch (field->type) {
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_BOOL:
        bytes = put_varint(out, (uint64_t)field->id << 3);
        return bytes + put_varint(out + bytes, field->type == PROTOBUF_C_TYPE_BOOL ? 1 : SHM_ALIGN);
    case PROTOBUF_C_TYPE_DOUBLE:
        bytes = put_varint(out, (uint64_t)field->id << 3 | 1);
        memcpy(out + bytes, &number, sizeof(number));
        return bytes + sizeof(number);
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_STRING:
        bytes = put_varint(out, (uint64_t)field->id << 3 | 2);
        bytes += put_varint(out + bytes, strlen("live"));
        for (const char *c = "live"; *c != '\0'; c++)
            out[bytes++] = (uint8_t)*c;
        return bytes;
    case PROTOBUF_C_TYPE_MESSAGE:
        inner_bytes = put_fields(inner, field->descriptor);
        bytes = put_varint(out, (uint64_t)field->id << 3 | 2);
        bytes += put_varint(out + bytes, inner_bytes);
        assert_true(bytes + inner_bytes < EXAMPLE_BYTES);
        memcpy(out + bytes, inner, inner_bytes);
        return bytes + inner_bytes;
    default:
        fail_msg("%s: give an example of its type here", field->name);
        return 0;
    }
}

static size_t put_fields(uint8_t *out, const ProtobufCMessageDescriptor *descriptor)
{
    size_t bytes = 0;

    for (unsigned f = 0; f < descriptor->n_fields; f++) {
        bytes += put_field(out + bytes, &descriptor->fields[f]);
        assert_true(bytes < EXAMPLE_BYTES / 2);
    }
    return bytes;
}

/* Puts a request or reply of a random kind that control.proto has, with all its fields. */
static uint32_t put_example(uint8_t *out, unsigned *seed)
{
    const ProtobufCMessageDescriptor *const descriptor =
        rand_r(seed) % 2 ? &embtier__request__descriptor : &embtier__reply__descriptor;
    const ProtobufCFieldDescriptor *field;
    size_t bytes = put_field(out, protobuf_c_message_descriptor_get_field(descriptor, 1));

    do
        field = &descriptor->fields[(unsigned)rand_r(seed) % descriptor->n_fields];
    while (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF));
    if (descriptor == &embtier__reply__descriptor)
        bytes += put_field(out + bytes, protobuf_c_message_descriptor_get_field(descriptor, 2));
    return (uint32_t)(bytes + put_field(out + bytes, field));
}

static void test_random_bytes_and_flipped_bytes_do_no_harm(void **state)
{
    unsigned seed = (unsigned)seed_of_test(__func__, seed_random());
    uint8_t data[EXAMPLE_BYTES];

    (void)state;
    for (int round = 0; round < 100000; round++) {
        uint32_t count = (uint32_t)rand_r(&seed) % 256;

        for (uint32_t i = 0; i < count; i++)
            data[i] = (uint8_t)rand_r(&seed);
        check_random(data, count);
        count = put_example(data, &seed);
        for (int flips = rand_r(&seed) % 4; flips >= 0; flips--)
            data[(uint32_t)rand_r(&seed) % count] = (uint8_t)rand_r(&seed);
        check_random(data, count);
    }
}

/* The examples would be worth little if they were refused even without flipped bits. */
static void test_a_request_of_each_kind_is_accepted(void **state)
{
    const ProtobufCMessageDescriptor *const descriptor = &embtier__request__descriptor;
    uint32_t kinds = 0;

    (void)state;
    for (unsigned f = 0; f < descriptor->n_fields; f++) {
        const ProtobufCFieldDescriptor *const field = &descriptor->fields[f];
        Embtier__Request *request = NULL;
        uint8_t data[EXAMPLE_BYTES];
        struct err_msg msg = { { 0 } };
        const uint32_t bytes = (uint32_t)put_field(data, field);
        const enum embtier_err err = frame_decode_request(data, bytes, &request, &msg);

        if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
            continue; /* the id */
        if (err != EMBTIER_OK)
            fail_msg("%s: %s", field->name, msg.text);
        assert_int_equal(request->body_case, field->id);
        check_strings(&request->base);
        embtier__request__free_unpacked(request, NULL);
        kinds++;
    }
    assert_true(kinds > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_arriving_byte_by_byte_are_read),
        cmocka_unit_test(test_frames_arriving_together_are_read_one_by_one),
        cmocka_unit_test(test_a_length_of_zero_or_over_the_limit_is_refused),
        cmocka_unit_test(test_a_large_length_without_bytes_costs_no_memory),
        cmocka_unit_test(test_the_largest_frame_fits_and_no_more),
        cmocka_unit_test(test_a_request_comes_back_as_it_was_sent),
        cmocka_unit_test(test_a_parameter_that_a_distribution_has_not_becomes_zero),
        cmocka_unit_test(test_hyperparameters_that_are_not_there_have_the_optimizer_s_defaults),
        cmocka_unit_test(test_wrong_hyperparameters_are_told_but_decode),
        cmocka_unit_test(test_a_user_s_mistake_in_a_spec_is_told_but_decodes),
        cmocka_unit_test(test_every_truncation_is_refused),
        cmocka_unit_test(test_control_characters_in_a_name_are_refused),
        cmocka_unit_test(test_a_name_over_its_limit_is_refused),
        cmocka_unit_test(test_incomplete_requests_are_refused),
        cmocka_unit_test(test_what_later_versions_send_is_skipped_and_nothing_is_refused),
        cmocka_unit_test(test_an_error_s_text_is_cleaned_and_cut_when_sent),
        cmocka_unit_test(test_a_secret_that_a_client_cannot_keep_is_refused),
        cmocka_unit_test(test_a_reply_that_a_client_would_compute_addresses_from_is_checked),
        cmocka_unit_test(test_status_comes_back_as_it_was_sent),
        cmocka_unit_test(test_random_bytes_and_flipped_bytes_do_no_harm),
        cmocka_unit_test(test_a_request_of_each_kind_is_accepted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
