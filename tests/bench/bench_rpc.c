/* SPDX-License-Identifier: Apache-2.0 */
/* bench_rpc.c: rows of 512 bytes over loopback TCP, from our server and from Redis. All rows are in
 * memory.
 *
 * rpc-get       rows/s, batches of 4,096 (MGET), 4 connections, each with a thread
 * rpc-limit     the same bytes a second, compared with sends and receives on io_uring alone
 * rpc-latency   microseconds of a batch of 32, one at a time, compared with MGET of 32
 *
 * Each connection has one batch at a time. Redis' commands are made beforehand; ours copies ids in
 * its time. The client of Redis copies every row once more, into a buffer such as our batch has. */
#include <errno.h>
#include <liburing.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/lib/bench_server.h"
#include "tests/bench/lib/peers.h"

#define DIM         128
#define ROW_BYTES   (DIM * sizeof(float))
#define BATCHES     128 /* batches of ids, used round and round */
#define CONNECTIONS 4
#define ARENA_BYTES (8 * MIB)

struct side {
    struct pair *pair;
    struct embtier *connection;
    struct embtier_table *table;
    struct embtier_batch *batch;
    struct peer peer;
    char *buffer;
    uint32_t next; /* the next batch of ids */
};

/* Processor time of all turns of a side, the server's and the clients'. */
struct spent {
    double seconds, rows;
};

struct pair {
    struct bench_server server;
    struct peer peer;
    uint64_t rows;
    uint32_t batch_rows;
    uint64_t *ids; /* BATCHES of batch_rows */
    struct peer_command commands[BATCHES];
    struct side sides[CONNECTIONS];
    bool has_peer;
    struct bench_latencies latencies;
    int raw[CONNECTIONS]; /* the sockets of plain sends and receives */
    struct spent ours, plain;
};

static void start_server(struct pair *pair)
{
    struct bench_server_shape shape = { .listens = true };

    shape.dram_bytes = pair->rows * (ROW_BYTES + 100) + 64 * MIB;
    bench_server_start(&pair->server, &shape);
    bench_server_tables(&pair->server, 1, pair->rows, DIM);
    bench_touch_all(&pair->server, EMBTIER_GET);
}

static void start_peer(struct pair *pair)
{
    peer_start(&pair->peer, PEER_REDIS_TCP, ROW_BYTES, 0);
    bench_say("filling %s with %llu rows", pair->peer.options, (unsigned long long)pair->rows);
    peer_fill(&pair->peer, pair->rows);
    for (uint32_t b = 0; b < BATCHES; b++)
        pair->commands[b] = peer_get_command(
            &pair->peer, pair->ids + (uint64_t)b * pair->batch_rows, pair->batch_rows);
    pair->has_peer = true;
}

static void connect_side(struct pair *pair, uint32_t index)
{
    struct side *const side = &pair->sides[index];
    struct embtier_part part = { .count = pair->batch_rows };

    side->pair = pair;
    side->next = index * BATCHES / CONNECTIONS;
    side->buffer = bench_pages(pair->batch_rows * ROW_BYTES);
    side->connection = bench_server_connect(&pair->server, BENCH_TCP, ARENA_BYTES);
    if (embtier_table_open(side->connection, "t0", &side->table) != EMBTIER_OK)
        bench_die("%s", embtier_message(side->connection));
    part.table = side->table;
    if (embtier_batch_new(side->connection, &part, 1, &side->batch) != EMBTIER_OK)
        bench_die("%s", embtier_message(side->connection));
    if (pair->has_peer)
        peer_connect(&pair->peer, &side->peer);
}

static struct pair *set_up(uint32_t batch_rows, bool has_peer)
{
    struct pair *const pair = bench_alloc(1, sizeof(*pair));
    uint64_t random = 42;

    pair->rows = bench_scaled(2000000, 50000);
    pair->batch_rows = batch_rows;
    pair->ids = bench_alloc((uint64_t)BATCHES * batch_rows, sizeof(*pair->ids));
    for (uint32_t i = 0; i < BATCHES * batch_rows; i++)
        pair->ids[i] = bench_random(&random) % pair->rows;
    start_server(pair);
    if (has_peer)
        start_peer(pair);
    for (uint32_t i = 0; i < CONNECTIONS; i++)
        connect_side(pair, i);
    return pair;
}

static void clear(struct pair *pair)
{
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        embtier_disconnect(pair->sides[i].connection);
        if (pair->has_peer)
            peer_disconnect(&pair->sides[i].peer);
    }
    bench_server_done(&pair->server);
    if (pair->has_peer)
        peer_stop(&pair->peer);
    for (uint32_t b = 0; b < BATCHES; b++)
        free(pair->commands[b].bytes);
    bench_latencies_free(&pair->latencies);
    free(pair->ids);
    free(pair);
}

/* ---- Requests ---- */

static uint64_t get(void *context)
{
    struct side *const side = context;
    const struct pair *const pair = side->pair;

    memcpy(embtier_batch_ids(side->batch, 0),
           pair->ids + (uint64_t)(side->next++ % BATCHES) * pair->batch_rows,
           pair->batch_rows * sizeof(uint64_t));
    if (embtier_get(side->batch) != EMBTIER_OK)
        bench_die("%s", embtier_message(side->connection));
    return pair->batch_rows;
}

static uint64_t peer_get(void *context)
{
    struct side *const side = context;
    const struct peer_command *const command = &side->pair->commands[side->next++ % BATCHES];

    peer_send(&side->peer, command);
    peer_receive(&side->peer, command, side->buffer);
    return command->rows;
}

static double processor_s(const struct pair *pair)
{
    struct timespec own;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
    return bench_server_processor_s(&pair->server) + (double)own.tv_sec +
           (double)own.tv_nsec * 1e-9;
}

static double rate(struct pair *pair, uint64_t (*step)(void *context), struct spent *spent)
{
    const double before_s = processor_s(pair), began = bench_now();
    const double rows_a_second = bench_threads(CONNECTIONS, bench_settings.seconds, step,
                                               pair->sides, sizeof(pair->sides[0]));

    spent->rows += rows_a_second * (bench_now() - began);
    spent->seconds += processor_s(pair) - before_s;
    return rows_a_second;
}

static double our_rate(void *context)
{
    struct pair *const pair = context;

    return rate(pair, get, &pair->ours);
}

static double peer_rate(void *context)
{
    struct pair *const pair = context;

    return bench_threads(CONNECTIONS, bench_settings.seconds, peer_get, pair->sides,
                         sizeof(pair->sides[0]));
}

static void rpc_get(void)
{
    struct pair *const pair = set_up(4096, true);

    bench_compare(&(struct bench_figure){ .name = "rpc-get",
                                          .unit = "rows/s",
                                          .bar = 4,
                                          .limit = "copies into and out of the kernel",
                                          .reference_name = "Redis, MGET of 4,096 over TCP",
                                          .reference_options = pair->peer.options },
                  our_rate, peer_rate, pair, NULL);
    clear(pair);
}

/* ---- Latency ---- */

static double our_latency(void *context)
{
    struct pair *const pair = context;

    return bench_latency(&pair->latencies, 0, get, &pair->sides[0]);
}

static double peer_latency(void *context)
{
    struct pair *const pair = context;

    return bench_latency(&pair->latencies, 1, peer_get, &pair->sides[0]);
}

static void add_tails(void *context, json_t *figure)
{
    const struct pair *const pair = context;

    bench_add_tails(&pair->latencies, figure);
}

static void rpc_latency(void)
{
    struct pair *const pair = set_up(32, true);

    bench_compare(&(struct bench_figure){ .name = "rpc-latency",
                                          .unit = "us",
                                          .lower_is_better = true,
                                          .bar = 1,
                                          .limit = "system calls, and handovers between threads",
                                          .reference_name = "Redis, MGET of 32 over TCP",
                                          .reference_options = pair->peer.options },
                  our_latency, peer_latency, pair, add_tails);
    clear(pair);
}

/* ---- Plain sends and receives ---- */

struct sender {
    int listen_fd;
    uint32_t ask_bytes, answer_bytes;
    char *bytes;
};

struct answering {
    int fd;
    uint32_t got, sent; /* of the ask, of the answer */
};

static void prepare(struct io_uring *ring, const struct sender *sender, struct answering *at)
{
    struct io_uring_sqe *const sqe = io_uring_get_sqe(ring);

    if (at->got < sender->ask_bytes)
        io_uring_prep_recv(sqe, at->fd, sender->bytes, sender->ask_bytes - at->got, 0);
    else
        io_uring_prep_send(sqe, at->fd, sender->bytes + at->sent, sender->answer_bytes - at->sent,
                           MSG_NOSIGNAL);
    io_uring_sqe_set_data(sqe, at);
}

/* Answers each ask with as many bytes as a server would, until all connections are closed. */
static void *sender_main(void *context)
{
    const struct sender *const sender = context;
    struct answering all[CONNECTIONS] = { { 0 } };
    struct io_uring ring;
    uint32_t open = CONNECTIONS;

    if (io_uring_queue_init(64, &ring, 0) != 0)
        bench_die("no io_uring here");
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        all[i].fd = accept(sender->listen_fd, NULL, NULL);
        (void)setsockopt(all[i].fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
        prepare(&ring, sender, &all[i]);
    }
    while (open > 0) {
        struct io_uring_cqe *cqe;
        struct answering *at;
        int result;

        if (io_uring_submit_and_wait(&ring, 1) < 0 || io_uring_peek_cqe(&ring, &cqe) != 0)
            continue;
        at = io_uring_cqe_get_data(cqe);
        result = cqe->res;
        io_uring_cqe_seen(&ring, cqe);
        if (result <= 0) {
            close(at->fd);
            open--;
            continue;
        }
        if (at->got < sender->ask_bytes)
            at->got += (uint32_t)result;
        else
            at->sent += (uint32_t)result;
        if (at->sent == sender->answer_bytes)
            at->got = at->sent = 0;
        prepare(&ring, sender, at);
    }
    io_uring_queue_exit(&ring);
    return NULL;
}

static void move_all(int fd, char *bytes, size_t count, ssize_t (*move)(int, void *, size_t, int))
{
    while (count > 0) {
        const ssize_t moved = move(fd, bytes, count, MSG_NOSIGNAL);

        if (moved <= 0)
            bench_die("plain bytes: %s", strerror(errno));
        bytes += moved;
        count -= (size_t)moved;
    }
}

static ssize_t send_some(int fd, void *bytes, size_t count, int flags)
{
    return send(fd, bytes, count, flags);
}

static uint64_t plain_get(void *context)
{
    struct side *const side = context;
    struct pair *const pair = side->pair;
    const int fd = pair->raw[side - pair->sides];

    move_all(fd, (char *)pair->ids, pair->batch_rows * sizeof(uint64_t), send_some);
    move_all(fd, side->buffer, pair->batch_rows * ROW_BYTES, recv);
    return pair->batch_rows;
}

static double plain_rate(void *context)
{
    struct pair *const pair = context;

    return rate(pair, plain_get, &pair->plain);
}

/* Other work on the machine changes the rates more than these. */
static void add_processor_time(void *context, json_t *figure)
{
    const struct pair *const pair = context;

    json_object_set_new(figure, "ours_ns_a_row",
                        json_real(pair->ours.seconds / pair->ours.rows * 1e9));
    json_object_set_new(figure, "reference_ns_a_row",
                        json_real(pair->plain.seconds / pair->plain.rows * 1e9));
}

static void connect_plain(struct pair *pair, const struct sockaddr_in *address)
{
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        pair->raw[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        (void)setsockopt(pair->raw[i], IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
        if (connect(pair->raw[i], (const struct sockaddr *)address, sizeof(*address)) != 0)
            bench_die("plain bytes: %s", strerror(errno));
    }
}

static void rpc_limit(void)
{
    struct pair *const pair = set_up(4096, false);
    struct sender sender = { .listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
                             .ask_bytes = 4096 * sizeof(uint64_t),
                             .answer_bytes = 4096 * ROW_BYTES,
                             .bytes = bench_pages(4096 * ROW_BYTES) };
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons(bench_free_port()),
                                   .sin_addr = { htonl(INADDR_LOOPBACK) } };
    pthread_t thread;

    if (bind(sender.listen_fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(sender.listen_fd, CONNECTIONS) != 0 ||
        pthread_create(&thread, NULL, sender_main, &sender) != 0)
        bench_die("plain bytes: %s", strerror(errno));
    connect_plain(pair, &address);
    bench_compare(&(struct bench_figure){ .name = "rpc-limit",
                                          .unit = "rows/s",
                                          .bar = 0.7,
                                          .limit = "copies into and out of the kernel",
                                          .reference_name = "the same bytes, sent on io_uring",
                                          .reference_options = "one thread sends, 4 receive" },
                  our_rate, plain_rate, pair, add_processor_time);
    for (uint32_t i = 0; i < CONNECTIONS; i++)
        close(pair->raw[i]);
    pthread_join(thread, NULL);
    close(sender.listen_fd);
    clear(pair);
}

int main(int argc, char **argv)
{
    const struct bench_entry entries[] = {
        { "rpc-get", rpc_get },
        { "rpc-limit", rpc_limit },
        { "rpc-latency", rpc_latency },
    };

    return bench_main(argc, argv, entries, ARRAY_LEN(entries));
}
