/* SPDX-License-Identifier: Apache-2.0 */
/* Control frames as they arrive in pieces (proto/frame.h). The reader must find the same frames as
 * a walk over all bytes at once. Each frame is decoded as the side that reads it does. */
#include "tests/fuzz/lib/fuzz.h"

#include <endian.h>

#include "proto/control.pb-c.h"
#include "proto/frame.h"

/* The bytes whose frames are still to come. */
struct expected {
    const uint8_t *at;
    size_t left;
    bool is_request;
};

static void decode(bool is_request, const uint8_t *payload, uint32_t bytes)
{
    Embtier__Request *request = NULL;
    Embtier__Reply *reply = NULL;
    struct err_msg msg = { { 0 } };

    if (is_request && frame_decode_request(payload, bytes, &request, &msg) == EMBTIER_OK)
        embtier__request__free_unpacked(request, NULL);
    if (!is_request && frame_decode_reply(payload, bytes, &reply, &msg) == EMBTIER_OK)
        embtier__reply__free_unpacked(reply, NULL);
}

static void check_frame(struct expected *expected, const uint8_t *payload, uint32_t bytes)
{
    uint32_t length;

    FUZZ_CHECK(expected->left >= FRAME_HEADER_BYTES + (size_t)bytes);
    memcpy(&length, expected->at, sizeof(length));
    FUZZ_CHECK(le32toh(length) == bytes);
    FUZZ_CHECK(memcmp(expected->at + FRAME_HEADER_BYTES, payload, bytes) == 0);
    expected->at += FRAME_HEADER_BYTES + (size_t)bytes;
    expected->left -= FRAME_HEADER_BYTES + (size_t)bytes;
}

/* Returns false if the bytes are no frames any more. */
static bool read_frames(struct frame_reader *reader, struct expected *expected)
{
    struct err_msg msg = { { 0 } };
    const uint8_t *payload;
    enum embtier_err err;
    uint32_t bytes;

    while ((err = frame_reader_next(reader, &payload, &bytes, &msg)) == EMBTIER_OK) {
        check_frame(expected, payload, bytes);
        decode(expected->is_request, payload, bytes);
        frame_reader_next_done(reader);
    }
    FUZZ_CHECK(err == EMBTIER_AGAIN || err == EMBTIER_PROTOCOL);
    return err == EMBTIER_AGAIN;
}

/* Returns false if the reader has no room, which only a frame over the limit causes. */
static bool add_piece(struct frame_reader *reader, struct fuzz_input *input, size_t piece)
{
    uint8_t *space;
    size_t room;

    if (frame_reader_space(reader, &space, &room) != EMBTIER_OK)
        return false;
    FUZZ_CHECK(room > 0);
    room = MIN(room, piece);
    fuzz_take(input, space, room);
    frame_reader_added(reader, room);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_input input = { .at = data, .left = bytes };
    const bool is_request = fuzz_byte(&input) & 1;
    struct fuzz_pieces pieces = fuzz_pieces(&input);
    struct expected expected = { .at = input.at, .left = input.left, .is_request = is_request };
    struct frame_reader reader;
    bool goes_on = true;

    frame_reader_init(&reader, is_request ? FRAME_REQUEST_BYTES_MAX : FRAME_BYTES_MAX);
    while (goes_on && input.left > 0)
        goes_on = add_piece(&reader, &input, fuzz_piece(&pieces, input.left)) &&
                  read_frames(&reader, &expected);
    frame_reader_done(&reader);
    return 0;
}
