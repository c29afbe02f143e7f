/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_sums.h: puts right checksums into the heads of RPC frames that a fuzzer has changed. A head
 * keeps a wrong checksum of all ones. */
#ifndef EMBTIER_TESTS_FUZZ_LIB_RPC_SUMS_H
#define EMBTIER_TESTS_FUZZ_LIB_RPC_SUMS_H

#include <zlib.h>

#include "proto/rpc_frame.h"
#include "tests/fuzz/lib/fuzz.h"

#define RPC_SUM_AT (RPC_HEAD_BYTES - 4)

static inline void rpc_repair_head(uint8_t head[RPC_HEAD_BYTES])
{
    const uint32_t sum = (uint32_t)crc32(0, head, RPC_SUM_AT);

    if (memcmp(head + RPC_SUM_AT, "\xff\xff\xff\xff", sizeof(sum)) != 0)
        memcpy(head + RPC_SUM_AT, &sum, sizeof(sum));
}

/* Repairs each head of a stream of frames, as far as they follow each other. */
static inline void rpc_repair_stream(uint8_t *bytes, size_t count)
{
    while (count >= RPC_HEAD_BYTES) {
        struct err_msg msg;
        struct rpc_head head;
        uint64_t frame;

        rpc_repair_head(bytes);
        if (rpc_head_decode(bytes, UINT32_MAX, &head, &msg) != EMBTIER_OK)
            return;
        frame = (uint64_t)RPC_HEAD_BYTES + head.message_bytes + head.payload_bytes;
        if (frame > count)
            return;
        bytes += frame;
        count -= frame;
    }
}

#endif
