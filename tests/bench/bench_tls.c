/* SPDX-License-Identifier: Apache-2.0 */
/* bench_tls.c: rows of 512 bytes over loopback TCP with TLS. All rows are in memory.
 *
 * tls-get     rows/s with TLS, batches of 4,096, 4 connections, compared with plain TCP
 * tls-churn   rows/s of plain clients while 160 new TLS connections a second shake hands, compared
 *             with the same without them
 *
 * Processor time, of clients and server together, is given as cycles a byte of rows. The new
 * connections' clients are in this process, so their half of the handshakes costs the same
 * processors; the figure has the time of that half, and the processor time of rows without it. They
 * read their certificates once, as each would on a machine of its own. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "tests/bench/lib/bench_server.h"
#include "tests/bench/lib/bench_stream.h"

#define DIM         128
#define ROW_BYTES   (DIM * sizeof(float))
#define BATCH_ROWS  4096
#define CONNECTIONS 4
#define ARENA_BYTES (8 * MIB)
#define CHURN_PER_S 160
#define CONNECTORS  4 /* threads: so many handshakes at a time, as each may take a while */
#define NS_PER_S    1000000000L

struct side {
    struct embtier *connection;
    struct embtier_table *table;
    struct embtier_batch *batch;
    uint64_t rows, random;
};

/* Sums of all turns; the processor time is that of server and clients together. */
struct spent {
    double processor_s, bytes;
};

/* Clients that do the same over one kind of connection. */
struct team {
    struct side sides[CONNECTIONS];
    struct spent spent;
};

struct churn {
    struct bench_target target;
    pthread_t threads[CONNECTORS];
    _Atomic bool is_over;
    _Atomic uint64_t count, processor_ns; /* of the clients' half */
    double seconds;
    struct spent spent; /* of the turns with new connections, the clients' half included */
};

struct pair {
    struct bench_server server;
    uint64_t rows;
    struct team secure, plain;
    struct churn churn;
    bool has_churn;
};

/* ---- Set-up ---- */

static void connect_team(struct pair *pair, struct team *team, enum bench_wire wire)
{
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        struct side *const side = &team->sides[i];
        struct embtier_part part = { .count = BATCH_ROWS };

        side->rows = pair->rows;
        side->random = 42 + i;
        side->connection = bench_server_connect(&pair->server, wire, ARENA_BYTES);
        if (embtier_table_open(side->connection, "t0", &part.table) != EMBTIER_OK ||
            embtier_batch_new(side->connection, &part, 1, &side->batch) != EMBTIER_OK)
            bench_die("%s", embtier_message(side->connection));
    }
}

static struct pair *set_up(void)
{
    struct pair *const pair = bench_alloc(1, sizeof(*pair));
    struct bench_server_shape shape = { .listens = true, .has_tls = true };

    pair->rows = bench_scaled(2000000, 50000);
    shape.dram_bytes = pair->rows * (ROW_BYTES + 100) + 64 * MIB;
    bench_server_start(&pair->server, &shape);
    bench_server_tables(&pair->server, 1, pair->rows, DIM);
    bench_touch_all(&pair->server, EMBTIER_GET);
    connect_team(pair, &pair->plain, BENCH_TCP);
    return pair;
}

static void leave(struct team *team)
{
    for (uint32_t i = 0; i < CONNECTIONS; i++)
        embtier_disconnect(team->sides[i].connection);
}

static void clear(struct pair *pair)
{
    leave(&pair->plain);
    leave(&pair->secure);
    bench_server_done(&pair->server);
    free(pair);
}

/* ---- Rows ---- */

static uint64_t get(void *context)
{
    struct side *const side = context;
    uint64_t *const ids = embtier_batch_ids(side->batch, 0);

    for (uint32_t i = 0; i < BATCH_ROWS; i++)
        ids[i] = bench_random(&side->random) % side->rows;
    if (embtier_get(side->batch) != EMBTIER_OK)
        bench_die("%s", embtier_message(side->connection));
    return BATCH_ROWS;
}

static double own_processor_s(void)
{
    struct timespec used;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

static double rate(struct pair *pair, struct team *team, struct spent *spent)
{
    const double before_s = bench_server_processor_s(&pair->server) + own_processor_s();
    const double began = bench_now();
    const double rows_a_second = bench_threads(CONNECTIONS, bench_settings.seconds, get,
                                               team->sides, sizeof(team->sides[0]));

    spent->bytes += rows_a_second * (bench_now() - began) * ROW_BYTES;
    spent->processor_s += bench_server_processor_s(&pair->server) + own_processor_s() - before_s;
    return rows_a_second;
}

static double secure_rate(void *context)
{
    struct pair *const pair = context;

    return rate(pair, &pair->secure, &pair->secure.spent);
}

static double plain_rate(void *context)
{
    struct pair *const pair = context;

    return rate(pair, &pair->plain, &pair->plain.spent);
}

/* The clock of the first processor as the system tells it; 0: it does not. */
static double cycles_a_second(void)
{
    FILE *const file = fopen("/proc/cpuinfo", "re");
    char line[256];
    double mhz = 0;

    while (file && mhz == 0 && fgets(line, sizeof(line), file))
        (void)sscanf(line, "cpu MHz : %lf", &mhz); // NOLINT(cert-err34-c)
    if (file)
        (void)fclose(file);
    return mhz * 1e6;
}

static void add_cycles(void *context, json_t *figure)
{
    const struct pair *const pair = context;
    const double hz = cycles_a_second();

    json_object_set_new(figure, "ours_cycles_a_byte",
                        json_real(pair->secure.spent.processor_s / pair->secure.spent.bytes * hz));
    json_object_set_new(figure, "reference_cycles_a_byte",
                        json_real(pair->plain.spent.processor_s / pair->plain.spent.bytes * hz));
}

static void tls_get(void)
{
    struct pair *const pair = set_up();

    connect_team(pair, &pair->secure, BENCH_TLS);
    bench_compare(&(struct bench_figure){ .name = "tls-get",
                                          .unit = "rows/s",
                                          .bar = 0.5,
                                          .limit = "AES-GCM, on both sides",
                                          .reference_name = "plain TCP",
                                          .reference_options = "4 connections, batches of 4,096" },
                  secure_rate, plain_rate, pair, add_cycles);
    clear(pair);
}

/* ---- New connections ---- */

static void *churn_main(void *context)
{
    struct churn *const churn = context;
    struct timespec next, used;

    clock_gettime(CLOCK_MONOTONIC, &next);
    while (!atomic_load(&churn->is_over)) {
        bench_stream_free(bench_stream_new(&churn->target));
        atomic_fetch_add(&churn->count, 1);
        next.tv_nsec += NS_PER_S / CHURN_PER_S * CONNECTORS;
        if (next.tv_nsec >= NS_PER_S) {
            next.tv_nsec -= NS_PER_S;
            next.tv_sec++;
        }
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    atomic_fetch_add(&churn->processor_ns, (uint64_t)(used.tv_sec * NS_PER_S + used.tv_nsec));
    return NULL;
}

static double rate_in_churn(void *context)
{
    struct pair *const pair = context;
    struct churn *const churn = &pair->churn;
    const double began = bench_now();
    double rows_a_second;

    atomic_store(&churn->is_over, false);
    for (uint32_t i = 0; i < CONNECTORS; i++)
        if (pthread_create(&churn->threads[i], NULL, churn_main, churn) != 0)
            bench_die("cannot start a thread");
    rows_a_second = rate(pair, &pair->plain, &churn->spent);
    atomic_store(&churn->is_over, true);
    for (uint32_t i = 0; i < CONNECTORS; i++)
        pthread_join(churn->threads[i], NULL);
    churn->seconds += bench_now() - began;
    return rows_a_second;
}

static double ns_a_row(double processor_s, double bytes)
{
    return processor_s / bytes * ROW_BYTES * 1e9;
}

static void add_churn(void *context, json_t *figure)
{
    const struct pair *const pair = context;
    const struct churn *const churn = &pair->churn;
    const double clients_s = (double)churn->processor_ns * 1e-9;
    const double others_s = churn->spent.processor_s - clients_s;

    json_object_set_new(figure, "connections_a_second",
                        json_real((double)churn->count / churn->seconds));
    json_object_set_new(figure, "client_us_a_connection",
                        json_real(clients_s / (double)churn->count * 1e6));
    json_object_set_new(figure, "ours_ns_a_row", json_real(ns_a_row(others_s, churn->spent.bytes)));
    json_object_set_new(
        figure, "reference_ns_a_row",
        json_real(ns_a_row(pair->plain.spent.processor_s, pair->plain.spent.bytes)));
}

static void tls_churn(void)
{
    struct pair *const pair = set_up();

    bench_target_init(&pair->churn.target, pair->server.tls_address);
    bench_compare(&(struct bench_figure){ .name = "tls-churn",
                                          .unit = "rows/s",
                                          .bar = 0.94,
                                          .limit = "signatures, of both sides on the same cores",
                                          .reference_name = "without new connections",
                                          .reference_options = "4 plain connections" },
                  rate_in_churn, plain_rate, pair, add_churn);
    bench_target_done(&pair->churn.target);
    clear(pair);
}

int main(int argc, char **argv)
{
    const struct bench_entry entries[] = {
        { "tls-get", tls_get },
        { "tls-churn", tls_churn },
    };

    return bench_main(argc, argv, entries, ARRAY_LEN(entries));
}
