/* SPDX-License-Identifier: Apache-2.0 */
/* Control requests as the server takes them (proto/frame.h): a request that passes the checks can
 * be encoded again, and passes them again. Tables' specs in it are read. */
#include "tests/fuzz/lib/fuzz.h"

#include "proto/control.pb-c.h"
#include "proto/frame.h"
#include "proto/table_spec_wire.h"

static void read_spec(const Embtier__TableSpec *wire)
{
    struct err_msg msg = { { 0 } };
    struct table_spec spec;

    if (table_spec_from_wire(wire, &spec, &msg) == EMBTIER_OK)
        FUZZ_CHECK(table_spec_check(&spec, &msg) == EMBTIER_OK);
    else
        FUZZ_CHECK(msg.text[0]);
}

static void read_specs(const Embtier__Request *request)
{
    if (request->body_case == EMBTIER__REQUEST__BODY_TABLE_CREATE)
        read_spec(request->table_create->spec);
    if (request->body_case == EMBTIER__REQUEST__BODY_LOAD_OPEN)
        read_spec(request->load_open->spec);
}

/* The encoding may be longer than the limit: a list of numbers may have been packed. */
static void encode_again(const Embtier__Request *request)
{
    _cleanup_(freep) uint8_t *bytes = NULL;
    Embtier__Request *again = NULL;
    struct err_msg msg = { { 0 } };
    size_t count;

    if (frame_encode_request(request, &bytes, &count) != EMBTIER_OK)
        return;
    FUZZ_CHECK(frame_decode_request(bytes + FRAME_HEADER_BYTES,
                                    (uint32_t)(count - FRAME_HEADER_BYTES), &again,
                                    &msg) == EMBTIER_OK);
    FUZZ_CHECK(again->body_case == request->body_case && again->id == request->id);
    embtier__request__free_unpacked(again, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    _cleanup_(freep) uint8_t *payload = fuzz_copy(data, bytes);
    Embtier__Request *request = NULL;
    struct err_msg msg = { { 0 } };

    if (frame_decode_request(payload, (uint32_t)bytes, &request, &msg) != EMBTIER_OK) {
        FUZZ_CHECK(msg.text[0]);
        return 0;
    }
    read_specs(request);
    encode_again(request);
    embtier__request__free_unpacked(request, NULL);
    return 0;
}
