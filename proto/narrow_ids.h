/* SPDX-License-Identifier: Apache-2.0 */
/* narrow_ids.h: ids that travel in half their bytes (docs/protocol.md).
 *
 * In memory an id has 64 bits. A span of ids below 2^32 may be narrow: then the payload has the
 * low 32 bits of each. The receiver puts them into the upper half of the span, and widens them from
 * the first one on:
 *
 *     span         |  id 0  |  id 1  |  id 2  |  id 3  |
 *     received                       | n0 | n1 | n2 | n3 |
 *
 * Id i ends where number 2i + 2 - count would begin, which is no later than number i + 1. So
 * writing never overtakes reading, and needs no second buffer.
 *
 * Thread: any. */
#ifndef EMBTIER_PROTO_NARROW_IDS_H
#define EMBTIER_PROTO_NARROW_IDS_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Most spans in one list of a message. */
#define RPC_SPANS_MAX 256
/* Bytes of an id in a narrow span. */
#define NARROW_ID_BYTES 4

/* Which spans of a list are narrow. All 0: none is. */
struct narrow_spans {
    uint64_t bits[RPC_SPANS_MAX / 64];
};
static_assert(RPC_SPANS_MAX / 64 == 4, "narrow_spans_any() reads all");

static inline bool narrow_spans_has(const struct narrow_spans *narrow, size_t span)
{
    return narrow->bits[span / 64] >> span % 64 & 1;
}

static inline bool narrow_spans_any(const struct narrow_spans *narrow)
{
    return (narrow->bits[0] | narrow->bits[1] | narrow->bits[2] | narrow->bits[3]) != 0;
}

static inline void narrow_spans_set(struct narrow_spans *narrow, size_t span, bool is_narrow)
{
    narrow->bits[span / 64] &= ~(UINT64_C(1) << span % 64);
    narrow->bits[span / 64] |= (uint64_t)is_narrow << span % 64;
}

/* Returns the bytes that the payload has for a span of @bytes. */
static inline uint64_t narrow_spans_sent(const struct narrow_spans *narrow, size_t span,
                                         uint64_t bytes)
{
    return narrow_spans_has(narrow, span) ? bytes / 2 : bytes;
}

/* Returns the bytes of a payload with these spans. @count counts numbers, two for each span. */
uint64_t narrow_spans_payload(const struct narrow_spans *narrow, const uint64_t *spans,
                              size_t count);
/* Reads a message's list of narrow spans. PROTOCOL: it is not ascending, it names a span that is
 * not in @spans, or one that is no row of 64-bit numbers. */
MUST_CHECK enum embtier_err narrow_spans_read(const uint32_t *numbers, size_t number_count,
                                              const uint64_t *spans, size_t count,
                                              struct narrow_spans *ret_narrow, struct err_msg *msg);
/* Writes such a list; returns how many numbers it has. */
size_t narrow_spans_write(const struct narrow_spans *narrow, size_t span_count,
                          uint32_t ret_numbers[RPC_SPANS_MAX]);

/* True if each id fits into 32 bits. */
bool narrow_ids_fit(const uint64_t *ids, uint64_t count);
/* Copies the low halves of ids. */
void narrow_ids_pack(const uint64_t *ids, uint64_t count, uint32_t *ret_numbers);
/* Widens numbers @begin to @end, without that, of a span of @count ids. All before @begin have been
 * widened. */
void narrow_ids_widen(uint64_t *ids, uint64_t count, uint64_t begin, uint64_t end);

#endif
