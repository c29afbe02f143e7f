/* SPDX-License-Identifier: Apache-2.0 */
/* bench_abuse.c: the service that a good client gets while a bad one abuses.
 *
 * abuse-mute            100 connections that say nothing, 100 with half a frame
 * abuse-garbage         connections that send garbage, one after the other without pause
 * abuse-unread          one that asks for status and tables and never reads
 * abuse-flood           one with 1,024 requests in flight, of one row and of very many; its
 *                       memory has been touched before, since the system clears pages on the
 *                       lane's time
 * abuse-status          one that asks for the status without pause
 * abuse-connects        1,000 connects a second
 * abuse-connects-hello  1,000 connects a second that say hello and get shared memory
 * abuse-segments        20 sessions that ask for 16 rows 65,536 times in each request
 * abuse-segments-100    100 of them
 * abuse-million         one that asks for a million rows in each request; the good client asks
 *                       for 16 rows, one request after the other, and must keep half of its rate
 *
 * Ours is the good client's rate with the abuser, the reference its rate alone, in turn. The
 * good client asks for 4,096 cached rows every millisecond, one request at a time. This is less
 * than its fair share with one other client, so every loss is the server's fault.
 * `demand_share` is its part of a lane's rate. A request counts when its answer comes within 10
 * ms of its due time; a late request delays the next. `p99_us` is the 99th percentile of the
 * time from due to answered. `control_p99_us` is that of opening a table, every 5 ms on a
 * connection of its own.
 *
 * The client of figures called -full-speed, which have no bar, always keeps two requests in
 * flight. On two cores lane and client then have no core to spare, so every moment that the
 * server spends on the abuser shows. There is none for abusers that may have their half of the
 * lane, such as the flood. An abuser's own computing is kept out of all figures (abusers.h).
 * Other work on the machine is not, and shows first in the percentiles: during the flood the
 * lane is never idle, so it waits for a processor like any thread.
 *
 * When an abuser has been killed, the server must have freed all it held within a second, or the
 * benchmark ends. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/lib/table.h"
#include "tests/bench/lib/abusers.h"
#include "tests/bench/lib/bench_server.h"

#define DIM          64
#define BATCH_ROWS   4096
#define BATCHES      64 /* batches of ids, used round and round */
#define LOOP_ROWS    16
#define IN_FLIGHT    2 /* at full speed */
#define PERIOD_S     0.001
#define IN_TIME_S    0.01
#define OPEN_S       0.005
#define FREE_S       1.0
#define SAMPLES_MAX  (UINT32_C(1) << 20)
#define TABLE_ROWS   (UINT64_C(256) << 10)
#define LISTED_COUNT 32 /* so that the list of tables is not short */

struct samples {
    double *seconds;
    uint32_t count;
};

struct abuse {
    struct bench_server server;
    struct embtier *control; /* the connection on which tables are opened */
    struct abuser_place place;
    enum abuser_kind kind;
    struct embtier_batch *batches[IN_FLIGHT];
    uint64_t *ids;
    uint32_t next; /* the next batch of ids */
    uint32_t batch_rows;
    uint32_t in_flight; /* requests, at full speed */
    bool full_speed;
    bool abused; /* in the present turn */
    struct samples answers[2], opens[2];
    _Atomic bool stop_opening;
    double acts, acted_seconds;
    double full_rate, rate; /* requests a second of a client alone */
};

/* ---- Set-up ---- */

static void set_up(struct abuse *abuse, enum abuser_kind kind, uint32_t batch_rows)
{
    const uint64_t rows = bench_scaled(TABLE_ROWS, 4 * BATCH_ROWS);
    const struct bench_server_shape shape = { .dram_bytes =
                                                  rows * DIM * sizeof(float) * 2 * 2 + 128 * MIB };
    struct embtier_connect_options options = EMBTIER_CONNECT_OPTIONS_INIT;
    struct embtier_part part;
    uint64_t random = 42;

    memset(abuse, 0, sizeof(*abuse));
    abuse->kind = kind;
    abuse->batch_rows = batch_rows;
    abuse->in_flight = IN_FLIGHT;
    bench_server_start(&abuse->server, &shape);
    bench_server_tables(&abuse->server, LISTED_COUNT, rows, DIM);
    abuse->server.table_count = 2; /* the good client's and the abuser's; others are not touched */
    bench_touch_all(&abuse->server, EMBTIER_GET);
    part = (struct embtier_part){ abuse->server.tables[0], batch_rows };
    for (uint32_t i = 0; i < IN_FLIGHT; i++)
        abuse->batches[i] = bench_batch(&abuse->server, &part, 1);
    abuse->ids = bench_alloc((uint64_t)BATCHES * BATCH_ROWS, sizeof(*abuse->ids));
    for (uint32_t i = 0; i < BATCHES * BATCH_ROWS; i++)
        abuse->ids[i] = bench_random(&random) % rows;
    options.socket_path = abuse->server.harness.socket;
    options.arena_bytes = 0;
    if (embtier_connect(&options, &abuse->control) != EMBTIER_OK)
        bench_die("%s", embtier_message(NULL));
    abuse->place = (struct abuser_place){
        .socket = abuse->server.harness.socket,
        .table = abuse->server.tables[1]->handle,
        .row_bytes = DIM * sizeof(float),
        .huge_rows = (uint32_t)rows,
    };
    for (uint32_t i = 0; i < 2; i++) {
        abuse->answers[i].seconds = bench_alloc(SAMPLES_MAX, sizeof(double));
        abuse->opens[i].seconds = bench_alloc(SAMPLES_MAX, sizeof(double));
    }
}

static void clear(struct abuse *abuse)
{
    embtier_disconnect(abuse->control);
    bench_server_done(&abuse->server);
    for (uint32_t i = 0; i < 2; i++) {
        free(abuse->answers[i].seconds);
        free(abuse->opens[i].seconds);
    }
    free(abuse->ids);
    free(abuse);
}

/* ---- The good client ---- */

static void add_sample(struct samples *samples, double seconds)
{
    if (samples->count < SAMPLES_MAX)
        samples->seconds[samples->count++] = seconds;
}

static void sleep_until(double due)
{
    struct timespec time = { .tv_sec = (time_t)due };

    time.tv_nsec = (long)((due - (double)time.tv_sec) * 1e9);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

static void begin(void *context, uint32_t slot)
{
    struct abuse *const abuse = context;

    memcpy(embtier_batch_ids(abuse->batches[slot], 0),
           abuse->ids + (uint64_t)(abuse->next++ % BATCHES) * BATCH_ROWS,
           abuse->batch_rows * sizeof(*abuse->ids));
    bench_submit(abuse->batches[slot], EMBTIER_GET);
}

static void end(void *context, uint32_t slot)
{
    const struct abuse *const abuse = context;

    bench_wait(abuse->batches[slot]);
}

static double steady(struct abuse *abuse)
{
    const double began = bench_now();
    const uint64_t wanted = (uint64_t)(bench_settings.seconds / PERIOD_S);
    uint64_t answered = 0;
    uint64_t in_time = 0;

    for (; answered < wanted && bench_now() - began < bench_settings.seconds; answered++) {
        const double due = began + (double)answered * PERIOD_S;
        double late;

        sleep_until(due);
        begin(abuse, 0);
        end(abuse, 0);
        late = bench_now() - due;
        in_time += late <= IN_TIME_S;
        add_sample(&abuse->answers[abuse->abused], late);
    }
    return (double)in_time / bench_settings.seconds;
}

static void *open_tables(void *context)
{
    struct abuse *const abuse = context;

    for (double due = bench_now(); !atomic_load(&abuse->stop_opening); due += OPEN_S) {
        struct embtier_table *table;

        sleep_until(due);
        if (embtier_table_open(abuse->control, "t0", &table) != EMBTIER_OK)
            bench_die("open: %s", embtier_message(abuse->control));
        embtier_table_close(table);
        add_sample(&abuse->opens[abuse->abused], bench_now() - due);
    }
    return NULL;
}

static double good_client(struct abuse *abuse)
{
    pthread_t opener;
    double rate;

    if (abuse->full_speed)
        return bench_pipeline(abuse->in_flight, bench_settings.seconds, begin, end, abuse);
    atomic_store(&abuse->stop_opening, false);
    if (pthread_create(&opener, NULL, open_tables, abuse) != 0)
        bench_die("cannot start a thread");
    rate = steady(abuse);
    atomic_store(&abuse->stop_opening, true);
    pthread_join(opener, NULL);
    return rate;
}

/* ---- With and without ---- */

static void wait_until_free(struct abuse *abuse, double sessions, double arena_bytes)
{
    const double began = bench_now();

    while (bench_metric(&abuse->server, "sessions", NULL) > sessions ||
           bench_metric(&abuse->server, "session_arena_bytes", NULL) > arena_bytes) {
        if (bench_now() - began > FREE_S)
            bench_die("what a dead client held is not free after a second");
        nanosleep(&(struct timespec){ .tv_nsec = 1000000L }, NULL);
    }
}

static double with_abuser(void *context)
{
    struct abuse *const abuse = context;
    const double sessions = bench_metric(&abuse->server, "sessions", NULL);
    const double arena_bytes = bench_metric(&abuse->server, "session_arena_bytes", NULL);
    struct abuser abuser = abuser_start(abuse->kind, &abuse->place);
    const double began = bench_now();
    double rate;

    abuse->abused = true;
    rate = good_client(abuse);
    abuse->acted_seconds += bench_now() - began;
    abuse->acts += (double)abuser_stop(&abuser);
    wait_until_free(abuse, sessions, arena_bytes);
    return rate;
}

static double alone(void *context)
{
    struct abuse *const abuse = context;

    abuse->abused = false;
    return good_client(abuse);
}

static void add_quantile(json_t *figure, const char *name, const struct samples *samples)
{
    if (samples->count > 0)
        json_object_set_new(figure, name,
                            json_real(1e6 * bench_quantile(samples->seconds, samples->count, .99)));
}

static void say_more(void *context, json_t *figure)
{
    struct abuse *const abuse = context;

    add_quantile(figure, "p99_us", &abuse->answers[1]);
    add_quantile(figure, "reference_p99_us", &abuse->answers[0]);
    add_quantile(figure, "control_p99_us", &abuse->opens[1]);
    add_quantile(figure, "reference_control_p99_us", &abuse->opens[0]);
    json_object_set_new(figure, "abuser_acts_per_second",
                        json_real(abuse->acts / abuse->acted_seconds));
    if (!abuse->full_speed)
        json_object_set_new(figure, "demand_share", json_real(1 / PERIOD_S / abuse->full_rate));
}

static void run(const char *name, enum abuser_kind kind, bool shares_lane)
{
    struct abuse *const abuse = bench_alloc(1, sizeof(*abuse));
    char full_name[64];
    struct bench_figure figure = {
        .name = name,
        .unit = "requests/s",
        .bar = 0.9,
        .limit = "the good client's demand, 1,000 requests a second",
        .reference_name = "the same client with no abuser",
        .reference_options = "4,096 cached rows every ms, 1 lane",
    };

    set_up(abuse, kind, BATCH_ROWS);
    abuse->full_speed = true;
    abuse->full_rate = alone(abuse);
    abuse->full_speed = false;
    bench_compare(&figure, with_abuser, alone, abuse, say_more);
    if (!shares_lane) {
        snprintf(full_name, sizeof(full_name), "%s-full-speed", name);
        figure.name = full_name;
        figure.bar = 0;
        figure.limit = "memory latency and bandwidth of one core, and on two cores the processor";
        figure.reference_options = "2 requests of 4,096 cached rows in flight, 1 lane";
        abuse->full_speed = true;
        abuse->acts = abuse->acted_seconds = 0;
        abuse->answers[0].count = abuse->answers[1].count = 0;
        abuse->opens[0].count = abuse->opens[1].count = 0;
        bench_compare(&figure, with_abuser, alone, abuse, say_more);
    }
    clear(abuse);
}

/* Runs the good client in a closed loop, too. */
static void run_loops(const char *name, enum abuser_kind kind)
{
    struct abuse *const abuse = bench_alloc(1, sizeof(*abuse));
    const struct bench_figure figure = {
        .name = name,
        .unit = "requests/s",
        .bar = 0.5,
        .limit = "half of the lane, since the other half is the other client's",
        .reference_name = "the same client with no abuser",
        .reference_options = "one request of 16 cached rows after the other, 1 lane",
    };

    set_up(abuse, kind, LOOP_ROWS);
    abuse->full_speed = true;
    abuse->in_flight = 1;
    bench_compare(&figure, with_abuser, alone, abuse, say_more);
    clear(abuse);
}

static void mute(void)
{
    run("abuse-mute", ABUSER_MUTE, false);
}

static void garbage(void)
{
    run("abuse-garbage", ABUSER_GARBAGE, false);
}

static void unread(void)
{
    run("abuse-unread", ABUSER_UNREAD, false);
}

static void flood(void)
{
    run("abuse-flood", ABUSER_FLOOD, true);
}

static void status(void)
{
    run("abuse-status", ABUSER_STATUS, false);
}

static void connects(void)
{
    run("abuse-connects", ABUSER_CONNECTS, false);
}

static void connects_hello(void)
{
    run("abuse-connects-hello", ABUSER_CONNECTS_HELLO, false);
}

static void segments(void)
{
    run("abuse-segments", ABUSER_SEGMENTS, true);
}

static void segments_100(void)
{
    run("abuse-segments-100", ABUSER_SEGMENTS_100, true);
}

static void million(void)
{
    run_loops("abuse-million", ABUSER_MILLION);
}

int main(int argc, char **argv)
{
    const struct bench_entry entries[] = {
        { "abuse-mute", mute },
        { "abuse-garbage", garbage },
        { "abuse-unread", unread },
        { "abuse-flood", flood },
        { "abuse-status", status },
        { "abuse-connects", connects },
        { "abuse-connects-hello", connects_hello },
        { "abuse-segments", segments },
        { "abuse-segments-100", segments_100 },
        { "abuse-million", million },
    };

    return bench_main(argc, argv, entries, ARRAY_LEN(entries));
}
