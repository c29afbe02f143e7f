/* SPDX-License-Identifier: Apache-2.0 */
/* bench_tls.c: rows of 512 bytes over loopback TCP with TLS. All rows are in memory.
 *
 * tls-get     rows/s with TLS, batches of 4,096, 4 connections, compared with plain TCP
 * tls-churn   rows/s of plain clients while 160 new TLS connections a second shake hands, compared
 *             with the same without them
 *
 * Processor time, of clients and server together, is given as cycles a byte of rows. The new
 * connections' clients are in this process, so their half of the handshakes costs the same
 * processors; the figure has the time of that half. */
#include <errno.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/net/address.h"
#include "base/tls/tls_context.h"
#include "base/tls/tls_stream.h"
#include "client/transport/connect.h"
#include "client/transport/rpc/wire.h"
#include "tests/bench/lib/bench_server.h"

#define DIM         128
#define ROW_BYTES   (DIM * sizeof(float))
#define BATCH_ROWS  4096
#define CONNECTIONS 4
#define ARENA_BYTES (8 * MIB)
#define CHURN_PER_S 160
#define NS_PER_S    1000000000L
#define DEADLINE_NS UINT64_MAX

struct side {
    struct embtier *connection;
    struct embtier_table *table;
    struct embtier_batch *batch;
    uint64_t rows, random;
};

/* Clients that do the same over one kind of connection. */
struct team {
    struct side sides[CONNECTIONS];
    double processor_s, bytes; /* in all turns */
};

struct churn {
    struct address address;
    const char *text;
    pthread_t thread;
    _Atomic bool is_over;
    uint64_t count;
    double processor_s; /* of the clients' half */
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

static double rate(struct pair *pair, struct team *team)
{
    const double before_s = bench_server_processor_s(&pair->server) + own_processor_s();
    const double began = bench_now();
    const double rows_a_second = bench_threads(CONNECTIONS, bench_settings.seconds, get,
                                               team->sides, sizeof(team->sides[0]));

    team->bytes += rows_a_second * (bench_now() - began) * ROW_BYTES;
    team->processor_s += bench_server_processor_s(&pair->server) + own_processor_s() - before_s;
    return rows_a_second;
}

static double secure_rate(void *context)
{
    struct pair *const pair = context;

    return rate(pair, &pair->secure);
}

static double plain_rate(void *context)
{
    struct pair *const pair = context;

    return rate(pair, &pair->plain);
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
                        json_real(pair->secure.processor_s / pair->secure.bytes * hz));
    json_object_set_new(figure, "reference_cycles_a_byte",
                        json_real(pair->plain.processor_s / pair->plain.bytes * hz));
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

/* Connects, shakes hands and closes. */
static void connect_once(const struct churn *churn)
{
    struct err_msg msg = { { 0 } };
    struct wire wire;
    int fd;

    if (connect_stream(&churn->address, churn->text, DEADLINE_NS, &fd, &msg) != EMBTIER_OK ||
        wire_open(&wire, fd, &churn->address, churn->text, DEADLINE_NS, &msg) != EMBTIER_OK)
        bench_die("%s", msg.text);
    wire_close(&wire);
}

static void *churn_main(void *context)
{
    struct churn *const churn = context;
    struct timespec next, used;

    clock_gettime(CLOCK_MONOTONIC, &next);
    while (!atomic_load(&churn->is_over)) {
        connect_once(churn);
        churn->count++;
        next.tv_nsec += NS_PER_S / CHURN_PER_S;
        if (next.tv_nsec >= NS_PER_S) {
            next.tv_nsec -= NS_PER_S;
            next.tv_sec++;
        }
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    churn->processor_s += (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
    return NULL;
}

static double rate_in_churn(void *context)
{
    struct pair *const pair = context;
    struct churn *const churn = &pair->churn;
    double rows_a_second;

    atomic_store(&churn->is_over, false);
    if (pthread_create(&churn->thread, NULL, churn_main, churn) != 0)
        bench_die("cannot start a thread");
    rows_a_second = rate(pair, &pair->plain);
    atomic_store(&churn->is_over, true);
    pthread_join(churn->thread, NULL);
    return rows_a_second;
}

static void add_churn(void *context, json_t *figure)
{
    const struct pair *const pair = context;

    json_object_set_new(figure, "connections", json_integer((json_int_t)pair->churn.count));
    json_object_set_new(figure, "client_us_a_connection",
                        json_real(pair->churn.processor_s / (double)pair->churn.count * 1e6));
}

static void tls_churn(void)
{
    struct pair *const pair = set_up();
    struct err_msg msg = { { 0 } };

    pair->churn.text = pair->server.tls_address;
    if (address_parse(pair->churn.text, &pair->churn.address, &msg) != EMBTIER_OK)
        bench_die("%s", msg.text);
    bench_compare(&(struct bench_figure){ .name = "tls-churn",
                                          .unit = "rows/s",
                                          .bar = 0.94,
                                          .limit = "signatures, of both sides on the same cores",
                                          .reference_name = "without new connections",
                                          .reference_options = "4 plain connections" },
                  rate_in_churn, plain_rate, pair, add_churn);
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
