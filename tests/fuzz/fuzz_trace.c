/* SPDX-License-Identifier: Apache-2.0 */
/* Files of traces (placement/trace/trace_reader.h). The results of the reader keep the promises of
 * trace_format.h. Checksums are put right, but those that are all ones. */
#include "tests/fuzz/lib/fuzz.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "placement/trace/trace_reader.h"

/* Puts the checksum of the @count bytes at @at behind them. Returns the end of it, or @bytes. */
static size_t repair_part(uint8_t *file, size_t bytes, size_t at, uint64_t count)
{
    uint64_t sum;

    if (bytes - at < sizeof(sum) || count > bytes - at - sizeof(sum))
        return bytes;
    memcpy(&sum, file + at + count, sizeof(sum));
    if (sum != UINT64_MAX)
        sum = XXH3_64bits(file + at, count);
    memcpy(file + at + count, &sum, sizeof(sum));
    return at + count + sizeof(sum);
}

static void repair(uint8_t *file, size_t bytes)
{
    struct trace_file_header header;
    struct trace_block_header block;
    size_t at;

    if (bytes < sizeof(header))
        return;
    memcpy(&header, file, sizeof(header));
    at = repair_part(file, bytes, 0, sizeof(header) + (uint64_t)header.tables_bytes);
    while (bytes - at >= sizeof(block)) {
        uint64_t count = sizeof(block);

        memcpy(&block, file + at, sizeof(block));
        if (block.kind == TRACE_BLOCK_LOOKUPS)
            count = trace_block_bytes(block.bag_count, block.id_count) - TRACE_CHECKSUM_BYTES;
        at = repair_part(file, bytes, at, count);
    }
}

static void check(const struct trace_reader *reader, const struct trace_lookups *lookups)
{
    uint32_t count, end = 0;
    const struct trace_table *const tables = trace_reader_tables(reader, &count);

    FUZZ_CHECK(lookups->table < count);
    for (uint32_t i = 0; i < lookups->bag_count; i++) {
        FUZZ_CHECK(lookups->bag_ends[i] >= end);
        end = lookups->bag_ends[i];
    }
    FUZZ_CHECK(end == lookups->id_count);
    for (uint32_t i = 0; tables[lookups->table].rows > 0 && i < lookups->id_count; i++)
        FUZZ_CHECK(lookups->ids[i] < tables[lookups->table].rows);
}

static void read_blocks(struct trace_reader *reader)
{
    struct trace_lookups lookups;
    struct err_msg msg = { { 0 } };
    bool end = false;

    while (trace_reader_next(reader, &lookups, &end, &msg) == EMBTIER_OK && !end)
        check(reader, &lookups);
    FUZZ_CHECK(end || msg.text[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    _cleanup_(trace_reader_freep) struct trace_reader *reader = NULL;
    _cleanup_(freep) uint8_t *file = fuzz_copy(data, bytes);
    struct err_msg msg = { { 0 } };
    char path[256];

    repair(file, bytes);
    fuzz_put_file("trace", file, bytes);
    snprintf(path, sizeof(path), "%s/trace", fuzz_folder());
    if (trace_reader_open(path, &reader, &msg) == EMBTIER_OK)
        read_blocks(reader);
    else
        FUZZ_CHECK(msg.text[0] && !strchr(msg.text, '\n'));
    return 0;
}
