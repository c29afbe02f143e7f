/* SPDX-License-Identifier: Apache-2.0 */
/* bench_policy.c: hit rates, not speed. What is counted is the same in every run.
 *
 * lru        our row cache beside exact LRU of as many rows as it holds, at three Zipf exponents
 * two-tier   the same with two tiers of the same bytes: they hit as one LRU of both would
 * policy     LFU and S3-FIFO beside LRU, simulated
 *
 * Ids are drawn from a Zipf distribution and scrambled by the cache's hash; a third of the draws
 * warms up and is not counted. The cache answers a batch of 256 before it inserts what was missing,
 * and so do the simulations. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/row_hash.h"
#include "tests/bench/bench.h"
#include "tests/bench/policies.h"
#include "tiers/arena.h"
#include "tiers/row_cache.h"

#define BATCH     256
#define ROW_BYTES 512

static const double exponents[] = { 0.8, 1.05, 1.2 };

struct trace {
    uint32_t ids;
    uint32_t count;   /* a multiple of BATCH */
    uint32_t warm_up; /* draws before this are not counted */
    uint32_t *draws;
};

static struct trace zipf_trace(double exponent)
{
    struct trace trace = { .ids = (uint32_t)bench_scaled(2000000, 20000) };
    double *const below = bench_alloc(trace.ids, sizeof(*below));
    uint64_t random = 42;
    double sum = 0;

    trace.count = trace.ids * 6 / BATCH * BATCH;
    trace.warm_up = trace.count / 3 / BATCH * BATCH;
    trace.draws = bench_alloc(trace.count, sizeof(*trace.draws));
    for (uint32_t i = 0; i < trace.ids; i++)
        below[i] = sum += pow(i + 1, -exponent);
    for (uint32_t i = 0; i < trace.count; i++) {
        const double at = (double)(bench_random(&random) >> 11) * 0x1p-53 * sum;
        uint32_t low = 0, high = trace.ids - 1;

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

/* ---- Simulated ---- */

static double simulate(const struct trace *trace, const struct policy *policy, uint32_t capacity)
{
    void *const state = policy->make(trace->ids, capacity);
    uint64_t hits = 0;

    for (uint32_t i = 0; i < trace->count; i += BATCH) {
        for (uint32_t j = i; j < i + BATCH && i >= trace->warm_up; j++)
            hits += policy->has(state, trace->draws[j]);
        for (uint32_t j = i; j < i + BATCH; j++)
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
                             const uint32_t *draws)
{
    static uint8_t rows[BATCH][ROW_BYTES];
    static const uint8_t row[ROW_BYTES];
    struct row_ref refs[BATCH], missing[BATCH];
    const void *pointers[BATCH];
    uint32_t missed[BATCH], refused[BATCH];
    uint32_t misses;

    for (uint32_t i = 0; i < BATCH; i++)
        refs[i] = (struct row_ref){ .hash = row_hash(hasher, 1, draws[i]),
                                    .id = draws[i],
                                    .position = i };
    misses = row_cache_get(cache, 1, refs, BATCH, rows, ROW_BYTES, missed);
    for (uint32_t i = 0; i < misses; i++) {
        missing[i] = refs[missed[i]];
        pointers[i] = row;
    }
    if (row_cache_insert(cache, 1, missing, misses, pointers, NULL, refused) > 0)
        bench_die("a clean row found no place");
    return BATCH - misses;
}

/* Returns the hit rate; *@ret_rows: how many rows were cached in the end. */
static double run_ours(const struct trace *trace, uint32_t tier_count, uint32_t *ret_rows)
{
    const struct tier_spec spec = { .name = "bench", .kind = TIER_KIND_DRAM };
    const uint64_t bytes = (uint64_t)trace->ids / 10 * ROW_BYTES;
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
    uint64_t hits = 0;

    row_hasher_init(&hasher, key);
    for (uint32_t t = 0; t < tier_count; t++) {
        if (arena_new(&spec, MAX(bytes / tier_count, 4 * MIB), &arenas[t], &msg) != EMBTIER_OK)
            bench_die("%s", msg.text);
        opts.arena_slab_count[t] = (uint32_t)(arena_bytes(arenas[t]) / ARENA_SLAB_BYTES);
    }
    if (row_cache_new(&opts, &cache, &msg) != EMBTIER_OK ||
        row_cache_add_table(cache, 1, ROW_BYTES, ROW_BYTES) != EMBTIER_OK)
        bench_die("the cache cannot be made: %s", msg.text);
    for (uint32_t i = 0; i < trace->count; i += BATCH) {
        const uint32_t found = access_batch(cache, &hasher, trace->draws + i);

        hits += i >= trace->warm_up ? found : 0;
    }
    row_cache_stats(cache, &stats);
    *ret_rows = 0;
    for (uint32_t t = 0; t < tier_count; t++)
        *ret_rows += (uint32_t)stats.tiers[t].rows;
    row_cache_free(cache);
    for (uint32_t t = 0; t < tier_count; t++)
        arena_free(arenas[t]);
    return (double)hits / (trace->count - trace->warm_up);
}

/* ---- Figures ---- */

struct setting {
    double exponent;
    uint32_t ids, cached;
};

static void say_setting(void *context, json_t *figure)
{
    const struct setting *const setting = context;

    json_object_set_new(figure, "zipf", json_real(setting->exponent));
    json_object_set_new(figure, "ids", json_integer(setting->ids));
    json_object_set_new(figure, "cached_rows", json_integer(setting->cached));
}

static void compare_tiers(const char *name, uint32_t tier_count, double bar)
{
    for (uint32_t e = 0; e < ARRAY_LEN(exponents); e++) {
        struct trace trace = zipf_trace(exponents[e]);
        struct setting setting = { .exponent = exponents[e], .ids = trace.ids };
        const double ours = run_ours(&trace, tier_count, &setting.cached);
        const double reference = simulate(&trace, &policy_lru, setting.cached);
        char full_name[64];

        snprintf(full_name, sizeof(full_name), "%s-zipf-%g", name, exponents[e]);
        bench_report(&(struct bench_figure){ .name = full_name,
                                             .unit = "hit rate",
                                             .bar = bar,
                                             .limit = "the policy: exact LRU is the most there is",
                                             .reference_name = "exact LRU, simulated",
                                             .reference_options = "as many rows" },
                     &ours, &reference, 1, say_setting, &setting);
        free(trace.draws);
    }
}

static void lru(void)
{
    compare_tiers("lru", 1, 0.99);
}

static void two_tier(void)
{
    compare_tiers("two-tier", 2, 0.99);
}

static void policy(void)
{
    static const struct policy *const policies[] = { &policy_lfu, &policy_s3_fifo };

    for (uint32_t e = 0; e < ARRAY_LEN(exponents); e++) {
        struct trace trace = zipf_trace(exponents[e]);
        struct setting setting = { exponents[e], trace.ids, trace.ids / 10 };
        const double reference = simulate(&trace, &policy_lru, setting.cached);

        for (uint32_t p = 0; p < ARRAY_LEN(policies); p++) {
            const double ours = simulate(&trace, policies[p], setting.cached);
            char name[64];

            snprintf(name, sizeof(name), "policy-%s-zipf-%g", policies[p]->name, exponents[e]);
            bench_report(&(struct bench_figure){ .name = name,
                                                 .unit = "hit rate",
                                                 .limit = "what is known of the future",
                                                 .reference_name = "LRU, simulated",
                                                 .reference_options = "a tenth of the ids" },
                         &ours, &reference, 1, say_setting, &setting);
        }
        free(trace.draws);
    }
}

int main(int argc, char **argv)
{
    const struct bench_entry entries[] = {
        { "lru", lru },
        { "two-tier", two_tier },
        { "policy", policy },
    };

    return bench_main(argc, argv, entries, ARRAY_LEN(entries));
}
