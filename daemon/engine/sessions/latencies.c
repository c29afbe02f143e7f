/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/sessions/latencies.h"

static const char *const op_words[LATENCY_OPS] = {
    [0] = "unknown",    [OP_GET] = "get",         [OP_SET] = "set",           [OP_POOL] = "pool",
    [OP_PUSH] = "push", [OP_RELEASE] = "release", [OP_PREFETCH] = "prefetch",
};

const char *latency_op_word(uint32_t op)
{
    return op_words[op];
}

const char *transport_word(enum transport_kind transport)
{
    static const char *const words[TRANSPORT_KINDS] = {
        [TRANSPORT_SHM] = "shm",
        [TRANSPORT_UNIX_RPC] = "unix+rpc",
        [TRANSPORT_TCP] = "tcp",
        [TRANSPORT_TLS] = "tls",
    };

    return words[transport];
}

bool latencies_next(const struct latencies *latencies, uint32_t *place,
                    struct latency_series *ret_series)
{
    while (*place < LATENCY_SERIES) {
        const uint32_t op = *place / TRANSPORT_KINDS;
        const uint32_t transport = *place % TRANSPORT_KINDS;
        const struct latency *const latency = &latencies->of[op][transport];

        ++*place;
        if (latency_count(latency->counts, LATENCY_RANGES) == 0)
            continue;
        *ret_series = (struct latency_series){ .op = op_words[op],
                                               .transport = transport_word(transport),
                                               .latency = latency };
        return true;
    }
    return false;
}
