/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/narrow_ids.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/macros.h"

/* Loops over so many ids have no branch inside, so that the compiler can use vectors. */
#define BLOCK 16

/* ---- Spans ---- */

void narrow_spans_set(struct narrow_spans *narrow, size_t span, uint32_t width)
{
    uint8_t *const pair = &narrow->widths[span / 2];
    const uint32_t shift = span % 2 * 4;

    assert(span < RPC_SPANS_MAX && ((width > 0 && width <= NARROW_WIDTH_MAX) || width == ID_WIDTH));
    *pair = (uint8_t)((*pair & ~(15U << shift)) | (width == ID_WIDTH ? 0 : width) << shift);
}

uint64_t narrow_spans_payload(const struct narrow_spans *narrow, const uint64_t *spans,
                              size_t count)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < count; i += 2)
        sum += narrow_spans_sent(narrow, i / 2, spans[i + 1]);
    return sum;
}

static enum embtier_err check_narrow(uint32_t span, uint32_t width, const uint64_t *spans,
                                     size_t count, struct err_msg *msg)
{
    if (width == 0 || width > NARROW_WIDTH_MAX)
        return err_set(msg, EMBTIER_PROTOCOL,
                       "ids of narrow span %" PRIu32 " are to have %" PRIu32
                       " bytes, allowed: 1 to %d",
                       span, width, NARROW_WIDTH_MAX);
    if (span >= count / 2)
        return err_set(msg, EMBTIER_PROTOCOL,
                       "span %" PRIu32 " is to be narrow, and only %zu are sent", span, count / 2);
    if (spans[2 * (size_t)span] % ID_WIDTH != 0 || spans[2 * (size_t)span + 1] % ID_WIDTH != 0)
        return err_set(msg, EMBTIER_PROTOCOL,
                       "span %" PRIu32 " is to be narrow; its offset %" PRIu64 " and its %" PRIu64
                       " bytes must be multiples of 8",
                       span, spans[2 * (size_t)span], spans[2 * (size_t)span + 1]);
    return EMBTIER_OK;
}

enum embtier_err narrow_spans_read(const uint32_t *numbers, size_t number_count,
                                   const uint64_t *spans, size_t count,
                                   struct narrow_spans *ret_narrow, struct err_msg *msg)
{
    struct narrow_spans narrow = { { 0 } };

    for (size_t i = 0; i < number_count; i++) {
        const uint32_t span = numbers[i] / 8;

        if (i > 0 && span <= numbers[i - 1] / 8)
            return err_set(msg, EMBTIER_PROTOCOL,
                           "the list of narrow spans has span %" PRIu32 " behind %" PRIu32
                           ", and must be ascending",
                           span, numbers[i - 1] / 8);
        TRY(check_narrow(span, numbers[i] % 8, spans, count, msg));
        narrow_spans_set(&narrow, span, numbers[i] % 8);
    }
    *ret_narrow = narrow;
    return EMBTIER_OK;
}

size_t narrow_spans_write(const struct narrow_spans *narrow, size_t span_count,
                          uint32_t ret_numbers[RPC_SPANS_MAX])
{
    size_t count = 0;

    for (size_t span = 0; span < span_count; span++)
        if (narrow_spans_has(narrow, span))
            ret_numbers[count++] = (uint32_t)span * 8 + narrow_spans_width(narrow, span);
    return count;
}

/* ---- Ids ---- */

static uint64_t bits_of(const uint64_t *ids)
{
    uint64_t all = 0;

    for (uint32_t i = 0; i < BLOCK; i++)
        all |= ids[i];
    return all;
}

uint32_t narrow_ids_width(const uint64_t *ids, uint64_t count)
{
    uint64_t all = 0, at = 0;

    for (; count - at >= BLOCK && all <= UINT32_MAX; at += BLOCK)
        all |= bits_of(ids + at);
    for (; at < count && all <= UINT32_MAX; at++)
        all |= ids[at];
    if (all > UINT32_MAX)
        return ID_WIDTH;
    return 1 + (all > 0xff) + (all > 0xffff) + (all > 0xffffff);
}

/* Writes four bytes, of which the next id overwrites those that do not belong to it. */
static inline void pack(const uint64_t *restrict ids, uint64_t count, uint32_t width,
                        uint8_t *restrict ret_bytes)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t number = (uint32_t)ids[i];

        memcpy(ret_bytes + i * width, &number, sizeof(number));
    }
}

void narrow_ids_pack(const uint64_t *ids, uint64_t count, uint32_t width, uint8_t *ret_bytes)
{
    switch (width) { /* a loop for each, in which the width is a constant */
    case 1:
        pack(ids, count, 1, ret_bytes);
        break;
    case 2:
        pack(ids, count, 2, ret_bytes);
        break;
    case 3:
        pack(ids, count, 3, ret_bytes);
        break;
    default:
        assert(width == NARROW_WIDTH_MAX);
        pack(ids, count, NARROW_WIDTH_MAX, ret_bytes);
        break;
    }
}

/* Reads the four bytes that end with the number, which lie in the span: at least four bytes of it
 * are in front of the first number. */
static inline uint64_t number_at(const uint8_t *numbers, uint64_t i, uint32_t width)
{
    uint32_t number;

    memcpy(&number, numbers + i * width + width - sizeof(number), sizeof(number));
    return number >> 8 * (sizeof(number) - width);
}

/* Reads all numbers of a block before it writes the first id, since these may lie on them. */
static inline void widen(uint64_t *ids, const uint8_t *numbers, uint32_t width, uint64_t begin,
                         uint64_t end)
{
    uint64_t at = begin;

    for (; end - at >= BLOCK; at += BLOCK) {
        uint64_t read[BLOCK];

        for (uint32_t i = 0; i < BLOCK; i++)
            read[i] = number_at(numbers, at + i, width);
        memcpy(ids + at, read, sizeof(read));
    }
    for (; at < end; at++)
        ids[at] = number_at(numbers, at, width);
}

void narrow_ids_widen(uint64_t *ids, uint64_t count, uint32_t width, uint64_t begin, uint64_t end)
{
    const uint8_t *const numbers = (const uint8_t *)ids + count * (ID_WIDTH - width);

    assert(begin <= end && end <= count);
    switch (width) { /* a loop for each, in which the width is a constant */
    case 1:
        widen(ids, numbers, 1, begin, end);
        break;
    case 2:
        widen(ids, numbers, 2, begin, end);
        break;
    case 3:
        widen(ids, numbers, 3, begin, end);
        break;
    default:
        assert(width == NARROW_WIDTH_MAX);
        widen(ids, numbers, NARROW_WIDTH_MAX, begin, end);
        break;
    }
}
