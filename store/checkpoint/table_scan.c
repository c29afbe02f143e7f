/* SPDX-License-Identifier: Apache-2.0 */
/* A heap of the shards that have rows left, by the id that each is at. A hash spreads rows over
 * shards, so the next row may be in any of them. Each shard is read some rows at a time. To switch
 * between RocksDB iterators with each row would cost more than to copy the row once more. */
#include "store/checkpoint/table_scan.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "store/checkpoint/checkpoint_rows.h"
#include "store/store_reserved.h"

#define AHEAD_BYTES    ((size_t)(16 * 1024))
#define AHEAD_ROWS_MAX 256
#define CACHE_BYTES    ((size_t)MIB) /* for reads of files other than of rows */

struct source {
    struct checkpoint_rows *rows;
    uint64_t id;
    const uint8_t *bytes;
    /* Read ahead: */
    uint64_t *ids;
    uint8_t *copies;
    uint32_t at, count; /* the present row, and how many there are */
    bool is_last;       /* no more rows follow */
};

struct table_scan {
    rocksdb_cache_t *cache;
    struct source *sources; /* the first heap_count are a heap, by id; the rest are at their ends */
    uint32_t source_count;
    uint32_t heap_count;
    uint32_t row_bytes;
    uint32_t ahead_rows;
};

void table_scan_free(struct table_scan *scan)
{
    if (!scan)
        return;
    for (uint32_t i = 0; i < scan->source_count; i++) {
        checkpoint_rows_free(scan->sources[i].rows);
        free(scan->sources[i].ids);
        free(scan->sources[i].copies);
    }
    free(scan->sources);
    if (scan->cache)
        rocksdb_cache_destroy(scan->cache);
    free(scan);
    malloc_trim(0);
}

static uint64_t ahead_rows(uint64_t row_bytes)
{
    return MIN(AHEAD_BYTES / row_bytes + 1, (uint64_t)AHEAD_ROWS_MAX);
}

uint64_t table_scan_bytes(const struct checkpoint_record *record, const struct store_row *like)
{
    const uint64_t row_bytes = (uint64_t)like->weight_bytes + like->state_bytes;
    uint64_t bytes = SCAN_BYTES;

    for (uint32_t shard = 0; shard < record->shard_count; shard++)
        if (checkpoint_record_has_rows(record, shard))
            bytes += checkpoint_rows_bytes(record, shard, like) +
                     ahead_rows(row_bytes) * (row_bytes + sizeof(uint64_t));
    return bytes;
}

static void swap(struct source *a, struct source *b)
{
    const struct source other = *a;

    *a = *b;
    *b = other;
}

static void sift_down(struct table_scan *scan, uint32_t at)
{
    for (;;) {
        const uint32_t left = 2 * at + 1;
        uint32_t least = at;

        for (uint32_t child = left; child < left + 2 && child < scan->heap_count; child++)
            if (scan->sources[child].id < scan->sources[least].id)
                least = child;
        if (least == at)
            return;
        swap(&scan->sources[at], &scan->sources[least]);
        at = least;
    }
}

static enum embtier_err read_ahead(const struct table_scan *scan, struct source *source,
                                   struct err_msg *msg)
{
    source->at = source->count = 0;
    while (!source->is_last && source->count < scan->ahead_rows) {
        const void *bytes;

        TRY(checkpoint_rows_next(source->rows, &source->ids[source->count], &bytes, msg));
        source->is_last = bytes == NULL;
        if (bytes)
            memcpy(source->copies + (size_t)source->count++ * scan->row_bytes, bytes,
                   scan->row_bytes);
    }
    return EMBTIER_OK;
}

static enum embtier_err step_source(const struct table_scan *scan, struct source *source,
                                    struct err_msg *msg)
{
    if (++source->at >= source->count)
        TRY(read_ahead(scan, source, msg));
    source->bytes = NULL;
    if (source->count > 0) {
        source->id = source->ids[source->at];
        source->bytes = source->copies + (size_t)source->at * scan->row_bytes;
    }
    return EMBTIER_OK;
}

static enum embtier_err open_sources(struct table_scan *scan, const struct checkpoint_shelf *shelf,
                                     const struct checkpoint_record *record,
                                     const struct store_row *like, struct err_msg *msg)
{
    for (uint32_t shard = 0; shard < record->shard_count; shard++) {
        struct source *const source = &scan->sources[scan->source_count];

        if (!checkpoint_record_has_rows(record, shard))
            continue;
        scan->source_count++;
        source->ids = calloc(scan->ahead_rows, sizeof(*source->ids));
        source->copies = malloc((size_t)scan->ahead_rows * scan->row_bytes);
        if (!source->ids || !source->copies)
            return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
        TRY(checkpoint_rows_open(shelf, record, shard, like, scan->cache, &source->rows, msg));
        TRY(step_source(scan, source, msg));
        if (source->bytes)
            swap(source, &scan->sources[scan->heap_count++]);
    }
    for (uint32_t i = scan->heap_count / 2; i-- > 0;)
        sift_down(scan, i);
    return EMBTIER_OK;
}

enum embtier_err table_scan_open(const struct checkpoint_shelf *shelf,
                                 const struct checkpoint_record *record,
                                 const struct store_row *like, struct table_scan **ret_scan,
                                 struct err_msg *msg)
{
    _cleanup_(table_scan_freep) struct table_scan *scan = calloc(1, sizeof(*scan));

    if (scan)
        scan->sources = calloc((size_t)record->shard_count + 1, sizeof(*scan->sources));
    if (!scan || !scan->sources)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    scan->cache = rocksdb_cache_create_lru(CACHE_BYTES);
    scan->row_bytes = like->weight_bytes + like->state_bytes;
    scan->ahead_rows = (uint32_t)ahead_rows(scan->row_bytes);
    TRY(open_sources(scan, shelf, record, like, msg));
    *ret_scan = TAKE(scan);
    return EMBTIER_OK;
}

uint64_t table_scan_estimate(const struct table_scan *scan)
{
    uint64_t rows = 0;

    for (uint32_t i = 0; i < scan->source_count; i++)
        rows += checkpoint_rows_estimate(scan->sources[i].rows);
    return rows;
}

const void *table_scan_row(const struct table_scan *scan, uint64_t *ret_id)
{
    if (scan->heap_count == 0)
        return NULL;
    *ret_id = scan->sources[0].id;
    return scan->sources[0].bytes;
}

enum embtier_err table_scan_step(struct table_scan *scan, struct err_msg *msg)
{
    TRY(step_source(scan, &scan->sources[0], msg));
    if (!scan->sources[0].bytes)
        swap(&scan->sources[0], &scan->sources[--scan->heap_count]);
    sift_down(scan, 0);
    return EMBTIER_OK;
}
