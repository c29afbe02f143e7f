/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/frame.h"

#include <assert.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "proto/control_check.h"

void frame_reader_init(struct frame_reader *reader, uint32_t limit)
{
    *reader = (struct frame_reader){ .limit = limit };
}

void frame_reader_done(struct frame_reader *reader)
{
    free(reader->bytes);
    *reader = (struct frame_reader){ .limit = reader->limit };
}

/* Grows only when received bytes fill the buffer. So memory follows the bytes received, never the
 * announced length. */
enum embtier_err frame_reader_space(struct frame_reader *reader, uint8_t **ret_space,
                                    size_t *ret_bytes)
{
    const size_t capacity_max = FRAME_HEADER_BYTES + (size_t)reader->limit;

    if (reader->used == reader->capacity) {
        const size_t wanted = MAX(reader->capacity * 2, (size_t)FRAME_READER_BYTES);
        const size_t capacity = MIN(wanted, capacity_max);
        uint8_t *bytes;

        if (capacity == reader->capacity)
            return EMBTIER_INTERNAL; /* a whole frame is waiting: the caller must call
                                        frame_reader_next() first */
        bytes = realloc(reader->bytes, capacity);
        if (!bytes)
            return EMBTIER_NO_MEMORY;
        reader->bytes = bytes;
        reader->capacity = capacity;
    }
    *ret_space = reader->bytes + reader->used;
    *ret_bytes = reader->capacity - reader->used;
    return EMBTIER_OK;
}

void frame_reader_added(struct frame_reader *reader, size_t bytes)
{
    assert(bytes <= reader->capacity - reader->used);
    reader->used += bytes;
}

static uint32_t header_read(const uint8_t *bytes)
{
    uint32_t length;

    memcpy(&length, bytes, sizeof(length));
    return le32toh(length);
}

static void header_write(uint8_t *bytes, uint32_t length)
{
    length = htole32(length);
    memcpy(bytes, &length, sizeof(length));
}

enum embtier_err frame_reader_next(struct frame_reader *reader, const uint8_t **ret_payload,
                                   uint32_t *ret_bytes, struct err_msg *msg)
{
    uint32_t length;

    if (reader->used < FRAME_HEADER_BYTES)
        return EMBTIER_AGAIN;
    length = header_read(reader->bytes);
    if (length == 0 || length > reader->limit)
        return err_set(msg, EMBTIER_PROTOCOL, "frame of %u bytes, allowed: 1 to %u", length,
                       reader->limit);
    if (reader->used - FRAME_HEADER_BYTES < length)
        return EMBTIER_AGAIN;
    *ret_payload = reader->bytes + FRAME_HEADER_BYTES;
    *ret_bytes = length;
    return EMBTIER_OK;
}

void frame_reader_next_done(struct frame_reader *reader)
{
    const size_t frame_bytes = FRAME_HEADER_BYTES + (size_t)header_read(reader->bytes);

    assert(frame_bytes <= reader->used);
    reader->used -= frame_bytes;
    memmove(reader->bytes, reader->bytes + frame_bytes, reader->used);
}

static enum embtier_err encode(const ProtobufCMessage *message, uint32_t limit, uint8_t **ret_bytes,
                               size_t *ret_count)
{
    const size_t payload_bytes = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes;

    if (payload_bytes == 0)
        return EMBTIER_INVALID;
    if (payload_bytes > limit)
        return EMBTIER_TOO_LARGE;
    bytes = malloc(FRAME_HEADER_BYTES + payload_bytes);
    if (!bytes)
        return EMBTIER_NO_MEMORY;
    header_write(bytes, (uint32_t)payload_bytes);
    protobuf_c_message_pack(message, bytes + FRAME_HEADER_BYTES);
    *ret_bytes = bytes;
    *ret_count = FRAME_HEADER_BYTES + payload_bytes;
    return EMBTIER_OK;
}

enum embtier_err frame_encode_request(const struct Embtier__Request *request, uint8_t **ret_bytes,
                                      size_t *ret_count)
{
    return encode(&request->base, FRAME_REQUEST_BYTES_MAX, ret_bytes, ret_count);
}

enum embtier_err frame_encode_reply(const struct Embtier__Reply *reply, uint8_t **ret_bytes,
                                    size_t *ret_count)
{
    _cleanup_(freep) char *text = NULL;
    Embtier__Reply clean_reply;
    Embtier__Error clean_error;

    if (reply->body_case != EMBTIER__REPLY__BODY_ERROR)
        return encode(&reply->base, FRAME_BYTES_MAX, ret_bytes, ret_count);
    /* An error's text may quote file names and a client's bytes, which the receiver would
     * refuse. */
    text = control_clean_string(&embtier__error__descriptor, 2, reply->error->message);
    if (!text)
        return EMBTIER_NO_MEMORY;
    clean_error = *reply->error;
    clean_error.message = text;
    clean_reply = *reply;
    clean_reply.error = &clean_error;
    return encode(&clean_reply.base, FRAME_BYTES_MAX, ret_bytes, ret_count);
}

static void request_free(Embtier__Request *request)
{
    embtier__request__free_unpacked(request, NULL);
}
DEFINE_CLEANUP(Embtier__Request, request_free)

static void reply_free(Embtier__Reply *reply)
{
    embtier__reply__free_unpacked(reply, NULL);
}
DEFINE_CLEANUP(Embtier__Reply, reply_free)

static enum embtier_err undecodable(struct err_msg *msg)
{
    return err_set(msg, EMBTIER_PROTOCOL, "malformed message: protobuf-c cannot decode it");
}

enum embtier_err frame_decode_request(const uint8_t *payload, uint32_t bytes,
                                      struct Embtier__Request **ret_request, struct err_msg *msg)
{
    _cleanup_(request_freep) Embtier__Request *request = NULL;

    TRY(control_check_bytes(&embtier__request__descriptor, payload, bytes, msg));
    request = embtier__request__unpack(NULL, bytes, payload);
    if (!request)
        return undecodable(msg);
    TRY(control_check_request(request, msg));
    *ret_request = TAKE(request);
    return EMBTIER_OK;
}

enum embtier_err frame_decode_reply(const uint8_t *payload, uint32_t bytes,
                                    struct Embtier__Reply **ret_reply, struct err_msg *msg)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;

    TRY(control_check_bytes(&embtier__reply__descriptor, payload, bytes, msg));
    reply = embtier__reply__unpack(NULL, bytes, payload);
    if (!reply)
        return undecodable(msg);
    TRY(control_check_reply(reply, msg));
    *ret_reply = TAKE(reply);
    return EMBTIER_OK;
}
