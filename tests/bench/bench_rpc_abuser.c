/* SPDX-License-Identifier: Apache-2.0 */
/* bench_rpc_abuser.c: the service that nine good clients over TCP or TLS get beside one abuser
 * (lib/rpc_abusers.h).
 *
 * rpc-abuser-KIND             each good client asks for 256 cached rows every 5 ms, one request at
 *                             a time. A request counts when its answer comes within 10 ms of its
 *                             due time; a late one delays the next. Together they ask for less
 *                             than their fair share, so every loss is the server's fault
 * rpc-abuser-KIND-full-speed  each has one request in flight all the time. A tenth of the server is
 *                             the abuser's fair share. On two cores the processor is the limit, and
 *                             the figure has no bar
 *
 * Good clients and abuser connect as EMBTIER_BENCH_TLS says (lib/bench_server.h). With the KIND
 * `handshakes` they always have TLS.
 *
 * Ours is the rate of all nine with the abuser, the reference without, in turn. The abuser's own
 * computing is kept out of the figures (abusers.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/lib/table.h"
#include "tests/bench/lib/bench_server.h"
#include "tests/bench/lib/rpc_abusers.h"

#define GOOD        9
#define DIM         64
#define ROW_BYTES   (DIM * sizeof(float))
#define BATCH_ROWS  256
#define BATCHES     64 /* batches of ids, used round and round */
#define ARENA_BYTES MIB
#define PERIOD_S    0.005
#define IN_TIME_S   0.01

struct good {
    struct abused *abused;
    struct embtier *connection;
    struct embtier_table *table;
    struct embtier_batch *batch;
    uint32_t next; /* the next batch of ids */
    uint64_t in_time;
};

struct abused {
    struct bench_server server;
    enum bench_wire wire;
    struct bench_target target;
    struct rpc_abuser_place place;
    enum rpc_abuser_kind kind;
    struct good good[GOOD];
    uint64_t *ids;
    bool is_full_speed;
    double acts, acted_seconds;
};

/* ---- Set-up ---- */

static void connect_good(struct abused *abused, uint32_t index)
{
    struct good *const good = &abused->good[index];
    struct embtier_part part = { .count = BATCH_ROWS };

    good->abused = abused;
    good->next = index * BATCHES / GOOD;
    good->connection = bench_server_connect(&abused->server, abused->wire, ARENA_BYTES);
    if (embtier_table_open(good->connection, "t0", &good->table) != EMBTIER_OK)
        bench_die("%s", embtier_message(good->connection));
    part.table = good->table;
    if (embtier_batch_new(good->connection, &part, 1, &good->batch) != EMBTIER_OK)
        bench_die("%s", embtier_message(good->connection));
}

static struct abused *set_up(enum rpc_abuser_kind kind)
{
    struct abused *const abused = bench_alloc(1, sizeof(*abused));
    const uint64_t rows = bench_scaled(64 << 10, 1 << 10);
    const struct bench_server_shape shape = {
        .listens = true,
        .has_tls = kind == RPC_ABUSER_HANDSHAKES,
        .dram_bytes = rows * ROW_BYTES * 2 * 2 + 64 * MIB,
    };
    uint64_t random = 42;

    abused->kind = kind;
    abused->wire = shape.has_tls ? BENCH_TLS : BENCH_TCP;
    abused->ids = bench_alloc(BATCHES * BATCH_ROWS, sizeof(*abused->ids));
    for (uint32_t i = 0; i < BATCHES * BATCH_ROWS; i++)
        abused->ids[i] = bench_random(&random) % rows;
    bench_server_start(&abused->server, &shape);
    bench_server_tables(&abused->server, 2, rows, DIM); /* the good clients' and the abuser's */
    bench_touch_all(&abused->server, EMBTIER_GET);
    for (uint32_t i = 0; i < GOOD; i++)
        connect_good(abused, i);
    bench_target_init(&abused->target,
                      shape.has_tls ? abused->server.tls_address : abused->server.address);
    abused->place = (struct rpc_abuser_place){
        .target = &abused->target,
        .table = abused->server.tables[1]->handle,
        .row_bytes = ROW_BYTES,
        .huge_rows = (uint32_t)rows,
    };
    return abused;
}

static void clear(struct abused *abused)
{
    for (uint32_t i = 0; i < GOOD; i++)
        embtier_disconnect(abused->good[i].connection);
    bench_target_done(&abused->target);
    bench_server_done(&abused->server);
    free(abused->ids);
    free(abused);
}

/* ---- The good clients ---- */

static uint64_t get(void *context)
{
    struct good *const good = context;

    memcpy(embtier_batch_ids(good->batch, 0),
           good->abused->ids + (uint64_t)(good->next++ % BATCHES) * BATCH_ROWS,
           BATCH_ROWS * sizeof(uint64_t));
    if (embtier_get(good->batch) != EMBTIER_OK)
        bench_die("%s", embtier_message(good->connection));
    return 1;
}

static void sleep_until(double due)
{
    struct timespec time = { .tv_sec = (time_t)due };

    time.tv_nsec = (long)((due - (double)time.tv_sec) * 1e9);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

/* One turn of one client. Counts answers that came in time. */
static uint64_t ask_steadily(void *context)
{
    struct good *const good = context;
    const double began = bench_now();
    const uint64_t wanted = MAX((uint64_t)(bench_settings.seconds / PERIOD_S), 1);

    good->in_time = 0;
    for (uint64_t i = 0; i < wanted && bench_now() - began < bench_settings.seconds; i++) {
        const double due = began + (double)i * PERIOD_S;

        sleep_until(due);
        (void)get(good);
        good->in_time += bench_now() - due <= IN_TIME_S;
    }
    sleep_until(began + bench_settings.seconds); /* so that a turn is one step */
    return 1;
}

static double steady(struct abused *abused)
{
    double in_time = 0;

    (void)bench_threads(GOOD, bench_settings.seconds, ask_steadily, abused->good,
                        sizeof(abused->good[0]));
    for (uint32_t i = 0; i < GOOD; i++)
        in_time += (double)abused->good[i].in_time;
    return in_time / bench_settings.seconds;
}

static double alone(void *context)
{
    struct abused *const abused = context;

    if (!abused->is_full_speed)
        return steady(abused);
    return bench_threads(GOOD, bench_settings.seconds, get, abused->good, sizeof(abused->good[0]));
}

static double with_abuser(void *context)
{
    struct abused *const abused = context;
    struct abuser abuser = rpc_abuser_start(abused->kind, &abused->place);
    const double began = bench_now();
    const double rate = alone(abused);

    abused->acted_seconds += bench_now() - began;
    abused->acts += (double)abuser_stop(&abuser);
    return rate;
}

/* ---- Figures ---- */

static void say_more(void *context, json_t *figure)
{
    const struct abused *const abused = context;

    json_object_set_new(figure, "abuser_acts_per_second",
                        json_real(abused->acts / abused->acted_seconds));
}

static void run(const char *name, enum rpc_abuser_kind kind)
{
    struct abused *const abused = set_up(kind);
    const char *const wire = abused->target.context ? "TLS" : "TCP";
    char full_name[64], steady_options[96], full_options[96];
    struct bench_figure figure = {
        .name = name,
        .unit = "requests/s",
        .bar = 0.9,
        .limit = "the good clients' demand, 1,800 requests a second",
        .reference_name = "the same clients with no abuser",
        .reference_options = steady_options,
    };

    snprintf(steady_options, sizeof(steady_options),
             "9 x 256 cached rows every 5 ms over %s, 1 lane", wire);
    snprintf(full_options, sizeof(full_options),
             "9 x 1 request of 256 cached rows in flight over %s, 1 lane", wire);
    bench_compare(&figure, with_abuser, alone, abused, say_more);
    snprintf(full_name, sizeof(full_name), "%s-full-speed", name);
    figure.name = full_name;
    figure.bar = 0;
    figure.limit = "the abuser's fair share, a tenth; on two cores the processor";
    figure.reference_options = full_options;
    abused->is_full_speed = true;
    abused->acts = abused->acted_seconds = 0;
    bench_compare(&figure, with_abuser, alone, abused, say_more);
    clear(abused);
}

static void connects(void)
{
    run("rpc-abuser-connects", RPC_ABUSER_CONNECTS);
}

static void garbage(void)
{
    run("rpc-abuser-garbage", RPC_ABUSER_GARBAGE);
}

static void huge(void)
{
    run("rpc-abuser-huge", RPC_ABUSER_HUGE);
}

static void reads(void)
{
    run("rpc-abuser-reads", RPC_ABUSER_READS);
}

static void unread(void)
{
    run("rpc-abuser-unread", RPC_ABUSER_UNREAD);
}

static void slots(void)
{
    run("rpc-abuser-slots", RPC_ABUSER_SLOTS);
}

static void handshakes(void)
{
    run("rpc-abuser-handshakes", RPC_ABUSER_HANDSHAKES);
}

int main(int argc, char **argv)
{
    const struct bench_entry entries[] = {
        { "rpc-abuser-connects", connects },
        { "rpc-abuser-garbage", garbage },
        { "rpc-abuser-huge", huge },
        { "rpc-abuser-reads", reads },
        { "rpc-abuser-unread", unread },
        { "rpc-abuser-slots", slots },
        { "rpc-abuser-handshakes", handshakes },
    };

    return bench_main(argc, argv, entries, ARRAY_LEN(entries));
}
