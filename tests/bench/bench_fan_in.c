/* SPDX-License-Identifier: Apache-2.0 */
/* bench_fan_in.c: rows of 512 bytes over TCP, from one server to few clients and to many.
 *
 * fan-in   rows/s of 8 clients and of 64, compared with one
 *
 * The figures also have the server's processor time for each row.
 *
 * A client is a thread with a connection of its own. All clients together have 64 batches of 512
 * rows in flight, so that the server has the same work whatever their number. All rows are in
 * memory. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/lib/bench_server.h"

#define DIM         128
#define ROW_BYTES   (DIM * sizeof(float))
#define BATCH_ROWS  512
#define IN_FLIGHT   64        /* batches of all clients */
#define ARENA_BYTES (MIB / 2) /* for each batch */

struct client {
    struct embtier *connection;
    struct embtier_batch *batches[IN_FLIGHT];
    uint32_t batch_count, begun, oldest;
    uint64_t rows, random;
};

struct fan {
    struct client *clients;
    uint32_t count;
    double server_s, rows; /* the server's processor time in all turns, and their rows */
};

struct pair {
    struct bench_server server;
    uint64_t rows;
    struct fan one, many;
};

/* ---- Set-up ---- */

static void make_batch(struct client *client, uint32_t index)
{
    struct embtier_part part = { .count = BATCH_ROWS };

    if (embtier_table_open(client->connection, "t0", &part.table) != EMBTIER_OK ||
        embtier_batch_new(client->connection, &part, 1, &client->batches[index]) != EMBTIER_OK)
        bench_die("%s", embtier_message(client->connection));
}

static struct fan make_fan(const struct pair *pair, uint32_t count)
{
    struct fan fan = { .clients = bench_alloc(count, sizeof(*fan.clients)), .count = count };

    for (uint32_t i = 0; i < count; i++) {
        struct client *const client = &fan.clients[i];

        client->batch_count = IN_FLIGHT / count;
        client->rows = pair->rows;
        client->random = 42 + i;
        client->connection =
            bench_server_connect(&pair->server, BENCH_TCP, client->batch_count * ARENA_BYTES);
        for (uint32_t k = 0; k < client->batch_count; k++)
            make_batch(client, k);
    }
    return fan;
}

static void end_fan(struct fan *fan)
{
    for (uint32_t i = 0; i < fan->count; i++)
        embtier_disconnect(fan->clients[i].connection);
    free(fan->clients);
}

static struct pair *set_up(void)
{
    struct pair *const pair = bench_alloc(1, sizeof(*pair));
    struct bench_server_shape shape = { .listens = true };

    pair->rows = bench_scaled(2000000, 50000);
    shape.dram_bytes = pair->rows * (ROW_BYTES + 100) + 64 * MIB;
    bench_server_start(&pair->server, &shape);
    bench_server_tables(&pair->server, 1, pair->rows, DIM);
    bench_touch_all(&pair->server, EMBTIER_GET);
    pair->one = make_fan(pair, 1);
    return pair;
}

static void clear(struct pair *pair)
{
    end_fan(&pair->one);
    bench_server_done(&pair->server);
    free(pair);
}

/* ---- Requests ---- */

static void submit(struct client *client, struct embtier_batch *batch)
{
    uint64_t *const ids = embtier_batch_ids(batch, 0);

    for (uint32_t i = 0; i < BATCH_ROWS; i++)
        ids[i] = bench_random(&client->random) % client->rows;
    bench_submit(batch, EMBTIER_GET);
}

/* Waits for the oldest batch, and begins it again. */
static uint64_t step(void *context)
{
    struct client *const client = context;
    struct embtier_batch *const batch = client->batches[client->oldest];

    while (client->begun < client->batch_count)
        submit(client, client->batches[client->begun++]);
    bench_wait(batch);
    submit(client, batch);
    client->oldest = (client->oldest + 1) % client->batch_count;
    return BATCH_ROWS;
}

/* Leaves the server without work of this side in the turn of the other. */
static void drain(struct fan *fan)
{
    for (uint32_t i = 0; i < fan->count; i++) {
        struct client *const client = &fan->clients[i];

        for (uint32_t k = 0; k < client->begun; k++)
            bench_wait(client->batches[k]);
        client->begun = client->oldest = 0;
    }
}

static double rate(struct pair *pair, struct fan *fan)
{
    const double before_s = bench_server_processor_s(&pair->server), began = bench_now();
    const double rows_a_second = bench_threads(fan->count, bench_settings.seconds, step,
                                               fan->clients, sizeof(fan->clients[0]));

    fan->rows += rows_a_second * (bench_now() - began);
    fan->server_s += bench_server_processor_s(&pair->server) - before_s;
    drain(fan);
    return rows_a_second;
}

static double rate_of_many(void *context)
{
    struct pair *const pair = context;

    return rate(pair, &pair->many);
}

static double rate_of_one(void *context)
{
    struct pair *const pair = context;

    return rate(pair, &pair->one);
}

static void add_server_time(void *context, json_t *figure)
{
    const struct pair *const pair = context;

    json_object_set_new(figure, "ours_server_ns",
                        json_real(pair->many.server_s / pair->many.rows * 1e9));
    json_object_set_new(figure, "reference_server_ns",
                        json_real(pair->one.server_s / pair->one.rows * 1e9));
}

static void fan_in(void)
{
    struct pair *const pair = set_up();

    for (uint32_t count = 8; count <= IN_FLIGHT; count *= 8) {
        char name[16];

        snprintf(name, sizeof(name), "fan-in-%u", count);
        pair->many = make_fan(pair, count);
        pair->one.server_s = pair->one.rows = 0;
        bench_compare(&(struct bench_figure){ .name = name,
                                              .unit = "rows/s",
                                              .bar = 0.9,
                                              .limit = "copies into and out of the kernel",
                                              .reference_name = "one client",
                                              .reference_options =
                                                  "64 batches of 512 rows in flight in all" },
                      rate_of_many, rate_of_one, pair, add_server_time);
        end_fan(&pair->many);
    }
    clear(pair);
}

int main(int argc, char **argv)
{
    const struct bench_entry entries[] = {
        { "fan-in", fan_in },
    };

    return bench_main(argc, argv, entries, ARRAY_LEN(entries));
}
