/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_abusers.h: clients over TCP or TLS that behave as no good client does, each in a process of
 * its own (abusers.h). Stop them with abuser_stop(). */
#ifndef EMBTIER_TESTS_BENCH_LIB_RPC_ABUSERS_H
#define EMBTIER_TESTS_BENCH_LIB_RPC_ABUSERS_H

#include <stdint.h>

#include "tests/bench/lib/abusers.h"
#include "tests/bench/lib/bench_stream.h"

/* KIND(name, text) */
#define RPC_ABUSERS(KIND)                                                                          \
    KIND(CONNECTS, "connects, says hello and leaves, without pause")                               \
    KIND(GARBAGE, "garbage on connections, and frames of unknown kinds without pause")             \
    KIND(HUGE, "writes of 64 MiB, one after the other")                                            \
    KIND(READS, "reads of 1 GiB, one after the other")                                             \
    KIND(UNREAD, "20 sessions with all slots in use that read a little now and then")              \
    KIND(SLOTS, "1,024 requests in flight, each of very many rows")                                \
    KIND(HANDSHAKES, "handshakes of TLS that end, or go silent, behind their first message")

enum rpc_abuser_kind {
#define KIND(name, text) RPC_ABUSER_##name,
    RPC_ABUSERS(KIND)
#undef KIND
};

struct rpc_abuser_place {
    const struct bench_target *target; /* borrowed until the abuser stops; HANDSHAKES wants TLS */
    uint64_t table;                    /* handle of one whose rows the abuser may use */
    uint32_t row_bytes;
    uint32_t huge_rows; /* ids of a large request; the table has them all */
};

/* Returns when the abuser is at work. */
struct abuser rpc_abuser_start(enum rpc_abuser_kind kind, const struct rpc_abuser_place *place);

#endif
