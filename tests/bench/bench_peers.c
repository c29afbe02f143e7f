/* SPDX-License-Identifier: Apache-2.0 */
/* bench_peers.c: rows of 512 bytes through our shared memory, and from Redis and memcached over
 * their Unix sockets. All rows are in memory.
 *
 * hot-get-vs-redis       rows/s, batches of 4,096 (MGET)
 * hot-get-vs-memcached   rows/s, batches of 1,000 (get)
 * small-get              microseconds of a batch of 32, one at a time, compared with MGET of 32
 *
 * Each side has one connection, with two batches in flight (small-get: one). The references'
 * commands are made beforehand; ours copies ids into shared memory in its time. The references'
 * client copies every row once more, into a buffer such as our batch has. */
#include <stdlib.h>
#include <string.h>

#include "tests/bench/lib/bench_server.h"
#include "tests/bench/lib/peers.h"

#define DIM       128
#define ROW_BYTES (DIM * sizeof(float))
#define BATCHES   128 /* batches of ids, used round and round */
#define IN_FLIGHT 2

struct pair {
    struct bench_server server;
    struct peer peer;
    uint64_t rows;
    uint32_t batch_rows;
    uint64_t *ids; /* BATCHES of batch_rows */
    struct peer_command commands[BATCHES];
    struct embtier_batch *batches[IN_FLIGHT];
    const struct peer_command *sent[IN_FLIGHT];
    char *buffer;
    uint32_t next; /* the next batch of ids */
    uint64_t asked, hits;
    struct bench_latencies latencies;
};

static void set_up(struct pair *pair, enum peer_kind kind, uint32_t batch_rows)
{
    struct bench_server_shape shape = { 0 };
    struct embtier_part part;
    uint64_t random = 42;

    memset(pair, 0, sizeof(*pair));
    pair->rows = bench_scaled(2000000, 50000);
    pair->batch_rows = batch_rows;
    shape.dram_bytes = pair->rows * (ROW_BYTES + 100) + 64 * MIB;
    bench_server_start(&pair->server, &shape);
    bench_server_tables(&pair->server, 1, pair->rows, DIM);
    bench_touch_all(&pair->server, EMBTIER_GET);
    peer_start(&pair->peer, kind, ROW_BYTES, pair->rows * (ROW_BYTES + 300) + 256 * MIB);
    bench_say("filling %s with %llu rows", pair->peer.options, (unsigned long long)pair->rows);
    peer_fill(&pair->peer, pair->rows);
    pair->ids = bench_alloc((uint64_t)BATCHES * batch_rows, sizeof(*pair->ids));
    for (uint32_t i = 0; i < BATCHES * batch_rows; i++)
        pair->ids[i] = bench_random(&random) % pair->rows;
    for (uint32_t b = 0; b < BATCHES; b++)
        pair->commands[b] =
            peer_get_command(&pair->peer, pair->ids + (uint64_t)b * batch_rows, batch_rows);
    part = (struct embtier_part){ pair->server.tables[0], batch_rows };
    for (uint32_t i = 0; i < IN_FLIGHT; i++) {
        pair->batches[i] = bench_batch(&pair->server, &part, 1);
        memset(embtier_batch_rows(pair->batches[i], 0), 0, batch_rows * ROW_BYTES);
    }
    pair->buffer = bench_pages(batch_rows * ROW_BYTES);
}

static void clear(struct pair *pair)
{
    bench_server_done(&pair->server);
    peer_stop(&pair->peer);
    for (uint32_t b = 0; b < BATCHES; b++)
        free(pair->commands[b].bytes);
    bench_latencies_free(&pair->latencies);
    free(pair->ids);
    free(pair);
}

static void begin(void *context, uint32_t slot)
{
    struct pair *const pair = context;

    memcpy(embtier_batch_ids(pair->batches[slot], 0),
           pair->ids + (uint64_t)(pair->next++ % BATCHES) * pair->batch_rows,
           pair->batch_rows * sizeof(uint64_t));
    bench_submit(pair->batches[slot], EMBTIER_GET);
}

static void end(void *context, uint32_t slot)
{
    struct pair *const pair = context;

    bench_wait(pair->batches[slot]);
    pair->asked += pair->batch_rows;
    pair->hits += embtier_batch_hit_rows(pair->batches[slot]);
}

static void peer_begin(void *context, uint32_t slot)
{
    struct pair *const pair = context;

    pair->sent[slot] = &pair->commands[pair->next++ % BATCHES];
    peer_send(&pair->peer, pair->sent[slot]);
}

static void peer_end(void *context, uint32_t slot)
{
    struct pair *const pair = context;

    peer_receive(&pair->peer, pair->sent[slot], pair->buffer);
}

static double our_rate(void *context)
{
    const struct pair *const pair = context;

    return pair->batch_rows *
           bench_pipeline(IN_FLIGHT, bench_settings.seconds, begin, end, context);
}

static double peer_rate(void *context)
{
    const struct pair *const pair = context;

    return pair->batch_rows *
           bench_pipeline(IN_FLIGHT, bench_settings.seconds, peer_begin, peer_end, context);
}

/* ---- Latency ---- */

static uint64_t get(void *context)
{
    const struct pair *const pair = context;

    begin(context, 0);
    end(context, 0);
    return pair->batch_rows;
}

static uint64_t peer_get(void *context)
{
    const struct pair *const pair = context;

    peer_begin(context, 0);
    peer_end(context, 0);
    return pair->batch_rows;
}

static double our_latency(void *context)
{
    struct pair *const pair = context;

    return bench_latency(&pair->latencies, 0, get, pair);
}

static double peer_latency(void *context)
{
    struct pair *const pair = context;

    return bench_latency(&pair->latencies, 1, peer_get, pair);
}

static void say_more(void *context, json_t *figure)
{
    const struct pair *const pair = context;

    json_object_set_new(figure, "hit_rate", json_real((double)pair->hits / (double)pair->asked));
    json_object_set_new(figure, "batch_rows", json_integer(pair->batch_rows));
    if (pair->latencies.count[0] > 0)
        bench_add_tails(&pair->latencies, figure);
}

static void run(struct bench_figure figure, enum peer_kind kind, uint32_t batch_rows,
                bench_side *ours, bench_side *reference)
{
    struct pair *const pair = bench_alloc(1, sizeof(*pair));

    set_up(pair, kind, batch_rows);
    figure.reference_options = pair->peer.options;
    bench_compare(&figure, ours, reference, pair, say_more);
    clear(pair);
}

static void vs_redis(void)
{
    run((struct bench_figure){ .name = "hot-get-vs-redis",
                               .unit = "rows/s",
                               .bar = 8,
                               .limit = "memory latency of one core; the reference: system calls",
                               .reference_name = "Redis, MGET of 4,096" },
        PEER_REDIS, 4096, our_rate, peer_rate);
}

static void vs_memcached(void)
{
    run((struct bench_figure){ .name = "hot-get-vs-memcached",
                               .unit = "rows/s",
                               .bar = 7,
                               .limit = "memory latency of one core; the reference: system calls",
                               .reference_name = "memcached, get of 1,000" },
        PEER_MEMCACHED, 1000, our_rate, peer_rate);
}

static void small_get(void)
{
    run((struct bench_figure){ .name = "small-get",
                               .unit = "us",
                               .lower_is_better = true,
                               .bar = 0.3,
                               .limit = "two handovers between cores, 32 memory latencies",
                               .reference_name = "Redis, MGET of 32" },
        PEER_REDIS, 32, our_latency, peer_latency);
}

int main(int argc, char **argv)
{
    const struct bench_entry entries[] = {
        { "hot-get-vs-redis", vs_redis },
        { "hot-get-vs-memcached", vs_memcached },
        { "small-get", small_get },
    };

    return bench_main(argc, argv, entries, ARRAY_LEN(entries));
}
