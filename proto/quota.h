/* SPDX-License-Identifier: Apache-2.0 */
/* quota.h: what one user of the access file may have or do at most. Thread: any. */
#ifndef EMBTIER_PROTO_QUOTA_H
#define EMBTIER_PROTO_QUOTA_H

#include <stdint.h>

/* X(key, BYTES or COUNT). The numbers go over the wire in refusals of requests, so they are never
 * changed, and new rows come last. */
#define QUOTA_TABLE(X)                                                                             \
    X(connections, COUNT)                                                                          \
    X(arena_bytes, BYTES)                                                                          \
    X(ticket_bytes, BYTES)                                                                         \
    X(pinned_bytes, BYTES)                                                                         \
    X(requests_per_second, COUNT)                                                                  \
    X(bytes_in_flight, BYTES)

enum quota {
#define X(key, unit) QUOTA_##key,
    QUOTA_TABLE(X)
#undef X
        QUOTAS
};

/* A request that is refused for a quota has it in the answer's `field`, which is 0 without one. */
static inline uint32_t quota_to_field(enum quota quota)
{
    return (uint32_t)quota + 1;
}
/* Returns QUOTAS if the field names none that this program knows. */
static inline enum quota quota_of_field(uint32_t field)
{
    return field >= 1 && field <= QUOTAS ? (enum quota)(field - 1) : QUOTAS;
}

/* Returns its key in the access file. */
const char *quota_key(enum quota quota);

#endif
