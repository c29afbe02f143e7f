/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/narrow_ids.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/macros.h"

/* Loops over so many ids have no branch inside, so that the compiler can use vectors. */
#define BLOCK 16

/* ---- Spans ---- */

uint64_t narrow_spans_payload(const struct narrow_spans *narrow, const uint64_t *spans,
                              size_t count)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < count; i += 2)
        sum += narrow_spans_sent(narrow, i / 2, spans[i + 1]);
    return sum;
}

static bool is_of_ids(const uint64_t span[2])
{
    return span[0] % sizeof(uint64_t) == 0 && span[1] % sizeof(uint64_t) == 0;
}

enum embtier_err narrow_spans_read(const uint32_t *numbers, size_t number_count,
                                   const uint64_t *spans, size_t count,
                                   struct narrow_spans *ret_narrow, struct err_msg *msg)
{
    struct narrow_spans narrow = { { 0 } };

    for (size_t i = 0; i < number_count; i++) {
        const uint32_t span = numbers[i];

        if (i > 0 && span <= numbers[i - 1])
            return err_set(msg, EMBTIER_PROTOCOL,
                           "the list of narrow spans has %" PRIu32 " behind %" PRIu32
                           ", and must be ascending",
                           span, numbers[i - 1]);
        if (span >= count / 2)
            return err_set(msg, EMBTIER_PROTOCOL,
                           "span %" PRIu32 " is to be narrow, and only %zu are sent", span,
                           count / 2);
        if (!is_of_ids(spans + 2 * (size_t)span))
            return err_set(msg, EMBTIER_PROTOCOL,
                           "span %" PRIu32 " is to be narrow; its offset %" PRIu64
                           " and its %" PRIu64 " bytes must be multiples of 8",
                           span, spans[2 * (size_t)span], spans[2 * (size_t)span + 1]);
        narrow_spans_set(&narrow, span, true);
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
            ret_numbers[count++] = (uint32_t)span;
    return count;
}

/* ---- Ids ---- */

static bool block_fits(const uint64_t *ids)
{
    uint64_t all = 0;

    for (uint32_t i = 0; i < BLOCK; i++)
        all |= ids[i];
    return all <= UINT32_MAX;
}

bool narrow_ids_fit(const uint64_t *ids, uint64_t count)
{
    uint64_t at = 0;

    for (; count - at >= BLOCK; at += BLOCK)
        if (!block_fits(ids + at))
            return false;
    for (; at < count; at++)
        if (ids[at] > UINT32_MAX)
            return false;
    return true;
}

static void pack_block(const uint64_t *restrict ids, uint32_t *restrict ret_numbers)
{
    for (uint32_t i = 0; i < BLOCK; i++)
        ret_numbers[i] = (uint32_t)ids[i];
}

void narrow_ids_pack(const uint64_t *ids, uint64_t count, uint32_t *ret_numbers)
{
    uint64_t at = 0;

    for (; count - at >= BLOCK; at += BLOCK)
        pack_block(ids + at, ret_numbers + at);
    for (; at < count; at++)
        ret_numbers[at] = (uint32_t)ids[at];
}

/* Reads all numbers before it writes the first id, since these may lie on them. */
static void widen_block(uint64_t *ids, const uint32_t *numbers)
{
    uint32_t read[BLOCK];

    memcpy(read, numbers, sizeof(read));
    for (uint32_t i = 0; i < BLOCK; i++)
        ids[i] = read[i];
}

void narrow_ids_widen(uint64_t *ids, uint64_t count, uint64_t begin, uint64_t end)
{
    const uint32_t *const numbers = (const uint32_t *)ids + count;
    uint64_t at = begin;

    assert(begin <= end && end <= count);
    for (; end - at >= BLOCK; at += BLOCK)
        widen_block(ids + at, numbers + at);
    for (; at < end; at++)
        ids[at] = numbers[at];
}
