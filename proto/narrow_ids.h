/* SPDX-License-Identifier: Apache-2.0 */
/* narrow_ids.h: ids that travel in as few bytes as they need (docs/protocol.md).
 *
 * In memory an id has 64 bits. A span of ids below 2^32 may be narrow: then the payload has the
 * lowest 1, 2, 3 or 4 bytes of each, its width. The receiver puts them at the end of the span, and
 * widens them from the first one on. With a width of 4:
 *
 *     span         |  id 0  |  id 1  |  id 2  |  id 3  |
 *     received                       | n0 | n1 | n2 | n3 |
 *
 * Id i ends 8 * (count - i - 1) bytes before the span's end, and the numbers behind n(i) begin
 * width * (count - i - 1) bytes before that, which is no earlier. So writing never overtakes
 * reading, and needs no second buffer.
 *
 * Thread: any. */
#ifndef EMBTIER_PROTO_NARROW_IDS_H
#define EMBTIER_PROTO_NARROW_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Most spans in one list of a message. */
#define RPC_SPANS_MAX 256
/* Most bytes of an id in a narrow span. */
#define NARROW_WIDTH_MAX 4
#define ID_WIDTH         8

/* The widths of a list's spans, each in four bits; 0: not narrow. */
struct narrow_spans {
    uint8_t widths[RPC_SPANS_MAX / 2];
};

/* Returns the bytes that an id of the span has in the payload; ID_WIDTH if it is not narrow. */
static inline uint32_t narrow_spans_width(const struct narrow_spans *narrow, size_t span)
{
    const uint32_t width = narrow->widths[span / 2] >> span % 2 * 4 & 15;

    return width > 0 ? width : ID_WIDTH;
}

static inline bool narrow_spans_has(const struct narrow_spans *narrow, size_t span)
{
    return narrow_spans_width(narrow, span) != ID_WIDTH;
}

void narrow_spans_set(struct narrow_spans *narrow, size_t span, uint32_t width);

/* Returns the bytes that the payload has for a span of @bytes. */
static inline uint64_t narrow_spans_sent(const struct narrow_spans *narrow, size_t span,
                                         uint64_t bytes)
{
    const uint32_t width = narrow_spans_width(narrow, span);

    return width == ID_WIDTH ? bytes : bytes / ID_WIDTH * width;
}

/* Returns the bytes of a payload with these spans. @count counts numbers, two for each span. */
uint64_t narrow_spans_payload(const struct narrow_spans *narrow, const uint64_t *spans,
                              size_t count);
/* Reads a message's list of narrow spans: of each 8 times its number, and its width. PROTOCOL: it
 * is not ascending, has a width that there is not, names a span that is not in @spans, or one that
 * is no row of 64-bit numbers. */
MUST_CHECK enum embtier_err narrow_spans_read(const uint32_t *numbers, size_t number_count,
                                              const uint64_t *spans, size_t count,
                                              struct narrow_spans *ret_narrow, struct err_msg *msg);
/* Writes such a list; returns how many numbers it has. */
size_t narrow_spans_write(const struct narrow_spans *narrow, size_t span_count,
                          uint32_t ret_numbers[RPC_SPANS_MAX]);

/* Returns the bytes that the largest of the ids needs: 1 to 4, or else ID_WIDTH. */
uint32_t narrow_ids_width(const uint64_t *ids, uint64_t count);
/* Copies the lowest @width bytes of each id, 1 to 4. It may write 3 bytes more than these. */
void narrow_ids_pack(const uint64_t *ids, uint64_t count, uint32_t width, uint8_t *ret_bytes);
#define NARROW_PACK_MORE 3
/* Widens numbers @begin to @end, without that, of a span of @count ids. All before @begin have been
 * widened. */
void narrow_ids_widen(uint64_t *ids, uint64_t count, uint32_t width, uint64_t begin, uint64_t end);

#endif
