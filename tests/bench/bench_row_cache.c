/* SPDX-License-Identifier: Apache-2.0 */
/* bench_row_cache.c: rows per second of row_cache_get(), compared with a plain gather with
 * prefetching from an array, in turn in the same run.
 *
 *   bench_row_cache [ROWS_MIB [ROW_BYTES [SECONDS]]]    default 3584 512 3
 *
 * Ids are uniform, and one thread runs. All rows are cached in one DRAM tier. Both sides copy
 * into the same buffer of 4,096 rows, from memory of the same kind of pages. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "tiers/arena/arena.h"
#include "tiers/cache/row_cache.h"

#define BATCH     4096
#define BATCHES   256 /* batches of ids, used round and round */
#define TURN_MS   50  /* long enough for a steady state, short enough for noise to hit both sides */
#define TURNS_MAX 1000
#define AHEAD     12 /* rows that the gather prefetches ahead; the best of the machines tried */

struct bench {
    uint64_t row_bytes, row_count;
    struct arena *array, *tier;
    struct row_cache *cache;
    struct row_ref *refs;
    char *dest;
    uint32_t *missed;
};

static uint64_t mix(void *context, uint16_t table, uint64_t id)
{
    uint64_t x = id + UINT64_C(0x9e3779b97f4a7c15) * (table + 1u);

    (void)context;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static bool take_over(void *context, uint16_t table, uint64_t hash, uint64_t id, const void *row,
                      uint32_t bytes)
{
    (void)context, (void)table, (void)hash, (void)id, (void)row, (void)bytes;
    return true;
}

static void must(enum embtier_err err, const struct err_msg *msg)
{
    if (err == EMBTIER_OK)
        return;
    fprintf(stderr, "bench_row_cache: %s: %s\n", err_text(err), msg->text);
    exit(1);
}

/* Fills the cache with rows from 0 up to row_count, or as many as fit. */
static void fill_cache(struct bench *b)
{
    const char *array = arena_base(b->array);

    for (uint64_t first = 0; first < b->row_count; first += BATCH) {
        uint32_t count = (uint32_t)MIN((uint64_t)BATCH, b->row_count - first);
        const void *rows[BATCH];
        struct row_ref refs[BATCH];

        for (uint32_t i = 0; i < count; i++) {
            refs[i] = (struct row_ref){ .hash = mix(NULL, 1, first + i), .id = first + i };
            rows[i] = array + (first + i) * b->row_bytes;
        }
        if (row_cache_insert(b->cache, 1, refs, count, rows, NULL, b->missed))
            exit(1);
    }
}

static void set_up(struct bench *b, uint64_t bytes)
{
    struct tier_spec spec = { .name = "bench", .kind = TIER_KIND_DRAM };
    struct row_cache_opts opts = {
        .arenas = &b->tier, .arena_count = 1, .evict = take_over, .hash = mix
    };
    struct err_msg msg = { "" };
    uint64_t random = 1;
    char *array;

    b->row_count = bytes / b->row_bytes;
    must(arena_new(&spec, bytes, &b->array, &msg), &msg);
    must(arena_new(&spec, bytes + bytes * 40 / b->row_bytes + bytes / 10 + 8 * MIB, &b->tier, &msg),
         &msg);
    array = arena_base(b->array);
    for (uint64_t i = 0; i < b->row_count; i++)
        memset(array + i * b->row_bytes, (int)(i * 7), b->row_bytes);
    opts.arena_slab_count[0] = (uint32_t)(arena_bytes(b->tier) / ARENA_SLAB_BYTES);
    must(row_cache_new(&opts, &b->cache, &msg), &msg);
    must(row_cache_add_table(b->cache, 1, (uint32_t)b->row_bytes, 0), &msg);
    b->refs = calloc((uint64_t)BATCH * BATCHES, sizeof(*b->refs));
    b->missed = calloc(BATCH, sizeof(*b->missed));
    b->dest = aligned_alloc(CACHE_LINE, align_up(BATCH * b->row_bytes, CACHE_LINE));
    if (!b->refs || !b->missed || !b->dest)
        exit(1);
    memset(b->dest, 0, BATCH * b->row_bytes);
    for (uint32_t i = 0; i < BATCH * BATCHES; i++) {
        uint64_t id;

        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        id = (random >> 33) % b->row_count;
        b->refs[i] = (struct row_ref){ .hash = mix(NULL, 1, id), .id = id, .position = i % BATCH };
    }
    fill_cache(b);
}

static void gather_plainly(const struct bench *b, const struct row_ref *refs)
{
    const char *array = arena_base(b->array);

    for (uint32_t i = 0; i < BATCH; i++)
        memcpy(b->dest + refs[i].position * b->row_bytes, array + refs[i].id * b->row_bytes,
               b->row_bytes);
}

static void gather(const struct bench *b, const struct row_ref *refs)
{
    const char *array = arena_base(b->array);
    uint64_t row_bytes = b->row_bytes;

    for (uint32_t i = 0; i < BATCH; i++) {
        if (i + AHEAD < BATCH)
            for (uint64_t line = 0; line < row_bytes; line += CACHE_LINE)
                __builtin_prefetch(array + refs[i + AHEAD].id * row_bytes + line);
        memcpy(b->dest + refs[i].position * row_bytes, array + refs[i].id * row_bytes, row_bytes);
    }
}

enum side { OURS, GATHER, GATHER_PLAINLY };

static double rows_per_second(struct bench *b, enum side side, uint32_t *batch,
                              uint64_t *ret_missed)
{
    uint64_t start = clock_now_ns(&clock_monotonic);
    uint64_t rows = 0, missed = 0, now = start;

    while (now - start < TURN_MS * UINT64_C(1000000)) {
        const struct row_ref *refs = b->refs + (*batch)++ % BATCHES * (uint64_t)BATCH;

        if (side == OURS)
            missed += row_cache_get(b->cache, 1, refs, BATCH, b->dest, b->row_bytes,
                                    (uint32_t)b->row_bytes, b->missed);
        else if (side == GATHER)
            gather(b, refs);
        else
            gather_plainly(b, refs);
        rows += BATCH;
        now = clock_now_ns(&clock_monotonic);
    }
    *ret_missed += missed;
    return (double)rows * 1e9 / (double)(now - start);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Sorts @values. */
static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof(*values), compare_doubles);
    return values[count / 2];
}

static void print(const char *reference_name, double *ours, double *reference, uint32_t turns)
{
    double ratio[TURNS_MAX];

    for (uint32_t i = 0; i < turns; i++)
        ratio[i] = ours[i] / reference[i];
    printf("{\"name\":\"row_cache_get\",\"unit\":\"rows/s\",\"ours\":%.0f,\"reference\":%.0f,"
           "\"reference_name\":\"%s\",\"ratio\":%.4f,\"n\":%" PRIu32 ",\"better\":\"higher\"}\n",
           median(ours, turns), median(reference, turns), reference_name, median(ratio, turns),
           turns);
}

int main(int argc, char **argv)
{
    struct bench b = { .row_bytes = argc > 2 ? strtoull(argv[2], NULL, 0) : 512 };
    uint64_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 0) : 3584) * MIB;
    uint32_t turns = (argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 0) : 3) * (1000 / (3 * TURN_MS));
    double ours[TURNS_MAX], reference[TURNS_MAX], plain[TURNS_MAX], again[TURNS_MAX];
    uint32_t batch = 0;
    uint64_t missed = 0;

    turns = MIN(MAX(turns, 1u), (uint32_t)TURNS_MAX);
    set_up(&b, bytes);
    for (uint32_t i = 0; i < turns; i++) {
        reference[i] = rows_per_second(&b, GATHER, &batch, &missed);
        ours[i] = again[i] = rows_per_second(&b, OURS, &batch, &missed);
        plain[i] = rows_per_second(&b, GATHER_PLAINLY, &batch, &missed);
    }
    printf("%" PRIu64 " rows of %" PRIu64 " bytes, %" PRIu64 " missed\n", b.row_count, b.row_bytes,
           missed);
    print("gather with prefetching", ours, reference, turns);
    print("gather without prefetching", again, plain, turns);
    row_cache_free(b.cache);
    arena_free(b.tier);
    arena_free(b.array);
    free(b.refs);
    free(b.missed);
    free(b.dest);
    return 0;
}
