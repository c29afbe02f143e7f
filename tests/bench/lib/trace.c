/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/lib/trace.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/row_hash.h"
#include "tests/bench/lib/bench.h"
#include "tiers/arena/arena.h"
#include "tiers/cache/row_cache.h"

static struct trace trace_new(uint32_t ids, uint32_t count)
{
    const uint32_t whole = count / TRACE_BATCH * TRACE_BATCH;

    return (struct trace){ .ids = ids,
                           .count = whole,
                           .warm_up = whole / 3 / TRACE_BATCH * TRACE_BATCH,
                           .draws = bench_alloc(count, sizeof(uint32_t)) };
}

struct trace trace_zipf(uint32_t ids, uint32_t count, double exponent)
{
    struct trace trace = trace_new(ids, count);
    double *const below = bench_alloc(ids, sizeof(*below));
    uint64_t random = 42;
    double sum = 0;

    for (uint32_t i = 0; i < ids; i++)
        below[i] = sum += pow((double)i + 1, -exponent);
    for (uint32_t i = 0; i < trace.count; i++) {
        const double at = (double)(bench_random(&random) >> 11) * 0x1p-53 * sum;
        uint32_t low = 0, high = ids - 1;

        while (low < high) {
            const uint32_t middle = low + (high - low) / 2;

            if (below[middle] < at)
                low = middle + 1;
            else
                high = middle;
        }
        trace.draws[i] = low;
    }
    free(below);
    return trace;
}

struct trace trace_read(const char *path)
{
    FILE *const file = fopen(path, "re");
    struct trace trace;
    struct stat about;
    uint32_t count;

    if (!file || fstat(fileno(file), &about) != 0)
        bench_die("%s: %s", path, strerror(errno));
    count = (uint32_t)((uint64_t)about.st_size / sizeof(uint32_t));
    trace = trace_new(0, count);
    if (fread(trace.draws, sizeof(uint32_t), count, file) != count)
        bench_die("%s: cannot be read", path);
    fclose(file);
    for (uint32_t i = 0; i < count; i++) {
        trace.draws[i] = le32toh(trace.draws[i]);
        trace.ids = MAX(trace.ids, trace.draws[i] + 1);
    }
    return trace;
}

void trace_free(struct trace *trace)
{
    free(trace->draws);
}

/* ---- Simulated ---- */

double trace_simulate(const struct trace *trace, const struct policy *policy, uint32_t capacity)
{
    void *const state = policy->make(trace->ids, capacity);
    uint64_t hits = 0;

    for (uint32_t i = 0; i < trace->count; i += TRACE_BATCH) {
        for (uint32_t j = i; j < i + TRACE_BATCH && i >= trace->warm_up; j++)
            hits += policy->has(state, trace->draws[j]);
        for (uint32_t j = i; j < i + TRACE_BATCH; j++)
            policy->access(state, trace->draws[j]);
    }
    policy->end(state);
    return (double)hits / (trace->count - trace->warm_up);
}

/* ---- Ours ---- */

static uint64_t hash_of(void *context, uint16_t table, uint64_t id)
{
    return row_hash(context, table, id);
}

static bool take_over(void *context, uint16_t table, uint64_t hash, uint64_t id, const void *row,
                      uint32_t bytes)
{
    (void)context, (void)table, (void)hash, (void)id, (void)row, (void)bytes;
    return true;
}

static uint32_t access_batch(struct row_cache *cache, struct row_hasher *hasher,
                             const uint32_t *draws, uint8_t *rows, uint32_t row_bytes)
{
    struct row_ref refs[TRACE_BATCH], missing[TRACE_BATCH];
    const void *pointers[TRACE_BATCH];
    uint32_t missed[TRACE_BATCH], refused[TRACE_BATCH];
    uint32_t misses;

    for (uint32_t i = 0; i < TRACE_BATCH; i++)
        refs[i] = (struct row_ref){ .hash = row_hash(hasher, 1, draws[i]),
                                    .id = draws[i],
                                    .position = i };
    misses = row_cache_get(cache, 1, refs, TRACE_BATCH, rows, row_bytes, row_bytes, missed);
    for (uint32_t i = 0; i < misses; i++) {
        missing[i] = refs[missed[i]];
        pointers[i] = rows;
    }
    if (row_cache_insert(cache, 1, missing, misses, pointers, NULL, refused) > 0)
        bench_die("a clean row found no place");
    return TRACE_BATCH - misses;
}

double trace_row_cache(const struct trace *trace, uint32_t tier_count, uint64_t tier_bytes,
                       uint32_t row_bytes, uint32_t *ret_rows)
{
    const struct tier_spec spec = { .name = "trace", .kind = TIER_KIND_DRAM };
    static const unsigned char key[ROW_HASH_KEY_BYTES] = { 1 };
    struct arena *arenas[TIERS_MAX];
    struct row_hasher hasher;
    struct row_cache_opts opts = { .arenas = arenas,
                                   .arena_count = tier_count,
                                   .hash = hash_of,
                                   .evict = take_over,
                                   .context = &hasher };
    struct row_cache_stats stats;
    struct row_cache *cache;
    struct err_msg msg = { { 0 } };
    uint8_t *const rows = bench_alloc(TRACE_BATCH, row_bytes);
    uint64_t hits = 0;

    row_hasher_init(&hasher, key);
    for (uint32_t t = 0; t < tier_count; t++) {
        if (arena_new(&spec, tier_bytes, &arenas[t], &msg) != EMBTIER_OK)
            bench_die("%s", msg.text);
        opts.arena_slab_count[t] = (uint32_t)(arena_bytes(arenas[t]) / ARENA_SLAB_BYTES);
    }
    if (row_cache_new(&opts, &cache, &msg) != EMBTIER_OK ||
        row_cache_add_table(cache, 1, row_bytes, 0) != EMBTIER_OK)
        bench_die("the cache cannot be made: %s", msg.text);
    for (uint32_t i = 0; i < trace->count; i += TRACE_BATCH) {
        const uint32_t found = access_batch(cache, &hasher, trace->draws + i, rows, row_bytes);

        hits += i >= trace->warm_up ? found : 0;
    }
    row_cache_stats(cache, &stats);
    *ret_rows = 0;
    for (uint32_t t = 0; t < tier_count; t++)
        *ret_rows += (uint32_t)stats.tiers[t].rows;
    row_cache_free(cache);
    for (uint32_t t = 0; t < tier_count; t++)
        arena_free(arenas[t]);
    free(rows);
    return (double)hits / (trace->count - trace->warm_up);
}
