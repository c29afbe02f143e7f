/* SPDX-License-Identifier: Apache-2.0 */
/* bench_hot.c: access to rows that are all cached, through shared memory.
 *
 * hot-get         GET, 1 lane, 1 client, two batches in flight
 * hot-get-lanes   the same with 2 lanes
 * hot-set         SET into cached rows, 1 lane
 * array-get       as hot-get, of tables whose home is an array
 * profile-cost    hot-get while the server makes a profile; the reference is hot-get without
 *
 * 26 tables, 8,192 ids a batch, uniform, dim 128 f32, 3.5 GiB of rows. The reference gathers the
 * same ids' rows with memcpy() from one plain array into a buffer (hot-set: scatters them). It
 * has as many threads as there are lanes, and the same kind of pages. In figures called -tuned,
 * which have no bar, it also prefetches in software. Both sides' ids are drawn beforehand; ours
 * copies them into shared memory, which counts in its time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/lib/bench_server.h"

#define TABLES     26
#define BATCH_ROWS 8192
#define BATCHES    128 /* batches of ids, used round and round */
#define DIM        128
#define ROW_BYTES  (DIM * sizeof(float))
#define IN_FLIGHT  2
#define THREADS    2  /* of the reference, at most */
#define AHEAD      12 /* rows that the tuned reference prefetches ahead */

struct hot {
    struct bench_server server;
    uint64_t rows; /* per table */
    uint32_t counts[TABLES];
    uint64_t *ids; /* BATCHES of BATCH_ROWS, by table */
    struct embtier_batch *batches[IN_FLIGHT];
    enum embtier_op op;
    uint32_t next; /* the next batch of ids */
    uint64_t asked, hits;
    uint64_t lookups, samples, lost_samples; /* of profiles */

    char *array; /* the reference's rows */
    bool prefetch;
    uint32_t thread_count;
    char *buffers[THREADS];
};

/* Hides the reference's row size from the compiler. For a constant size it makes a loop that is
 * slower than the library's memcpy(). */
static volatile uint64_t reference_row_bytes = ROW_BYTES;

static void make_ids(struct hot *hot)
{
    uint64_t random = 42;
    uint64_t at = 0;

    hot->ids = bench_alloc((uint64_t)BATCHES * BATCH_ROWS, sizeof(*hot->ids));
    for (uint32_t t = 0; t < TABLES; t++)
        hot->counts[t] = BATCH_ROWS / TABLES + (t < BATCH_ROWS % TABLES);
    for (uint32_t b = 0; b < BATCHES; b++)
        for (uint32_t t = 0; t < TABLES; t++)
            for (uint32_t i = 0; i < hot->counts[t]; i++)
                hot->ids[at++] = bench_random(&random) % hot->rows;
}

static void set_up(struct hot *hot, uint32_t lanes, enum embtier_op op, enum embtier_home home)
{
    const uint64_t row_bytes = bench_scaled(3584 * MIB, 64 * MIB);
    struct bench_server_shape shape = { .lanes = lanes };
    struct embtier_part parts[TABLES];

    memset(hot, 0, sizeof(*hot));
    hot->rows = row_bytes / ROW_BYTES / TABLES;
    hot->op = op;
    hot->thread_count = lanes;
    /* Rows must not leave the cache: at most 32 bytes of index per row, slabs are cut per class,
     * and there is room to spare. */
    shape.dram_bytes = row_bytes + row_bytes / ROW_BYTES * 40 + row_bytes / 10 + lanes * 64 * MIB;
    if (home == EMBTIER_HOME_ARRAY) {
        /* A spot for each row, and the unused rest of a slab. */
        shape.array_bytes = row_bytes + row_bytes / ROW_BYTES * 8 + TABLES * 4 * MIB;
        shape.dram_bytes = lanes * 64 * MIB;
    }
    bench_server_start(&hot->server, &shape);
    bench_server_tables(&hot->server, TABLES, hot->rows, DIM);
    bench_say("filling %llu MiB of cache", (unsigned long long)(row_bytes / MIB));
    bench_touch_all(&hot->server, EMBTIER_GET);
    make_ids(hot);
    for (uint32_t t = 0; t < TABLES; t++)
        parts[t] = (struct embtier_part){ hot->server.tables[t], hot->counts[t] };
    for (uint32_t i = 0; i < IN_FLIGHT; i++) {
        hot->batches[i] = bench_batch(&hot->server, parts, TABLES);
        for (uint32_t t = 0; t < TABLES; t++)
            memset(embtier_batch_rows(hot->batches[i], t), 0, hot->counts[t] * ROW_BYTES);
    }
    hot->array = bench_pages(hot->rows * TABLES * ROW_BYTES);
    memset(hot->array, 1, hot->rows * TABLES * ROW_BYTES);
    for (uint32_t i = 0; i < hot->thread_count; i++) {
        hot->buffers[i] = bench_pages(BATCH_ROWS * ROW_BYTES);
        memset(hot->buffers[i], 0, BATCH_ROWS * ROW_BYTES);
    }
}

static void clear(struct hot *hot)
{
    bench_server_done(&hot->server);
    free(hot->ids);
}

/* ---- Ours ---- */

static void begin(void *context, uint32_t slot)
{
    struct hot *const hot = context;
    struct embtier_batch *const batch = hot->batches[slot];
    const uint64_t *from = hot->ids + (uint64_t)(hot->next++ % BATCHES) * BATCH_ROWS;

    for (uint32_t t = 0; t < TABLES; t++) {
        memcpy(embtier_batch_ids(batch, t), from, hot->counts[t] * sizeof(*from));
        from += hot->counts[t];
    }
    bench_submit(batch, hot->op);
}

static void end(void *context, uint32_t slot)
{
    struct hot *const hot = context;

    bench_wait(hot->batches[slot]);
    hot->asked += BATCH_ROWS;
    hot->hits += embtier_batch_hit_rows(hot->batches[slot]);
}

static double ours(void *context)
{
    return BATCH_ROWS * bench_pipeline(IN_FLIGHT, bench_settings.seconds, begin, end, context);
}

/* ---- The reference ---- */

struct copier {
    const struct hot *hot;
    char *buffer;
    uint32_t next;
};

static void prefetch_row(const char *row, uint64_t bytes)
{
    for (uint64_t line = 0; line < bytes; line += CACHE_LINE)
        __builtin_prefetch(row + line);
}

static uint64_t copy_batch(void *context)
{
    struct copier *const copier = context;
    const struct hot *const hot = copier->hot;
    const uint64_t row_bytes = reference_row_bytes;
    const uint64_t *id = hot->ids + (uint64_t)(copier->next++ % BATCHES) * BATCH_ROWS;
    char *row = copier->buffer;

    for (uint32_t t = 0; t < TABLES; t++) {
        char *const table = hot->array + t * hot->rows * row_bytes;

        for (uint32_t i = 0; i < hot->counts[t]; i++, id++, row += row_bytes) {
            if (hot->prefetch && i + AHEAD < hot->counts[t])
                prefetch_row(table + id[AHEAD] * row_bytes, row_bytes);
            if (hot->op == EMBTIER_GET)
                memcpy(row, table + *id * row_bytes, row_bytes);
            else
                memcpy(table + *id * row_bytes, row, row_bytes);
        }
    }
    return BATCH_ROWS;
}

static double reference(void *context)
{
    struct hot *const hot = context;
    struct copier copiers[THREADS];

    for (uint32_t i = 0; i < hot->thread_count; i++)
        copiers[i] = (struct copier){ hot, hot->buffers[i], hot->next + i * 31 };
    hot->next += 17;
    return bench_threads(hot->thread_count, bench_settings.seconds, copy_batch, copiers,
                         sizeof(copiers[0]));
}

static void say_hits(void *context, json_t *figure)
{
    const struct hot *const hot = context;

    json_object_set_new(figure, "hit_rate", json_real((double)hot->hits / (double)hot->asked));
    json_object_set_new(figure, "tables", json_integer(TABLES));
    json_object_set_new(figure, "batch_rows", json_integer(BATCH_ROWS));
    json_object_set_new(figure, "cached_bytes",
                        json_real((double)(hot->rows * TABLES * ROW_BYTES)));
}

static void run(const struct bench_figure *figure, uint32_t lanes, enum embtier_op op,
                enum embtier_home home)
{
    struct hot *const hot = bench_alloc(1, sizeof(*hot));
    struct bench_figure tuned = *figure;
    char name[64];

    set_up(hot, lanes, op, home);
    bench_compare(figure, ours, reference, hot, say_hits);
    snprintf(name, sizeof(name), "%s-tuned", figure->name);
    tuned.name = name;
    tuned.bar = 0;
    tuned.reference_name = "memcpy with software prefetch";
    hot->prefetch = true;
    bench_compare(&tuned, ours, reference, hot, say_hits);
    clear(hot);
    free(hot);
}

/* ---- With a profile ---- */

/* A profile begins with all rows, and lowers its rate within the first second or two. */
#define SETTLE_SECONDS 2.0

static double profiled(void *context)
{
    struct hot *const hot = context;
    struct embtier *const server = hot->server.connection;
    struct embtier_profile_info info;
    double rate;

    if (embtier_profile_start(server, 0, NULL) != EMBTIER_OK)
        bench_die("%s", embtier_message(server));
    (void)bench_pipeline(IN_FLIGHT, MIN(SETTLE_SECONDS, 8 * bench_settings.seconds), begin, end,
                         context);
    rate = ours(context);
    if (embtier_profile_stop(server, &info) != EMBTIER_OK)
        bench_die("%s", embtier_message(server));
    hot->lookups += info.lookups;
    hot->samples += info.samples;
    hot->lost_samples += info.lost_samples;
    return rate;
}

static void say_samples(void *context, json_t *figure)
{
    const struct hot *const hot = context;

    say_hits(context, figure);
    json_object_set_new(figure, "samples_per_lookup",
                        json_real((double)hot->samples / (double)hot->lookups));
    json_object_set_new(figure, "lost_samples", json_integer((json_int_t)hot->lost_samples));
}

static void profile_cost(void)
{
    struct hot *const hot = bench_alloc(1, sizeof(*hot));

    set_up(hot, 1, EMBTIER_GET, EMBTIER_HOME_CACHE);
    bench_compare(&(struct bench_figure){ .name = "profile-cost",
                                          .unit = "rows/s",
                                          .bar = 0.98,
                                          .limit = "comparing each hash; the profiling thread",
                                          .reference_name = "hot-get without a profile",
                                          .reference_options = "the same server" },
                  profiled, ours, hot, say_samples);
    clear(hot);
    free(hot);
}

static void hot_get(void)
{
    run(&(struct bench_figure){ .name = "hot-get",
                                .unit = "rows/s",
                                .bar = 0.7,
                                .limit = "memory latency and bandwidth of one core",
                                .reference_name = "memcpy from a plain array",
                                .reference_options = "1 thread" },
        1, EMBTIER_GET, EMBTIER_HOME_CACHE);
}

static void hot_get_lanes(void)
{
    run(&(struct bench_figure){ .name = "hot-get-lanes",
                                .unit = "rows/s",
                                .bar = 0.6,
                                .limit = "memory bandwidth; two lanes and the client on the cores",
                                .reference_name = "memcpy from a plain array",
                                .reference_options = "2 threads" },
        2, EMBTIER_GET, EMBTIER_HOME_CACHE);
}

static void hot_set(void)
{
    run(&(struct bench_figure){ .name = "hot-set",
                                .unit = "rows/s",
                                .bar = 0.6,
                                .limit = "memory latency and bandwidth of one core",
                                .reference_name = "memcpy into a plain array",
                                .reference_options = "1 thread" },
        1, EMBTIER_SET, EMBTIER_HOME_CACHE);
}

static void array_get(void)
{
    run(&(struct bench_figure){ .name = "array-get",
                                .unit = "rows/s",
                                .bar = 0.9,
                                .limit = "memory latency and bandwidth of one core",
                                .reference_name = "memcpy from a plain array",
                                .reference_options = "1 thread" },
        1, EMBTIER_GET, EMBTIER_HOME_ARRAY);
}

int main(int argc, char **argv)
{
    const struct bench_entry entries[] = {
        { "hot-get", hot_get },     { "hot-get-lanes", hot_get_lanes }, { "hot-set", hot_set },
        { "array-get", array_get }, { "profile-cost", profile_cost },
    };

    return bench_main(argc, argv, entries, ARRAY_LEN(entries));
}
