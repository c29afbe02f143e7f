/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/lib/mixed_load.h"

#include <string.h>

#define EXPONENT 1.05
/* The rows drawn are far more than any cache here holds. With fewer draws a second round would hit
 * everywhere. */
#define DRAWS_PER_ROW 8
#define SCRAMBLE      UINT64_C(2654435761)

uint64_t mixed_rows(void)
{
    return bench_scaled(8000000, 200000);
}

uint64_t mixed_cached_bytes(void)
{
    return (uint64_t)(MIXED_CACHED_SHARE * (double)(mixed_rows() * MIXED_ROW_BYTES));
}

struct trace mixed_trace(void)
{
    const uint32_t rows = (uint32_t)mixed_rows();

    return trace_zipf(rows, rows * DRAWS_PER_ROW, EXPONENT);
}

static uint64_t row_of(const struct mixed_load *load, uint64_t draw)
{
    /* Scrambled by a prime, so that neighbours in popularity are not neighbours on disk. */
    return load->trace->draws[draw % load->trace->count] * SCRAMBLE % load->rows;
}

void mixed_load_ids(struct mixed_load *load, uint64_t *ids)
{
    const uint64_t first = atomic_fetch_add(&load->next_draw, MIXED_BATCH_ROWS);

    for (uint32_t i = 0; i < MIXED_BATCH_ROWS; i++)
        ids[i] = row_of(load, first + i);
}

void mixed_change(void *rows)
{
    for (uint32_t i = 0; i < MIXED_BATCH_ROWS; i++)
        *(float *)((char *)rows + i * MIXED_ROW_BYTES) += 1;
}

/* ---- Life ---- */

static void make_batches(struct mixed_load *load)
{
    const struct embtier_part part = { load->server.tables[0], MIXED_BATCH_ROWS };

    load->table_id = embtier_table_info(load->server.tables[0])->table_id;
    for (uint32_t i = 0; i < MIXED_IN_FLIGHT; i++)
        load->batches[i] = bench_batch(&load->server, &part, 1);
}

void mixed_load_start(struct mixed_load *load, const struct bench_server_shape *shape,
                      const struct trace *trace)
{
    memset(load, 0, sizeof(*load));
    load->trace = trace;
    load->rows = mixed_rows();
    load->changed_of = 1;
    load->shape = *shape;
    if (!load->shape.dram_bytes)
        load->shape.dram_bytes = mixed_cached_bytes();
    if (!load->shape.shards)
        load->shape.shards = MIXED_SHARDS;
    if (!load->shape.readers_per_lane)
        load->shape.readers_per_lane = MIXED_READERS;
    if (!load->shape.metadata_cache_bytes)
        load->shape.metadata_cache_bytes = MIXED_METADATA_BYTES;
    bench_server_start(&load->server, &load->shape);
    bench_server_tables(&load->server, 1, load->rows, MIXED_DIM);
    bench_say("storing %llu rows in %u shards", (unsigned long long)load->rows, load->shape.shards);
    bench_touch_all(&load->server, EMBTIER_SET);
    bench_server_stop(&load->server);
    bench_server_again(&load->server, &load->shape);
    bench_server_settle(&load->server);
    make_batches(load);
}

void mixed_load_pause(struct mixed_load *load)
{
    bench_server_stop(&load->server);
}

void mixed_load_resume(struct mixed_load *load)
{
    bench_server_again(&load->server, &load->shape);
    make_batches(load);
}

void mixed_load_done(struct mixed_load *load)
{
    bench_server_done(&load->server);
}

/* ---- Load ---- */

static void note_dirty(struct mixed_load *load, const uint64_t *ids)
{
    for (uint32_t i = 0; load->dirty && i < MIXED_BATCH_ROWS; i++)
        load->dirty[ids[i] / 8] |= (unsigned char)(1u << ids[i] % 8);
}

/* True if the batch just read in @slot is written next. */
static bool goes_back(struct mixed_load *load, uint32_t slot)
{
    struct embtier_batch *const batch = load->batches[slot];
    const bool changed = load->turns[slot] % load->changed_of == 0;

    if (changed) {
        mixed_change(embtier_batch_rows(batch, 0));
        note_dirty(load, embtier_batch_ids(batch, 0));
    }
    return changed || load->writes_all;
}

static void begin(void *context, uint32_t slot)
{
    struct mixed_load *const load = context;
    struct embtier_batch *const batch = load->batches[slot];

    load->is_set[slot] = !load->is_set[slot] && goes_back(load, slot);
    if (!load->is_set[slot]) {
        mixed_load_ids(load, embtier_batch_ids(batch, 0));
        load->turns[slot]++;
    }
    bench_submit(batch, load->is_set[slot] ? EMBTIER_SET : EMBTIER_GET);
}

static void end(void *context, uint32_t slot)
{
    struct mixed_load *const load = context;

    bench_wait(load->batches[slot]);
    if (!load->is_set[slot]) {
        load->asked += MIXED_BATCH_ROWS;
        load->hits += embtier_batch_hit_rows(load->batches[slot]);
    }
}

double mixed_load_run(struct mixed_load *load, double seconds)
{
    for (uint32_t i = 0; i < MIXED_IN_FLIGHT; i++)
        load->is_set[i] = true; /* so that each slot begins with a GET */
    return MIXED_BATCH_ROWS * bench_pipeline(MIXED_IN_FLIGHT, seconds, begin, end, load);
}

double mixed_load_turn(struct mixed_load *load)
{
    return mixed_load_run(load, bench_settings.seconds * MIXED_PATIENCE);
}

static double rows_that_left(struct mixed_load *load)
{
    return bench_metric(&load->server, "cache_evicted_clean_rows", NULL) +
           bench_metric(&load->server, "cache_evicted_dirty_rows", NULL);
}

void mixed_load_warm_up(struct mixed_load *load)
{
    /* Until the cache is full and a good part of it has been exchanged. */
    do
        (void)mixed_load_turn(load);
    while (rows_that_left(load) < bench_metric(&load->server, "cache_rows", NULL) / 2);
    load->asked = load->hits = 0;
}
